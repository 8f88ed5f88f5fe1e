"""Everything that the hub refuses, as one tree.

::

    HubError
    ├── Refusal                      a request is answered with a reason (hub.rpc gives the status)
    │   ├── InvalidRequest           INVALID_REQUEST
    │   ├── NotFound                 NOT_FOUND
    │   ├── PermissionDenied         PERMISSION_DENIED
    │   ├── RuntimeDuplicated        RUNTIME_DUPLICATED
    │   ├── GenerationChanged        GENERATION_CHANGED
    │   ├── PositionAhead            POSITION_AHEAD
    │   ├── LeaseHeld                LEASE_HELD
    │   ├── LeaseFenced              LEASE_FENCED
    │   ├── LeaseMissing             LEASE_MISSING
    │   ├── LeaseSuperseded          LEASE_SUPERSEDED
    │   ├── LeaseExpired             LEASE_EXPIRED
    │   ├── ResourceUnderMaintenance RESOURCE_UNDER_MAINTENANCE
    │   ├── StaleLease               STALE_LEASE
    │   ├── RevisionConflict         REVISION_CONFLICT
    │   ├── IdempotencyConflict      IDEMPOTENCY_CONFLICT
    │   ├── LimitReached             LIMIT_REACHED
    │   ├── StorageUnavailable       STORAGE_UNAVAILABLE
    │   └── HubStopping              HUB_STOPPING
    └── StartRefused                 the hub does not start; for the operator, with a hint

A leaf is a cause that a caller can act on; its fields are the facts, ``str()`` its sentence for
people. No internal detail, path or SQL stands in a ``Refusal``; ``StartRefused`` is for the operator.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hub.core.clock import rfc3339
from hub.core.values import HubGeneration, InstanceId, ProjectId, ResourceName, RuntimeId
from synchub.contract import NANOS_PER_SECOND

VIOLATIONS_MAX = 16
"""Most field violations in one refusal; error details travel in metadata of about 8 KiB."""

RETRY_BEHIND_WAITERS_SECONDS: Final = 1.0
"""When to try again where a resource is free but others wait for it: how long theirs takes, nobody knows."""


class Reason(StrEnum):
    """The ``ErrorInfo.reason`` of a refusal; fixed names that clients decide on."""

    INVALID_REQUEST = "INVALID_REQUEST"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RUNTIME_DUPLICATED = "RUNTIME_DUPLICATED"
    GENERATION_CHANGED = "GENERATION_CHANGED"
    POSITION_AHEAD = "POSITION_AHEAD"
    LEASE_HELD = "LEASE_HELD"
    LEASE_FENCED = "LEASE_FENCED"
    LEASE_MISSING = "LEASE_MISSING"
    LEASE_SUPERSEDED = "LEASE_SUPERSEDED"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    RESOURCE_UNDER_MAINTENANCE = "RESOURCE_UNDER_MAINTENANCE"
    STALE_LEASE = "STALE_LEASE"
    REVISION_CONFLICT = "REVISION_CONFLICT"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    LIMIT_REACHED = "LIMIT_REACHED"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    HUB_STOPPING = "HUB_STOPPING"


class HubError(Exception):
    """Root of the hub's own errors."""


@dataclass(eq=False)
class StartRefused(HubError):
    """The hub does not start: what is wrong, and what the operator can do about it."""

    sentence: str
    hint: str

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".strip()


class Refusal(HubError):
    """A request is answered with a reason; nothing was changed by it."""

    reason: Reason

    def metadata(self) -> dict[str, str]:
        """Return the facts for programs, with lowerCamelCase keys."""
        return {}

    def retry_seconds(self) -> float | None:
        """Return how long to wait before trying again, None where that depends on the reason alone."""
        return None


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that breaks a bound or a type: its path in the request, and what is wrong."""

    field: str
    description: str


@dataclass(eq=False)
class InvalidRequest(Refusal):
    """The request breaks a bound or a type; at most 16 violations are told."""

    reason = Reason.INVALID_REQUEST
    violations: list[Violation]
    facts: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        first = self.violations[0]
        more = len(self.violations) - 1
        rest = f" (and {more} more)" if more else ""
        return f"{first.field} {first.description}{rest}"

    def metadata(self) -> dict[str, str]:
        return {"field": self.violations[0].field, **self.facts}


@dataclass(eq=False)
class NotFound(Refusal):
    """What was asked for does not exist within the caller's hub project."""

    reason = Reason.NOT_FOUND
    what: str
    ids: dict[str, str]

    def __str__(self) -> str:
        named = ", ".join(f"{key} {value!r}" for key, value in self.ids.items())
        return f"there is no {self.what} with {named}"

    def metadata(self) -> dict[str, str]:
        return self.ids


