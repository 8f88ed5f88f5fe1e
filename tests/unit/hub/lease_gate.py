"""Leases over a real store, with writer, loop and clock in the hands of a test.

Time stands still until the test lets it pass: the loop's timers and hub time read one counter, and the
writer commits when the loop has nothing else to do.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import apsw

from hub.core.clock import HubClock
from hub.core.limits import Limits
from hub.core.values import ResourceName
from hub.service.alert_book import AlertBook
from hub.service.instruments import NoInstruments
from hub.service.lease_aborts import LeaseAborts
from hub.service.lease_queue import LeaseQueues
from hub.service.lease_reads import LeaseReads, ResourceView, ToldExpiries
from hub.service.lease_upkeep import LeaseUpkeep
from hub.service.lease_watch import LeaseWatches
from hub.service.leases import Leases
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter, Writer
from hub.store.contract import Changes
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND
from tests.unit.hub.gate import caller_of
from tests.unit.hub.stored_runs import WALL_NANOS

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Row = tuple[object, ...]

IDLE_ROUNDS: Final = 6
"""Rounds of the loop without a commit after which nothing happens any more without time passing."""
ROUNDS_MAX: Final = 100_000


class LeaseGate:
    """One life of a hub's leases over the store in a folder; a later one may be opened on the same."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: Limits | None = None,
        wall_nanos: int = WALL_NANOS,
        has_upkeep: bool = True,
    ) -> None:
        """Open the store; without upkeep, nobody notes an expiry but who is asked."""
        self.limits = limits or Limits()
        self.elapsed_nanos = 0
        self.caller = caller_of("h")
        self._database = folder / "hub.db"
        self._exit = ExitStack()
        engine = self._exit.enter_context(opened_engine(self._database, limits=self.limits))
        self.store = SqlStore(engine, limits=self.limits, wall_nanos=wall_nanos)
        self._exit.callback(self.store.close)
        self.clock = HubClock(
            wall_nanos=wall_nanos,
            floor_nanos=self.store.time_floor_nanos,
            suspension_counting_nanos=lambda: self.elapsed_nanos,
        )
        self.loop = SteppedLoop(lambda: self.elapsed_nanos)
        self._make_services()
        if has_upkeep:
            self._upkeep_task = self.loop.create_task(self.upkeep.run(asyncio.sleep))
        self.settle()

    def _make_services(self) -> None:
        limits, now = self.limits, self.clock.now
        ticks = count()
        self.writer = Writer(
            self.store.writing,
            clock=self.clock,
            limits=limits,
            hook=AlertBook(limits=limits),
            instruments=NoInstruments(),
            monotonic_seconds=lambda: float(next(ticks)),
            dispatch=lambda deliver: deliver(),
            on_commit=self._announce,
        )
        self.async_writer = AsyncWriter(self.writer, limits=limits)
        self.readers = Readers(self.store, InlineExecutor())
        told = ToldExpiries(self.async_writer, self.readers)
        self.queues = LeaseQueues(limits=limits)
        self.aborts = LeaseAborts()
        self.leases = Leases(self.async_writer, queues=self.queues, limits=limits, now_nanos=now)
        self.reads = LeaseReads(self.readers, told=told, queues=self.queues, limits=limits, now_nanos=now)
        self.watches = LeaseWatches(self.readers, told=told, limits=limits, now_nanos=now)
        self.upkeep = LeaseUpkeep(self.async_writer, self.readers, limits=limits, now_nanos=now)

    def _announce(self, changes: Changes) -> None:
        self.queues.announce(changes)
        self.aborts.announce(changes)
        self.watches.announce(changes)
        self.upkeep.announce(changes)

    # --- steps ---

    def start(self, work: Coroutine[None, None, Result]) -> "asyncio.Task[Result]":
        """Begin a call and let it come as far as it comes without time passing."""
        task = self.loop.create_task(work)
        self.settle()
        return task

    def answer(self, work: Coroutine[None, None, Result]) -> Result:
        """Make a call that needs no time; raises what it is refused with."""
        task = self.start(work)
        assert task.done(), "the call waits for time to pass"
        return task.result()

    def settle(self) -> None:
        """Run everything that may run now, commits included."""
        self.loop.run_until_complete(self._settled(is_committing=True))

    def run_without_commits(self) -> None:
        """Run everything that may run now but the writer."""
        self.loop.run_until_complete(self._settled(is_committing=False))

    def pass_time(self, nanos: int) -> None:
        """Let time pass in one step, and everything happen that is due then."""
        self.elapsed_nanos += nanos
        self.settle()

    async def _settled(self, *, is_committing: bool) -> None:
        idle_rounds = 0
        for _ in range(ROUNDS_MAX):
            await asyncio.sleep(0)
            has_committed = is_committing and self.writer.step() > 0
            idle_rounds = 0 if has_committed else idle_rounds + 1
            if idle_rounds > IDLE_ROUNDS:
                return
        raise AssertionError("it does not come to rest")

    def close(self) -> None:
        """End this life: calls that wait are gone, and nothing is written any more."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run_without_commits()
        self.loop.close()
        self._exit.close()

    # --- what is there ---

    def view(self, resource: str) -> ResourceView:
        return self.answer(self.reads.resource(self.caller, ResourceName(resource)))

    def stored(self) -> dict[str, list[Row]]:
        """Everything that is stored, by table, without the floor of time that each commit writes."""
        connection = apsw.Connection(str(self._database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            names = [
                str(name)
                for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            return {name: self._rows(connection, name) for name in sorted(names)}
        finally:
            connection.close()

    def _rows(self, connection: apsw.Connection, table: str) -> list[Row]:
        columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
        kept = ", ".join(name for name in columns if name != "time_floor_nanos")
        return [tuple(row) for row in connection.execute(f"SELECT {kept} FROM {table} ORDER BY 1, 2")]


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop that never blocks, and whose time is a counter of nanoseconds."""

    def __init__(self, elapsed_nanos: Callable[[], int]) -> None:
        super().__init__(_UnblockedSelector())
        self._elapsed_nanos = elapsed_nanos

    def time(self) -> float:
        return self._elapsed_nanos() / NANOS_PER_SECOND


class _UnblockedSelector(selectors.SelectSelector):
    def select(  # type: ignore[explicit-any]  # of its base's signature
        self, timeout: float | None = None
    ) -> "list[tuple[selectors.SelectorKey, int]]":
        return super().select(0)


class InlineExecutor(Executor):
    """Runs what it is given at once, on the thread that gives it."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> "Future[Result]":
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed to who waits, as a pool of threads does
            future.set_exception(error)
        return future
