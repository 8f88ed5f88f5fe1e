"""Wakes the watchers of a hub project when there is something for them, and only then.

A feed belongs to one hub project and lives as long as somebody watches it. It hears of every commit,
reads what is new once into the tail that its watchers share, and wakes those whose scope got events.
Nothing is queued for a watcher: it waits for the feed only where it has seen everything, and is told
from where to look again.

Everything here runs on the event loop, so between two awaits nothing moves.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from hub.core.errors import Refusal
from hub.core.selection import EventScope, PageBounds, PositionedEvents
from hub.core.values import HubProject
from hub.service.readers import Readers
from hub.service.watch_tail import Tail, TailBatch, tail_batch
from hub.store.contract import Changes

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Waiter:
    """A watcher that has seen everything up to a position and waits for more of its scope."""

    scope: EventScope
    considered_position: int
    woken: asyncio.Future[None]
    is_touched: bool = False

    def touch(self, after_position: int) -> None:
        """Wake it: there may be something for it after this position. The first time counts."""
        if not self.is_touched:
            self.is_touched = True
            self.considered_position = max(self.considered_position, after_position)
        if not self.woken.done():
            self.woken.set_result(None)


SHARED_READ_POSITIONS_MAX: Final = 16_384
"""How far the tail may be behind what was announced and still be read on for all; who would have to
wait for more reads its own scope instead."""


class Feed:
    """What is new in one hub project.

    Between two awaits this holds: while somebody waits, the tail ends at or above every commit that was
    announced, or it is being read on; and a waiter was touched by every batch that concerns it.
    """

    def __init__(
        self,
        hub_project: HubProject,
        readers: Readers,
        *,
        bounds: PageBounds,
        tail_bytes_max: Callable[[], int],
        monotonic_seconds: Callable[[], float],
        check_seconds: float,
    ) -> None:
        """Begin with nobody waiting. ``check_seconds`` is how often the store is asked for the head
        although no commit was announced: one whose outcome was unknown is found so."""
        self.watcher_count = 0
        self.tail = Tail(0)
        self.announced_position = 0
        self._hub_project = hub_project
        self._readers = readers
        self._bounds = bounds
        self._tail_bytes_max = tail_bytes_max
        self._monotonic_seconds = monotonic_seconds
        self._check_seconds = check_seconds
        self._checked_seconds = monotonic_seconds()
        self._waiters: dict[EventScope, set[Waiter]] = {}
        self._reading: asyncio.Task[None] | None = None

    # --- for watchers ---

    def is_abreast(self, considered_position: int) -> bool:
        """Whether one who has seen everything up to here may ``wait``: the next thing will wake it."""
        through_position = self.tail.through_position
        if considered_position < through_position:
            return False
        if self._reading is not None or considered_position >= self.announced_position:
            return True
        is_at_the_end = considered_position == through_position
        return is_at_the_end and self.announced_position - through_position <= SHARED_READ_POSITIONS_MAX

    async def wait(self, scope: EventScope, considered_position: int, *, seconds_max: float) -> int:
        """Wait until the scope has events, at most so long; only for one that ``is_abreast``.

        Returns: up to where there is nothing for the scope, so that it need not look there.
        """
        if self._reading is None and not self._waiters and considered_position > self.tail.through_position:
            # Nobody relies on the tail: it goes on from here.
            self.tail.restart(considered_position)
        waiter = Waiter(scope, considered_position, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(scope, set()).add(waiter)
        if self._reading is None and self.tail.through_position < self.announced_position:
            self._begin_reading()
        try:
            async with asyncio.timeout(seconds_max):
                await waiter.woken
        except TimeoutError:
            self._check_if_due()
        finally:
            self._forget(waiter)
        if waiter.is_touched:
            return waiter.considered_position
        return max(waiter.considered_position, self.tail.through_position)

    def close(self) -> None:
        """Nobody watches any more."""
        if self._reading is not None:
            self._reading.cancel()

    # --- for commits ---

    def announce(self, changes: Changes) -> None:
        """Hear of a commit; called in the order of the commits."""
        head_position = changes.head_positions[self._hub_project]
        self.announced_position = max(self.announced_position, head_position)
        if self._reading is not None or not self._waiters or head_position <= self.tail.through_position:
            return
        is_next = changes.previous_positions[self._hub_project] <= self.tail.through_position
        if is_next and not self._is_anyone_touched(changes):
            self.tail.restart(head_position)
            return
        self._begin_reading()

    def _is_anyone_touched(self, changes: Changes) -> bool:
        waiters = self._waiters
        if EventScope() in waiters:
            return True
        return any(
            EventScope(project_id) in waiters or EventScope(project_id, run_id) in waiters
            for hub_project, project_id, run_id in changes.runs
            if hub_project == self._hub_project
        )

    def _check_if_due(self) -> None:
        """Look into the store where no commit was announced for long."""
        if self._reading is None and self._monotonic_seconds() - self._checked_seconds >= self._check_seconds:
            self._begin_reading()

    def _begin_reading(self) -> None:
        self._checked_seconds = self._monotonic_seconds()
        self._reading = asyncio.get_running_loop().create_task(self._read_what_is_new())

    async def _read_what_is_new(self) -> None:
        """Read until the tail is abreast of what was announced, and wake whom it concerns."""
        try:
            while True:
                page = await self._read_page(self.tail.through_position)
                self._take(page)
                if self.tail.through_position >= max(self.announced_position, page.head_position):
                    return
        except Refusal as refusal:
            log.warning("watch_feed_interrupted", hub_project=self._hub_project, reason=refusal.reason)
        except Exception:  # a fault here must not leave watchers waiting for ever
            log.exception("watch_feed_failed", hub_project=self._hub_project)
        finally:
            self._reading = None
            if self.tail.through_position < self.announced_position:
                self._give_up()

    async def _read_page(self, after_position: int) -> PositionedEvents:
        return await self._readers.call(
            lambda transaction: transaction.events_after(
                self._hub_project,
                EventScope(),
                after_position=after_position,
                event_types=(),
                bounds=self._bounds,
            )
        )

    def _take(self, page: PositionedEvents) -> None:
        if page.considered_position <= self.tail.through_position:
            return
        batch = tail_batch(self.tail.through_position, page)
        self.tail.append(batch, bytes_max=self._tail_bytes_max())
        self._wake(batch)

    def _wake(self, batch: TailBatch) -> None:
        """Wake the waiters of every scope that the batch touches."""
        scopes = batch.by_scope if len(batch.by_scope) < len(self._waiters) else tuple(self._waiters)
        for scope in scopes:
            if scope not in batch.by_scope:
                continue
            for waiter in self._waiters.get(scope, ()):
                if waiter.considered_position < batch.through_position:
                    waiter.touch(batch.after_position)

    def _give_up(self) -> None:
        """The store cannot be read here: everybody looks for himself, and hears why."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.touch(0)
        self.tail.restart(self.announced_position)

    def _forget(self, waiter: Waiter) -> None:
        waiters = self._waiters[waiter.scope]
        waiters.discard(waiter)
        if not waiters:
            del self._waiters[waiter.scope]