@dataclass(eq=False)
class PermissionDenied(Refusal):
    """The caller may not act on this project."""

    reason = Reason.PERMISSION_DENIED
    project_id: ProjectId

    def __str__(self) -> str:
        return f"project {self.project_id!r} is taken by somebody else"

    def metadata(self) -> dict[str, str]:
        return {"projectId": self.project_id}


@dataclass(eq=False)
class RuntimeDuplicated(Refusal):
    """The instance was the runtime's current one once and is not any more."""

    reason = Reason.RUNTIME_DUPLICATED
    runtime_id: RuntimeId
    instance_id: InstanceId

    def __str__(self) -> str:
        return (
            f"instance {self.instance_id!r} of runtime {self.runtime_id!r} has a successor that was heard"
            " after it; begin anew with a fresh instance, and look for a second copy of this runtime"
        )

    def metadata(self) -> dict[str, str]:
        return {"runtimeId": self.runtime_id, "id": self.instance_id}


@dataclass(eq=False)
class GenerationChanged(Refusal):
    """The position is from a life of the store whose tail may be lost."""

    reason = Reason.GENERATION_CHANGED
    hub_generation: HubGeneration
    lowest_position: int

    def __str__(self) -> str:
        return (
            "the hub's generation changed and the position may be lost; what was read up to position"
            f" {self.lowest_position} still holds, read on from there under generation {self.hub_generation}"
        )

    def metadata(self) -> dict[str, str]:
        return {"hubGeneration": self.hub_generation, "lowestPosition": str(self.lowest_position)}


@dataclass(eq=False)
class PositionAhead(Refusal):
    """The position lies beyond everything that is stored."""

    reason = Reason.POSITION_AHEAD
    position: int
    head_position: int

    def __str__(self) -> str:
        return f"position {self.position} is ahead of the head, which is {self.head_position}"

    def metadata(self) -> dict[str, str]:
        return {"headPosition": str(self.head_position)}


@dataclass(eq=False)
class LeaseHeld(Refusal):
    """Another holds the resource, or others wait for it and nobody may pass them.

    ``holder_name`` is empty and ``expire_nanos`` None where it is free but others wait.
    """

    reason = Reason.LEASE_HELD
    resource: ResourceName
    holder_name: str
    expire_nanos: int | None
    now_nanos: int

    def __str__(self) -> str:
        if self.expire_nanos is None:
            return f"others wait for resource {self.resource!r}; wait_timeout queues this call behind them"
        return (
            f"resource {self.resource!r} is held by {self.holder_name!r} until"
            f" {rfc3339(self.expire_nanos)} unless it is renewed or released"
        )

    def metadata(self) -> dict[str, str]:
        facts: dict[str, str] = {"resource": self.resource}
        if self.expire_nanos is not None:
            facts["holderDisplayName"] = self.holder_name
            facts["expireTime"] = rfc3339(self.expire_nanos)
        return facts

    def retry_seconds(self) -> float | None:
        if self.expire_nanos is None:
            return RETRY_BEHIND_WAITERS_SECONDS
        return _seconds_until(self.expire_nanos, self.now_nanos)


@dataclass(eq=False)
class ResourceUnderMaintenance(Refusal):
    """A maintenance lives on the resource."""

    reason = Reason.RESOURCE_UNDER_MAINTENANCE
    resource: ResourceName
    holder_name: str
    expire_nanos: int
    now_nanos: int

    def __str__(self) -> str:
        return (
            f"resource {self.resource!r} is under maintenance by {self.holder_name!r} until"
            f" {rfc3339(self.expire_nanos)} unless it is renewed or finished"
        )

    def metadata(self) -> dict[str, str]:
        return {
            "resource": self.resource,
            "holderDisplayName": self.holder_name,
            "expireTime": rfc3339(self.expire_nanos),
        }

    def retry_seconds(self) -> float | None:
        return _seconds_until(self.expire_nanos, self.now_nanos)


@dataclass(eq=False)
class LeaseFenced(Refusal):
    """The token is from before the resource's last maintenance."""

    reason = Reason.LEASE_FENCED
    resource: ResourceName
    fencing_token: int
    maintenance_token: int

    def __str__(self) -> str:
        return (
            f"token {self.fencing_token} of resource {self.resource!r} is fenced: a maintenance with token"
            f" {self.maintenance_token} came after it; acquire anew"
        )

    def metadata(self) -> dict[str, str]:
        return _token_facts(self.resource, self.fencing_token)


