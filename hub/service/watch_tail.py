"""The newest events of a hub project, shared by its watchers, so that a commit is read only once.

A tail is a run of batches without a hole between them, each exactly what the store has in a range of
positions. It only ever repeats what the store says; who is behind it reads from the store.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hub.core.selection import EventScope, PageBounds, PositionedEvents
from hub.core.values import ProjectId, RunId, StoredEvent

TAIL_BATCHES_MAX: Final = 1_024
"""Batches in a tail, however small they are."""
EVENT_BYTES_IN_MEMORY: Final = 600
"""What an event takes in memory beside its payload, about, in bytes."""


@dataclass(frozen=True, slots=True)
class TailBatch:
    """All events of a hub project after one position, up to and with another."""

    after_position: int
    through_position: int
    events: Sequence[StoredEvent]
    by_scope: dict[EventScope, list[StoredEvent]]
    bytes_count: int


def tail_batch(after_position: int, page: PositionedEvents) -> TailBatch:
    """Return what the store gave after a position, of all scopes, as a batch."""
    by_project: dict[ProjectId, list[StoredEvent]] = {}
    by_run: dict[tuple[ProjectId, RunId], list[StoredEvent]] = {}
    bytes_count = 0
    for event in page.events:
        bytes_count += EVENT_BYTES_IN_MEMORY + len(event.payload or b"")
        by_project.setdefault(event.project_id, []).append(event)
        by_run.setdefault((event.project_id, event.run_id), []).append(event)
    by_scope = {EventScope(): page.events} if page.events else {}
    by_scope.update((EventScope(project_id), events) for project_id, events in by_project.items())
    by_scope.update((EventScope(*run), events) for run, events in by_run.items())
    return TailBatch(after_position, page.considered_position, page.events, by_scope, bytes_count)


@dataclass(slots=True)
class Tail:
    """Batches without a hole between them; the oldest make room."""

    through_position: int
    """Everything up to here was in the tail or is not of interest to who waits for it."""
    batches: deque[TailBatch] = field(default_factory=deque)
    bytes_count: int = 0

    def append(self, batch: TailBatch, *, bytes_max: int) -> None:
        """Add the batch that goes on where the tail ends."""
        assert batch.after_position == self.through_position
        self.batches.append(batch)
        self.bytes_count += batch.bytes_count
        self.through_position = batch.through_position
        while self.bytes_count > bytes_max or len(self.batches) > TAIL_BATCHES_MAX:
            self.bytes_count -= self.batches.popleft().bytes_count

    def restart(self, position: int) -> None:
        """Forget all batches and go on after a position."""
        self.batches.clear()
        self.bytes_count = 0
        self.through_position = position

    def events_after(
        self, scope: EventScope, after_position: int, *, event_types: Sequence[str], bounds: PageBounds
    ) -> PositionedEvents | None:
        """Return events as the store would, None where the tail does not reach back so far.

        A page holds whole batches: at least one, and no more than keep the bounds together.
        """
        if not self.batches or after_position < self.batches[0].after_position:
            return None
        events: list[StoredEvent] = []
        considered_position = after_position
        bytes_count = 0
        for batch in self._batches_after(after_position):
            found = batch.by_scope.get(scope, [])
            bytes_count += batch.bytes_count if found else 0
            is_too_much = len(events) + len(found) > bounds.entries_max or bytes_count > bounds.bytes_max
            if events and is_too_much:
                break
            events += _narrowed(found, after_position, event_types=event_types)
            considered_position = batch.through_position
        return PositionedEvents(events, considered_position, self.through_position)

    def _batches_after(self, position: int) -> Iterator[TailBatch]:
        """Give the batches that hold positions after this one, oldest first."""
        count = 0
        for batch in reversed(self.batches):
            if batch.through_position <= position:
                break
            count += 1
        for index in range(len(self.batches) - count, len(self.batches)):
            yield self.batches[index]


def _narrowed(
    events: list[StoredEvent], after_position: int, *, event_types: Sequence[str]
) -> list[StoredEvent]:
    """Return the events after a position and of these types; of all types where none is named."""
    if events and events[0].position <= after_position:
        events = [event for event in events if event.position > after_position]
    if event_types:
        events = [event for event in events if event.event_type in event_types]
    return events
