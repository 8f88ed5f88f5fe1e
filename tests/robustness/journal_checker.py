"""Holds what a hub has of a journal against what its callers did: the promises over one recorded history.

A commit ends committed, refused or unknown; one that is unknown is there whole or not at all. Of a
message of the outbox everything is recorded that a dispatcher was told about it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256

from synchub.v1 import journal_service_pb2 as messages


class Outcome(Enum):
    """What a caller knows of its commit."""

    COMMITTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class Attempt:
    """A commit as it was asked for, and what is known of it; ``result`` where it was committed."""

    request: messages.CommitRequest
    outcome: Outcome = Outcome.UNKNOWN
    result: messages.CommitResponse | None = None
    is_recovered: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a dispatcher got it; the times are one clock's: claim asked for, claim told."""

    outbox_id: str
    payload: bytes
    ask_seconds: float
    told_seconds: float


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An acknowledgement that was told to have delivered a message, and when that was told."""

    outbox_id: str
    told_seconds: float


@dataclass(slots=True)
class History:
    """All that the callers did."""

    attempts: list[Attempt] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stored:
    """All that the hub has: events by position, every outbox message, the projections by name."""

    events: Sequence[messages.JournalEvent]
    revisions: Mapping[str, int]
    outbox_messages: Sequence[messages.OutboxMessage]
    projections: Mapping[str, messages.Projection]


def projection_of(stream_id: str) -> str:
    """Return the name of the projection that each commit to a stream brings up to date."""
    return f"of {stream_id}"


def folded(
    value: bytes, events: Sequence[messages.NewJournalEvent] | Sequence[messages.JournalEvent]
) -> bytes:
    """Return the value of a stream's projection after more events: a hash over all of them."""
    for event in events:
        value = sha256(value + event.event_id.encode() + b"\0" + event.payload).digest()
    return value


def check_journal(history: History, stored: Stored) -> list[str]:
    """Return everything that must not be, as sentences that begin with the kind of fault."""
    return [
        *_order_faults(stored),
        *_commit_faults(history, stored),
        *_projection_faults(stored),
        *_outbox_faults(history, stored),
        *_ordering_faults(history, stored),
    ]


def _order_faults(stored: Stored) -> Iterator[str]:
    positions = [event.position for event in stored.events]
    if positions != list(range(1, len(positions) + 1)):
        yield f"positions: {positions}"
    for stream_id, events in _by_stream(stored).items():
        revisions = [event.revision for event in events]
        if revisions != list(range(1, len(events) + 1)) or stored.revisions.get(stream_id) != len(events):
            yield f"revisions: {stream_id} is at {stored.revisions.get(stream_id)} and has {revisions}"
        tokens = [event.fencing_token for event in events]
        if tokens != sorted(tokens):
            yield f"tokens: {stream_id} has {tokens}"


def _commit_faults(history: History, stored: Stored) -> Iterator[str]:
    events: dict[str, list[messages.JournalEvent]] = defaultdict(list)
    outbox_messages: dict[str, list[messages.OutboxMessage]] = defaultdict(list)
    for event in stored.events:
        events[event.message_id].append(event)
    for message in stored.outbox_messages:
        outbox_messages[message.message_id].append(message)
    for attempt in history.attempts:
        request = attempt.request
        name = request.message_id
        found_events, found_messages = events.pop(name, []), outbox_messages.pop(name, [])
        is_there = bool(found_events or found_messages)
        if attempt.outcome is Outcome.REFUSED:
            if is_there:
                yield f"refused and stored: {name}"
            continue
        if attempt.outcome is Outcome.COMMITTED and not is_there:
            yield f"lost: {name}"
        if is_there:
            yield from _content_faults(attempt, found_events, found_messages=found_messages)
    yield from (f"unexpected: {name}" for name in {*events, *outbox_messages})