@dataclass(eq=False)
class LeaseMissing(Refusal):
    """Nobody holds the resource: there never was a tenure, it was released, or it was purged.

    ``fencing_token`` is the one that was shown, 0 where none was.
    """

    reason = Reason.LEASE_MISSING
    resource: ResourceName
    fencing_token: int

    def __str__(self) -> str:
        return f"nobody holds resource {self.resource!r}: it was never leased, or the lease was given back"

    def metadata(self) -> dict[str, str]:
        return _token_facts(self.resource, self.fencing_token)


@dataclass(eq=False)
class LeaseSuperseded(Refusal):
    """Another holder, token or nonce came after; ``what`` says what was shown.

    ``fencing_token`` is the one that was shown, 0 where none was.
    """

    reason = Reason.LEASE_SUPERSEDED
    resource: ResourceName
    fencing_token: int
    what: str = "this credential"

    def __str__(self) -> str:
        return f"{self.what} of resource {self.resource!r} is superseded; acquire anew, with a new nonce"

    def metadata(self) -> dict[str, str]:
        return _token_facts(self.resource, self.fencing_token)


@dataclass(eq=False)
class LeaseExpired(Refusal):
    """The expire time passed; a lost lease never comes back under its old token."""

    reason = Reason.LEASE_EXPIRED
    resource: ResourceName
    fencing_token: int
    expire_nanos: int

    def __str__(self) -> str:
        return (
            f"the lease of resource {self.resource!r} expired at {rfc3339(self.expire_nanos)};"
            " acquire anew, with a new nonce"
        )

    def metadata(self) -> dict[str, str]:
        return {
            **_token_facts(self.resource, self.fencing_token),
            "expireTime": rfc3339(self.expire_nanos),
        }


@dataclass(eq=False)
class StaleLease(Refusal):
    """The credential shown to a stream is not current; ``cause`` is why, a reason or OTHER_RESOURCE."""

    reason = Reason.STALE_LEASE
    stream: ResourceName
    fencing_token: int
    cause: str

    def __str__(self) -> str:
        return (
            f"the credential with token {self.fencing_token} is not current for stream {self.stream!r}:"
            f" {self.cause}; nothing was stored, acquire the lease anew"
        )

    def metadata(self) -> dict[str, str]:
        return {**_token_facts(self.stream, self.fencing_token), "streamId": self.stream, "cause": self.cause}


@dataclass(eq=False)
class RevisionConflict(Refusal):
    """The stream is not where the commit expects it."""

    reason = Reason.REVISION_CONFLICT
    stream_id: str
    expected_revision: int
    actual_revision: int

    def __str__(self) -> str:
        return (
            f"stream {self.stream_id!r} is at revision {self.actual_revision}, not at"
            f" {self.expected_revision}; read on from there and decide anew"
        )

    def metadata(self) -> dict[str, str]:
        return {
            "streamId": self.stream_id,
            "expectedRevision": str(self.expected_revision),
            "actualRevision": str(self.actual_revision),
        }


@dataclass(eq=False)
class IdempotencyConflict(Refusal):
    """An id was used before with something else; ``field`` names where it stands."""

    reason = Reason.IDEMPOTENCY_CONFLICT
    field: str
    id: str

    def __str__(self) -> str:
        return f"{self.field} {self.id!r} was used before for something else; take a new one"

    def metadata(self) -> dict[str, str]:
        return {"field": self.field, "id": self.id}


@dataclass(eq=False)
class LimitReached(Refusal):
    """A bound of the hub is reached; ``limit`` names it."""

    reason = Reason.LIMIT_REACHED
    limit: str
    limit_value: int

    def __str__(self) -> str:
        return f"the limit {self.limit} of {self.limit_value} is reached"

    def metadata(self) -> dict[str, str]:
        return {"limit": self.limit, "limitValue": str(self.limit_value)}


@dataclass(eq=False)
class StorageUnavailable(Refusal):
    """The store cannot be written or read now; what was acknowledged is safe, try again later."""

    reason = Reason.STORAGE_UNAVAILABLE

    def __str__(self) -> str:
        return "the hub's store is unavailable at the moment; what was acknowledged is safe, try again later"


@dataclass(eq=False)
class HubStopping(Refusal):
    """The hub stops; connect again in a moment."""

    reason = Reason.HUB_STOPPING

    def __str__(self) -> str:
        return "the hub is stopping; connect again in a moment"


def _token_facts(resource: ResourceName, fencing_token: int) -> dict[str, str]:
    facts = {"resource": str(resource)}
    if fencing_token:
        facts["fencingToken"] = str(fencing_token)
    return facts


def _seconds_until(expire_nanos: int, now_nanos: int) -> float:
    return max(0.0, (expire_nanos - now_nanos) / NANOS_PER_SECOND)
