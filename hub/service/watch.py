"""Watching events: first what is stored, then live; never a miss, never a repeat, always in order.

A watcher reads at its own pace and has nothing queued: where it is behind it reads from the store, where
it is abreast it waits for the feed of its hub project. So a slow one slows only itself.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hub.core.limits import Limits
from hub.core.resume import check_resume
from hub.core.selection import EventScope, PageBounds, PositionedEvents
from hub.core.values import Caller, HubGeneration, HubProject, StoredEvent
from hub.service.readers import Readers
from hub.service.watch_feed import Feed
from hub.store.contract import Changes, ReadTransaction

PROGRESS_SHARE = 0.8
"""Progress is told after this share of the time after which a watcher has to hear of it."""
CHECK_SHARE = 0.4
"""The store is asked for its head after this share of that time, though no commit was announced."""


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """What to watch, and from where.

    ``after_position`` was received under ``hub_generation``; with ``is_from_now`` both are not looked
    at. ``event_types`` are all where none is named.
    """

    scope: EventScope = field(default_factory=EventScope)
    event_types: Sequence[str] = ()
    hub_generation: str = ""
    after_position: int = 0
    is_from_now: bool = False


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """Events, maybe none, and up to where everything was considered."""

    events: Sequence[StoredEvent]
    progress_position: int


class EventWatch:
    """One watcher. ``next_answer`` may be cancelled at any time; the answer then comes again."""

    def __init__(
        self,
        feed: Feed,
        readers: Readers,
        *,
        hub_project: HubProject,
        query: WatchQuery,
        start: "_Start",
        limits: Limits,
        monotonic_seconds: Callable[[], float],
    ) -> None:
        """Begin after the position at which the start was found."""
        self.hub_generation: HubGeneration = start.hub_generation
        self._feed = feed
        self._readers = readers
        self._hub_project = hub_project
        self._query = query
        self._bounds = PageBounds(limits.watch_page_entries_max, limits.watch_page_bytes_max)
        self._monotonic_seconds = monotonic_seconds
        self._progress_seconds = limits.watch_progress_seconds_max * PROGRESS_SHARE
        self._considered_position = start.after_position
        self._head_position = start.head_position
        self._has_reached_head = start.after_position == start.head_position
        self._is_waiting = False
        self._progress_due_seconds = 0.0
        """When an answer without events is due; at once when the head is reached for the first time."""

    def lag_positions(self) -> int:
        """Return how far it is behind the newest commit that is known."""
        head_position = max(self._head_position, self._feed.announced_position)
        position = self._considered_position
        if self._is_waiting:
            # Up to where the tail is there was nothing for it, else it had been woken.
            position = max(position, self._feed.tail.through_position)
        return max(0, head_position - position)

    async def next_answer(self) -> WatchAnswer:
        """Return the next events or the next progress, waiting for them.

        The first answer without events comes where the head is reached, and has its position.
        """
        while True:
            if self._has_reached_head and self._monotonic_seconds() >= self._progress_due_seconds:
                self._progress_due_seconds = self._monotonic_seconds() + self._progress_seconds
                return WatchAnswer((), self._considered_position)
            if self._has_reached_head and self._feed.is_abreast(self._considered_position):
                self._is_waiting = True
                try:
                    self._considered_position = await self._feed.wait(
                        self._query.scope,
                        self._considered_position,
                        seconds_max=self._progress_due_seconds - self._monotonic_seconds(),
                    )
                finally:
                    self._is_waiting = False
                continue
            page = self._page_of_tail() or await self._page_of_store()
            self._considered_position = page.considered_position
            self._head_position = page.head_position
            if page.considered_position >= page.head_position:
                self._has_reached_head = True
            if page.events:
                return WatchAnswer(page.events, page.considered_position)

    def _page_of_tail(self) -> PositionedEvents | None:
        """Return what is new from the tail that watchers share, where it reaches back so far."""
        if not self._has_reached_head or self._considered_position >= self._feed.tail.through_position:
            return None
        return self._feed.tail.events_after(
            self._query.scope,
            self._considered_position,
            event_types=self._query.event_types,
            bounds=self._bounds,
        )

    async def _page_of_store(self) -> PositionedEvents:
        after_position = self._considered_position
        page = await self._readers.call(
            lambda transaction: transaction.events_after(
                self._hub_project,
                self._query.scope,
                after_position=after_position,
                event_types=self._query.event_types,
                bounds=self._bounds,
            )
        )
        # A head below what was seen would be another life of the store; positions never fall in one.
        assert page.head_position >= after_position
        return page


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a watcher begins."""

    hub_generation: HubGeneration
    after_position: int
    head_position: int


