"""Takes backups while the hub goes on: one at a time, on a thread of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event
from typing import Final

import structlog

from hub.core.backup import BackupPhase, BackupProgress, default_file_name
from hub.core.errors import InvalidRequest, LimitReached, Violation
from hub.store.backup_contract import BackupMaker
from synchub.contract import NANOS_PER_SECOND

log = structlog.get_logger(__name__)

REST_SECONDS_MAX: Final = 0.05
"""After each step it rests for as long as the step took, and for no longer than this: computing hashes
takes half of the interpreter at most, and the other half is left to the hub."""


class Backups:
    """The use case."""

    def __init__(
        self, maker: BackupMaker | None, executor: Executor, *, now_nanos: Callable[[], int]
    ) -> None:
        """Bind what takes them, None where there is no folder for backups, and a single thread's executor."""
        self._maker = maker
        self._executor = executor
        self._now_nanos = now_nanos
        self._is_running = False

    def name_for(self, file_name: str) -> str:
        """Return the name that was asked for, or one with the time where none was."""
        if file_name:
            return file_name
        now = datetime.fromtimestamp(self._now_nanos() // NANOS_PER_SECOND, UTC)
        return default_file_name(f"{now:%Y%m%dT%H%M%SZ}")

    async def take(self, file_name: str) -> AsyncGenerator[BackupProgress, None]:
        """Take a backup, giving how far it is; it is there once the progress says ``DONE``.

        Whoever leaves before gives it up: then nothing of it is left, soon after.

        Raises: InvalidRequest where there is no folder; LimitReached where one is being taken;
        IdempotencyConflict where the name is taken; StorageUnavailable.
        """
        if self._maker is None:
            description = "has nowhere to be: the hub was started without a folder for backups"
            raise InvalidRequest([Violation("file_name", description)])
        if self._is_running:
            raise LimitReached("backups_at_once_max", 1)
        self._is_running = True
        stopping = Event()
        loop = asyncio.get_running_loop()
        steps = self._maker.take(file_name, is_stopping=stopping.is_set)
        try:
            while True:
                begin_seconds = loop.time()
                progress = await loop.run_in_executor(self._executor, next, steps)
                step_seconds = loop.time() - begin_seconds
                yield progress
                if progress.phase is BackupPhase.DONE:
                    return
                await asyncio.sleep(min(step_seconds, REST_SECONDS_MAX))
        finally:
            stopping.set()
            self._close(steps.close)

    def _close(self, close: Callable[[], None]) -> None:
        """Let the thread tidy up behind the step that it is at, then let the next one begin."""

        def closed(closing: asyncio.Future[None]) -> None:
            self._is_running = False
            if not closing.cancelled() and closing.exception() is not None:
                log.warning("backup_not_tidied_up", error=str(closing.exception()))

        # Without the executor the hub has stopped; what is left is taken away when one starts.
        with suppress(RuntimeError):
            closing = asyncio.get_running_loop().run_in_executor(self._executor, close)
            closing.add_done_callback(closed)