def _content_faults(
    attempt: Attempt,
    found_events: Sequence[messages.JournalEvent],
    *,
    found_messages: Sequence[messages.OutboxMessage],
) -> Iterator[str]:
    """Compare a commit that is there with what was asked for and with what was answered."""
    request, result = attempt.request, attempt.result
    name = request.message_id
    asked = [(request.stream_id, event.event_id, event.payload) for event in request.events]
    if [(event.stream_id, event.event_id, event.payload) for event in found_events] != asked:
        yield f"half or changed: {name} has the events {[event.event_id for event in found_events]}"
    first_revision = request.expected_revision + 1
    revisions = list(range(first_revision, first_revision + len(asked)))
    if [event.revision for event in found_events] != revisions:
        yield f"half or changed: {name} has the revisions {[event.revision for event in found_events]}"
    asked_messages = {
        (each.outbox_id, each.destination, each.ordering_key, each.payload)
        for each in request.outbox_messages
    }
    if asked_messages != {
        (each.outbox_id, each.destination, each.ordering_key, each.payload) for each in found_messages
    }:
        yield f"half or changed: {name} has the messages {[each.outbox_id for each in found_messages]}"
    if result is not None and (
        result.previous_revision != request.expected_revision
        or result.revision != request.expected_revision + len(asked)
        or list(result.positions) != [event.position for event in found_events]
        or result.reply != request.reply
    ):
        yield f"answered otherwise: {name}"


def _projection_faults(stored: Stored) -> Iterator[str]:
    """Compare each projection with what the events of its stream make of it from the start."""
    streams = _by_stream(stored)
    for stream_id, revision in stored.revisions.items():
        projection = stored.projections.get(projection_of(stream_id))
        if projection is None:
            yield f"projection: {stream_id} has none"
        elif (projection.value, projection.revision) != (folded(b"", streams[stream_id]), revision):
            yield f"projection: that of {stream_id} is not its rebuild at {revision}"


def _outbox_faults(history: History, stored: Stored) -> Iterator[str]:
    """Check that each message was delivered, as it was written, and given to nobody after that."""
    payloads = {message.outbox_id: message.payload for message in stored.outbox_messages}
    delivered: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        delivered[delivery.outbox_id].append(delivery)
        if payloads.get(delivery.outbox_id) != delivery.payload:
            yield f"delivery changed: {delivery.outbox_id}"
    for message in stored.outbox_messages:
        if message.state != messages.OUTBOX_MESSAGE_STATE_DELIVERED:
            state = messages.OutboxMessageState.Name(message.state)
            yield f"not delivered: {message.outbox_id} is {state}"
        if not delivered[message.outbox_id]:
            yield f"message lost: {message.outbox_id} was given to nobody"
    told: dict[str, float] = {}
    for acknowledgement in history.acknowledgements:
        if acknowledgement.outbox_id in told:
            yield f"acknowledged twice: {acknowledgement.outbox_id}"
        told[acknowledgement.outbox_id] = acknowledgement.told_seconds
    for outbox_id, told_seconds in told.items():
        if any(delivery.ask_seconds > told_seconds for delivery in delivered[outbox_id]):
            yield f"given after it was delivered: {outbox_id}"


def _ordering_faults(history: History, stored: Stored) -> Iterator[str]:
    """Check that the messages of a key were first given in the order in which they were written.

    That is the order of the positions of the events that they are about.
    """
    positions = {event.event_id: event.position for event in stored.events}
    first_told: dict[str, float] = {}
    for delivery in sorted(history.deliveries, key=lambda each: each.told_seconds):
        first_told.setdefault(delivery.outbox_id, delivery.told_seconds)
    keys: dict[tuple[str, str], list[messages.OutboxMessage]] = defaultdict(list)
    for message in stored.outbox_messages:
        if message.ordering_key and message.outbox_id in first_told:
            keys[message.destination, message.ordering_key].append(message)
    for key, of_key in keys.items():
        of_key.sort(key=lambda message: positions[message.event_id])
        moments = [first_told[message.outbox_id] for message in of_key]
        if moments != sorted(moments):
            yield f"out of order: {key}"


def _by_stream(stored: Stored) -> dict[str, list[messages.JournalEvent]]:
    streams: dict[str, list[messages.JournalEvent]] = defaultdict(list)
    for event in stored.events:
        streams[event.stream_id].append(event)
    return streams
