"""What a hub project may keep: how its use is counted, and when it is too much.

The count is kept with every change and is what counting everything anew would give: ``synchub verify``
and the migration compute it from the rows.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from hub.core.errors import QuotaExceeded
from hub.core.ingest import BatchDecision, PushBatch
from hub.core.journal import Commit
from hub.core.limits import Limits
from hub.core.values import EventContent, RunHead

ROW_BYTES: Final = 128
"""What a row counts besides its payload and attributes."""
_ESCAPED_BYTES_MAX: Final = 6
"""Bytes that one byte of an attribute may take as it is stored: JSON, with escapes."""

_attributes_of = itemgetter(EventContent._fields.index("attributes"))
_payload_of = itemgetter(EventContent._fields.index("payload"))


class Usage(NamedTuple):
    """What a hub project keeps: bytes of events and of the journal, and runs that are not complete."""

    stored_bytes: int
    active_run_count: int


def stored_bytes_of_events(events: Iterable[EventContent]) -> int:
    """Return what events count once they are stored: rows, payloads, and attributes as UTF-8."""
    events = tuple(events)
    payload_bytes = sum(map(len, filter(None, map(_payload_of, events))))
    attribute_bytes = sum(map(len, map(str.encode, filter(None, map(_attributes_of, events)))))
    return ROW_BYTES * len(events) + payload_bytes + attribute_bytes


def stored_bytes_of_commit(commit: Commit) -> int:
    """Return what a commit counts: its events and outbox messages."""
    event_bytes = sum(ROW_BYTES + len(event.payload) for event in commit.events)
    return event_bytes + sum(ROW_BYTES + len(message.payload) for message in commit.outbox_messages)


def active_runs(head: RunHead | None) -> int:
    """Return how many runs that are not complete a run is; None is one that is not there."""
    return 0 if head is None or head.is_complete else 1


def check_batch_quota(usage: Usage, batch: PushBatch, *, decision: BatchDecision, limits: Limits) -> None:
    """Return where there is room for the events of a batch that are to be stored.

    Events that are filled in have rows already. Raises: QuotaExceeded.
    """
    bytes_max = limits.hub_project_stored_bytes_max
    # Far from the quota, which is nearly always, nothing needs to be counted exactly.
    most_bytes = ROW_BYTES * len(batch.events) + _ESCAPED_BYTES_MAX * batch.bytes_count
    if usage.stored_bytes + most_bytes <= bytes_max:
        return
    filled_bytes = stored_bytes_of_events(decision.filled) - ROW_BYTES * len(decision.filled)
    check_stored_bytes(usage, stored_bytes_of_events(decision.accepted) + filled_bytes, limits=limits)


def check_stored_bytes(usage: Usage, added_bytes: int, *, limits: Limits) -> None:
    """Return where there is room for so many bytes more.

    Raises: QuotaExceeded.
    """
    bytes_max = limits.hub_project_stored_bytes_max
    if added_bytes > 0 and usage.stored_bytes + added_bytes > bytes_max:
        raise QuotaExceeded("hub_project_stored_bytes_max", bytes_max)


def check_active_runs(usage: Usage, before: RunHead | None, *, after: RunHead, limits: Limits) -> None:
    """Return where there is room for one more run that is not complete, or the batch begins none.

    ``usage`` is from before the batch; one that only goes on with a run or completes it always has room.
    Raises: QuotaExceeded.
    """
    runs_max = limits.hub_project_active_runs_max
    added = active_runs(after) - active_runs(before)
    if added > 0 and usage.active_run_count + added > runs_max:
        raise QuotaExceeded("hub_project_active_runs_max", runs_max)