class Watches:
    """All who watch events; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(self, readers: Readers, *, limits: Limits, monotonic_seconds: Callable[[], float]) -> None:
        """Begin with nobody watching."""
        self._readers = readers
        self._limits = limits
        self._monotonic_seconds = monotonic_seconds
        self._feeds: dict[HubProject, Feed] = {}
        self._watching: dict[HubProject, set[EventWatch]] = {}

    def announce(self, changes: Changes) -> None:
        """Tell the feeds of a commit."""
        for hub_project in changes.head_positions:
            feed = self._feeds.get(hub_project)
            if feed is not None:
                feed.announce(changes)

    @asynccontextmanager
    async def watching(self, caller: Caller, query: WatchQuery) -> AsyncIterator[EventWatch]:
        """Give a watcher for the length of the block; then everything of it is freed.

        Raises: InvalidRequest, GenerationChanged or PositionAhead where the watch cannot begin there.
        """
        feed = self._joined(caller.hub_project)
        watch: EventWatch | None = None
        try:
            start = await self._readers.call(lambda transaction: _start(transaction, caller, query=query))
            watch = EventWatch(
                feed,
                self._readers,
                hub_project=caller.hub_project,
                query=query,
                start=start,
                limits=self._limits,
                monotonic_seconds=self._monotonic_seconds,
            )
            self._watching.setdefault(caller.hub_project, set()).add(watch)
            yield watch
        finally:
            if watch is not None:
                self._watching[caller.hub_project].discard(watch)
            self._leave(caller.hub_project, feed)

    def lags(self) -> dict[HubProject, int]:
        """Return how far the slowest watcher of each hub project is behind its newest commit."""
        return {
            hub_project: max(watch.lag_positions() for watch in watching)
            for hub_project, watching in self._watching.items()
            if watching
        }

    def _joined(self, hub_project: HubProject) -> Feed:
        feed = self._feeds.get(hub_project)
        if feed is None:
            limits = self._limits
            feed = self._feeds[hub_project] = Feed(
                hub_project,
                self._readers,
                bounds=PageBounds(limits.watch_page_entries_max, limits.watch_page_bytes_max),
                tail_bytes_max=self._tail_bytes_max,
                monotonic_seconds=self._monotonic_seconds,
                check_seconds=limits.watch_progress_seconds_max * CHECK_SHARE,
            )
        feed.watcher_count += 1
        return feed

    def _leave(self, hub_project: HubProject, feed: Feed) -> None:
        feed.watcher_count -= 1
        if feed.watcher_count == 0:
            feed.close()
            del self._feeds[hub_project]
            self._watching.pop(hub_project, None)

    def _tail_bytes_max(self) -> int:
        """Return the share of each hub project in the memory for tails."""
        limits = self._limits
        return min(limits.watch_tail_bytes_max, limits.watch_tails_bytes_max // max(1, len(self._feeds)))


def _start(transaction: ReadTransaction, caller: Caller, *, query: WatchQuery) -> _Start:
    """Find where a watch begins, in one state of the store."""
    head_position = transaction.head_position(caller.hub_project)
    generations = transaction.generations(caller.hub_project)
    hub_generation = generations[-1].hub_generation
    if query.is_from_now:
        return _Start(hub_generation, head_position, head_position)
    check_resume(
        generations,
        hub_generation=query.hub_generation,
        after_position=query.after_position,
        head_position=head_position,
    )
    return _Start(hub_generation, query.after_position, head_position)
