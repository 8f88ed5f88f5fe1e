"""The one writer: every change is a command that runs inside the group that is open.

A group is everything that was queued when the writer was free, up to a bound: one transaction, one
COMMIT, one sync of the disk. Commands that are refused are undone by a savepoint and do not disturb
their neighbours. What a command returned is delivered only after the COMMIT; where that fails, all of
the group get StorageUnavailable and nothing is acknowledged.

The writer knows no loop and no thread: ``run`` is a thread's main function, ``step`` runs one group by
hand. ``AsyncWriter`` is the way in from an event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Condition
from typing import Generic, Protocol, TypeVar, cast

import structlog

from hub.core.clock import HubClock
from hub.core.errors import HubStopping, LimitReached, Refusal, StorageFull, StorageUnavailable
from hub.core.limits import Limits
from hub.service.fair_queue import FairQueue, FairShares
from hub.service.instruments import Instruments
from hub.store.contract import Changes, WriteSession, WriteTransaction

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
Command = Callable[[WriteTransaction, int], Result]
"""(transaction, hub time in Unix nanoseconds) → result; raises a Refusal to have it all undone."""


class Lane(Enum):
    """Which commands go first: CONTROL (leases, presence, operators), then JOURNAL, then INGEST.

    Commits to the journal may be large: in a lane of their own no lease waits behind those that queue.
    """

    CONTROL = 0
    JOURNAL = 1
    INGEST = 2


NO_HUB_PROJECT = ""
"""In whose turn commands are that are about no hub project, or about many."""
PART_BYTES = 1024
"""What a part of a command counts that has no size to speak of, and takes time: a renewal of many, a run."""
SHARED_GROUPS = 32
"""Groups that stay small after one in which commands of several hub projects, or of several lanes, waited."""
CONTROL_COMMANDS_MAX = 100_000
"""Commands waiting in the control lane, and as many in the journal's; more are refused."""


@dataclass(slots=True)
class Done(Generic[Result]):
    """What became of a command: its result, or what was raised instead."""

    result: Result | None
    error: Exception | None


@dataclass(slots=True)
class _Queued:
    """A command in the queue, and who wants to know what became of it."""

    command: Command[object]
    lane: Lane
    bytes_count: int
    deliver: Callable[[Done[object]], None]


class GroupHook(Protocol):
    """Something that takes part in every group: the alerts that are counted between commits."""

    def before_commit(self, transaction: WriteTransaction, now_nanos: int) -> None:
        """Write what is due, inside the group."""

    def after_commit(self) -> None:
        """What was written is durable."""

    def after_failure(self) -> None:
        """The group was given up; what was written may be lost."""


