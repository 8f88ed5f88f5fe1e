"""Writes a program's output into the local log, on a thread of its own, and never in its way."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from secrets import token_hex
from typing import Final

from runtime_agent import limits
from runtime_agent.core.errors import (
    AppendError,
    LogForeignError,
    LogFullError,
    LogNewerError,
    RuntimeAgentError,
)
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.current_trace import traceparent_of_environment
from runtime_agent.local_client import OpenLocalLog, open_local_log

EXIT_EVENT_TYPE: Final = "exit"
"""Type of the final event."""
LOST_EVENT_TYPE: Final = "output_lost"
"""Type of an event that stands where output could not be kept; it says how much."""

_EVENT_OVERHEAD_BYTES: Final = 200  # what an event costs in memory besides its payload


class OutputRecorder:
    """Takes output as it comes and appends it to a run; from ``start`` to ``finish``.

    While the log works, a program that is faster than the disk is slowed to its pace. While the log
    fails, output waits in memory up to a bound, is tried again and again, and beyond the bound is
    counted as lost. Each append has an ``append_id``, so that trying again never doubles.
    """

    def __init__(
        self,
        folder: str,
        run: RunKey,
        *,
        wall_clock_nanos: Callable[[], int] = time.time_ns,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._run = run
        self._wall_clock_nanos = wall_clock_nanos
        self._monotonic_seconds = monotonic_seconds
        self._condition = threading.Condition()
        self._waiting: deque[NewEvent] = deque()
        self._waiting_bytes = 0
        self._partial: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._lost_count = 0
        self._unsaid_lost_count = 0
        self._unsaid_lost_bytes = 0
        self._is_finishing = False
        self._deadline = float("inf")
        self._fault = ""
        self._is_failing = False
        self._log: OpenLocalLog | None = None
        self._opened_at = 0.0
        self._traceparent = traceparent_of_environment()
        self._append_id_prefix = f"exec-{token_hex(8)}"
        self._append_number = 0
        self._thread = threading.Thread(target=self._write_loop, name="output-recorder", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def add(self, kind: str, chunk: bytes) -> None:
        """Take output of ``stdout`` or ``stderr``; whole lines become events at once."""
        partial = self._partial[kind]
        begin = len(partial)
        partial += chunk
        while True:
            end = partial.find(b"\n", begin) + 1
            if end == 0 and len(partial) < limits.EXEC_LINE_BYTES_MAX:
                return
            if end == 0 or end > limits.EXEC_LINE_BYTES_MAX:
                end = limits.EXEC_LINE_BYTES_MAX
            self._put(kind, bytes(partial[:end]))
            del partial[:end]
            begin = 0

    def finish(self, attributes: dict[str, str]) -> str:
        """Write what is left and the final event; return a sentence where something was lost, or ""."""
        for kind, partial in self._partial.items():
            if partial:
                self._put(kind, bytes(partial))
        with self._condition:
            self._waiting.append(
                NewEvent(EXIT_EVENT_TYPE, b"", self._wall_clock_nanos(), attributes, is_final=True)
            )
            self._is_finishing = True
            self._deadline = self._monotonic_seconds() + limits.EXEC_LAST_TRY_SECONDS
            self._condition.notify_all()
        self._thread.join(limits.EXEC_LAST_TRY_SECONDS + limits.EXEC_RETRY_SECONDS)
        with self._condition:
            missing = len(self._waiting) + self._lost_count
            if not missing:
                return ""
            cause = self._fault or "the disk does not answer"
            return f"{missing} events of run {self._run.run_id} are not in the local log: {cause}"

    # --- the queue ---------------------------------------------------------------------------------

    def _put(self, kind: str, payload: bytes) -> None:
        size = len(payload) + _EVENT_OVERHEAD_BYTES
        with self._condition:
            while self._waiting_bytes + size > limits.EXEC_BUFFER_BYTES_MAX:
                if self._is_failing:
                    self._lost_count += 1
                    self._unsaid_lost_count += 1
                    self._unsaid_lost_bytes += len(payload)
                    return
                self._condition.wait(limits.EXEC_RETRY_SECONDS)
            self._say_lost()
            self._waiting.append(NewEvent(kind, payload, self._wall_clock_nanos()))
            self._waiting_bytes += size
            self._condition.notify_all()

    def _say_lost(self) -> None:
        """Put an event where output is missing, once there is room again."""
        if not self._unsaid_lost_count:
            return
        attributes = {
            "event_count": str(self._unsaid_lost_count),
            "byte_count": str(self._unsaid_lost_bytes),
        }
        self._unsaid_lost_count = self._unsaid_lost_bytes = 0
        self._waiting.append(NewEvent(LOST_EVENT_TYPE, b"", self._wall_clock_nanos(), attributes))
        self._waiting_bytes += _EVENT_OVERHEAD_BYTES

    # --- the writing thread ------------------------------------------------------------------------

    def _write_loop(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                break
            if not self._append_until_done(batch):
                break
            self._take_out(batch)
            self._let_others_in()
        self._close()

    def _next_batch(self) -> tuple[NewEvent, ...]:
        """Wait for output and return the front of the queue, which stays there until it is written."""
        with self._condition:
            self._condition.wait_for(self._has_work, _EVENT_PAUSE_SECONDS)
            if not self._has_work() and self._log is not None and not self._log.is_through_agent:
                self._close()  # an idle program does not keep others from the folder
            self._condition.wait_for(self._has_work)
            batch: list[NewEvent] = []
            bytes_sum = 0
            for event in self._waiting:
                bytes_sum += len(event.payload)
                if batch and bytes_sum > limits.EXEC_BATCH_BYTES:
                    break
                batch.append(event)
                if len(batch) >= limits.EXEC_BATCH_EVENTS:
                    break
            return tuple(batch)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._is_finishing

    def _take_out(self, batch: tuple[NewEvent, ...]) -> None:
        with self._condition:
            for event in batch:
                self._waiting.popleft()
                if event.event_type != EXIT_EVENT_TYPE:
                    self._waiting_bytes -= len(event.payload) + _EVENT_OVERHEAD_BYTES
            self._condition.notify_all()

    def _append_until_done(self, batch: tuple[NewEvent, ...]) -> bool:
        """Append one batch, trying again with the same id; False where time is up or it never will."""
        self._append_number += 1
        request = AppendRequest(self._run, batch, append_id=f"{self._append_id_prefix}-{self._append_number}")
        while True:
            try:
                if self._log is None:
                    self._log = open_local_log(self._folder, role="exec")
                    self._opened_at = self._monotonic_seconds()
                appending = self._log.append_soon(request, traceparent=self._traceparent)
                appending.result(timeout=limits.ANSWER_WAIT_SECONDS)
            except LogFullError as error:
                self._note_fault(str(error))
            except (AppendError, LogForeignError, LogNewerError) as error:
                # Refused for good (the run has ended, say): nothing after it can be written either.
                self._note_fault(str(error))
                return False
            except (RuntimeAgentError, FutureTimeoutError) as error:
                self._note_fault(str(error) or "it does not answer")
                self._close()
            else:
                self._is_failing = False
                return True
            if self._monotonic_seconds() >= self._deadline:
                return False
            with self._condition:
                self._condition.wait(limits.EXEC_RETRY_SECONDS)

    def _note_fault(self, fault: str) -> None:
        with self._condition:
            self._fault = fault
            self._is_failing = True
            self._condition.notify_all()

    def _let_others_in(self) -> None:
        """Without an agent, let go of the folder from time to time: a long run must not keep it."""
        if self._log is None or self._log.is_through_agent or self._is_finishing:
            return
        if self._monotonic_seconds() - self._opened_at < limits.EXEC_HOLD_SECONDS:
            return
        self._close()
        with self._condition:
            self._condition.wait_for(lambda: self._is_finishing, limits.EXEC_PAUSE_SECONDS)

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            with suppress(RuntimeAgentError):
                log.close()


_EVENT_PAUSE_SECONDS: Final = 0.05
"""How long without output until the folder is let go, where this process holds it."""
