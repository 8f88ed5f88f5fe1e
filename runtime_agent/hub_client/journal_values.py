"""What a program gives to the journal and gets from it, as values.

Times are hub time in nanoseconds since 1970, None where there is none. Positions are the hub's order over
all streams of a hub project, revisions the order within a stream; both begin at 1.
"""

from dataclasses import dataclass
from enum import Enum

# --- what is committed --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewJournalEvent:
    """An event to append; its id is unique within the hub project, for ever.

    Without a time it happened when it is committed. ``trace_id`` is a W3C trace id.
    """

    event_id: str
    event_type: str
    payload: bytes = b""
    event_time_nanos: int | None = None
    correlation_id: str = ""
    causation_id: str = ""
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class NewOutboxMessage:
    """A message to deliver because of the commit; its id is unique within the hub project, for ever.

    - ``event_id``: the event that it is about, of this commit or an earlier one.
    - ``ordering_key``: messages of one destination with the same key are delivered one after the other.
    - ``available_time_nanos``: not to be delivered before.
    """

    outbox_id: str
    destination: str
    payload: bytes = b""
    event_id: str = ""
    ordering_key: str = ""
    available_time_nanos: int | None = None


@dataclass(frozen=True, slots=True)
class NewProjection:
    """A value to store under a name, which belongs to the stream that first set it."""

    projection_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that is on stable storage; ``is_recovered`` where it had happened before."""

    previous_revision: int
    revision: int
    commit_time_nanos: int
    positions: tuple[int, ...]
    reply: bytes
    is_recovered: bool


# --- what is read ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """An event as the journal has it; token and epoch are those under which it was written."""

    stream_id: str
    revision: int
    position: int
    event_id: str
    event_type: str
    payload: bytes
    event_time_nanos: int
    commit_time_nanos: int
    message_id: str
    correlation_id: str
    causation_id: str
    trace_id: str
    fencing_token: int
    epoch: int


@dataclass(frozen=True, slots=True)
class JournalStream:
    """A stream: its last revision, 0 without events, and the token of its last commit."""

    stream_id: str
    revision: int
    fencing_token: int
    is_leased: bool
    create_time_nanos: int | None
    last_commit_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class StoredProjection:
    """A value under a name, and the revision of its stream with which it was last set."""

    projection_id: str
    stream_id: str
    value: bytes
    revision: int
    commit_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class JournalUpdate:
    """Events of the journal, ascending by position, and up to where everything was considered.

    ``progress_position`` and ``hub_generation`` together say where to go on.
    """

    events: tuple[JournalEvent, ...]
    progress_position: int
    hub_generation: str


# --- the outbox -----------------------------------------------------------------------------------------


class OutboxState(Enum):
    """Where a message stood when it was read. UNKNOWN is a state that this version does not know."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    DEAD = "DEAD"
    DELIVERED = "DELIVERED"
    UNKNOWN = "UNKNOWN"


class OutboxOutcome(Enum):
    """What an answer about a claimed message changed: DONE what was asked, all others nothing."""

    DONE = "DONE"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    CLAIM_LOST = "CLAIM_LOST"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message; ``available_time_nanos`` of a claimed one is when its claim is over."""

    outbox_id: str
    event_id: str
    destination: str
    ordering_key: str
    payload: bytes
    state: OutboxState
    available_time_nanos: int
    create_time_nanos: int
    attempt_count: int
    stream_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A message with the claim that hides it from others."""

    message: OutboxMessage
    claim_id: str


@dataclass(frozen=True, slots=True)
class ClaimedMessages:
    """What was claimed, until when, and when more becomes available; None where nothing is in sight."""

    messages: tuple[ClaimedMessage, ...]
    claim_expire_time_nanos: int
    next_available_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class ReturnedMessage:
    """What giving a message back changed, and where the message stands now."""

    outcome: OutboxOutcome
    state: OutboxState
