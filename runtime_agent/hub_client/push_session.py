"""One connection's life: reconcile, then push what the core says, until something ends it.

The shell around ``core/push.py``: it performs what the core asks for and tells it what happened. All
its state belongs to the event loop; the log is only called through its threads. Nothing in here
decides about events.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

from runtime_agent.core.errors import HubGenerationChangedError, RuntimeAgentError
from runtime_agent.core.push import PushCore
from runtime_agent.core.push_steps import (
    Acknowledge,
    Batch,
    EndStream,
    Output,
    QuarantineRun,
    ReadBatch,
    ReconcileRun,
    RescanRuns,
    ResumeProject,
    SendBatch,
)
from runtime_agent.core.refusals import RefusalAction
from runtime_agent.core.values import Acknowledgement, RunKey, RunState
from runtime_agent.event_log.contract import EventLogReader, LogFront
from runtime_agent.hub_client.codec import PushSender, encode_batch
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import HubConnection, PushStream
from runtime_agent.hub_client.reconciler import (
    AgainRun,
    HeldRun,
    HubGenerationMoved,
    PushRun,
    QuarantinedRun,
    ReconcileOutcome,
    Reconciler,
)
from synchub.contract import RECONCILE_RUNS_MAX, chain_hash_after

RUNS_CHANGED_PAGE: Final = 1_000
"""Most runs looked at in one read of what was appended."""
LAST_WORDS_SECONDS: Final = 2.0
"""How long a failed write waits for the reader: what the hub said in band tells more."""
TIMER_SECONDS_MIN: Final = 0.001
"""The timer never wakes more often than this."""


class SessionEnded(Exception):
    """The connection is to be given up; the detail is a sentence's end for ``status``."""


@dataclass(slots=True)
class _Work:
    """What waits for the reconciling task."""

    is_scan_wanted: bool = True
    due_runs: set[RunKey] = field(default_factory=set)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


