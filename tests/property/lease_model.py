"""The rules of leases in their shortest form, written from their text and not from the hub's code.

A model of one hub project: it is told each call with its moment of hub time and says what must come of
it, as a tenure or as the reason of a refusal. Time is told by ``advance``, which also notes expiries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

NUMBER_MAX: Final = 2**63 - 1
NONCES_REMEMBERED: Final = 8


class Refused(Exception):
    """A call is refused; ``reason`` as on the wire, ``held_until`` where it names an expire time."""

    def __init__(self, reason: str, holder: str = "", held_until: int | None = None) -> None:
        super().__init__(reason)
        self.told = (reason, holder, held_until)


@dataclass(frozen=True)
class ModelTenure:
    """What is promised of a lease or a maintenance."""

    holder: str
    nonce: str | None
    token: int
    epoch: int
    ttl: int
    acquired: int
    renewed: int
    expires: int
    labels: Mapping[str, str] = field(default_factory=dict)
    abort: str = ""
    state: str = "LIVE"
    ended: int | None = None
    is_maintenance: bool = False


@dataclass(frozen=True)
class ModelCredential:
    resource: str
    holder: str
    token: int
    nonce: str


@dataclass(frozen=True)
class ModelClaim:
    holder: str
    nonce: str
    ttl: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class ModelWaiter:
    claim: ModelClaim
    began: int
    ends: int


class ModelResource:
    """A resource: what was given last, who has it, who waits for it."""

    def __init__(self, floor_token: int, floor_epoch: int) -> None:
        self.token = floor_token
        self.epoch = floor_epoch
        self.fence = 0
        self.ended_nonces: list[str] = []
        self.lease: ModelTenure | None = None
        self.maintenance: ModelTenure | None = None
        self.waiters: list[ModelWaiter] = []

    @property
    def last(self) -> ModelTenure | None:
        both = [tenure for tenure in (self.lease, self.maintenance) if tenure is not None]
        return max(both, key=lambda tenure: tenure.token, default=None)

    @property
    def live(self) -> ModelTenure | None:
        return self.last if self.last is not None and self.last.state == "LIVE" else None

    def keep(self, tenure: ModelTenure) -> ModelTenure:
        if tenure.is_maintenance:
            self.maintenance = tenure
        else:
            self.lease = tenure
        return tenure

    def end(self, tenure: ModelTenure, state: str, ended: int) -> None:
        """End a tenure; its nonce is an ended one from then on."""
        if tenure.state == "LIVE" and tenure.nonce is not None:
            self.ended_nonces.append(tenure.nonce)
        self.keep(replace(tenure, state=state, ended=min(ended, tenure.expires)))


class LeaseModel:
    """All resources of a hub project, and its floors."""

    def __init__(self, floor: int = 0) -> None:
        self.floor_token = floor
        self.floor_epoch = floor
        self.resources: dict[str, ModelResource] = {}

    def resource(self, name: str) -> ModelResource:
        """A resource; one without a row reads as the floor."""
        return self.resources.get(name) or ModelResource(self.floor_token, self.floor_epoch)

    def is_live(self, shown: ModelCredential) -> bool:
        live = self.resource(shown.resource).live
        return live is not None and live.token == shown.token

    def is_maintained(self, name: str) -> bool:
        live = self.resource(name).live
        return live is not None and live.is_maintenance

    # --- calls ---

    def acquire(self, name: str, claim: ModelClaim, now: int, *, wait: int = 0) -> ModelTenure | None:
        """The tenure; None where the call waits."""
        resource = self.resource(name)
        try:
            tenure = self._acquire(resource, claim, now, is_first_in_turn=not resource.waiters)
        except Refused as refused:
            if wait and (refused.told[0] == "LEASE_HELD" or _waits_already(resource, claim, refused)):
                self._wait(resource, ModelWaiter(claim, now, now + wait))
                return None
            raise
        self.resources[name] = resource
        return tenure

    def takeover(self, name: str, claim: ModelClaim, now: int) -> ModelTenure:
        resource = self.resource(name)
        self._refuse_maintained(resource)
        last = resource.last
        if last is None or last.is_maintenance or last.state not in ("LIVE", "EXPIRED"):
            raise Refused("LEASE_MISSING")
        self._refuse_ended_nonce(resource, claim.nonce)
        if last.state == "LIVE":
            raise Refused("LEASE_HELD", last.holder, last.expires)
        return self._open(resource, claim, now)

    def renew(self, shown: ModelCredential, now: int, ttl: int | None) -> ModelTenure:
        resource, tenure = self._lease_of(shown)
        if tenure.state == "EXPIRED":
            raise Refused("LEASE_EXPIRED", held_until=tenure.expires)
        ttl = ttl or tenure.ttl
        return resource.keep(replace(tenure, ttl=ttl, renewed=now, expires=now + ttl))

    def release(self, shown: ModelCredential, now: int) -> None:
        resource, tenure = self._lease_of(shown)
        resource.end(tenure, "RELEASED", now)

    def transfer(self, shown: ModelCredential, now: int, to: str, ttl: int | None) -> ModelTenure:
        resource = self.resource(shown.resource)
        if shown.token >= resource.fence:
            self._refuse_maintained(resource)
        resource, tenure = self._lease_of(shown)
        if tenure.state == "EXPIRED":
            raise Refused("LEASE_EXPIRED", held_until=tenure.expires)
        opened = self._open(resource, ModelClaim(to, "", ttl or tenure.ttl), now)
        return resource.keep(replace(opened, nonce=None))

    def abort(self, name: str, token: int | None, reason: str) -> ModelTenure:
        resource = self.resource(name)
        last = resource.last
        if token is not None and token < resource.fence:
            raise Refused("LEASE_FENCED")
        self._refuse_maintained(resource)
        if last is None or (last.is_maintenance and token in (None, last.token)) or _is_over(last):
            raise Refused("LEASE_MISSING")
        if token not in (None, last.token):
            raise Refused("LEASE_SUPERSEDED")
        if last.state == "EXPIRED":
            raise Refused("LEASE_EXPIRED", held_until=last.expires)
        return resource.keep(
            replace(last, abort="EXTERNAL" if "EXTERNAL" in (reason, last.abort) else reason)
        )

    def check(self, shown: ModelCredential, *, with_nonce: bool) -> ModelTenure:
        resource = self.resource(shown.resource)
        last = self._tenure_of_token(resource, shown.token)
        if last.nonce is None or (with_nonce and last.nonce != shown.nonce):
            raise Refused("LEASE_SUPERSEDED")
        if last.state == "EXPIRED":
            raise Refused("LEASE_EXPIRED", held_until=last.expires)
        return last

    def begin(self, name: str, claim: ModelClaim, now: int) -> ModelTenure:
        resource = self.resource(name)
        live = resource.live
        if live is not None and live.is_maintenance:
            if (live.holder, live.nonce) == (claim.holder, claim.nonce):
                return resource.keep(replace(live, ttl=claim.ttl, renewed=now, expires=now + claim.ttl))
            self._refuse_maintained(resource)
        self._refuse_ended_nonce(resource, claim.nonce)
        if live is not None and live.nonce == claim.nonce:
            raise Refused("LEASE_SUPERSEDED")
        resource_epoch = max(resource.epoch, self.floor_epoch) + 1
        token = self._next_token(resource)
        if resource_epoch > NUMBER_MAX:
            raise Refused("LIMIT_REACHED")
        lease = resource.lease
        if lease is not None and lease.state in ("LIVE", "EXPIRED"):
            resource.end(lease, "FENCED", now)
        resource.token, resource.epoch, resource.fence = token, resource_epoch, token
        self.resources[name] = resource
        return resource.keep(_begun(claim, now, token=token, epoch=resource_epoch, is_maintenance=True))

    def renew_maintenance(self, shown: ModelCredential, now: int, ttl: int | None) -> ModelTenure:
        resource, tenure = self._maintenance_of(shown)
        if tenure.state == "EXPIRED":
            raise Refused("LEASE_EXPIRED", held_until=tenure.expires)
        ttl = ttl or tenure.ttl
        return resource.keep(replace(tenure, ttl=ttl, renewed=now, expires=now + ttl))

    def finish(self, shown: ModelCredential, now: int, *, delete_state: bool) -> None:
        resource, tenure = self._maintenance_of(shown)
        resource.end(tenure, "RELEASED", now)
        if delete_state and resource.lease is not None:
            resource.lease = replace(resource.lease, labels={}, abort="")

    # --- time ---

    def advance(self, now: int) -> None:
        """Note what has expired; it stays so, whatever the clock says later."""
        for resource in self.resources.values():
            for tenure in (resource.lease, resource.maintenance):
                if tenure is not None and tenure.state == "LIVE" and now >= tenure.expires:
                    resource.end(tenure, "EXPIRED", tenure.expires)

    def purge(self, ended_before: int) -> int:
        """Drop what ended longer ago, floors first; return how many resources that were."""
        before = len(self.resources)
        for name, resource in list(self.resources.items()):
            both = [tenure for tenure in (resource.lease, resource.maintenance) if tenure is not None]
            if all(tenure.ended is not None and tenure.ended < ended_before for tenure in both):
                self.floor_token = max(self.floor_token, resource.token)
                self.floor_epoch = max(self.floor_epoch, resource.epoch)
                del self.resources[name]
        return before - len(self.resources)

    # --- who waits ---

    def grant_in_turn(self, now: int) -> Iterable[tuple[ModelWaiter, ModelTenure | Refused]]:
        """Give what is free to who comes first, until nothing is free for anybody who waits."""
        for resource in self.resources.values():
            while (waiter := _next_in_turn(resource)) is not None:
                resource.waiters.remove(waiter)
                try:
                    yield waiter, self._acquire(resource, waiter.claim, now, is_first_in_turn=True)
                except Refused as refused:
                    yield waiter, refused

    def end_waits(self, now: int) -> Iterable[tuple[ModelWaiter, Refused]]:
        """Refuse whose time is over, with what is in the way."""
        for resource in self.resources.values():
            for waiter in [waiter for waiter in resource.waiters if now >= waiter.ends]:
                resource.waiters.remove(waiter)
                live = resource.live
                assert live is not None, "somebody waits for what is free"
                reason = "RESOURCE_UNDER_MAINTENANCE" if live.is_maintenance else "LEASE_HELD"
                yield waiter, Refused(reason, live.holder, live.expires)

    # --- within ---

    def _wait(self, resource: ModelResource, waiter: ModelWaiter) -> None:
        """Queue at the end, or at the place of an earlier call of the same holder and nonce."""
        for place, earlier in enumerate(resource.waiters):
            if (earlier.claim.holder, earlier.claim.nonce) == (waiter.claim.holder, waiter.claim.nonce):
                resource.waiters[place] = waiter
                return
        resource.waiters.append(waiter)

    def _acquire(
        self, resource: ModelResource, claim: ModelClaim, now: int, *, is_first_in_turn: bool
    ) -> ModelTenure:
        self._refuse_maintained(resource)
        self._refuse_ended_nonce(resource, claim.nonce)
        live = resource.live
        if live is None:
            if not is_first_in_turn:
                raise Refused("LEASE_HELD")
            return self._open(resource, claim, now)
        if live.holder != claim.holder:
            raise Refused("LEASE_HELD", live.holder, live.expires)
        if live.nonce not in (None, claim.nonce):
            return self._open(resource, claim, now)
        renewed = replace(
            live,
            nonce=claim.nonce,
            labels=claim.labels,
            ttl=claim.ttl,
            renewed=now,
            expires=now + claim.ttl,
        )
        return resource.keep(renewed)

    def _open(self, resource: ModelResource, claim: ModelClaim, now: int) -> ModelTenure:
        token = self._next_token(resource)
        if resource.live is not None:
            # Its state is of no interest: the next tenure takes its place.
            resource.end(resource.live, "RELEASED", now)
        resource.token = token
        return resource.keep(_begun(claim, now, token=token, epoch=resource.epoch, is_maintenance=False))

    def _next_token(self, resource: ModelResource) -> int:
        token = max(resource.token, self.floor_token) + 1
        if token > NUMBER_MAX:
            raise Refused("LIMIT_REACHED")
        return token

    def _refuse_maintained(self, resource: ModelResource) -> None:
        live = resource.live
        if live is not None and live.is_maintenance:
            raise Refused("RESOURCE_UNDER_MAINTENANCE", live.holder, live.expires)

    def _refuse_ended_nonce(self, resource: ModelResource, nonce: str) -> None:
        if nonce in resource.ended_nonces[-NONCES_REMEMBERED:]:
            raise Refused("LEASE_SUPERSEDED")

    def _tenure_of_token(self, resource: ModelResource, token: int) -> ModelTenure:
        if token < resource.fence:
            raise Refused("LEASE_FENCED")
        last = resource.last
        if last is None or _is_over(last):
            raise Refused("LEASE_MISSING")
        if last.token != token:
            raise Refused("LEASE_SUPERSEDED")
        return last

    def _proven(self, shown: ModelCredential) -> tuple[ModelResource, ModelTenure]:
        resource = self.resource(shown.resource)
        tenure = self._tenure_of_token(resource, shown.token)
        if (tenure.holder, tenure.nonce) != (shown.holder, shown.nonce):
            raise Refused("LEASE_SUPERSEDED")
        return resource, tenure

    def _lease_of(self, shown: ModelCredential) -> tuple[ModelResource, ModelTenure]:
        resource, tenure = self._proven(shown)
        if tenure.is_maintenance:
            self._refuse_maintained(resource)
            raise Refused("LEASE_MISSING")
        return resource, tenure

    def _maintenance_of(self, shown: ModelCredential) -> tuple[ModelResource, ModelTenure]:
        resource, tenure = self._proven(shown)
        if not tenure.is_maintenance:
            raise Refused("LEASE_MISSING")
        return resource, tenure


def _waits_already(resource: ModelResource, claim: ModelClaim, refused: Refused) -> bool:
    """Whether a call that maintenance is in the way of has a place in the queue from before."""
    return refused.told[0] == "RESOURCE_UNDER_MAINTENANCE" and any(
        (waiter.claim.holder, waiter.claim.nonce) == (claim.holder, claim.nonce)
        for waiter in resource.waiters
    )


def _begun(claim: ModelClaim, now: int, *, token: int, epoch: int, is_maintenance: bool) -> ModelTenure:
    return ModelTenure(
        holder=claim.holder,
        nonce=claim.nonce,
        token=token,
        epoch=epoch,
        ttl=claim.ttl,
        acquired=now,
        renewed=now,
        expires=now + claim.ttl,
        labels=claim.labels,
        is_maintenance=is_maintenance,
    )


def _is_over(tenure: ModelTenure) -> bool:
    return tenure.state in ("RELEASED", "FENCED")


def _next_in_turn(resource: ModelResource) -> ModelWaiter | None:
    """Whom the resource is for: the first where it is free, else who waits for what is already his."""
    live = resource.live
    if live is None:
        return resource.waiters[0] if resource.waiters else None
    if live.is_maintenance:
        return None
    return next((waiter for waiter in resource.waiters if waiter.claim.holder == live.holder), None)
