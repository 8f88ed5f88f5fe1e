"""Watching the journal: first what is stored, then live; never a miss, never a repeat, always in order.

Each watcher reads from the store at its own pace and has nothing queued, so a slow one slows only
itself. One that has seen everything waits until the head of its hub project's journal is above that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from hub.core.journal_selection import JournalEvent, JournalQuery, PositionedJournalEvents
from hub.core.limits import Limits
from hub.core.selection import PageBounds
from hub.core.values import Caller, HubGeneration, HubProject
from hub.service.journal_reads import JournalStart, journal_start
from hub.service.readers import Readers
from hub.service.watch import CHECK_SHARE, PROGRESS_SHARE
from hub.store.contract import Changes


@dataclass(frozen=True, slots=True)
class JournalAnswer:
    """Events, maybe none, and up to where everything was considered."""

    events: Sequence[JournalEvent]
    progress_position: int


@dataclass(eq=False, slots=True)
class _Head:
    """How far the journal of a hub project is known to be, and who waits for it to rise.

    ``read_seconds`` is when somebody last saw it in the store.
    """

    position: int = 0
    read_seconds: float = 0.0
    wakes: set[asyncio.Event] = field(default_factory=set)
    watching: "dict[asyncio.Event, JournalWatch]" = field(default_factory=dict)

    def rise(self, position: int) -> None:
        """Note the head of a commit or of a read, and wake those who wait."""
        if position > self.position:
            self.position = position
            for wake in self.wakes:
                wake.set()


class JournalWatch:
    """One watcher. ``next_answer`` may be cancelled at any time; the answer then comes again."""

    def __init__(
        self,
        head: _Head,
        wake: asyncio.Event,
        readers: Readers,
        *,
        hub_project: HubProject,
        query: JournalQuery,
        start: JournalStart,
        limits: Limits,
        monotonic_seconds: Callable[[], float],
    ) -> None:
        """Begin after the position at which the start was found."""
        self.hub_generation: HubGeneration = start.hub_generation
        self._head = head
        self._wake = wake
        self._readers = readers
        self._hub_project = hub_project
        self._event_types = query.event_types
        self._bounds = PageBounds(limits.watch_page_entries_max, limits.watch_page_bytes_max)
        self._monotonic_seconds = monotonic_seconds
        self._progress_seconds = limits.watch_progress_seconds_max * PROGRESS_SHARE
        self._check_seconds = limits.watch_progress_seconds_max * CHECK_SHARE
        self._considered_position = start.after_position
        self._has_reached_head = start.after_position == start.head_position
        self._progress_due_seconds = 0.0
        """When an answer without events is due; at once when the head is reached for the first time."""

    def lag_positions(self) -> int:
        """Return how far it is behind the newest commit that is known."""
        return max(0, self._head.position - self._considered_position)

    async def next_answer(self) -> JournalAnswer:
        """Return the next events or the next progress, waiting for them.

        The first answer without events comes where the head is reached, and has its position.
        """
        while True:
            now_seconds = self._monotonic_seconds()
            if self._has_reached_head and now_seconds >= self._progress_due_seconds:
                self._progress_due_seconds = now_seconds + self._progress_seconds
                return JournalAnswer((), self._considered_position)
            # A commit whose outcome was unknown was not announced: the store is asked all the same.
            check_due_seconds = self._head.read_seconds + self._check_seconds
            is_abreast = self._has_reached_head and self._considered_position >= self._head.position
            if is_abreast and now_seconds < check_due_seconds:
                due_seconds = min(check_due_seconds, self._progress_due_seconds)
                await self._wait(due_seconds - now_seconds)
                continue
            page = await self._page()
            self._considered_position = page.considered_position
            if page.considered_position >= page.head_position:
                self._has_reached_head = True
            if page.events:
                return JournalAnswer(page.events, page.considered_position)

    async def _wait(self, seconds_max: float) -> None:
        """Wait until the head rises, at most so long."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._wake.wait()

    async def _page(self) -> PositionedJournalEvents:
        after_position = self._considered_position
        page = await self._readers.call(
            lambda transaction: transaction.journal.events_after(
                self._hub_project,
                after_position=after_position,
                event_types=self._event_types,
                bounds=self._bounds,
            )
        )
        # A head below what was seen would be another life of the store; positions never fall in one.
        assert page.head_position >= after_position
        self._head.read_seconds = self._monotonic_seconds()
        self._head.rise(page.head_position)
        return page


class JournalWatches:
    """All who watch the journal; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(self, readers: Readers, *, limits: Limits, monotonic_seconds: Callable[[], float]) -> None:
        """Begin with nobody watching."""
        self._readers = readers
        self._limits = limits
        self._monotonic_seconds = monotonic_seconds
        self._heads: dict[HubProject, _Head] = {}

    @property
    def watcher_count(self) -> int:
        """How many watch now."""
        return sum(len(head.wakes) for head in self._heads.values())

    def lags(self) -> dict[HubProject, int]:
        """Return how far the slowest watcher of each hub project is behind its newest commit."""
        return {
            hub_project: max(watch.lag_positions() for watch in head.watching.values())
            for hub_project, head in self._heads.items()
            if head.watching
        }

    def announce(self, changes: Changes) -> None:
        """Wake who watches a journal that got events."""
        for hub_project, head_position in changes.journal_head_positions.items():
            head = self._heads.get(hub_project)
            if head is not None:
                head.rise(head_position)

    @asynccontextmanager
    async def watching(self, caller: Caller, query: JournalQuery) -> AsyncIterator[JournalWatch]:
        """Give a watcher for the length of the block; then everything of it is freed.

        Raises: InvalidRequest, GenerationChanged or PositionAhead where the watch cannot begin there.
        """
        hub_project, wake = caller.hub_project, asyncio.Event()
        head = self._heads.setdefault(hub_project, _Head())
        head.wakes.add(wake)
        try:
            start = await self._readers.call(
                lambda transaction: journal_start(transaction, caller, query=query)
            )
            head.read_seconds = self._monotonic_seconds()
            head.rise(start.head_position)
            watch = head.watching[wake] = JournalWatch(
                head,
                wake,
                self._readers,
                hub_project=hub_project,
                query=query,
                start=start,
                limits=self._limits,
                monotonic_seconds=self._monotonic_seconds,
            )
            yield watch
        finally:
            head.watching.pop(wake, None)
            head.wakes.discard(wake)
            if not head.wakes:
                self._heads.pop(hub_project, None)
