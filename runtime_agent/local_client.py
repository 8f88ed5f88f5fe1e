"""The Python API of the local log, for programs on the agent's machine.

::

    from runtime_agent.local_client import open_local_log
    from runtime_agent.core.values import AppendRequest, NewEvent, RunKey

    with open_local_log("/var/lib/my-runtime") as log:
        log.append(AppendRequest(RunKey("my-project", "run-1"), (NewEvent("started"),)))

With an agent running on the folder everything goes through its socket; without one, the log is
taken and written by this process. Both give the same answers and raise the same errors. ``append``
returns once the events are on stable storage.
"""

import queue
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Protocol, Self

import grpc

from runtime_agent import limits
from runtime_agent.core.errors import (
    AgentUnreachableError,
    AlreadyRunningError,
    LogQueueFullError,
    RuntimeAgentError,
)
from runtime_agent.core.trace import traced
from runtime_agent.core.values import Appended, AppendRequest, RunKey
from runtime_agent.current_trace import current_traceparent
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import take_folder
from runtime_agent.local_api.codec import append_request_to_proto
from runtime_agent.local_api.error_table import error_from_refusal
from runtime_agent.local_api.socket_path import SocketPath
from synchub.channel import refusal_from_error, refusal_from_status
from synchub.contract import MESSAGE_BYTES_MAX
from synchub.v1 import runtime_agent_service_pb2 as pb
from synchub.v1 import runtime_agent_service_pb2_grpc

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_CONNECT_SECONDS: Final = 2.0


class LocalLog(Protocol):
    """A way into the local log; usable from any thread until ``close``."""

    @property
    def is_through_agent(self) -> bool:
        """True where a running agent writes, False where this process does."""
        ...

    def append_soon(self, request: AppendRequest) -> "Future[Appended]":
        """Append without waiting; several in flight share one commit, and are answered in order.

        The future's error is an ``AppendError`` or a ``LogError``, or ``AgentUnreachableError``: then
        nobody knows whether the events were written, and the same ``append_id`` may be sent again.
        """
        ...

    def release(self, run: RunKey) -> None:
        """Let a quarantined run sync again."""
        ...

    def release_as(self, run: RunKey, as_run_id: str) -> int:
        """Copy what the hub does not have of a quarantined run to a new one; return how many events."""
        ...

    def drop(self, run: RunKey) -> int:
        """Delete a quarantined run; return how many events it had."""
        ...

    def close(self) -> None:
        """Let go of log or socket. Idempotent."""
        ...


class OpenLocalLog:
    """A ``LocalLog`` with the calls that wait; what ``open_local_log`` returns."""

    def __init__(self, way: LocalLog) -> None:
        self._way = way

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_through_agent(self) -> bool:
        """True where a running agent writes, False where this process does."""
        return self._way.is_through_agent

    def append(self, request: AppendRequest, *, traceparent: str | None = None) -> Appended:
        """Append, and return once it is on stable storage; errors as ``LocalLog.append_soon``.

        The events carry a trace context to the hub: this one (W3C's ``traceparent``), else that of the
        OpenTelemetry span that the program is in.
        """
        return self.append_soon(request, traceparent=traceparent).result()

    def append_soon(self, request: AppendRequest, *, traceparent: str | None = None) -> "Future[Appended]":
        """See ``LocalLog.append_soon``, and ``append`` for the trace."""
        return self._way.append_soon(traced(request, traceparent or current_traceparent()))

    def release(self, run: RunKey) -> None:
        """See ``LocalLog.release``."""
        self._way.release(run)

    def release_as(self, run: RunKey, as_run_id: str) -> int:
        """See ``LocalLog.release_as``."""
        return self._way.release_as(run, as_run_id)

    def drop(self, run: RunKey) -> int:
        """See ``LocalLog.drop``."""
        return self._way.drop(run)

    def close(self) -> None:
        """Let go of log or socket. Idempotent."""
        self._way.close()


