"""Everything that the hub refuses, as one tree.

::

    HubError
    ├── Refusal                      a request is answered with a reason (hub.rpc gives the status)
    │   ├── InvalidRequest           INVALID_REQUEST
    │   ├── Unauthenticated
    │   │   ├── CredentialMissing    CREDENTIAL_MISSING
    │   │   ├── CredentialInvalid    CREDENTIAL_INVALID
    │   │   ├── CredentialExpired    CREDENTIAL_EXPIRED
    │   │   └── CredentialRevoked    CREDENTIAL_REVOKED
    │   ├── Forbidden
    │   │   ├── IdentityMismatch     IDENTITY_MISMATCH
    │   │   └── PermissionDenied     PERMISSION_DENIED
    │   ├── NotFound                 NOT_FOUND
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
    │   ├── BoundReached
    │   │   ├── QuotaExceeded        QUOTA_EXCEEDED
    │   │   ├── RateLimited          RATE_LIMITED
    │   │   └── LimitReached         LIMIT_REACHED
    │   ├── StorageUnavailable       STORAGE_UNAVAILABLE
    │   │   └── StorageFull          (the same, of a command alone: its neighbours go on)
    │   └── HubStopping              HUB_STOPPING
    └── StartRefused                 the hub does not start; for the operator, with a hint

A leaf is a cause that a caller can act on; its fields are the facts, ``str()`` its sentence for
people. No internal detail, path or SQL stands in a ``Refusal``; ``StartRefused`` is for the operator. The
refusals from LeaseHeld to RevisionConflict are in ``core.lease_errors``, those about who calls in
``core.identity_errors``.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from hub.core.values import HubGeneration, InstanceId, RuntimeId

VIOLATIONS_MAX = 16
"""Most field violations in one refusal; error details travel in metadata of about 8 KiB."""


class Reason(StrEnum):
    """The ``ErrorInfo.reason`` of a refusal; fixed names that clients decide on."""

    INVALID_REQUEST = "INVALID_REQUEST"
    CREDENTIAL_MISSING = "CREDENTIAL_MISSING"
    CREDENTIAL_INVALID = "CREDENTIAL_INVALID"
    CREDENTIAL_EXPIRED = "CREDENTIAL_EXPIRED"
    CREDENTIAL_REVOKED = "CREDENTIAL_REVOKED"
    IDENTITY_MISMATCH = "IDENTITY_MISMATCH"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
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
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
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


@dataclass(eq=False)
class StoreInUse(StartRefused):
    """Another process has the store; ``pid`` is its id, "unknown" where it cannot be told."""

    pid: str


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
        named = ", ".join(f"{_words(key)} {value!r}" for key, value in self.ids.items())
        return f"there is no {self.what} with {named}"

    def metadata(self) -> dict[str, str]:
        return self.ids


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
class BoundReached(Refusal):
    """A bound of the hub is reached; ``limit`` names it."""

    limit: str
    limit_value: int

    def metadata(self) -> dict[str, str]:
        return {"limit": self.limit, "limitValue": str(self.limit_value)}


@dataclass(eq=False)
class QuotaExceeded(BoundReached):
    """A hub project has as much as it may have; an operator makes room, or raises the quota."""

    reason = Reason.QUOTA_EXCEEDED

    def __str__(self) -> str:
        return (
            f"the hub project has reached its quota {self.limit} of {self.limit_value}; nothing was stored,"
            " and it will be once there is room"
        )


@dataclass(eq=False)
class RateLimited(BoundReached):
    """More comes than the hub can take now; the same call may be made again.

    ``wait_seconds`` is how long to wait before that, None where nobody can tell.
    """

    reason = Reason.RATE_LIMITED
    wait_seconds: float | None = None

    def __str__(self) -> str:
        return (
            f"this is more at a time than the hub takes ({self.limit} of {self.limit_value});"
            " nothing was done, try again in a moment"
        )

    def retry_seconds(self) -> float | None:
        return self.wait_seconds


@dataclass(eq=False)
class LimitReached(BoundReached):
    """What is asked for is more than the hub gives."""

    reason = Reason.LIMIT_REACHED

    def __str__(self) -> str:
        return f"the limit {self.limit} of {self.limit_value} is reached"


@dataclass(eq=False)
class StorageUnavailable(Refusal):
    """The store cannot be written or read now; what was acknowledged is safe, try again later.

    ``problem`` is a sentence in place of that, where it is something else that cannot be written.
    """

    reason = Reason.STORAGE_UNAVAILABLE
    problem: str = ""

    def __str__(self) -> str:
        return self.problem or (
            "the hub's store is unavailable at the moment; what was acknowledged is safe, try again later"
        )


@dataclass(eq=False)
class StorageFull(StorageUnavailable):
    """Of the disk only the reserve is left, from which nothing new is stored."""

    def __str__(self) -> str:
        return (
            "the hub's disk is nearly full, and nothing new is stored until there is room;"
            " what was acknowledged is safe, try again later"
        )


@dataclass(eq=False)
class HubStopping(Refusal):
    """The hub stops; connect again in a moment."""

    reason = Reason.HUB_STOPPING

    def __str__(self) -> str:
        return "the hub is stopping; connect again in a moment"


def _words(key: str) -> str:
    """Return a lowerCamelCase key as people write it: "run id" for "runId"."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)
