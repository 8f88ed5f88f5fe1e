"""The way from the event loop to the store's reading side: a few threads, a transaction a call."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from hub.core.errors import LimitReached
from hub.store.contract import ReadableStore, ReadTransaction

Result = TypeVar("Result")

WAITING_READS_MAX: Final = 100_000
"""Reads that wait for a thread or run; more are refused. A call or a watcher has one at a time."""


class Readers:
    """Runs reads on the threads of an executor; no database call ever runs on the loop."""

    def __init__(self, store: ReadableStore, executor: Executor) -> None:
        """Bind the store; the executor's threads bound how many reads run at once."""
        self._store = store
        self._executor = executor
        self._waiting_count = 0

    @property
    def waiting_count(self) -> int:
        """How many reads wait for a thread or run."""
        return self._waiting_count

    async def call(self, function: Callable[[ReadTransaction], Result]) -> Result:
        """Run a function over one state of the store and return what it returns.

        Everything whose COMMIT was answered before the call is in that state. A caller that is
        cancelled while it waits takes its read with it.

        Raises: what the function raises; StorageUnavailable; LimitReached.
        """
        if self._waiting_count >= WAITING_READS_MAX:
            raise LimitReached("waiting_reads_max", WAITING_READS_MAX)
        self._waiting_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, function)
        finally:
            self._waiting_count -= 1

    def _read(self, function: Callable[[ReadTransaction], Result]) -> Result:
        with self._store.reading() as transaction:
            return function(transaction)