def open_local_log(
    folder: str,
    *,
    role: str = "program",
    wait_seconds: float = limits.PROCESS_LEASE_WAIT_SECONDS,
    monotonic_seconds: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> OpenLocalLog:
    """Open the log of a data folder, by its agent where one runs, else by taking the folder.

    Another program that holds the folder is waited for, at most ``wait_seconds``; so is an agent
    that is just starting. Raises: AlreadyRunningError, LogError.
    """
    deadline = monotonic_seconds() + wait_seconds
    while True:
        try:
            thread = LogThread(take_folder(folder, role=role))
        except AlreadyRunningError:
            agent = SocketLog.connect(folder)
            if agent is not None:
                return OpenLocalLog(agent)
            if monotonic_seconds() >= deadline:
                raise
            sleep(limits.PROCESS_LEASE_RETRY_SECONDS)
            continue
        thread.start()
        return OpenLocalLog(DirectLog(thread))


class DirectLog:
    """The log, written by this process."""

    def __init__(self, thread: LogThread) -> None:
        self._thread = thread

    @property
    def is_through_agent(self) -> bool:
        """See ``LocalLog``."""
        return False

    def append_soon(self, request: AppendRequest) -> "Future[Appended]":
        """See ``LocalLog``."""
        return self._thread.append(request)

    def release(self, run: RunKey) -> None:
        """See ``LocalLog``."""
        self._thread.call(lambda log: log.release(run)).result()

    def release_as(self, run: RunKey, as_run_id: str) -> int:
        """See ``LocalLog``."""
        now_nanos = time.time_ns()
        return self._thread.call(lambda log: log.release_as(run, as_run_id, now_nanos=now_nanos)).result()

    def drop(self, run: RunKey) -> int:
        """See ``LocalLog``."""
        return self._thread.call(lambda log: log.drop(run)).result()

    def close(self) -> None:
        """See ``LocalLog``."""
        self._thread.stop()


class SocketLog:
    """The log, written by the agent that runs on the folder."""

    def __init__(self, socket: SocketPath, channel: grpc.Channel) -> None:
        self._socket = socket
        self._channel = channel
        self.stub = runtime_agent_service_pb2_grpc.RuntimeAgentServiceStub(channel)
        """The agent's methods, for callers that need one that is not here."""
        self._requests: queue.SimpleQueue[pb.AppendEventsRequest | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unanswered: deque[Future[Appended]] = deque()
        self._reader: threading.Thread | None = None
        self._broken: RuntimeAgentError | None = None

    @classmethod
    def connect(cls, folder: str) -> "SocketLog | None":
        """Connect to the agent of a folder; None where nobody answers."""
        socket = SocketPath(folder)
        if not _does_somebody_listen(socket):
            socket.close()
            return None
        channel = grpc.insecure_channel(socket.target, options=_CHANNEL_OPTIONS)
        try:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
            socket.close()
            return None
        return cls(socket, channel)

    @property
    def is_through_agent(self) -> bool:
        """See ``LocalLog``."""
        return True

    @property
    def path(self) -> str:
        """The socket."""
        return self._socket.path

    def append_soon(self, request: AppendRequest) -> "Future[Appended]":
        """See ``LocalLog``."""
        future: Future[Appended] = Future()
        try:
            message = append_request_to_proto(request)
        except RuntimeAgentError as error:
            future.set_exception(error)
            return future
        with self._lock:
            if self._broken is not None:
                future.set_exception(self._broken)
                return future
            if len(self._unanswered) >= limits.QUEUE_CALLS_MAX:
                future.set_exception(LogQueueFullError())
                return future
            self._unanswered.append(future)
            self._requests.put(message)
            if self._reader is None:
                self._reader = threading.Thread(target=self._read_answers, name="local-log", daemon=True)
                self._reader.start()
        return future

    def _sent_requests(self) -> Iterator[pb.AppendEventsRequest]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read_answers(self) -> None:
        broken: RuntimeAgentError = AgentUnreachableError(self.path, "the agent ended the call")
        try:
            for response in self.stub.AppendEvents(self._sent_requests()):
                with self._lock:
                    future = self._unanswered.popleft()
                if response.HasField("error"):
                    future.set_exception(error_from_refusal(refusal_from_status(response.error), self.path))
                else:
                    future.set_result(
                        Appended(response.first_sequence, response.last_sequence, response.is_repeat)
                    )
        except grpc.RpcError as error:
            broken = self._error(error)
        self._requests.put(None)
        with self._lock:
            self._broken = broken
            unanswered = list(self._unanswered)
            self._unanswered.clear()
        for future in unanswered:
            future.set_exception(broken)

    def release(self, run: RunKey) -> None:
        """See ``LocalLog``."""
        self._release(run, "")

    def release_as(self, run: RunKey, as_run_id: str) -> int:
        """See ``LocalLog``."""
        return self._release(run, as_run_id)

    def _release(self, run: RunKey, as_run_id: str) -> int:
        request = pb.ReleaseQuarantinedRunRequest(
            project_id=run.project_id, run_id=run.run_id, as_run_id=as_run_id
        )
        try:
            answer = self.stub.ReleaseQuarantinedRun(request, timeout=limits.ANSWER_WAIT_SECONDS)
        except grpc.RpcError as error:
            raise self._error(error) from error
        return answer.copied_event_count

    def drop(self, run: RunKey) -> int:
        """See ``LocalLog``."""
        request = pb.DropQuarantinedRunRequest(project_id=run.project_id, run_id=run.run_id)
        try:
            answer = self.stub.DropQuarantinedRun(request, timeout=limits.ANSWER_WAIT_SECONDS)
        except grpc.RpcError as error:
            raise self._error(error) from error
        return answer.dropped_event_count

    def load_status(self) -> pb.AgentStatus:
        """Return where the agent stands. Raises: AgentUnreachableError."""
        try:
            response = self.stub.GetAgentStatus(
                pb.GetAgentStatusRequest(), timeout=limits.ANSWER_WAIT_SECONDS
            )
        except grpc.RpcError as error:
            raise self._error(error) from error
        return response.status

    def tail(self, *, after_local_position: int, project_id: str, run_id: str) -> Iterator[pb.LocalEvent]:
        """Yield events after a local position as they are appended, until the agent ends."""
        request = pb.TailLocalEventsRequest(
            project_id=project_id, run_id=run_id, after_local_position=after_local_position
        )
        try:
            for response in self.stub.TailLocalEvents(request):
                yield from response.events
        except grpc.RpcError as error:
            raise self._error(error) from error

    def _error(self, error: grpc.RpcError) -> RuntimeAgentError:
        return error_from_refusal(refusal_from_error(error), self.path)

    def close(self) -> None:
        """See ``LocalLog``. Answers to what was sent are waited for, within a bound."""
        self._requests.put(None)
        if self._reader is not None:
            self._reader.join(limits.ANSWER_WAIT_SECONDS)
        self._channel.close()
        self._socket.close()


def _does_somebody_listen(socket: SocketPath) -> bool:
    """Say at once whether the socket is a living one; gRPC would go on trying for seconds."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(socket.target.removeprefix("unix:"))
        except OSError:
            return False
    return True
