"""What a program that wants or holds a lease is told, as one branch of the tree in ``errors.py``.

::

    LeaseError
    ├── LeaseHeld                 another holds the resource, or others wait for it
    ├── ResourceUnderMaintenance  it is out of use
    ├── LeaseLost                 the tenure is over, though its holder did not end it
    ├── LeaseNotHeld              it was not acquired, or was given back
    ├── LeaseGrantLate            what was granted came too late, again and again; it was given back
    ├── QueryHasTopic             a query holds another topic already
    └── OwnerHasRole              an owner has another role already

Other refusals of a lease call (INVALID_REQUEST, no hub in sight …) are ``HubCallError``. None of these
ever holds a nonce.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.lease import LossReason

_NANOS_PER_SECOND: Final = 1_000_000_000

_LOSS_PHRASES: Final = {
    LossReason.FENCED: "a maintenance came after it",
    LossReason.MISSING: "it was released, or purged",
    LossReason.SUPERSEDED: "a newer tenure replaced it",
    LossReason.EXPIRED: "it expired",
    LossReason.DEADLINE: "no renewal was answered in time",
    LossReason.CLIENT_CLOSED: "the client was closed",
}


@dataclass(eq=False)
class LeaseError(RuntimeAgentError):
    """A lease cannot be had, or is not there any more; ``resource`` names what it is about."""

    resource: str


@dataclass(eq=False)
class LeaseHeld(LeaseError):
    """Another holds the resource.

    The name is "" and the time (hub time, Unix nanoseconds) None where it is free, but others wait.
    """

    holder_display_name: str
    expire_time_nanos: int | None

    @property
    def sentence(self) -> str:
        if self.expire_time_nanos is None:
            return f"others wait for resource {self.resource!r}"
        until = _moment(self.expire_time_nanos)
        return f"resource {self.resource!r} is held by {self.holder_display_name!r} until {until}, or longer"

    @property
    def hint(self) -> str:
        return "wait for it with wait_seconds, or ask its holder to stop with abort_lease"


@dataclass(eq=False)
class ResourceUnderMaintenance(LeaseError):
    """The resource is out of use, for its last holder too; the time is hub time, Unix nanoseconds."""

    holder_display_name: str
    expire_time_nanos: int | None

    @property
    def sentence(self) -> str:
        return f"resource {self.resource!r} is under maintenance by {self.holder_display_name!r}"


@dataclass(eq=False)
class LeaseLost(LeaseError):
    """The tenure is over: stop acting on the resource. Acquiring anew gives a new token.

    ``fencing_token`` is the lost one, 0 where it was never told; ``cause`` is the last failure of a
    renewal, "" where there was none.
    """

    fencing_token: int
    reason: LossReason
    cause: str = ""

    @property
    def sentence(self) -> str:
        which = f" (token {self.fencing_token})" if self.fencing_token else ""
        why = f"{_LOSS_PHRASES[self.reason]}{f': {self.cause}' if self.cause else ''}"
        return f"the lease of resource {self.resource!r}{which} is lost: {why}"


@dataclass(eq=False)
class LeaseNotHeld(LeaseError):
    """It was not acquired yet, or its holder gave it back."""

    @property
    def sentence(self) -> str:
        return f"the lease of resource {self.resource!r} is not held: it was not acquired, or given back"


@dataclass(eq=False)
class LeaseGrantLate(LeaseError):
    """A grant came when its time was nearly over; it was given back, and no time is left to try again."""

    late_count: int

    @property
    def sentence(self) -> str:
        return (
            f"what was granted of resource {self.resource!r} came too late to be used"
            f" (tries: {self.late_count}); it was given back"
        )

    @property
    def hint(self) -> str:
        return "ask for a longer TTL; the network or this machine is slow"


@dataclass(eq=False)
class QueryHasTopic(LeaseError):
    """A query holds one topic only, and this one holds ``topic``."""

    query_id: str
    topic: str

    @property
    def sentence(self) -> str:
        return f"query {self.query_id!r} holds topic {self.topic!r} already, and a query holds one topic only"


@dataclass(eq=False)
class OwnerHasRole(LeaseError):
    """An owner has one role only, and this one has ``role``."""

    owner: str
    role: str

    @property
    def sentence(self) -> str:
        return f"owner {self.owner!r} has the role {self.role!r} already, and an owner has one role only"


def _moment(nanos: int) -> str:
    """Return hub time as RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(nanos // _NANOS_PER_SECOND, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanos % _NANOS_PER_SECOND // 1_000_000:03d}Z"
