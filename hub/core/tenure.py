"""Who holds a resource: tenures, claims and credentials as values.

A lease and a maintenance are both a tenure of the resource; the last of each kind is kept, and whichever
has the larger token is the current one. What a call does to them is decided in ``core.lease`` and
``core.maintenance``.

Moments are hub time in Unix nanoseconds; a tenure is live while now < its expire time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from hub.core.values import HolderId, ResourceName, RuntimeId


class AbortReason(StrEnum):
    """Why a holder is asked to stop; EXTERNAL is never overwritten by INTERNAL."""

    INTERNAL = "INTERNAL"
    EXTERNAL = "EXTERNAL"


class TenureState(StrEnum):
    """Where a tenure stands at a moment; the last three are for good."""

    LIVE = "LIVE"
    UNCLAIMED = "UNCLAIMED"
    """Transferred, and its new holder has not acquired it yet: nothing is current meanwhile."""
    EXPIRED = "EXPIRED"
    RELEASED = "RELEASED"
    FENCED = "FENCED"
    """A maintenance ended it."""


class TenureEnd(NamedTuple):
    """How a tenure ended, and when."""

    state: TenureState
    end_nanos: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds: two are the same where runtime and holder id are."""

    runtime_id: RuntimeId
    holder_id: HolderId
    display_name: str = ""

    @property
    def name(self) -> str:
        """The name for people."""
        return self.display_name or self.holder_id

    def is_same(self, other: "Holder") -> bool:
        """Whether both are one holder."""
        return (self.runtime_id, self.holder_id) == (other.runtime_id, other.holder_id)


@dataclass(frozen=True, slots=True)
class Tenure:
    """One holder's time with a resource.

    ``nonce_hash`` is None while a transferred lease is unclaimed; ``end`` is None until an end was
    noted, so an expired tenure may still have none: ask ``state``.
    """

    resource: ResourceName
    holder: Holder
    fencing_token: int
    epoch: int
    ttl_nanos: int
    acquire_nanos: int
    renew_nanos: int
    expire_nanos: int
    nonce_hash: bytes | None
    labels: Mapping[str, str] = field(default_factory=dict)
    abort_reason: AbortReason | None = None
    is_maintenance: bool = False
    end: TenureEnd | None = None

    def is_live(self, now_nanos: int) -> bool:
        """Whether it has neither ended nor expired."""
        return self.end is None and now_nanos < self.expire_nanos

    def state(self, now_nanos: int) -> TenureState:
        """Return where it stands."""
        if self.end is not None:
            return self.end.state
        if now_nanos >= self.expire_nanos:
            return TenureState.EXPIRED
        return TenureState.UNCLAIMED if self.nonce_hash is None else TenureState.LIVE

    def renewed(self, now_nanos: int, *, ttl_nanos: int | None) -> "Tenure":
        """Return it with a deadline from now on, also when that is earlier; None keeps the TTL."""
        ttl_nanos = self.ttl_nanos if ttl_nanos is None else ttl_nanos
        return replace(self, ttl_nanos=ttl_nanos, renew_nanos=now_nanos, expire_nanos=now_nanos + ttl_nanos)


@dataclass(frozen=True, slots=True)
class Floor:
    """Below this no token or epoch of a hub project is given any more, whatever rows are gone."""

    fencing_token: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """What decides about the next call on a resource.

    ``fencing_token`` and ``epoch`` are the last ones given, ``maintenance_token`` is that of the last
    maintenance, 0 where there was none. ``past_nonce_hashes`` are of ended tenures, oldest first.
    """

    name: ResourceName
    floor: Floor
    fencing_token: int
    epoch: int
    maintenance_token: int = 0
    past_nonce_hashes: tuple[bytes, ...] = ()
    lease: Tenure | None = None
    maintenance: Tenure | None = None

    @property
    def current(self) -> Tenure | None:
        """The tenure with the larger token, lease or maintenance."""
        if self.lease is None or self.maintenance is None:
            return self.lease or self.maintenance
        return max(self.lease, self.maintenance, key=lambda tenure: tenure.fencing_token)


def unused_resource(name: ResourceName, floor: Floor) -> Resource:
    """Return a resource of which nothing is stored: it reads as the floor."""
    return Resource(name, floor, floor.fencing_token, floor.epoch)


@dataclass(frozen=True, slots=True)
class Credential:
    """What proves a tenure, the nonce only as its hash."""

    resource: ResourceName
    runtime_id: RuntimeId
    holder_id: HolderId
    fencing_token: int
    nonce_hash: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants a tenure, under which nonce, for how long."""

    holder: Holder
    nonce_hash: bytes
    ttl_nanos: int
    labels: Mapping[str, str] = field(default_factory=dict)


class Granted(NamedTuple):
    """A resource with the tenure that was granted; ``is_renewed`` where it was the caller's before."""

    resource: Resource
    tenure: Tenure
    is_renewed: bool


def hash_of_nonce(nonce: str) -> bytes:
    """Return what the hub keeps of a nonce."""
    return sha256(nonce.encode()).digest()


def with_tenure(resource: Resource, tenure: Tenure) -> Resource:
    """Return the resource with a tenure of its in a new state."""
    if tenure.is_maintenance:
        return replace(resource, maintenance=tenure)
    return replace(resource, lease=tenure)
