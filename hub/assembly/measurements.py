"""What takes a while to measure, measured now and then: sizes on disk, backups, counts in the store.

Belongs to the composition root (``hub.app``).
"""

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hub.core.errors import Refusal
from hub.service.readers import Readers
from hub.store.contract import ReadTransaction

COUNTED_MAX: Final = 100_000
"""Rows are counted so far; more are shown as so many."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the store and its disk; None where it cannot be told."""

    store_bytes: int | None = None
    disk_free_bytes: int | None = None
    newest_backup_seconds: float | None = None
    """When the newest backup was written, in Unix seconds; None where there is none."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Of the store, as of the last time that it could be read."""

    leases_live: int = 0
    outbox_messages: Mapping[str, int] = field(default_factory=dict)


class Measurements:
    """The last measurements."""

    def __init__(self, readers: Readers, *, database: Path, backup_folder: Path | None) -> None:
        """Bind what is measured; nothing is yet."""
        self._readers = readers
        self._database = database
        self._backup_folder = backup_folder
        self.sizes = Sizes()
        self.counts = RowCounts()

    async def measure(self) -> None:
        """Measure all anew; what cannot be read stays as it was."""
        self.sizes = await asyncio.to_thread(_sizes, self._database, self._backup_folder)
        with suppress(Refusal):
            self.counts = await self._readers.call(_row_counts)

    def backup_age_seconds(self) -> float | None:
        """Return the age of the newest backup, None where there is none."""
        written = self.sizes.newest_backup_seconds
        return None if written is None else max(0.0, time.time() - written)


def _sizes(database: Path, backup_folder: Path | None) -> Sizes:
    store_bytes: int | None = None
    disk_free_bytes: int | None = None
    newest: float | None = None
    with suppress(OSError):
        store_bytes = database.stat().st_size
        disk = os.statvfs(database.parent)
        disk_free_bytes = disk.f_bavail * disk.f_frsize
    if backup_folder is not None:
        with suppress(OSError):
            newest = _newest_seconds(backup_folder)
    return Sizes(store_bytes, disk_free_bytes, newest)


def _newest_seconds(folder: Path) -> float | None:
    """Return when the newest whole file of a folder was written; what is under way ends in ``.part``."""
    newest: float | None = None
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".part"):
                written = entry.stat(follow_symlinks=False).st_mtime
                newest = written if newest is None else max(newest, written)
    return newest


def _row_counts(transaction: ReadTransaction) -> RowCounts:
    return RowCounts(
        transaction.leases.open_count(COUNTED_MAX), transaction.journal.undelivered_counts(COUNTED_MAX)
    )
