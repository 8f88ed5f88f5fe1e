"""The methods of ``RuntimeAgentService``: each one decodes, asks the log, and encodes."""

# ruff: noqa: N802 (the methods' names are the service's)

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast
from uuid import uuid4

import grpc
import grpc.aio
import structlog
from google.rpc import status_pb2
from grpc_status import rpc_status

from runtime_agent import limits
from runtime_agent.core.errors import EventInvalidError, RuntimeAgentError, RunUnknownError
from runtime_agent.core.values import AgentFacts, Appended, HubLink, RunKey
from runtime_agent.event_log.contract import EventLog, EventLogReader, LogFront
from runtime_agent.local_api import codec
from runtime_agent.local_api.error_table import internal_status, status_from_error
from synchub.v1 import runtime_agent_service_pb2 as pb
from synchub.v1 import runtime_agent_service_pb2_grpc

log = structlog.get_logger(__name__)

T = TypeVar("T")
Request = TypeVar("Request")
Response = TypeVar("Response")
AppendContext = grpc.aio.ServicerContext[pb.AppendEventsRequest, pb.AppendEventsResponse]


class RuntimeAgentServicer(runtime_agent_service_pb2_grpc.RuntimeAgentServiceServicer):
    """Serves the local log to programs of this machine, on the running event loop."""

    def __init__(
        self,
        front: LogFront,
        link: HubLink,
        facts: AgentFacts,
        *,
        wall_clock_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        self._front = front
        self._link = link
        self._facts = facts
        self._wall_clock_nanos = wall_clock_nanos
        self._is_stopping = False
        self._wakes: set[asyncio.Event] = set()

    def stop_tails(self) -> None:
        """End the open tails, so that a stop does not wait for them."""
        self._is_stopping = True
        for wake in self._wakes:
            wake.set()

    # --- appends -----------------------------------------------------------------------------------

    async def AppendEvents(  # type: ignore[override]  # read() and write() style, not an iterator
        self, request_iterator: AsyncIterator[pb.AppendEventsRequest], context: AppendContext
    ) -> None:
        """See the service's definition. Requests are taken on while others wait for their commit."""
        stream = _AppendStream(self._front, context)
        await stream.serve()

    # --- reads -------------------------------------------------------------------------------------

    async def ListLocalEvents(
        self,
        request: pb.ListLocalEventsRequest,
        context: grpc.aio.ServicerContext[pb.ListLocalEventsRequest, pb.ListLocalEventsResponse],
    ) -> pb.ListLocalEventsResponse:
        """See the service's definition."""
        return await _answer(context, self._list_local_events(request))

    async def _list_local_events(self, request: pb.ListLocalEventsRequest) -> pb.ListLocalEventsResponse:
        run = RunKey(request.project_id, request.run_id)
        size = codec.page_size(
            request.page_size, default=limits.EVENT_PAGE_DEFAULT, largest=limits.EVENT_PAGE_MAX
        )
        after = request.after_sequence
        if request.page_token:
            after = codec.sequence_from_token(request.page_token)
        state = await asyncio.wrap_future(self._front.read(lambda reader: reader.load_run(run)))
        if state is None:
            raise RunUnknownError(run.project_id, run.run_id)
        events = await asyncio.wrap_future(
            self._front.read(
                lambda reader: reader.read_events(
                    run, after_sequence=after, count_max=size, bytes_max=limits.PAGE_BYTES_MAX
                )
            )
        )
        response = pb.ListLocalEventsResponse()
        for event in events:
            is_acknowledged = event.sequence <= state.acknowledged_sequence
            response.events.append(codec.local_event_to_proto(run, event, is_acknowledged=is_acknowledged))
        if events and events[-1].sequence < state.last_sequence:
            response.next_page_token = codec.token_from_sequence(events[-1].sequence)
        return response

    async def TailLocalEvents(
        self,
        request: pb.TailLocalEventsRequest,
        context: grpc.aio.ServicerContext[pb.TailLocalEventsRequest, pb.TailLocalEventsResponse],
    ) -> AsyncIterator[pb.TailLocalEventsResponse]:
        """See the service's definition. A slow reader slows only itself: nothing is queued for it."""
        loop = asyncio.get_running_loop()
        wake = asyncio.Event()

        def wake_up() -> None:
            loop.call_soon_threadsafe(wake.set)

        self._front.add_append_listener(wake_up)
        self._wakes.add(wake)
        try:
            after = await _answer(context, self._tail_start(request))
            while not self._is_stopping:
                wake.clear()
                response, after = await _answer(context, self._tail_page(request, after))
                if response.events:
                    yield response
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), limits.TAIL_POLL_SECONDS)
        finally:
            self._wakes.discard(wake)
            self._front.remove_append_listener(wake_up)

    async def _tail_start(self, request: pb.TailLocalEventsRequest) -> int:
        if request.run_id and not request.project_id:
            raise EventInvalidError("project_id", "is empty, but run_id needs it")
        start = request.WhichOneof("start")
        if start == "after_local_position":
            if request.after_local_position < 0:
                raise EventInvalidError("after_local_position", "is negative")
            return request.after_local_position
        if start is None:
            return 0
        if not request.from_now:
            raise EventInvalidError("from_now", "is false; leave it away to begin with the first event")
        return await asyncio.wrap_future(self._front.read(lambda reader: reader.load_head_local_position()))

    async def _tail_page(
        self, request: pb.TailLocalEventsRequest, after: int
    ) -> tuple[pb.TailLocalEventsResponse, int]:
        """Return the next page, and the position after which the one after it begins."""

        def read(reader: EventLogReader) -> tuple[pb.TailLocalEventsResponse, int]:
            head = reader.load_head_local_position()
            found = reader.tail_events(
                after_local_position=after,
                project_id=request.project_id,
                run_id=request.run_id,
                count_max=limits.EVENT_PAGE_DEFAULT,
                bytes_max=limits.PAGE_BYTES_MAX,
            )
            response = pb.TailLocalEventsResponse()
            for run, event, is_acknowledged in found:
                response.events.append(
                    codec.local_event_to_proto(run, event, is_acknowledged=is_acknowledged)
                )
            # With nothing found, all up to the head was looked at and is of other runs.
            return response, found[-1].event.local_position if found else max(after, head)

        return await asyncio.wrap_future(self._front.read(read))

    async def GetAgentStatus(
        self,
        request: pb.GetAgentStatusRequest,
        context: grpc.aio.ServicerContext[pb.GetAgentStatusRequest, pb.GetAgentStatusResponse],
    ) -> pb.GetAgentStatusResponse:
        """See the service's definition."""
        return await _answer(context, self._get_agent_status())

    async def _get_agent_status(self) -> pb.GetAgentStatusResponse:
        totals = await asyncio.wrap_future(self._front.read(lambda reader: reader.load_totals()))
        memory = await asyncio.wrap_future(self._front.read(lambda reader: reader.load_hub_memory()))
        return pb.GetAgentStatusResponse(
            status=codec.status_to_proto(
                self._facts, self._link.status(), totals=totals, hub_generation=memory.hub_generation
            )
        )

    # --- quarantine --------------------------------------------------------------------------------

    async def ListQuarantinedRuns(
        self,
        request: pb.ListQuarantinedRunsRequest,
        context: grpc.aio.ServicerContext[pb.ListQuarantinedRunsRequest, pb.ListQuarantinedRunsResponse],
    ) -> pb.ListQuarantinedRunsResponse:
        """See the service's definition."""
        return await _answer(context, self._list_quarantined_runs(request))

    async def _list_quarantined_runs(
        self, request: pb.ListQuarantinedRunsRequest
    ) -> pb.ListQuarantinedRunsResponse:
        size = codec.page_size(
            request.page_size, default=limits.RUN_PAGE_DEFAULT, largest=limits.RUN_PAGE_MAX
        )
        after = codec.run_from_token(request.page_token) if request.page_token else None
        # One more than the page tells whether there is a next one.
        states = await asyncio.wrap_future(
            self._front.read(lambda reader: reader.list_quarantined_runs(after=after, limit=size + 1))
        )
        response = pb.ListQuarantinedRunsResponse(
            quarantined_runs=[codec.quarantined_run_to_proto(state) for state in states[:size]]
        )
        if len(states) > size:
            response.next_page_token = codec.token_from_run(states[size - 1].run)
        return response

    async def ReleaseQuarantinedRun(
        self,
        request: pb.ReleaseQuarantinedRunRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseQuarantinedRunRequest, pb.ReleaseQuarantinedRunResponse],
    ) -> pb.ReleaseQuarantinedRunResponse:
        """See the service's definition."""
        return await _answer(context, self._release_quarantined_run(request))

    async def _release_quarantined_run(
        self, request: pb.ReleaseQuarantinedRunRequest
    ) -> pb.ReleaseQuarantinedRunResponse:
        run, as_run_id = RunKey(request.project_id, request.run_id), request.as_run_id
        if not as_run_id:
            await asyncio.wrap_future(self._front.call(lambda event_log: event_log.release(run)))
            self._link.run_released(run)
            return pb.ReleaseQuarantinedRunResponse()
        now_nanos = self._wall_clock_nanos()

        def copy(event_log: EventLog) -> int:
            return event_log.release_as(run, as_run_id, now_nanos=now_nanos)

        count = await asyncio.wrap_future(self._front.call(copy))
        self._link.run_released(RunKey(run.project_id, as_run_id))
        return pb.ReleaseQuarantinedRunResponse(copied_event_count=count)

    async def DropQuarantinedRun(
        self,
        request: pb.DropQuarantinedRunRequest,
        context: grpc.aio.ServicerContext[pb.DropQuarantinedRunRequest, pb.DropQuarantinedRunResponse],
    ) -> pb.DropQuarantinedRunResponse:
        """See the service's definition."""
        return await _answer(context, self._drop_quarantined_run(request))

    async def _drop_quarantined_run(
        self, request: pb.DropQuarantinedRunRequest
    ) -> pb.DropQuarantinedRunResponse:
        run = RunKey(request.project_id, request.run_id)
        count = await asyncio.wrap_future(self._front.call(lambda event_log: event_log.drop(run)))
        self._link.run_dropped(run)
        return pb.DropQuarantinedRunResponse(dropped_event_count=count)


