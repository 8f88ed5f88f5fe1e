"""What is refused about leases and about the streams that are written under them; see ``core.errors``."""

from dataclasses import dataclass
from typing import Final

from hub.core.clock import rfc3339
from hub.core.errors import Reason, Refusal
from hub.core.values import ResourceName
from synchub.contract import NANOS_PER_SECOND

RETRY_BEHIND_WAITERS_SECONDS: Final = 1.0
"""When to try again where a resource is free but others wait for it: how long theirs takes, nobody knows."""


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
        return _holder_facts(self.resource, self.holder_name, expire_nanos=self.expire_nanos)

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
        return _holder_facts(self.resource, self.holder_name, expire_nanos=self.expire_nanos)

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


def _holder_facts(resource: ResourceName, holder_name: str, *, expire_nanos: int | None) -> dict[str, str]:
    if expire_nanos is None:
        return {"resource": resource}
    return {"resource": resource, "holderDisplayName": holder_name, "expireTime": rfc3339(expire_nanos)}


def _token_facts(resource: ResourceName, fencing_token: int) -> dict[str, str]:
    token = {"fencingToken": str(fencing_token)} if fencing_token else {}
    return {"resource": resource, **token}


def _seconds_until(expire_nanos: int, now_nanos: int) -> float:
    return max(0.0, (expire_nanos - now_nanos) / NANOS_PER_SECOND)
