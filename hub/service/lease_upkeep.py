"""What happens to leases by themselves: expiries are noted and announced, old rows are purged.

Nothing rests on it being on time: whether a lease is live is decided by its expire time whenever it is
asked. It is what wakes waiters and watchers at an expiry.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from hub.core.errors import Refusal
from hub.core.lease import decide_expiry
from hub.core.limits import Limits
from hub.core.tenure import Resource
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import Changes, WriteTransaction
from synchub.contract import NANOS_PER_SECOND

log = structlog.get_logger(__name__)

NOTED_AT_ONCE_MAX: Final = 1_000
"""Expiries noted in one command, so that other commands do not wait long."""
SLEEP_SECONDS_MAX: Final = 1.0
"""A sleep does not count the suspension of the machine, so it is never longer."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""The store is asked at least so often what expires next."""
RETRY_SECONDS: Final = 1.0
"""How long to wait where the store could not be written."""
SECONDS_PER_DAY: Final = 86_400
"""Seconds in a day."""
PURGE_SECONDS: Final = 3_600.0
"""How often old rows are purged."""


class LeaseUpkeep:
    """Notes expiries; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(
        self,
        writer: AsyncWriter,
        readers: Readers,
        *,
        limits: Limits,
        now_nanos: Callable[[], int],
    ) -> None:
        """Bind writer and readers; ``now_nanos`` gives hub time."""
        self._writer = writer
        self._readers = readers
        self._limits = limits
        self._now_nanos = now_nanos
        self._due_nanos: int | None = 0
        """When the next expiry may be due, None where nothing can expire."""
        self._purge_nanos = now_nanos()
        self._wake = asyncio.Event()

    def announce(self, changes: Changes) -> None:
        """Hear of tenures that may be the next to expire."""
        for resource in changes.resources.values():
            for tenure in (resource.lease, resource.maintenance):
                if tenure is not None and tenure.end is None:
                    self._plan(tenure.expire_nanos)

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Note expiries when they are due and purge now and then, until cancelled."""
        while True:
            try:
                await self.note_expiries()
                await self.purge_if_due()
            except Refusal as refusal:
                log.warning("lease_upkeep_interrupted", reason=refusal.reason)
                await sleep(RETRY_SECONDS)
                continue
            await self._until_due(sleep)

    async def note_expiries(self) -> int:
        """Note what has expired, and plan for what expires next; return how many resources it was.

        Raises: StorageUnavailable, HubStopping.
        """
        noted_count = 0
        while True:
            self._wake.clear()
            self._due_nanos = None
            next_nanos = await self._readers.call(lambda transaction: transaction.leases.next_expiry_nanos())
            if next_nanos is None:
                return noted_count
            self._plan(next_nanos)
            if next_nanos > self._now_nanos():
                return noted_count
            noted_count += await self._writer.call(_note_some)

    async def purge_if_due(self) -> int:
        """Drop resources of which everything ended longer ago than the retention; return how many.

        Raises: StorageUnavailable, HubStopping.
        """
        if self._now_nanos() < self._purge_nanos:
            return 0
        self._purge_nanos = self._now_nanos() + round(PURGE_SECONDS * NANOS_PER_SECOND)
        retention_nanos = self._limits.lease_retention_days * SECONDS_PER_DAY * NANOS_PER_SECOND
        rows_max = self._limits.lease_purge_rows_max

        def command(transaction: WriteTransaction, now_nanos: int) -> int:
            return transaction.leases.purge_resources(now_nanos - retention_nanos, entries_max=rows_max)

        purged_count = 0
        while (count := await self._writer.call(command)) > 0:
            purged_count += count
        return purged_count

    def _plan(self, expire_nanos: int) -> None:
        """Look again at this moment, where nothing earlier is planned."""
        if self._due_nanos is None or expire_nanos < self._due_nanos:
            self._due_nanos = expire_nanos
            self._wake.set()

    async def _until_due(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait until something may be due; a commit whose outcome was unknown may have planned nothing."""
        again_nanos = self._now_nanos() + round(LOOK_AGAIN_SECONDS * NANOS_PER_SECOND)
        while True:
            now_nanos = self._now_nanos()
            due_nanos = again_nanos if self._due_nanos is None else min(self._due_nanos, again_nanos)
            if now_nanos >= due_nanos:
                return
            # Says that the loop lives, to whoever gave it what to sleep by.
            await sleep(0)
            seconds = min((due_nanos - now_nanos) / NANOS_PER_SECOND, SLEEP_SECONDS_MAX)
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue


def _note_some(transaction: WriteTransaction, now_nanos: int) -> int:
    overdue = transaction.leases.overdue_resources(now_nanos, entries_max=NOTED_AT_ONCE_MAX)
    for hub_project, name in overdue:
        before: Resource = transaction.leases.resource(hub_project, name)
        transaction.leases.save_resource(hub_project, before, after=decide_expiry(before, now_nanos))
    return len(overdue)
