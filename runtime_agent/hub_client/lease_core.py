"""Leases without a way of waiting: what to send to get, keep and give back a tenure, as steps.

``lease.py`` and ``async_lease.py`` do the steps, each in its way. What opens a tenure (an acquire, a
takeover, a maintenance that begins) is one procedure with a different call in it:

- a lost answer is asked for again with the same nonce, so that the same tenure comes back;
- a grant whose time is nearly over when it arrives is given back, and another asked for;
- every tenure has a nonce of its own.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never
from uuid import uuid4

import grpc
from google.protobuf.message import Message

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.core.errors import RuntimeAgentError, UsageError
from runtime_agent.core.lease import (
    AbortReason,
    Grant,
    LossReason,
    OpeningAction,
    OpeningTries,
    OpeningTry,
    RenewalTiming,
    decide_opening_refusal,
    loss_of,
)
from runtime_agent.core.lease_errors import LeaseGrantLate, LeaseLost, LeaseNotHeld
from runtime_agent.hub_client import lease_codec as codec
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import Call, ClientClosed, LeaseChannel, unary
from runtime_agent.hub_client.lease_keeper import Keeper, LeaseSurroundings
from runtime_agent.hub_client.lease_steps import Pause, Steps, ask, asked_wait_seconds, repeat
from runtime_agent.hub_client.lease_values import (
    LeaseCredential,
    LeaseState,
    LeaseView,
    LeaseWish,
    OpenedTenure,
    RenewedTenure,
)
from synchub.channel import UNARY_SECONDS_MAX, Refusal
from synchub.v1 import hub_service_pb2
from synchub.v1 import lease_service_pb2 as pb

_SKEWED_ENGINE: Final = "postgresql"


@dataclass(frozen=True, slots=True)
class LeasePlace:
    """Where leases are asked for, and what their keeping is given."""

    channel: LeaseChannel
    hub_project: str
    surroundings: LeaseSurroundings


@dataclass(slots=True)
class Asking:
    """What stays the same while one tenure is asked for, however often it is sent."""

    backoff: Backoff
    first_sent_at: float
    nonce: str = field(default_factory=codec.new_nonce, repr=False)
    request_id: str = field(default_factory=lambda: uuid4().hex)


class TenureKind(Protocol):
    """What tells a lease from a maintenance on the wire."""

    def open_call(self, asking: "Asking", this: OpeningTry) -> Call:
        """Return the call that opens a tenure, or finds the one that it opened with this nonce."""
        ...

    def read_opened(self, answer: Message) -> OpenedTenure:
        """Return what it answered."""
        ...

    def renew_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        """Return the call that renews it."""
        ...

    def read_renewed(self, answer: Message) -> RenewedTenure:
        """Return what it answered."""
        ...

    def end_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        """Return the call that gives it back."""
        ...


class TenureCore:
    """One resource in the hands of one holder, one tenure after the other.

    ``on_lost`` is called once for each tenure that is lost, from the thread that renews it.
    """

    def __init__(
        self,
        place: LeasePlace,
        wish: LeaseWish,
        *,
        wait_seconds: float = 0.0,
        margin_seconds: float = limits.LEASE_MARGIN_SECONDS,
        beat_seconds: float | None = None,
    ) -> None:
        self.place = place
        self.wish = wish
        self.wait_seconds = wait_seconds
        self.on_lost: Callable[[LeaseLost], None] | None = None
        self._margin_seconds = margin_seconds
        self._beat_seconds = beat_seconds
        self._clock = place.surroundings.clock
        self._lock = threading.Lock()
        self._is_opening = False
        self._keeper: Keeper | None = None

    # --- local ---

    @property
    def channel(self) -> LeaseChannel:
        """What its steps are sent on."""
        return self.place.channel

    @property
    def resource(self) -> str:
        """The resource."""
        return self.wish.resource

    @property
    def keeper(self) -> Keeper:
        """What keeps the tenure acquired last, held or not. Raises: LeaseNotHeld where there was none."""
        keeper = self._keeper
        if keeper is None:
            raise LeaseNotHeld(self.resource)
        return keeper

    @property
    def credential(self) -> LeaseCredential:
        """What proves the tenure acquired last."""
        return self.keeper.opened.credential

    @property
    def fencing_token(self) -> int:
        """The token of the tenure acquired last."""
        return self.credential.fencing_token

    @property
    def epoch(self) -> int:
        """The resource's epoch when that tenure began."""
        return self.keeper.opened.epoch

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why its holder is asked to stop."""
        return None if self._keeper is None else self._keeper.abort_reason

    @property
    def loss(self) -> LeaseLost | None:
        """How it was lost."""
        return None if self._keeper is None else self._keeper.loss

    @property
    def seconds_left(self) -> float:
        """How long it may be acted on at least, as far as this side can know; 0 where it is not held."""
        return 0.0 if self._keeper is None else self._keeper.seconds_left

    def check(self) -> None:
        """Return where it is held. Raises: LeaseLost, LeaseNotHeld."""
        self.keeper.check()

    # --- steps ---

    def open(self, kind: TenureKind, *, wait_seconds: float) -> Steps[None]:
        """Open a tenure and begin to keep it.

        Raises: LeaseHeld, ResourceUnderMaintenance, LeaseGrantLate, LeaseLost where another self of this
        holder took it at once, UsageError where one is held already, HubCallError.
        """
        with self._lock:
            if self._is_opening or self.seconds_left > 0:
                raise UsageError(f"the lease of resource {self.resource!r} is held already; release it first")
            self._is_opening = True
        try:
            tries = OpeningTries(self._clock(), wait_seconds, answer_seconds=UNARY_SECONDS_MAX)
            margin_seconds = self._margin_seconds + (yield from self._skew(tries))
            opened, grant = yield from self._opened(kind, tries, margin_seconds=margin_seconds)
            self._keep(kind, opened, grant=grant, margin_seconds=margin_seconds)
        finally:
            self._is_opening = False

    def end(self, kind: TenureKind, *, seconds_max: float) -> Steps[None]:
        """Renew no more, and tell the hub; a tenure that is lost, or was given back, is left alone.

        Raises: HubCallError where the hub cannot be told; then it expires by itself.
        """
        keeper = self._keeper
        if keeper is None or not keeper.end():
            return
        credential = keeper.opened.credential

        def call(timeout_seconds: float) -> Call:
            return kind.end_call(credential, timeout_seconds=timeout_seconds)

        try:
            yield from self.repeat(call, seconds_max=seconds_max)
        except HubCallError as error:
            # Refused as lost: it is not ours any more, which is all that was wanted.
            if loss_of(error.reason) is None:
                raise

    def end_unheeded(self, kind: TenureKind) -> None:
        """Renew no more, and tell the hub without waiting for it."""
        keeper = self._keeper
        if keeper is not None and keeper.end():
            self.channel.send_unheeded(
                kind.end_call(keeper.opened.credential, timeout_seconds=limits.LEASE_LEAVE_SECONDS_MAX)
            )

    def repeat(self, call: Callable[[float], Call], *, seconds_max: float) -> Steps[Message]:
        """Send a repeatable call until it is answered; ``call`` is given how long it may take.

        Raises: HubCallError, the last one.
        """
        return repeat(call, seconds_max=seconds_max, backoff=self._backoff(), clock=self._clock)

    # --- inside ---

    def _backoff(self) -> Backoff:
        return Backoff(
            limits.LEASE_RETRY_SECONDS_FIRST,
            limits.LEASE_RETRY_SECONDS_MAX,
            self.place.surroundings.chance,
        )

    def _skew(self, tries: OpeningTries) -> Steps[float]:
        """Return what the margin needs besides for the hub's engine; asked once a client."""
        known = self.channel.engine
        if known is None:
            left = tries.next_try(now=self._clock())
            assert left is not None
            answer = yield from self.repeat(_ask_for_info, seconds_max=left.timeout_seconds)
            assert isinstance(answer, hub_service_pb2.GetHubInfoResponse)
            known = self.channel.engine = answer.engine
        return limits.LEASE_DATABASE_SKEW_SECONDS if known == _SKEWED_ENGINE else 0.0

    def _opened(
        self, kind: TenureKind, tries: OpeningTries, *, margin_seconds: float
    ) -> Steps[tuple[OpenedTenure, Grant]]:
        asking, late_count = Asking(self._backoff(), self._clock()), 0
        failure: RuntimeAgentError = HubCallError(Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "too late"))
        while True:
            sent_at = self._clock()
            this = tries.next_try(now=sent_at)
            if this is None:
                raise failure
            try:
                answer = yield kind.open_call(asking, this)
            except HubCallError as error:
                failure = codec.lease_refusal(error, self.resource)
                asking = yield from self._after_refusal(error, asking)
                continue
            assert answer is not None
            opened = kind.read_opened(answer)
            grant = Grant(
                first_sent_at=asking.first_sent_at,
                sent_at=sent_at,
                ttl_seconds=opened.ttl_seconds,
                waited_seconds=opened.waited_seconds,
                is_replayed=opened.is_replayed,
            )
            if grant.is_useful(margin_seconds, now=self._clock()):
                return opened, grant
            late_count += 1
            failure = LeaseGrantLate(self.resource, late_count)
            yield from self._give_back(kind, opened)
            if grant.ttl_seconds <= margin_seconds:
                raise UsageError(f"a TTL of {grant.ttl_seconds:g} s leaves nothing after the margin")
            asking = Asking(self._backoff(), self._clock())

    def _after_refusal(self, error: HubCallError, asking: Asking) -> Steps[Asking]:
        """Wait as long as is due and return how to ask again; raises where that makes no sense."""
        if isinstance(error, ClientClosed):
            raise error
        match decide_opening_refusal(error.reason, error.refusal.code.name):
            case OpeningAction.REPEAT:
                yield Pause(max(asking.backoff.next_wait_seconds(), asked_wait_seconds(error)))
                return asking
            case OpeningAction.LOOK:
                yield from self._look_for_another_self(error)
                yield Pause(asking.backoff.next_wait_seconds())
                return Asking(asking.backoff, self._clock())
            case OpeningAction.GIVE_UP:
                raise codec.lease_refusal(error, self.resource) from error
            case unreachable:
                assert_never(unreachable)

    def _look_for_another_self(self, refused: HubCallError) -> Steps[None]:
        """Return where the unheard tenure just expired; a newer self of this holder is left alone.

        Taking it away with another nonce would let two copies of a program fight for ever.
        """
        request = pb.GetResourceStateRequest(hub_project=self.place.hub_project, resource=self.resource)
        call = unary(lambda on: on.leases.GetResourceState, request, timeout_seconds=UNARY_SECONDS_MAX)
        try:
            answer = yield from ask(call, pb.GetResourceStateResponse)
        except HubCallError:
            return  # the next try is refused too, or not
        state = codec.resource_state_from_proto(answer)
        for tenure in (state.lease, state.maintenance):
            if tenure is not None and tenure.state is LeaseState.LIVE and self._is_mine(tenure):
                raise LeaseLost(self.resource, 0, reason=LossReason.SUPERSEDED) from refused

    def _is_mine(self, lease: LeaseView) -> bool:
        return (lease.runtime_id, lease.holder_id) == (self.wish.runtime_id, self.wish.holder_id)

    def _give_back(self, kind: TenureKind, opened: OpenedTenure) -> Steps[None]:
        try:
            yield kind.end_call(opened.credential, timeout_seconds=limits.LEASE_LEAVE_SECONDS_MAX)
        except HubCallError:
            pass  # then it expires, or has expired

    def _keep(self, kind: TenureKind, opened: OpenedTenure, *, grant: Grant, margin_seconds: float) -> None:
        channel, credential = self.channel, opened.credential

        def renew(timeout_seconds: float) -> RenewedTenure:
            return kind.read_renewed(
                channel.call(kind.renew_call(credential, timeout_seconds=timeout_seconds))
            )

        keeper = Keeper(
            opened,
            grant,
            timing=RenewalTiming(
                margin_seconds=margin_seconds,
                beat_seconds=self._beat_seconds,
                retry_seconds_first=limits.LEASE_RETRY_SECONDS_FIRST,
                retry_seconds_max=limits.LEASE_RETRY_SECONDS_MAX,
            ),
            renew=renew,
            on_lost=self._tell_lost,
            surroundings=self.place.surroundings,
        )
        keeper.start()
        self._keeper = keeper

    def _tell_lost(self, lost: LeaseLost) -> None:
        if self.on_lost is not None:
            self.on_lost(lost)


def _ask_for_info(timeout_seconds: float) -> Call:
    request = hub_service_pb2.GetHubInfoRequest()
    return unary(lambda on: on.hub.GetHubInfo, request, timeout_seconds=timeout_seconds)
