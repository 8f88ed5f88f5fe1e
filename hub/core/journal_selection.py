"""What a reader of the journal asks for, and what it gets at a time: events, streams, messages, pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hub.core.journal import JournalEventId, MessageId, ProjectionId, StreamId
from hub.core.outbox import OutboxMessage, OutboxState
from hub.core.tenure import Credential

CODE_POINT_MAX = 0x10FFFF
"""The last code point."""
SURROGATES = range(0xD800, 0xE000)
"""Code points that stand in no text."""


class JournalEvent(NamedTuple):
    """One event of the journal as it is read; the optional ids are empty where they were not given.

    ``fencing_token`` and ``epoch`` are those of the lease under which it was written.
    """

    stream_id: StreamId
    revision: int
    position: int
    event_id: JournalEventId
    event_type: str
    event_time_nanos: int
    commit_nanos: int
    message_id: MessageId
    correlation_id: str
    causation_id: str
    trace_id: str
    fencing_token: int
    epoch: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class JournalStream:
    """A stream as it is read; ``fencing_token`` is that of its last commit.

    ``lease_expire_nanos`` is when the lease on it expires whose end is not noted, None where there is
    none.
    """

    stream_id: StreamId
    revision: int
    fencing_token: int
    create_nanos: int
    last_commit_nanos: int
    lease_expire_nanos: int | None

    def is_leased(self, now_nanos: int) -> bool:
        """Whether a lease on it lives."""
        return self.lease_expire_nanos is not None and now_nanos < self.lease_expire_nanos


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection as it is read; ``revision`` is the stream's with which it was last set."""

    projection_id: ProjectionId
    stream_id: StreamId
    value: bytes
    revision: int
    commit_nanos: int


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """Which events of a stream: after one revision, through another (None: the revision now).

    With ``credential`` the read is refused unless that is current.
    """

    stream_id: StreamId
    after_revision: int = 0
    through_revision: int | None = None
    credential: Credential | None = None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Events of a stream, ascending by revision; read on after ``next_revision``, unless ``is_done``."""

    events: Sequence[JournalEvent]
    next_revision: int
    through_revision: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class JournalQuery:
    """Which events of the journal, and from where; of all types where none is named.

    ``after_position`` was received under ``hub_generation``; with ``is_from_now`` both are not looked
    at.
    """

    event_types: Sequence[str] = ()
    hub_generation: str = ""
    after_position: int = 0
    is_from_now: bool = False


@dataclass(frozen=True, slots=True)
class PositionedJournalEvents:
    """Events of the journal ascending by position, of one state of the store.

    Everything up to ``considered_position`` was looked at, whether it was asked for or not;
    ``head_position`` is the head of that state: where both are equal, there is no more.
    """

    events: Sequence[JournalEvent]
    considered_position: int
    head_position: int


class OutboxPlace(NamedTuple):
    """A place in the order of outbox messages: by availability, then by creation."""

    available_nanos: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class OutboxFilter:
    """Which outbox messages: of a destination or all; in a state, or in all but DELIVERED."""

    destination: str | None = None
    state: OutboxState | None = None


@dataclass(frozen=True, slots=True)
class OutboxMessages:
    """Outbox messages in order; ``next_place`` is after which to go on, None at the end."""

    messages: Sequence[OutboxMessage]
    next_place: OutboxPlace | None


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text, by its bytes, after all that begin with a prefix; None where none is.

    The order of the bytes of UTF-8 is that of the code points: the last one that has a successor gets
    it, and what stands behind it goes.
    """
    kept = prefix.rstrip(chr(CODE_POINT_MAX))
    if not kept:
        return None
    successor = ord(kept[-1]) + 1
    return kept[:-1] + chr(SURROGATES.stop if successor in SURROGATES else successor)