class PushSession:
    """See the module. Made after the hub said its facts; ``run`` it once."""

    def __init__(
        self,
        connection: HubConnection,
        *,
        core: PushCore,
        reconciler: Reconciler,
        sender: PushSender,
        log: LogFront,
        hub_generation: str,
        reconcile_runs_max: int,
        clock: Callable[[], float],
        wall_clock_nanos: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._core = core
        self._reconciler = reconciler
        self._sender = sender
        self._log = log
        self._hub_generation = hub_generation
        self._reconcile_runs_max = max(1, min(RECONCILE_RUNS_MAX, reconcile_runs_max))
        self._clock = clock
        self._wall_clock_nanos = wall_clock_nanos
        self._loop = asyncio.get_running_loop()
        self._on_reconciled: Callable[[], None] = lambda: None
        self.acknowledged_batch_count = 0
        self._stream: PushStream | None = None
        self._outbox: deque[Batch] = deque()
        self._outbox_filled = asyncio.Event()
        self._acknowledged: dict[RunKey, int] = {}
        self._acknowledge_wanted = asyncio.Event()
        self._is_acknowledging = False
        self._work = _Work()
        self._is_reconciling = True
        # Runs that wait for a reconcile or a quarantine, with the last sequence heard of meanwhile.
        self._suspended: dict[RunKey, int] = {}
        self._not_before: dict[RunKey, float] = {}
        self._timer_changed = asyncio.Event()
        self._is_scanned = asyncio.Event()
        self._appended = asyncio.Event()
        self._is_append_heard = False
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- from outside ------------------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """Whether the hub has, and the log knows that it has, everything that may be pushed."""
        return not (
            self._is_reconciling
            or self._work.is_scan_wanted
            or self._work.due_runs
            or self._acknowledged
            or self._is_acknowledging
            or not self._core.is_idle
            or self._is_append_heard
            or self._appended.is_set()
        )

    def end(self, error: Exception) -> None:
        """End the session; the first reason counts. Never waits."""
        if not self._failed.done():
            self._failed.set_exception(error)

    def run_released(self, run: RunKey) -> None:
        """Reconcile a run that is no longer quarantined."""
        self._suspended.setdefault(run, 0)
        self._work.due_runs.add(run)
        self._work.wanted.set()

    def run_dropped(self, run: RunKey) -> None:
        """Forget a run."""
        self._core.forget(run)
        self._suspended.pop(run, None)
        self._not_before.pop(run, None)

    async def run(self, *, is_new_generation: bool, on_reconciled: Callable[[], None]) -> None:
        """Serve until something ends it; always by raising what it was.

        ``on_reconciled`` is called once the hub knows the instance and the first runs are asked for.

        Raises: HubCallError, SessionEnded, HubGenerationMoved, and what the log raises.
        """
        self._on_reconciled = on_reconciled
        head = await asyncio.wrap_future(self._log.read(lambda reader: reader.load_head_local_position()))
        self._log.add_append_listener(self._on_append)
        try:
            if is_new_generation:
                await self._reconcile_all()
            self._work.wanted.set()
            self._perform(self._core.stream_opened(self._clock()))
            for name, task in (
                ("watch-log", self._watch_log(head)),
                ("send", self._send_batches()),
                ("acknowledge", self._write_acknowledgements()),
                ("reconcile", self._reconcile_loop()),
                ("timer", self._tick_in_time()),
                ("watch-connection", self._watch_connection()),
            ):
                self._start(name, task)
            await self._failed
        except HubCallError as error:
            if error.action is RefusalAction.HOLD_PROJECT:
                self._core.hold_project(error.refusal.metadata["projectId"], now=self._clock())
            raise
        finally:
            self._log.remove_append_listener(self._on_append)
            await self._close()

    def _start(self, name: str, work: "Awaitable[None]") -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - what ends a task ends the session; the link decides on it
                self.end(error)

        task = self._loop.create_task(guarded(), name=f"push-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        self.end(SessionEnded("the session is over"))
        self._failed.exception()  # looked at, so that it is not reported as forgotten
        if self._stream is not None:
            self._stream.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._core.stream_lost()
        if self._acknowledged:
            # Only spares the next connection from asking; it finds out by itself where this fails.
            with suppress(SessionEnded, RuntimeAgentError, TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    await self._write(self._acknowledged)

    # --- reconciling -------------------------------------------------------------------------------

    async def _reconcile_all(self) -> None:
        """Reconcile every run with a hub generation that is new to the log; then remember it.

        Nothing is pushed meanwhile: until the generation is stored nothing could be acknowledged.
        """
        after: RunKey | None = None
        while True:
            cursor = after
            states = await asyncio.wrap_future(
                self._log.read(partial(_list_runs, after=cursor, limit=self._reconcile_runs_max))
            )
            await self._reconciler.reconcile([state for state in states if state.quarantine is None])
            if len(states) < self._reconcile_runs_max:
                break
            after = states[-1].run
        generation = self._hub_generation
        await asyncio.wrap_future(self._log.call(lambda log: log.save_hub_generation(generation)))

    async def _reconcile_loop(self) -> None:
        work, is_first = self._work, True
        while True:
            await work.wanted.wait()
            work.wanted.clear()
            self._is_reconciling = True
            if work.is_scan_wanted:
                work.is_scan_wanted = False
                await self._scan_unsynced(is_first=is_first)
                is_first = False
            while work.due_runs:
                due = [work.due_runs.pop() for _ in range(min(len(work.due_runs), self._reconcile_runs_max))]
                states = await asyncio.wrap_future(self._log.read(partial(_load_runs, runs=due)))
                missing = set(due) - {state.run for state in states}
                for run in missing:
                    self._suspended.pop(run, None)
                await self._reconcile(states)
            self._is_reconciling = False

    async def _scan_unsynced(self, *, is_first: bool) -> None:
        """Reconcile the runs with unacknowledged events that are not being pushed already.

        The first scan asks once even if there is none: that makes the instance the current one.
        """
        after: RunKey | None = None
        is_asked = not is_first
        while True:
            cursor = after
            states = await asyncio.wrap_future(
                self._log.read(partial(_list_unsynced, after=cursor, limit=self._reconcile_runs_max))
            )
            wanted = [state for state in states if self._is_reconcile_wanted(state)]
            if wanted or not is_asked:
                await self._reconcile(wanted)
                is_asked = True
            if len(states) < self._reconcile_runs_max:
                break
            if not self._core.has_room:
                # The rest comes when the core asks for it.
                self._core.leave_out()
                break
            after = states[-1].run
        if is_first:
            self._is_scanned.set()
            self._on_reconciled()

    def _is_reconcile_wanted(self, state: RunState) -> bool:
        return not (
            state.quarantine is not None
            or state.run in self._suspended
            or self._core.is_tracked(state.run)
            or self._core.is_held(state.run.project_id)
        )

    async def _reconcile(self, states: Sequence[RunState]) -> None:
        for state in states:
            self._suspended.setdefault(state.run, 0)
        by_run = {state.run: state for state in states}
        ready = [state for state in states if state.quarantine is None]
        for outcome in await self._reconciler.reconcile(ready):
            heard = self._suspended.pop(outcome.run, 0)
            by_run.pop(outcome.run, None)
            self._apply(outcome, heard)
        for run in by_run:
            self._suspended.pop(run, None)

    def _apply(self, outcome: ReconcileOutcome, heard_sequence: int) -> None:
        now = self._clock()
        match outcome:
            case PushRun(run, acknowledged_sequence, last_sequence):
                self._perform(
                    self._core.track(
                        run,
                        acknowledged_sequence=acknowledged_sequence,
                        last_sequence=max(last_sequence, heard_sequence),
                        now=now,
                    )
                )
            case HeldRun(run):
                if not self._core.is_held(run.project_id):
                    self._core.hold_project(run.project_id, now=now)
                    self._timer_changed.set()
            case AgainRun(run):
                self._perform(self._core.setback(run, now=now))
            case QuarantinedRun(run):
                self._core.forget(run)
            case _:
                assert_never(outcome)

    # --- what the log says -------------------------------------------------------------------------

    def _on_append(self) -> None:
        """Called on the log's thread after each commit; wakes the loop once for many of them."""
        if not self._is_append_heard:
            self._is_append_heard = True
            self._loop.call_soon_threadsafe(self._appended.set)

    async def _watch_log(self, head: int) -> None:
        position = head
        # Runs whose standing at the hub is not known yet are reconciled before they are pushed.
        await self._is_scanned.wait()
        while True:
            await self._appended.wait()
            self._appended.clear()
            # From here on a commit wakes again: it may come after the read below.
            self._is_append_heard = False
            while True:
                after = position
                states = await asyncio.wrap_future(self._log.read(partial(_list_changed, after=after)))
                for state in states:
                    self._run_grew(state)
                if states:
                    position = states[-1].last_local_position
                if len(states) < RUNS_CHANGED_PAGE:
                    break

    def _run_grew(self, state: RunState) -> None:
        if state.quarantine is not None:
            return
        if state.run in self._suspended:
            self._suspended[state.run] = max(self._suspended[state.run], state.last_sequence)
            return
        self._perform(
            self._core.log_advanced(
                state.run,
                acknowledged_sequence=state.acknowledged_sequence,
                last_sequence=state.last_sequence,
                now=self._clock(),
            )
        )

    # --- performing what the core asks for ---------------------------------------------------------

    def _perform(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case ReadBatch():
                    self._read_ahead(output)
                case SendBatch(batch):
                    self._outbox.append(batch)
                    self._outbox_filled.set()
                case Acknowledge(run, sequence):
                    self._acknowledged[run] = max(sequence, self._acknowledged.get(run, 0))
                    self._acknowledge_wanted.set()
                    self.acknowledged_batch_count += 1
                case QuarantineRun():
                    self._suspended.setdefault(output.run, 0)
                    self._start("quarantine", self._quarantine(output))
                case ReconcileRun(run, not_before):
                    self._suspended.setdefault(run, 0)
                    self._not_before[run] = not_before
                case ResumeProject() | RescanRuns():
                    self._work.is_scan_wanted = True
                    self._work.wanted.set()
                case EndStream(detail):
                    self.end(SessionEnded(detail))
                case _:
                    assert_never(output)
        self._timer_changed.set()

    def _read_ahead(self, request: ReadBatch) -> None:
        future = self._log.read(partial(_read_batch, request=request, sender=self._sender))

        def done(read: "Future[Batch | None]") -> None:
            self._loop.call_soon_threadsafe(self._batch_read, request.ticket, read)

        future.add_done_callback(done)

    def _batch_read(self, ticket: int, read: "Future[Batch | None]") -> None:
        if self._failed.done():
            return
        error = read.exception()
        if error is None:
            self._perform(self._core.batch_read(ticket, read.result(), now=self._clock()))
        elif isinstance(error, Exception):
            self.end(error)

    async def _quarantine(self, wanted: QuarantineRun) -> None:
        await self._reconciler.quarantine(
            wanted.run,
            reason=wanted.reason,
            detail=wanted.detail,
            sequence=wanted.sequence,
            hub_cursor=wanted.hub_cursor,
            hub_chain_hash=wanted.hub_chain_hash,
        )
        self._suspended.pop(wanted.run, None)

    # --- the stream --------------------------------------------------------------------------------

    async def _send_batches(self) -> None:
        """Write batches in their order; the stream is opened with the first one."""
        while True:
            await self._outbox_filled.wait()
            self._outbox_filled.clear()
            if self._stream is None:
                # An open stream that says nothing would be ended by the hub.
                self._stream = self._connection.open_push()
                self._start("receive", self._receive_answers(self._stream))
            while self._outbox:
                try:
                    await self._stream.send(self._outbox.popleft().message)
                except HubCallError:
                    await asyncio.sleep(LAST_WORDS_SECONDS)
                    raise

    async def _receive_answers(self, stream: PushStream) -> None:
        try:
            while True:
                answer = await stream.receive()
                self._perform(self._core.answer_received(answer, now=self._clock()))
        except HubCallError as error:
            await self._take_refusal(error)
            raise

    async def _take_refusal(self, error: HubCallError) -> None:
        """Do what a refusal of the stream asks for besides connecting again."""
        named = error.refusal.metadata
        run = RunKey(named["projectId"], named["runId"]) if named.keys() >= {"projectId", "runId"} else None
        outputs: list[Output] = []
        match error.action:
            case RefusalAction.QUARANTINE_RUN:
                outputs = self._core.batch_refused(run, reason=error.reason, detail=error.refusal.message)
            case RefusalAction.SHRINK_BATCHES:
                reason = error.reason or error.refusal.code.name
                outputs = self._core.batch_too_large(run, reason=reason, detail=error.refusal.message)
            case _:
                pass
        for output in outputs:
            assert isinstance(output, QuarantineRun)
            await self._quarantine(output)

    async def _watch_connection(self) -> None:
        """End the session when the connection goes away while nothing is being sent on it."""
        await self._connection.wait_until_lost()
        if self._stream is not None:
            # The stream has its own last words.
            await asyncio.sleep(LAST_WORDS_SECONDS)
        raise SessionEnded("the connection was lost")

    async def probe(self) -> None:
        """Ask the hub a small question where nothing else would notice that it is gone.

        Raises: HubCallError, HubGenerationMoved.
        """
        facts = await self._connection.get_facts()
        if facts.hub_generation != self._hub_generation:
            raise HubGenerationMoved

    def doubt(self) -> None:
        """Somebody else lost the hub: see whether it is still there, and the same. Never waits."""
        if not self._failed.done():
            self._start("probe", self.probe())

    # --- acknowledging and time --------------------------------------------------------------------

    async def _write_acknowledgements(self) -> None:
        """Write what was acknowledged, all of it that waits in one transaction."""
        while True:
            await self._acknowledge_wanted.wait()
            self._acknowledge_wanted.clear()
            taken, self._acknowledged = self._acknowledged, {}
            self._is_acknowledging = True
            await self._write(taken)
            self._is_acknowledging = False

    async def _write(self, taken: dict[RunKey, int]) -> None:
        marks = [Acknowledgement(run, sequence) for run, sequence in taken.items()]
        generation, now_nanos = self._hub_generation, self._wall_clock_nanos()
        try:
            await asyncio.wrap_future(
                self._log.call(
                    lambda log: log.acknowledge(marks, hub_generation=generation, now_nanos=now_nanos)
                )
            )
        except HubGenerationChangedError as error:
            raise SessionEnded("the hub generation changed") from error

    async def _tick_in_time(self) -> None:
        """Tell the core that time passed when it asked for it, and reconcile what had to wait."""
        while True:
            self._timer_changed.clear()
            times = [*self._not_before.values()]
            wake_time = self._core.next_wake_time()
            if wake_time is not None:
                times.append(wake_time)
            timeout = None
            if times:
                timeout = max(TIMER_SECONDS_MIN, min(times) - self._clock())
            try:
                async with asyncio.timeout(timeout):
                    await self._timer_changed.wait()
                    continue
            except TimeoutError:
                pass
            now = self._clock()
            self._perform(self._core.tick(now))
            due = [run for run, not_before in self._not_before.items() if not_before <= now]
            for run in due:
                del self._not_before[run]
                self._work.due_runs.add(run)
            if due:
                self._work.wanted.set()


# --- what runs on the log's reading thread ----------------------------------------------------------


def _read_batch(reader: EventLogReader, *, request: ReadBatch, sender: PushSender) -> Batch | None:
    """Read and encode the next batch; None where the log has no such events any more."""
    run = request.run
    events = reader.read_events(
        run,
        after_sequence=request.after_sequence,
        count_max=request.events_max,
        bytes_max=max(1, request.bytes_max - sender.envelope_bytes(run)),
    )
    previous = reader.load_chain_hash(run, request.after_sequence)
    if not events or previous is None or events[0].sequence != request.after_sequence + 1:
        return None
    if chain_hash_after(previous, (events[0].content_hash,)) != events[0].chain_hash:
        return None  # the run was dropped and begun again between the two reads
    return encode_batch(sender, run, events, previous_chain_hash=previous)


def _list_runs(reader: EventLogReader, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
    return reader.list_runs(after=after, limit=limit)


def _list_unsynced(reader: EventLogReader, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
    return reader.list_unsynced_runs(after=after, limit=limit)


def _list_changed(reader: EventLogReader, *, after: int) -> tuple[RunState, ...]:
    return reader.list_runs_changed_after(after, limit=RUNS_CHANGED_PAGE)


def _load_runs(reader: EventLogReader, *, runs: Iterable[RunKey]) -> list[RunState]:
    states = (reader.load_run(run) for run in runs)
    return [state for state in states if state is not None]
