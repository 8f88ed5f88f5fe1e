"""The way from the event loop to the store's reading side: a few threads, a transaction a call.

Who reads waits in the turn of its hub project: whoever asks for much at once slows only itself.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, TypeVar

from hub.core.errors import LimitReached
from hub.store.contract import ReadableStore, ReadTransaction

Result = TypeVar("Result")

WAITING_READS_MAX: Final = 100_000
"""Reads that wait for a thread or run; more are refused. A call or a watcher has one at a time."""

_TURN: ContextVar[str] = ContextVar("reads_turn", default="")
"""In whose turn the running task's reads wait."""


def read_in_turn_of(hub_project: str) -> None:
    """Let the reads of the running task, and of those that it begins, wait in the turn of a hub project."""
    _TURN.set(hub_project)


class Readers:
    """Runs reads on the threads of an executor; no database call ever runs on the loop."""

    def __init__(self, store: ReadableStore, executor: Executor, *, running_max: int = 1) -> None:
        """Bind the store; ``running_max`` reads run at once, on as many threads of the executor."""
        self._store = store
        self._executor = executor
        self._running_max = running_max
        self._running_count = 0
        self._waiting_count = 0
        self._turns: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Who waits for a thread, by hub project; none is empty, and the first one has the next turn."""

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
            await self._turn(_TURN.get())
            loop = asyncio.get_running_loop()
            try:
                reading = self._executor.submit(self._read, function)
            except BaseException:
                self._over()
                raise
            # Not where this task ends: a read that was cancelled has its thread until it is over.
            reading.add_done_callback(lambda _: self._over_soon(loop))
            return await asyncio.wrap_future(reading)
        finally:
            self._waiting_count -= 1

    async def _turn(self, hub_project: str) -> None:
        """Wait until a thread is there; whoever returns from here has it until ``_over``."""
        if self._running_count < self._running_max:
            self._running_count += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._turns.setdefault(hub_project, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted in the same moment
                self._over()
            raise

    def _over(self) -> None:
        """Give a thread on to the hub project that has the next turn."""
        while self._turns:
            hub_project, queue = self._turns.popitem(last=False)
            granted = queue.popleft()
            if queue:
                self._turns[hub_project] = queue
            if not granted.done():
                granted.set_result(None)
                return
        self._running_count -= 1

    def _over_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(self._over)

    def _read(self, function: Callable[[ReadTransaction], Result]) -> Result:
        with self._store.reading() as transaction:
            return function(transaction)
