"""The threads that own the local log, and the front that the rest of the program calls.

One thread writes: it takes everything that waits, puts neighbouring appends into one transaction
and answers after the COMMIT (group commit: many programs share one fsync). One thread reads, on a
connection of its own, so that a large read holds up no append. All methods return at once, may be
called from any thread, and give a ``concurrent.futures.Future``; on an event loop:
``await asyncio.wrap_future(front.append(request))``.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from runtime_agent import limits
from runtime_agent.core.errors import (
    LogError,
    LogOwnerLostError,
    LogQueueFullError,
    LogStoppedError,
    RuntimeAgentError,
)
from runtime_agent.core.values import Appended, AppendRequest
from runtime_agent.event_log.contract import EventLog, EventLogReader
from runtime_agent.event_log.opening import OwnedLog
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader

T = TypeVar("T")


@dataclass(slots=True)
class _WaitingAppend:
    request: AppendRequest
    bytes_count: int
    future: "Future[Appended]" = field(default_factory=Future)


@dataclass(slots=True)
class _WaitingCall(Generic[T]):
    """A call with its future, generic so that ``run`` is typed."""

    function: Callable[[EventLog], T]
    future: "Future[T]" = field(default_factory=Future)

    def run(self, log: EventLog) -> BaseException | None:
        """Run it and resolve its future; return what it raised."""
        if not self.future.set_running_or_notify_cancel():
            return None
        try:
            result = self.function(log)
        except Exception as error:  # noqa: BLE001  # whatever it raises belongs to its caller
            self.future.set_exception(error)
            return error
        self.future.set_result(result)
        return None


@dataclass(slots=True)
class _WaitingRead(Generic[T]):
    function: Callable[[EventLogReader], T]
    future: "Future[T]" = field(default_factory=Future)

    def run(self, log: EventLogReader) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(log)
        except Exception as error:  # noqa: BLE001  # whatever it raises belongs to its caller
            self.future.set_exception(error)
            return
        self.future.set_result(result)


class LogThread:
    """Owns an open log until ``stop``; see the module for how it is called."""

    def __init__(
        self,
        owned: OwnedLog,
        *,
        on_appended: Callable[[], None] = lambda: None,
        on_owner_lost: Callable[[RuntimeAgentError], None] = lambda _: None,
        wall_clock_nanos: Callable[[], int] = time.time_ns,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Both callbacks run on the writing thread and must not wait (``call_soon_threadsafe``)."""
        self._owned = owned
        self._reader = SqliteEventLogReader.open(owned.folder)
        self._listeners: list[Callable[[], None]] = [on_appended]
        self._on_owner_lost = on_owner_lost
        self._wall_clock_nanos = wall_clock_nanos
        self._monotonic_seconds = monotonic_seconds
        self._condition = threading.Condition()
        self._waiting: deque[_WaitingAppend | _WaitingCall[object]] = deque()
        self._waiting_bytes = 0
        self._read_condition = threading.Condition()
        self._waiting_reads: deque[_WaitingRead[object]] = deque()
        self._is_stopping = False
        self._next_beat = monotonic_seconds() + limits.PROCESS_LEASE_BEAT_SECONDS
        self._writer = threading.Thread(target=self._write_loop, name="event-log", daemon=True)
        self._reading = threading.Thread(target=self._read_loop, name="event-log-reads", daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._writer.start()
        self._reading.start()

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each commit that appended; on the writing thread, not waiting."""
        with self._condition:
            self._listeners = [*self._listeners, listener]

    def remove_append_listener(self, listener: Callable[[], None]) -> None:
        """Undo ``add_append_listener``. Idempotent."""
        with self._condition:
            self._listeners = [each for each in self._listeners if each is not listener]

    def append(self, request: AppendRequest) -> "Future[Appended]":
        """Append in the next group; the future has the sequences once they are on stable storage.

        Its error is an ``AppendError`` (refused), a ``LogError`` (see the contract), or
        ``LogQueueFullError``. Cancelling the future does not take an append back.
        """
        waiting = _WaitingAppend(request, sum(len(event.payload) for event in request.events))
        self._enqueue(waiting, waiting.future, bytes_count=waiting.bytes_count)
        return waiting.future

    def call(self, function: Callable[[EventLog], T]) -> "Future[T]":
        """Run a write on the log's thread, in the order of the queue."""
        waiting = _WaitingCall(function)
        self._enqueue(waiting, waiting.future)  # type: ignore[arg-type]  # its own future takes its result
        return waiting.future

    def read(self, function: Callable[[EventLogReader], T]) -> "Future[T]":
        """Run a read on the reading thread; it sees everything that was answered before."""
        waiting = _WaitingRead(function)
        with self._read_condition:
            if self._is_stopping:
                waiting.future.set_exception(LogStoppedError())
            elif len(self._waiting_reads) >= limits.QUEUE_CALLS_MAX:
                waiting.future.set_exception(LogQueueFullError())
            else:
                self._waiting_reads.append(waiting)  # type: ignore[arg-type]  # as above
                self._read_condition.notify()
        return waiting.future

    def stop(self) -> None:
        """Do what waits, refuse what comes, close the log, give the folder back. Idempotent.

        Waits at most ``STOP_SECONDS`` for each thread; a disk that hangs longer keeps the lock until
        the process ends.
        """
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        with self._read_condition:
            self._read_condition.notify()
        for thread in (self._writer, self._reading):
            if thread.ident is not None:
                thread.join(limits.STOP_SECONDS)
        if not self._writer.is_alive() and not self._reading.is_alive():
            self._reader.close()
            self._owned.close()

    # --- the writing thread ------------------------------------------------------------------------

    def _enqueue(
        self,
        waiting: "_WaitingAppend | _WaitingCall[object]",
        future: "Future[T]",
        *,
        bytes_count: int = 0,
    ) -> None:
        with self._condition:
            if self._is_stopping:
                future.set_exception(LogStoppedError())
                return
            if (
                len(self._waiting) >= limits.QUEUE_CALLS_MAX
                or self._waiting_bytes + bytes_count > limits.QUEUE_BYTES_MAX
            ):
                future.set_exception(LogQueueFullError())
                return
            self._waiting.append(waiting)
            self._waiting_bytes += bytes_count
            if len(self._waiting) == 1:
                self._condition.notify()

    def _write_loop(self) -> None:
        lost: RuntimeAgentError | None = None
        while lost is None:
            taken = self._take()
            if taken is None:
                return
            if isinstance(taken, _WaitingCall):
                error = taken.run(self._owned.log)
                lost = error if isinstance(error, LogOwnerLostError) else None
            elif taken:
                lost = self._append_group(taken)
            lost = lost or self._beat_if_due()
        self._give_up(lost)

    def _take(self) -> "list[_WaitingAppend] | _WaitingCall[object] | None":
        """Wait for work: a group of appends, or a call; an empty group for a beat; None to stop."""
        with self._condition:
            if not self._waiting:
                if self._is_stopping:
                    return None
                self._condition.wait(max(0.0, self._next_beat - self._monotonic_seconds()))
            if not self._waiting:
                return []
            first = self._waiting[0]
            if isinstance(first, _WaitingCall):
                self._waiting.popleft()
                return first
            group: list[_WaitingAppend] = []
            events_count = bytes_count = 0
            while self._waiting:
                waiting = self._waiting[0]
                if isinstance(waiting, _WaitingCall):
                    break
                events_count += len(waiting.request.events)
                bytes_count += waiting.bytes_count
                if group and (events_count > limits.GROUP_EVENTS_MAX or bytes_count > limits.GROUP_BYTES_MAX):
                    break
                self._waiting.popleft()
                self._waiting_bytes -= waiting.bytes_count
                group.append(waiting)
            return group

    def _append_group(self, group: list[_WaitingAppend]) -> RuntimeAgentError | None:
        group = [waiting for waiting in group if waiting.future.set_running_or_notify_cancel()]
        try:
            outcomes = self._owned.log.append(
                [waiting.request for waiting in group], now_nanos=self._wall_clock_nanos()
            )
        except Exception as error:  # noqa: BLE001  # each caller of the group learns what became of it
            for waiting in group:
                waiting.future.set_exception(error)
            return error if isinstance(error, LogOwnerLostError) else None
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Appended):
                waiting.future.set_result(outcome)
            else:
                waiting.future.set_exception(outcome)
        for listener in self._listeners:
            listener()
        return None

    def _beat_if_due(self) -> RuntimeAgentError | None:
        now = self._monotonic_seconds()
        if now < self._next_beat:
            return None
        self._next_beat = now + limits.PROCESS_LEASE_BEAT_SECONDS
        try:
            self._owned.lock.restore_file()
            self._owned.log.beat(now_nanos=self._wall_clock_nanos())
        except LogOwnerLostError as error:
            return error
        except (LogError, OSError):
            # A full disk: appends say so to who needs to know, and the lock is held all the same.
            return None
        return None

    def _give_up(self, error: RuntimeAgentError) -> None:
        """Another process owns the log: refuse everything, and tell the program."""
        with self._condition:
            self._is_stopping = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for each in waiting:
            each.future.set_exception(error)
        with self._read_condition:
            self._read_condition.notify()
        self._on_owner_lost(error)

    # --- the reading thread ------------------------------------------------------------------------

    def _read_loop(self) -> None:
        while True:
            with self._read_condition:
                while not self._waiting_reads:
                    if self._is_stopping:
                        return
                    self._read_condition.wait()
                waiting = self._waiting_reads.popleft()
            waiting.run(self._reader)
