"""One connection's life: reconcile, then push what the core says, until something ends it.

The shell around ``core/push.py``: it performs what the core asks for and tells it what happened. All
its state belongs to the event loop; the log is only called through its threads. Nothing in here
decides about events.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final, assert_never

from runtime_agent.core.errors import RuntimeAgentError
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
from runtime_agent.core.values import RunKey, RunState
from runtime_agent.event_log.contract import LogFront
from runtime_agent.hub_client.acknowledgements import AcknowledgementWriter
from runtime_agent.hub_client.codec import PushSender
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import HubConnection, PushStream
from runtime_agent.hub_client.log_reads import RUNS_CHANGED_PAGE, list_changed, read_batch
from runtime_agent.hub_client.reconcile_queue import ReconcileQueue
from runtime_agent.hub_client.reconciler import HubGenerationMoved, Reconciler

LAST_WORDS_SECONDS: Final = 2.0
"""How long a failed write waits for the reader: what the hub said in band tells more."""
TIMER_SECONDS_MIN: Final = 0.001
"""The timer never wakes more often than this."""


class SessionEnded(Exception):
    """The connection is to be given up; the detail is a sentence's end for ``status``."""


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
        on_reconciled: Callable[[], None],
    ) -> None:
        """``on_reconciled``: called once the hub knows the instance and the first runs are asked for."""
        self._connection = connection
        self._core = core
        self._reconciler = reconciler
        self._sender = sender
        self._log = log
        self._hub_generation = hub_generation
        self._clock = clock
        self._wall_clock_nanos = wall_clock_nanos
        self._loop = asyncio.get_running_loop()
        self.acknowledged_batch_count = 0
        self._stream: PushStream | None = None
        self._outbox: deque[Batch] = deque()
        self._outbox_filled = asyncio.Event()
        self._acknowledging = AcknowledgementWriter(
            log, hub_generation=hub_generation, wall_clock_nanos=wall_clock_nanos
        )
        self._queue = ReconcileQueue(
            reconciler,
            core=core,
            log=log,
            hub_generation=hub_generation,
            runs_max=reconcile_runs_max,
            clock=clock,
            perform=self._perform,
            on_scanned=on_reconciled,
        )
        self._timer_changed = asyncio.Event()
        self._appended = asyncio.Event()
        self._is_append_heard = False
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- from outside ------------------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """Whether the hub has, and the log knows that it has, everything that may be pushed."""
        return not (
            not self._queue.is_idle
            or not self._acknowledging.is_idle
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
        self._queue.want(run, not_before=self._clock())
        self._timer_changed.set()

    def run_dropped(self, run: RunKey) -> None:
        """Forget a run."""
        self._core.forget(run)
        self._queue.resume(run)

    async def run(self, *, is_new_generation: bool) -> None:
        """Serve until something ends it; always by raising what it was.

        Raises: HubCallError, SessionEnded, HubGenerationMoved, and what the log raises.
        """
        head = await asyncio.wrap_future(self._log.read(lambda reader: reader.load_head_local_position()))
        self._log.add_append_listener(self._on_append)
        try:
            if is_new_generation:
                await self._queue.reconcile_all()
            self._perform(self._core.stream_opened(self._clock()))
            for name, task in (
                ("watch-log", self._watch_log(head)),
                ("send", self._send_batches()),
                ("acknowledge", self._acknowledging.run()),
                ("reconcile", self._queue.run()),
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

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work, name=f"push-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Whatever ends a task in an error ends the session; the link decides what it means."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.end(error)

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
        # Only spares the next connection from asking; it finds out by itself where this fails.
        with suppress(RuntimeAgentError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._acknowledging.flush()

    # --- what the log says -------------------------------------------------------------------------

    def _on_append(self) -> None:
        """Called on the log's thread after each commit; wakes the loop once for many of them."""
        if not self._is_append_heard:
            self._is_append_heard = True
            self._loop.call_soon_threadsafe(self._appended.set)

    async def _watch_log(self, head: int) -> None:
        position = head
        # Runs whose standing at the hub is not known yet are reconciled before they are pushed.
        await self._queue.is_scanned.wait()
        while True:
            await self._appended.wait()
            self._appended.clear()
            # From here on a commit wakes again: it may come after the read below.
            self._is_append_heard = False
            while True:
                after = position
                states = await asyncio.wrap_future(self._log.read(partial(list_changed, after=after)))
                for state in states:
                    self._run_grew(state)
                if states:
                    position = states[-1].last_local_position
                if len(states) < RUNS_CHANGED_PAGE:
                    break

    def _run_grew(self, state: RunState) -> None:
        if state.quarantine is not None:
            return
        if self._queue.run_grew(state.run, state.last_sequence):
            return
        self._perform(
            self._core.log_advanced(
                state.run,
                # The log's own knowledge lags behind by what is still being written.
                acknowledged_sequence=max(
                    state.acknowledged_sequence, self._acknowledging.known_sequence(state.run)
                ),
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
                    self._acknowledging.note(run, sequence)
                    self.acknowledged_batch_count += 1
                case QuarantineRun():
                    self._queue.suspend(output.run)
                    self._start("quarantine", self._quarantine(output))
                case ReconcileRun(run, not_before):
                    self._queue.want(run, not_before=not_before)
                case ResumeProject() | RescanRuns():
                    self._queue.want_scan()
                case EndStream(detail):
                    self.end(SessionEnded(detail))
                case _:
                    assert_never(output)
        self._timer_changed.set()

    def _read_ahead(self, request: ReadBatch) -> None:
        future = self._log.read(partial(read_batch, request=request, sender=self._sender))

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
        self._queue.resume(wanted.run)

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

    # --- time --------------------------------------------------------------------------------------

    async def _tick_in_time(self) -> None:
        """Tell the core that time passed when it asked for it, and reconcile what had to wait."""
        while True:
            self._timer_changed.clear()
            wake_times = (self._core.next_wake_time(), self._queue.next_wake_time())
            times = [wake_time for wake_time in wake_times if wake_time is not None]
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
            self._queue.tick(now)