class _AppendStream:
    """One stream of appends: reads on while earlier requests wait for their commit, within bounds."""

    def __init__(self, front: LogFront, context: AppendContext) -> None:
        self._front = front
        self._context = context
        self._unanswered: deque[tuple[Awaitable[pb.AppendEventsResponse], int]] = deque()
        self._unanswered_bytes = 0
        self._changed = asyncio.Event()
        self._is_read_to_end = False

    async def serve(self) -> None:
        """Answer every request of the stream, one response each, in order."""
        writer = asyncio.create_task(self._write_answers())
        try:
            while not writer.done():
                request: object = await self._context.read()
                if not isinstance(request, pb.AppendEventsRequest):
                    break  # it is grpc.aio.EOF, which the stubs do not say
                self._take(request)
                while not writer.done() and self._is_full():
                    await self._wait_for_change(writer)
            self._is_read_to_end = True
            self._changed.set()
            await writer
        finally:
            writer.cancel()
            for answer, _ in self._unanswered:
                cast("asyncio.Future[pb.AppendEventsResponse]", answer).cancel()

    def _take(self, request: pb.AppendEventsRequest) -> None:
        size = request.ByteSize()
        self._unanswered.append((asyncio.ensure_future(self._append(request)), size))
        self._unanswered_bytes += size
        self._changed.set()

    def _is_full(self) -> bool:
        return len(self._unanswered) >= limits.APPENDS_IN_FLIGHT_MAX or (
            self._unanswered_bytes >= limits.APPEND_BYTES_IN_FLIGHT_MAX
        )

    async def _wait_for_change(self, writer: "asyncio.Task[None]") -> None:
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait((changed, writer), return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    async def _append(self, request: pb.AppendEventsRequest) -> pb.AppendEventsResponse:
        try:
            appended = await asyncio.wrap_future(self._front.append(codec.append_request_from_proto(request)))
        except RuntimeAgentError as error:
            return pb.AppendEventsResponse(error=status_from_error(error))
        except Exception as error:  # noqa: BLE001  # a mistake of ours must not end the stream unsaid
            return pb.AppendEventsResponse(error=_log_mistake(error))
        return _appended_to_proto(appended)

    async def _write_answers(self) -> None:
        while True:
            if not self._unanswered:
                if self._is_read_to_end:
                    return
                self._changed.clear()
                await self._changed.wait()
                continue
            answer, size = self._unanswered[0]
            response = await answer
            # Whoever does not read its answers for so long is gone, or as good as gone.
            async with asyncio.timeout(limits.ANSWER_WAIT_SECONDS):
                await self._context.write(response)
            self._unanswered.popleft()
            self._unanswered_bytes -= size
            self._changed.set()


def _appended_to_proto(appended: Appended) -> pb.AppendEventsResponse:
    return pb.AppendEventsResponse(
        first_sequence=appended.first_sequence,
        last_sequence=appended.last_sequence,
        is_repeat=appended.is_repeat,
    )


async def _answer(context: grpc.aio.ServicerContext[Request, Response], work: Awaitable[T]) -> T:
    """Return what the work gives, or end the call with the status of its error."""
    try:
        return await work
    except RuntimeAgentError as error:
        status = status_from_error(error)
    except Exception as error:  # noqa: BLE001  # its text must not reach the client
        status = _log_mistake(error)
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort raises")


def _log_mistake(error: Exception) -> status_pb2.Status:
    reference = uuid4().hex
    log.error("local_api_mistake", reference=reference, exc_info=error)
    return internal_status(reference)
