"""Leases as they change: a snapshot of the live ones, then the newest state of each that changed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hub.core.limits import Limits
from hub.core.selection import LeasePlace
from hub.core.tenure import Tenure
from hub.core.values import Caller, HubProject
from hub.service.lease_reads import ToldExpiries
from hub.service.readers import Readers
from hub.store.contract import Changes, ReadTransaction
from hub.store.lease_contract import TenureChanges


@dataclass(frozen=True, slots=True)
class LeaseNews:
    """Tenures as they stand at a moment of hub time; or that the snapshot is complete."""

    tenures: Sequence[Tenure]
    now_nanos: int
    is_snapshot_complete: bool = False


class LeaseWatches:
    """Who watches leases; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(
        self, readers: Readers, *, told: ToldExpiries, limits: Limits, now_nanos: Callable[[], int]
    ) -> None:
        """Begin with nobody watching."""
        self._readers = readers
        self._told = told
        self._limits = limits
        self._now_nanos = now_nanos
        self._wakes: dict[HubProject, set[asyncio.Event]] = {}

    def announce(self, changes: Changes) -> None:
        """Wake who watches leases that changed."""
        for hub_project in {hub_project for hub_project, _ in changes.resources}:
            for wake in self._wakes.get(hub_project, ()):
                wake.set()

    async def watch(self, caller: Caller) -> AsyncGenerator[LeaseNews, None]:
        """Give the live tenures, that these are all, then the newest state of what changes, for ever.

        States in between may be left out; nothing is queued for a watcher.
        """
        hub_project = caller.hub_project
        wake = asyncio.Event()
        wakes = self._wakes.setdefault(hub_project, set())
        wakes.add(wake)
        try:
            change_number = await self._readers.call(
                lambda transaction: transaction.leases.change_number(hub_project)
            )
            async for news in self._snapshot(hub_project):
                yield news
            yield LeaseNews((), self._now_nanos(), is_snapshot_complete=True)
            while True:
                wake.clear()
                changes, now_nanos = await self._changes_after(hub_project, change_number)
                change_number = changes.change_number
                if changes.tenures:
                    yield LeaseNews(changes.tenures, now_nanos)
                    continue
                # A commit whose outcome was unknown was not announced: look for it all the same.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.watch_progress_seconds_max):
                        await wake.wait()
        finally:
            wakes.discard(wake)
            if not wakes:
                self._wakes.pop(hub_project, None)

    async def _snapshot(self, hub_project: HubProject) -> AsyncIterator[LeaseNews]:
        after: LeasePlace | None = None
        while True:
            now_nanos = self._now_nanos()
            tenures = await self._told.live_tenures(
                hub_project, now_nanos, after=after, entries_max=self._limits.watch_page_entries_max
            )
            if tenures:
                yield LeaseNews(tenures, now_nanos)
                after = LeasePlace(tenures[-1].resource, tenures[-1].is_maintenance)
            if len(tenures) < self._limits.watch_page_entries_max:
                return

    async def _changes_after(self, hub_project: HubProject, change_number: int) -> tuple[TenureChanges, int]:
        """Return what changed, and the moment at which it is told."""

        def read(transaction: ReadTransaction) -> TenureChanges:
            return transaction.leases.tenure_changes(
                hub_project,
                after_change_number=change_number,
                entries_max=self._limits.watch_page_entries_max,
            )

        changes = await self._readers.call(read)
        now_nanos = self._now_nanos()
        if await self._told.settle(changes.tenures, now_nanos):
            changes = await self._readers.call(read)
        return changes, now_nanos
