"""What goes into the push core and what comes out of it, as values; ``push.py`` decides."""

from dataclasses import dataclass, field
from typing import TypeAlias

from runtime_agent.core.values import RunKey


@dataclass(frozen=True, slots=True)
class PushBounds:
    """The bounds of the push core; times in seconds."""

    in_flight_max: int
    read_ahead_max: int
    batch_events_max: int
    batch_bytes_max: int
    runs_tracked_max: int
    held_projects_max: int
    project_hold_seconds: float
    answer_seconds_max: float
    first_answer_seconds_max: float
    retry_delay_seconds_max: float
    setback_seconds_first: float
    setback_seconds_max: float


# --- inputs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive events of one run as read from the log, ready for the wire.

    ``message`` is the serialised request. The chain hashes are those before the first and at the
    last event.
    """

    run: RunKey
    first_sequence: int
    last_sequence: int
    previous_chain_hash: bytes
    chain_hash: bytes
    message: bytes = field(repr=False)

    @property
    def event_count(self) -> int:
        """How many events it holds."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True, slots=True)
class Conflict:
    """One event that the hub did not accept, with the bare conflict reason."""

    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """The hub's answer to the oldest unanswered batch; ``retry_delay_seconds`` is 0 for none."""

    run: RunKey
    cursor: int
    chain_hash: bytes
    accepted_count: int
    duplicate_count: int
    conflicts: tuple[Conflict, ...] = ()
    go_back: bool = False
    retry_delay_seconds: float = 0.0


# --- outputs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Read the next events of a run from the log, and answer with ``batch_read`` under the ticket."""

    ticket: int
    run: RunKey
    after_sequence: int
    events_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Write the batch to the stream; batches are sent in the order in which they are given."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The hub holds the run up to ``sequence`` on stable storage, with the log's own history."""

    run: RunKey
    sequence: int


@dataclass(frozen=True, slots=True)
class QuarantineRun:
    """Keep the run from syncing until a person decides.

    ``hub_cursor`` and ``hub_chain_hash`` are what the hub said with it (0 and empty for nothing):
    where the log's own chain hash is the same there, the events up to it are acknowledged first.
    """

    run: RunKey
    reason: str
    detail: str
    sequence: int
    hub_cursor: int = 0
    hub_chain_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class ReconcileRun:
    """Ask the hub where it stands with this run, not before ``not_before``; then ``track`` it."""

    run: RunKey
    not_before: float


@dataclass(frozen=True, slots=True)
class ResumeProject:
    """The time that a project had to wait is over: reconcile its unsynced runs."""

    project_id: str


@dataclass(frozen=True, slots=True)
class RescanRuns:
    """There is room again for unsynced runs that were left out: list them and ``track`` them."""


@dataclass(frozen=True, slots=True)
class EndStream:
    """End the stream and connect again with backoff."""

    detail: str


Output: TypeAlias = (
    ReadBatch
    | SendBatch
    | Acknowledge
    | QuarantineRun
    | ReconcileRun
    | ResumeProject
    | RescanRuns
    | EndStream
)
