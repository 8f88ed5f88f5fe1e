"""What the client gives to a program that reads or holds leases, as values.

Times are hub time in nanoseconds since 1970, None where there is none. A nonce is in a credential only,
and never in what is printed of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from runtime_agent.core.lease import AbortReason, LossReason


class LeaseState(Enum):
    """Where a tenure stood when it was read. UNKNOWN is a state that this version does not know."""

    LIVE = "LIVE"
    UNCLAIMED = "UNCLAIMED"
    EXPIRED = "EXPIRED"
    RELEASED = "RELEASED"
    FENCED = "FENCED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One holder's time with a resource, as the hub told it. ``abort_reason`` is set where it is to stop."""

    resource: str
    runtime_id: str
    holder_id: str
    holder_display_name: str
    fencing_token: int
    epoch: int
    ttl_seconds: float
    acquire_time_nanos: int | None
    renew_time_nanos: int | None
    expire_time_nanos: int | None
    labels: Mapping[str, str]
    abort_reason: AbortReason | None
    state: LeaseState
    is_maintenance: bool


@dataclass(frozen=True, slots=True)
class LeaseCredential:
    """Proves a tenure to the hub. Whoever has it can renew and end the tenure: keep it out of logs."""

    resource: str
    runtime_id: str
    holder_id: str
    fencing_token: int
    nonce: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenedTenure:
    """A tenure that was opened, with its credential; all moments are the hub's."""

    credential: LeaseCredential
    epoch: int
    ttl_seconds: float
    waited_seconds: float
    is_replayed: bool
    abort_reason: AbortReason | None


@dataclass(frozen=True, slots=True)
class RenewedTenure:
    """What a renewal was answered."""

    ttl_seconds: float
    abort_reason: AbortReason | None


@dataclass(frozen=True, slots=True)
class LeaseCheck:
    """Whether a token is current, for display and early refusal only; ``loss`` says why it is not.

    What protects is the token in the protected write: between a check and a write a lease may be lost.
    """

    is_current: bool
    loss: LossReason | None
    expire_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class WaiterView:
    """Somebody who waits for a resource."""

    runtime_id: str
    holder_id: str
    holder_display_name: str
    wait_begin_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class ResourceState:
    """Everything that is known of a resource: the last token and epoch given, who has it, who waits."""

    fencing_token: int
    epoch: int
    lease: LeaseView | None
    maintenance: LeaseView | None
    waiters: tuple[WaiterView, ...]
    waiter_count: int


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """A maintenance after it was renewed."""

    epoch: int
    ttl_seconds: float
    expire_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class LeaseUpdate:
    """Leases of a watch, each in its newest state; the snapshot ends with the first complete one."""

    leases: tuple[LeaseView, ...]
    is_snapshot_complete: bool


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """Who wants which resource, for how long; the hub brings the TTL within its bounds."""

    resource: str
    runtime_id: str
    holder_id: str
    holder_display_name: str
    ttl_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)
