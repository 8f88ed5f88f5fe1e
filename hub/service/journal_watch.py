"""Watching the journal: first what is stored, then live; never a miss, never a repeat, always in order.

Each watcher reads from the store at its own pace and has nothing queued, so a slow one slows only
itself.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hub.core.journal_selection import JournalEvent, JournalQuery
from hub.core.limits import Limits
from hub.core.values import Caller, HubGeneration
from hub.service.readers import Readers
from hub.store.contract import Changes


@dataclass(frozen=True, slots=True)
class JournalAnswer:
    """Events, maybe none, and up to where everything was considered."""

    events: Sequence[JournalEvent]
    progress_position: int


class JournalWatch:
    """One watcher. ``next_answer`` may be cancelled at any time; the answer then comes again."""

    hub_generation: HubGeneration

    async def next_answer(self) -> JournalAnswer:
        """Return the next events or the next progress, waiting for them.

        The first answer without events comes where the head is reached, and has its position.
        """
        raise NotImplementedError


class JournalWatches:
    """All who watch the journal; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(self, readers: Readers, *, limits: Limits, monotonic_seconds: Callable[[], float]) -> None:
        """Begin with nobody watching."""
        self._readers = readers
        self._limits = limits
        self._monotonic_seconds = monotonic_seconds

    def announce(self, changes: Changes) -> None:
        """Wake who watches a journal that got events."""
        raise NotImplementedError

    @asynccontextmanager
    async def watching(self, caller: Caller, query: JournalQuery) -> AsyncIterator[JournalWatch]:
        """Give a watcher for the length of the block; then everything of it is freed.

        Raises: InvalidRequest, GenerationChanged or PositionAhead where the watch cannot begin there.
        """
        yield JournalWatch()