class Writer:
    """Takes commands from any thread and runs them in groups on its own."""

    def __init__(
        self,
        session: WriteSession,
        *,
        clock: HubClock,
        limits: Limits,
        hook: GroupHook,
        instruments: Instruments,
        monotonic_seconds: Callable[[], float],
        dispatch: Callable[[Callable[[], None]], None],
        on_commit: Callable[[Changes], None],
    ) -> None:
        """Bind everything; nothing runs yet.

        ``dispatch`` carries the delivery of a group's results to where it belongs (an event loop's
        ``call_soon_threadsafe``, or a plain call); ``on_commit`` is called there too, before them.
        """
        self._session = session
        self._clock = clock
        self._limits = limits
        self._hook = hook
        self._instruments = instruments
        self._monotonic_seconds = monotonic_seconds
        self._dispatch = dispatch
        self._on_commit = on_commit
        self._lanes: tuple[FairQueue[str, _Queued], ...] = tuple(FairQueue() for _ in Lane)
        self._wake = Condition()
        self._is_stopping = False
        self._shared_groups_left = 0
        self._group_begin_seconds: float | None = None
        """When the group began that runs now; None while the writer is idle."""

    def queued_counts(self) -> dict[Lane, int]:
        """Return how many commands wait in each lane; from any thread."""
        return {lane: len(self._lanes[lane.value]) for lane in Lane}

    def busy_seconds(self) -> float:
        """Return for how long the group of now has been running, 0 where there is none; from any thread."""
        begin = self._group_begin_seconds
        return 0.0 if begin is None else self._monotonic_seconds() - begin

    def submit(
        self,
        command: Command[Result],
        *,
        lane: Lane,
        bytes_count: int,
        deliver: Callable[[Done[Result]], None],
        hub_project: str = NO_HUB_PROJECT,
    ) -> None:
        """Queue a command; ``deliver`` is told what became of it, exactly once.

        Within a lane the commands of one hub project keep their order, and the hub projects have turns.
        Raises: HubStopping after ``stop``; LimitReached where the lane is full. The ingest lane is
        bounded in bytes alone, by whoever feeds it (``AsyncWriter``).
        """
        queued = _Queued(
            cast("Command[object]", command),
            lane,
            bytes_count,
            cast("Callable[[Done[object]], None]", deliver),
        )
        with self._wake:
            if self._is_stopping:
                raise HubStopping
            if lane is not Lane.INGEST and len(self._lanes[lane.value]) >= CONTROL_COMMANDS_MAX:
                raise LimitReached("control_commands_max", CONTROL_COMMANDS_MAX)
            self._lanes[lane.value].append(hub_project, queued)
            self._wake.notify()

    def stop(self) -> None:
        """Refuse new commands; ``run`` ends once everything queued is done."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()

    def run(self) -> None:
        """Run groups until ``stop``, and then what is still queued."""
        while True:
            with self._wake:
                while not any(self._lanes) and not self._is_stopping:
                    self._wake.wait()
                if not any(self._lanes):
                    return
            self.step()

    def step(self) -> int:
        """Run one group of what is queued; return how many commands it had."""
        group = self._take_group()
        if not group:
            return 0
        begin = self._group_begin_seconds = self._monotonic_seconds()
        try:
            transaction = self._session.begin()
            outcomes = [self._run_command(transaction, queued) for queued in group]
            self._hook.before_commit(transaction, self._clock.now())
            commit_begin = self._monotonic_seconds()
            changes = self._session.commit(self._clock.now())
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing of the group is acknowledged
            self._group_begin_seconds = None
            self._fail(group, error)
            return len(group)
        self._hook.after_commit()
        end = self._monotonic_seconds()
        self._group_begin_seconds = None
        self._instruments.group_committed(
            commands=len(group), seconds=end - begin, commit_seconds=end - commit_begin
        )
        self._dispatch(lambda: self._deliver(group, outcomes, changes=changes))
        return len(group)

    def _take_group(self) -> list[_Queued]:
        """Take commands lane by lane, up to the bounds of a group; no lane is left out for its bytes."""
        limits = self._limits
        group: list[_Queued] = []
        bytes_left = limits.group_bytes_max
        with self._wake:
            key_bytes_max = self._hub_project_bytes_max()
            for lane in self._lanes:
                taken = lane.take(
                    count_max=limits.group_commands_max - len(group),
                    bytes_max=bytes_left,
                    key_bytes_max=key_bytes_max,
                )
                bytes_left -= sum(queued.bytes_count for queued in taken)
                group += taken
        return group

    def _hub_project_bytes_max(self) -> int:
        """Return what a hub project may have of this group: less while others are about, or were lately."""
        if sum(lane.key_count for lane in self._lanes) > 1:
            self._shared_groups_left = SHARED_GROUPS
        elif self._shared_groups_left > 0:
            self._shared_groups_left -= 1
        limits = self._limits
        part_bytes = limits.group_shared_bytes_max if self._shared_groups_left else limits.group_bytes_max
        return min(part_bytes, limits.group_hub_project_bytes_max)

    def _run_command(self, transaction: WriteTransaction, queued: _Queued) -> Done[object]:
        """Run a command inside its savepoint; a broken store breaks the group instead."""
        self._session.set_savepoint()
        try:
            result = queued.command(transaction, self._clock.now())
        except StorageFull as refusal:
            self._session.undo_to_savepoint()
            return Done(None, refusal)
        except StorageUnavailable:
            raise
        except Refusal as refusal:
            self._session.undo_to_savepoint()
            return Done(None, refusal)
        except Exception as error:
            log.exception("command_failed")
            self._session.undo_to_savepoint()
            return Done(None, error)
        self._session.release_savepoint()
        return Done(result, None)

    def _fail(self, group: list[_Queued], error: Exception) -> None:
        """Give up the group: nobody is acknowledged, and the next group begins anew."""
        self._session.rollback()
        self._hook.after_failure()
        self._instruments.group_failed()
        told: Exception = error
        if not isinstance(error, StorageUnavailable):
            log.error("group_failed", exc_info=error)
            told = StorageUnavailable()
        outcomes: list[Done[object]] = [Done(None, told) for _ in group]
        self._dispatch(lambda: self._deliver(group, outcomes, changes=None))

    def _deliver(
        self, group: list[_Queued], outcomes: list[Done[object]], *, changes: Changes | None
    ) -> None:
        if changes is not None:
            try:
                self._on_commit(changes)
            except Exception:  # what is committed is answered, whatever those who watch make of it
                log.exception("commit_not_announced")
        for queued, outcome in zip(group, outcomes, strict=True):
            queued.deliver(outcome)


class AsyncWriter:
    """The way to the writer from its event loop; bounds what waits for it by bytes."""

    def __init__(self, writer: Writer, *, limits: Limits) -> None:
        """Serve the loop to which the writer dispatches."""
        self._writer = writer
        self._shares: dict[Lane, FairShares[str]] = {
            lane: FairShares(
                limits.writer_queue_bytes_max,
                key_bytes_max=limits.writer_queue_hub_project_bytes_max,
                limit="writer_queue_bytes_max",
                key_limit="writer_queue_hub_project_bytes_max",
            )
            for lane in Lane
        }
        """Each lane has bytes of its own, so that nothing waits for room behind a lane that goes after it."""

    def bytes_queued(self) -> dict[Lane, int]:
        """Return the bytes of commands that wait or run, by lane."""
        return {lane: shares.bytes_queued for lane, shares in self._shares.items()}

    async def call(
        self,
        command: Command[Result],
        *,
        lane: Lane = Lane.CONTROL,
        bytes_count: int = 0,
        hub_project: str = NO_HUB_PROJECT,
    ) -> Result:
        """Run a command and return its result once it is durable.

        Raises: what the command raised; StorageUnavailable where it could not be made durable (then
        nothing of it was, or the outcome is unknown); HubStopping; LimitReached.
        """
        return await (await self.submit(command, lane=lane, bytes_count=bytes_count, hub_project=hub_project))

    async def settle(self) -> None:
        """Commit a group without a command of one's own: what the hook has to write, and hub time up to now.

        Raises: StorageUnavailable; HubStopping; LimitReached.
        """
        await self.call(lambda _transaction, _now_nanos: None)

    async def submit(
        self,
        command: Command[Result],
        *,
        lane: Lane = Lane.CONTROL,
        bytes_count: int = 0,
        hub_project: str = NO_HUB_PROJECT,
    ) -> asyncio.Future[Result]:
        """Queue a command, after a wait where too many bytes are queued in its lane, of all or of its hub
        project; return its future.

        A commit to the journal does not wait for room: its request would wait in memory with it, while a
        stream that waits is not read.

        Raises: RateLimited for such a one; HubStopping; LimitReached.
        """
        shares = self._shares[lane]
        if lane is Lane.JOURNAL:
            shares.take_now(hub_project, bytes_count)
        else:
            await shares.take(hub_project, bytes_count)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def deliver(done: Done[Result]) -> None:
            shares.give_back(hub_project, bytes_count)
            if future.cancelled():
                return
            if done.error is not None:
                future.set_exception(done.error)
            else:
                future.set_result(cast("Result", done.result))

        try:
            self._writer.submit(
                command, lane=lane, bytes_count=bytes_count, deliver=deliver, hub_project=hub_project
            )
        except Refusal:
            shares.give_back(hub_project, bytes_count)
            raise
        return future
