"""What a program that writes or reads the journal is told, as one branch of the tree in ``errors.py``.

::

    JournalError
    ├── StaleLease           the credential is not current for the stream; nothing was stored
    ├── RevisionConflict     the stream is not where the commit expects it; nothing was stored
    ├── IdempotencyConflict  an id was used before for something else; nothing was stored
    └── PositionLost         what was read up to a position may be gone since the hub was restored

Other refusals of a call (INVALID_REQUEST, NOT_FOUND, no hub in sight …) are ``HubCallError``.
"""

from dataclasses import dataclass
from enum import Enum

from runtime_agent.core.errors import RuntimeAgentError


class StaleCause(Enum):
    """Why a credential is not current. UNKNOWN is a cause that this version does not know."""

    MISSING = "LEASE_MISSING"
    """Its lease was released or purged, or there never was one."""
    SUPERSEDED = "LEASE_SUPERSEDED"
    """Another holder, token or nonce is the current one."""
    FENCED = "LEASE_FENCED"
    """A maintenance came after it."""
    EXPIRED = "LEASE_EXPIRED"
    """The hub's clock passed its expire time."""
    OTHER_RESOURCE = "OTHER_RESOURCE"
    """It is of another resource than the stream's."""
    UNKNOWN = "UNKNOWN"


_PHRASES = {
    StaleCause.MISSING: "its lease was released, or there never was one",
    StaleCause.SUPERSEDED: "a newer tenure replaced it",
    StaleCause.FENCED: "a maintenance came after it",
    StaleCause.EXPIRED: "its lease expired",
    StaleCause.OTHER_RESOURCE: "it is of another resource",
    StaleCause.UNKNOWN: "the hub names a cause that this version does not know",
}


@dataclass(eq=False)
class JournalError(RuntimeAgentError):
    """A call about the journal was refused; it changed nothing."""


@dataclass(eq=False)
class StaleLease(JournalError):
    """The credential is not current for the stream: whoever shows it does not write there any more."""

    stream_id: str
    fencing_token: int
    cause: StaleCause

    @property
    def sentence(self) -> str:
        return (
            f"token {self.fencing_token} is not current for stream {self.stream_id!r}:"
            f" {_PHRASES[self.cause]}; nothing was stored"
        )

    @property
    def hint(self) -> str:
        return "acquire the lease anew, read the stream, and decide anew"


@dataclass(eq=False)
class RevisionConflict(JournalError):
    """The stream is at ``actual_revision``: somebody appended since it was read."""

    stream_id: str
    expected_revision: int
    actual_revision: int

    @property
    def sentence(self) -> str:
        return (
            f"stream {self.stream_id!r} is at revision {self.actual_revision}, not at"
            f" {self.expected_revision}; nothing was stored"
        )

    @property
    def hint(self) -> str:
        return "read the stream on from there, and decide anew"


@dataclass(eq=False)
class IdempotencyConflict(JournalError):
    """The id in ``field`` (its path in the request) was used before for something else."""

    field: str
    id: str

    @property
    def sentence(self) -> str:
        return f"{self.field} {self.id!r} was used before for something else; nothing was stored"


@dataclass(eq=False)
class PositionLost(JournalError):
    """The hub was restored to before the position: what came after ``lowest_position`` may be gone.

    What was read up to there holds; read on from there under ``hub_generation``.
    """

    hub_generation: str
    lowest_position: int

    @property
    def sentence(self) -> str:
        return (
            "the hub was restored: of what was read, only what came up to position"
            f" {self.lowest_position} is sure to be there still"
        )
