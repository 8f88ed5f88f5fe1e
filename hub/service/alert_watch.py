"""Alerts as callers read, watch and acknowledge them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hub.core.errors import NotFound
from hub.core.limits import Limits
from hub.core.selection import AlertChanges
from hub.core.values import Alert, AlertId, Caller, HubProject
from hub.service.alert_book import AlertBook
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import Changes


@dataclass(frozen=True, slots=True)
class AlertNews:
    """Alerts in their newest states; or that the snapshot is complete."""

    alerts: Sequence[Alert]
    is_snapshot_complete: bool = False


class AlertWatches:
    """The use cases of alerts; ``announce`` is to be called on the loop after each COMMIT.

    What is only counted so far is made durable before it is read, so that a reader misses nothing.
    """

    def __init__(
        self, readers: Readers, writer: AsyncWriter, *, alert_book: AlertBook, limits: Limits
    ) -> None:
        """Begin with nobody watching."""
        self._readers = readers
        self._writer = writer
        self._alert_book = alert_book
        self._limits = limits
        self._wakes: dict[HubProject, set[asyncio.Event]] = {}

    def announce(self, changes: Changes) -> None:
        """Wake who watches alerts that changed."""
        for hub_project in changes.alerts:
            for wake in self._wakes.get(hub_project, ()):
                wake.set()

    async def alerts(
        self, caller: Caller, *, exclude_acknowledged: bool, after: AlertId | None, entries_max: int
    ) -> list[Alert]:
        """Return a page of alerts, ascending by the bytes of their ids."""
        await self._alert_book.flush(self._writer)
        return await self._readers.call(
            lambda transaction: transaction.alerts(
                caller.hub_project,
                exclude_acknowledged=exclude_acknowledged,
                after=after,
                entries_max=entries_max,
            )
        )

    async def acknowledge(self, caller: Caller, alert_id: AlertId) -> Alert:
        """Mark an alert as seen, durably, and return it; idempotent. It opens again when it recurs.

        Raises: NotFound.
        """
        await self._alert_book.flush(self._writer)
        hub_project = caller.hub_project
        await self._writer.call(
            lambda transaction, now_nanos: transaction.acknowledge_alert(
                hub_project, alert_id, now_nanos=now_nanos
            )
        )
        alert = await self._readers.call(lambda transaction: transaction.alert(hub_project, alert_id))
        if alert is None:
            raise NotFound("alert", {"id": alert_id})
        return alert

    async def watch(self, caller: Caller) -> AsyncGenerator[AlertNews, None]:
        """Give all alerts, that this is all, then the newest state of each that changes, for ever.

        States in between may be left out; nothing is queued for a watcher.
        """
        wake = asyncio.Event()
        wakes = self._wakes.setdefault(caller.hub_project, set())
        wakes.add(wake)
        try:
            await self._alert_book.flush(self._writer)
            is_snapshot_complete = False
            change_number = 0
            while True:
                wake.clear()
                changes = await self._changes_after(caller, change_number)
                change_number = changes.change_number
                if changes.alerts:
                    yield AlertNews(changes.alerts)
                if len(changes.alerts) == self._limits.watch_page_entries_max:
                    continue
                if not is_snapshot_complete:
                    is_snapshot_complete = True
                    yield AlertNews((), is_snapshot_complete=True)
                    continue
                # A commit whose outcome was unknown was not announced: look for it all the same.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.watch_progress_seconds_max):
                        await wake.wait()
        finally:
            wakes.discard(wake)
            if not wakes:
                del self._wakes[caller.hub_project]

    async def _changes_after(self, caller: Caller, change_number: int) -> AlertChanges:
        return await self._readers.call(
            lambda transaction: transaction.alert_changes(
                caller.hub_project,
                after_change_number=change_number,
                entries_max=self._limits.watch_page_entries_max,
            )
        )
