"""Rows of the journal as values, and what they take on the wire, for the writing and the reading side."""

import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeVar, cast

from hub.core.journal import MessageId, OutboxId, StreamId
from hub.core.journal_selection import JournalEvent, OutboxPlace
from hub.core.outbox import OutboxMessage
from hub.core.selection import PageBounds
from hub.store.session import Row

EVENT_BYTES_BESIDE_TEXTS: Final = 128
"""What an event or message takes on the wire beside its texts and payload, at most, in bytes."""

Entry = TypeVar("Entry")

_OutboxRow = tuple[str, str, str, str, bytes, int, int, str, str, int, str, str, int | None, int]
_AVAILABLE_COLUMN: Final = 5
"""Where a row has when the message is available."""
# One encoder for all: json.dumps makes one at each call.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Phase(StrEnum):
    """Where a message stands, whatever the time."""

    WAITING = "WAITING"
    """It may be claimed when it is available; it may be claimed now."""
    BEHIND = "BEHIND"
    """Another of its destination and ordering key comes first."""
    DEAD = "DEAD"
    DELIVERED = "DELIVERED"


def ids_to_json(ids: Sequence[str]) -> str:
    """Return ids as the parameter of a statement that looks them all up."""
    return _to_json(list(ids))


# The columns stand in the order of the fields.
journal_event_from_row = JournalEvent._make


def outbox_message_from_row(row: Row) -> OutboxMessage:
    """Return a message from the columns in which it is stored."""
    (
        outbox_id,
        event_id,
        destination,
        ordering_key,
        payload,
        available_nanos,
        create_nanos,
        stream_id,
        message_id,
        attempt_count,
        claim_id,
        phase,
        deliver_nanos,
        _ordinal,
    ) = cast("_OutboxRow", row)
    return OutboxMessage(
        OutboxId(outbox_id),
        event_id,
        destination,
        ordering_key,
        payload,
        available_nanos,
        create_nanos,
        StreamId(stream_id),
        MessageId(message_id),
        attempt_count,
        claim_id,
        phase == Phase.DEAD,
        deliver_nanos,
    )


def place_from_row(row: Row) -> OutboxPlace:
    """Return a message's place in the order of messages."""
    return OutboxPlace(cast("int", row[_AVAILABLE_COLUMN]), cast("int", row[-1]))


def outbox_row_bytes(row: Row) -> int:
    """Return what a message takes on the wire, at most, in bytes."""
    return outbox_message_bytes(outbox_message_from_row(row))


def phase_of(message: OutboxMessage) -> Phase:
    """Return the phase of a message that is not behind another."""
    if message.deliver_nanos is not None:
        return Phase.DELIVERED
    return Phase.DEAD if message.is_dead else Phase.WAITING


def bounded(
    entries: Iterable[Entry], bytes_of: Callable[[Entry], int], *, bounds: PageBounds
) -> tuple[list[Entry], bool]:
    """Return the first entries that keep the bounds, at least one, and whether more follow.

    One entry too many is looked at, nothing behind it is read.
    """
    kept: list[Entry] = []
    bytes_sum = 0
    for entry in entries:
        bytes_sum += bytes_of(entry)
        if kept and (len(kept) >= bounds.entries_max or bytes_sum > bounds.bytes_max):
            return kept, True
        kept.append(entry)
    return kept, False


def journal_event_bytes(event: JournalEvent) -> int:
    """Return what an event takes on the wire, at most, in bytes."""
    texts = (
        event.stream_id
        + event.event_id
        + event.event_type
        + event.message_id
        + event.correlation_id
        + event.causation_id
        + event.trace_id
    )
    return EVENT_BYTES_BESIDE_TEXTS + len(texts.encode()) + len(event.payload)


def outbox_message_bytes(message: OutboxMessage) -> int:
    """Return what a message takes on the wire, at most, its claim id included, in bytes."""
    texts = (
        message.outbox_id
        + message.event_id
        + message.destination
        + message.ordering_key
        + message.stream_id
        + message.message_id
        + message.claim_id
    )
    return EVENT_BYTES_BESIDE_TEXTS + len(texts.encode()) + len(message.payload)
