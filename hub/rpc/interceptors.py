"""What holds for every call: it has a record, who calls is found out, refusals become statuses, faults
become INTERNAL with a reference.

The text of an exception that nobody caught would reach the client word for word; so nothing that is
not a ``Refusal`` leaves the hub. It works for all four kinds of calls and for both ways of writing a
streaming handler (a generator, or ``read()`` and ``write()``).
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, cast

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from hub.core.errors import InvalidRequest, LimitReached, Refusal, Violation
from hub.core.limits import Limits
from hub.rpc.call_log import CallLog
from hub.rpc.call_record import CallRecord, closing_status, current_record
from hub.rpc.error_table import Reference, status_from_refusal, status_of_fault
from hub.rpc.identity import OPEN_SERVICES, OWN_METHODS_PREFIX, Admission, current_call
from hub.rpc.message_shape import bounded_deserializer
from hub.rpc.open_streams import ErrorReporter
from hub.rpc.streams import CONNECTION_LOST, STATUS_SECONDS_MAX

log = structlog.get_logger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")
Deserializer = Callable[[bytes], Request]
Context = grpc.aio.ServicerContext[Request, Response]
Requests = AsyncIterator[Request]
if TYPE_CHECKING:
    # Generic in its stubs only.
    MethodHandler = grpc.RpcMethodHandler[Request, Response]
    FindHandler = Callable[
        [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Request, Response] | None]
    ]


class FaultReporter:
    """Turns what a handler raised into a status; faults are logged under a reference: the request id."""

    def __init__(self, new_reference: Callable[[], str]) -> None:
        """Keep what makes a reference for a fault that is no call's."""
        self._new_reference = new_reference

    def status_of(self, error: Exception, *, method: str) -> status_pb2.Status:
        """Return the status of a refusal, or INTERNAL with a reference that is also in the log."""
        if isinstance(error, Refusal):
            return status_from_refusal(error)
        record = current_record()
        reference = Reference(self._new_reference() if record is None else record.request_id)
        log.error("call_failed", method=method, reference=reference, exc_info=error)
        return status_of_fault(reference)


class RefusalInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler once."""

    def __init__(
        self,
        reporter: ErrorReporter,
        admission: Admission,
        calls: CallLog,
        *,
        limits: Limits,
    ) -> None:
        """Keep what turns errors into statuses, what finds out who calls, and what counts the calls."""
        self._guard = CallGuard(reporter, admission, calls, limits=limits)
        self._calls = calls
        self.all_told = self._guard.all_told
        """Set while no call is being ended: nobody waits for a status."""
        self._wrapped: dict[str, tuple[object, object]] = {}

    async def intercept_service(
        self,
        continuation: "FindHandler[Request, Response]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "MethodHandler[Request, Response] | None":
        """Return the handler of a call, guarded; None for a method that nobody serves."""
        handler = await continuation(handler_call_details)
        if handler is None:
            self._calls.unserved()
            return None
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = (handler, guarded_handler(handler, method, guard=self._guard))
            self._wrapped[method] = known
        return cast("MethodHandler[Request, Response]", known[1])


class CallGuard:
    """Begins calls with who makes them, and ends them by what their handlers raise."""

    def __init__(
        self, reporter: ErrorReporter, admission: Admission, calls: CallLog, *, limits: Limits
    ) -> None:
        """Keep what turns errors into statuses, what finds out who calls, and what counts the calls."""
        self.limits = limits
        self._open_service_streams = 0
        self._telling_count = 0
        self.all_told = asyncio.Event()
        self.all_told.set()
        self._reporter = reporter
        self._admission = admission
        self._calls = calls

    def begin(self, context: Context[Request, Response], *, method: str) -> CallRecord:
        """Find out who calls.

        A call that begins with a stream of requests is not refused here: that is said in band, by
        ``BidirectionalStream``, else the client would not see why.
        """
        record = self._calls.begin(context, method)
        record.call = self._admission.begin(context, method)
        return record

    async def request_of(
        self,
        sent: Requests[Request] | Request,
        context: Context[Request, Response],
        *,
        record: CallRecord,
        deserializer: Deserializer[Request] | None,
    ) -> Request:
        """Return the request of a call that has one, decoded only once it is known who calls.

        ``deserializer`` is None where gRPC has received and decoded it.
        Raises: Unauthenticated, PermissionDenied, InvalidRequest; LimitReached where it takes too long.
        """
        refusal = record.call.refusal if record.call is not None else None
        if deserializer is None:
            if refusal is not None:
                raise refusal
            return cast("Request", sent)
        seconds_max = self.limits.first_message_seconds_max
        try:
            # Who is refused is heard out too, though not for as long: a client that is still writing would
            # not see why.
            async with asyncio.timeout(STATUS_SECONDS_MAX if refusal is not None else seconds_max):
                raw = await context.read()
        except TimeoutError as error:
            raise refusal or LimitReached("first_message_seconds_max", ceil(seconds_max)) from error
        if refusal is not None:
            raise refusal
        if raw is grpc.aio.EOF:
            raise InvalidRequest([Violation("request", "is missing")])
        try:
            return deserializer(cast("bytes", raw))
        except DecodeError as error:
            raise _undecodable() from error

    @contextmanager
    def counted(self, method: str) -> Iterator[None]:
        """Count a stream of a service that is not the hub's own, for as long as it is open; its own ones are
        counted where they are served (``OpenStreams``).

        Raises: LimitReached where too many are open.
        """
        if method.startswith(OWN_METHODS_PREFIX):
            yield
            return
        if self._open_service_streams >= self.limits.open_service_streams_max:
            raise LimitReached("open_service_streams_max", self.limits.open_service_streams_max)
        self._open_service_streams += 1
        try:
            yield
        finally:
            self._open_service_streams -= 1

    def count_answer(self, response: object, record: CallRecord) -> None:
        """Count a call's only answer until it is written, which ends the running task.

        Raises: LimitReached where too much of what the caller asked for is not read yet.
        """
        call, task = record.call, asyncio.current_task()
        if call is None or task is None:
            return
        unread, asker = call.admission.unread, call.asker
        bytes_max = self.limits.credential_unread_answer_bytes_max
        size = unread.begin(asker, response, bytes_max=bytes_max)
        if size:
            task.add_done_callback(lambda _: unread.end(asker, size))

    def over(self, record: CallRecord, *, is_stream: bool) -> None:
        """Note that a call is over."""
        self._calls.end(record, is_stream=is_stream)

    async def end(
        self, error: Exception, context: Context[Request, Response], *, record: CallRecord
    ) -> NoReturn:
        """End a call with the status of an exception; what has ended it already goes on."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, CONNECTION_LOST) or context.done():
            log.debug("client_gone", error=type(error).__name__)
            raise asyncio.CancelledError from error
        record.ended_by(error)
        status = self._reporter.status_of(error, method=record.method)
        self._telling_count += 1
        self.all_told.clear()
        try:
            async with asyncio.timeout(STATUS_SECONDS_MAX):
                await context.abort_with_status(closing_status(status, context))
        except (TimeoutError, *CONNECTION_LOST) as late:
            # The status lies behind answers that the client does not read; gRPC keeps it for then.
            raise asyncio.CancelledError from late
        finally:
            self._telling_count -= 1
            if not self._telling_count:
                self.all_told.set()


def guarded_handler(
    handler: "MethodHandler[Request, Response]", method: str, *, guard: CallGuard
) -> "MethodHandler[Request, Response]":
    """Return a handler that does the same, but lets out only statuses."""
    guarded = _GuardedHandler(handler)
    is_own = method.startswith(OWN_METHODS_PREFIX)
    deserializer = handler.request_deserializer if is_own or method.startswith(OPEN_SERVICES) else None
    if deserializer is not None:
        limit = "message_bytes_max" if is_own else "open_service_message_bytes_max"
        deserializer = bounded_deserializer(
            deserializer, message_bytes_max=getattr(guard.limits, limit), limit=limit
        )
        # A single request comes as bytes, and is read like a stream of one: it is decoded when it is known
        # who calls, and nobody may take for ever to send it.
        guarded.request_deserializer = (
            _refusing_deserializer(deserializer) if handler.request_streaming else None
        )
        guarded.request_streaming = True
    if handler.request_streaming and handler.response_streaming:
        guarded.stream_stream = _guard_requests(handler.stream_stream, guard, method=method)
    elif handler.request_streaming:
        guarded.stream_unary = _guard_unary(handler.stream_unary, guard, method=method, deserializer=None)
    elif handler.response_streaming:
        guarded.unary_stream = guarded.stream_stream = _guard_stream(
            handler.unary_stream, guard, method=method, deserializer=deserializer
        )
    else:
        guarded.unary_unary = guarded.stream_unary = _guard_unary(
            handler.unary_unary, guard, method=method, deserializer=deserializer
        )
    return cast("MethodHandler[Request, Response]", guarded)


class _GuardedHandler(Generic[Request, Response]):
    """The attributes that gRPC reads from a method handler."""

    def __init__(self, handler: "MethodHandler[Request, Response]") -> None:
        self.request_streaming = handler.request_streaming
        self.response_streaming = handler.response_streaming
        self.response_serializer = handler.response_serializer
        self.request_deserializer: object = handler.request_deserializer
        self.unary_unary: object = None
        self.unary_stream: object = None
        self.stream_unary: object = None
        self.stream_stream: object = None


def _undecodable() -> InvalidRequest:
    sentence = "cannot be decoded: it is another message, or a text in it is not UTF-8"
    return InvalidRequest([Violation("request", sentence)])


def _refusing_deserializer(deserializer: Deserializer[Request]) -> Deserializer[Request]:
    """Return a deserializer that refuses what it cannot decode, to whoever reads the stream.

    What a refused call sends is not decoded.
    """

    def deserialize(raw: bytes) -> Request:
        try:
            return deserializer(raw if current_call().refusal is None else b"")
        except DecodeError as error:
            raise _undecodable() from error

    return deserialize


def _guard_unary(
    behavior: object, guard: CallGuard, *, method: str, deserializer: Deserializer[Request] | None
) -> object:
    """Guard a handler with one response; ``deserializer`` is None where its request comes decoded."""
    answer = cast("Callable[[Request, Context[Request, Response]], Awaitable[Response]]", behavior)

    async def guarded(sent: Requests[Request] | Request, context: Context[Request, Response]) -> Response:
        record = guard.begin(context, method=method)
        try:
            request = await guard.request_of(sent, context, record=record, deserializer=deserializer)
            response = await answer(request, context)
            guard.count_answer(response, record)
            record.succeeded()
            return response
        except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
            await guard.end(error, context, record=record)
        finally:
            guard.over(record, is_stream=False)

    return guarded


def _guard_stream(
    behavior: object, guard: CallGuard, *, method: str, deserializer: Deserializer[Request] | None
) -> object:
    """Guard a handler with one request and many responses, given as a generator or written by hand."""
    if inspect.isasyncgenfunction(behavior):
        generate = cast("Callable[[Request, Context[Request, Response]], AsyncIterator[Response]]", behavior)

        async def guarded_generator(
            sent: Requests[Request] | Request, context: Context[Request, Response]
        ) -> AsyncIterator[Response]:
            record = guard.begin(context, method=method)
            try:
                with guard.counted(method):
                    request = await guard.request_of(sent, context, record=record, deserializer=deserializer)
                    async for response in generate(request, context):
                        yield response
                record.succeeded()
            except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
                await guard.end(error, context, record=record)
            finally:
                guard.over(record, is_stream=True)

        return guarded_generator

    write_all = cast("Callable[[Request, Context[Request, Response]], Awaitable[None]]", behavior)

    async def guarded_writer(sent: Requests[Request] | Request, context: Context[Request, Response]) -> None:
        record = guard.begin(context, method=method)
        try:
            with guard.counted(method):
                request = await guard.request_of(sent, context, record=record, deserializer=deserializer)
                await write_all(request, context)
            record.succeeded()
        except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
            await guard.end(error, context, record=record)
        finally:
            guard.over(record, is_stream=True)

    return guarded_writer


def _guard_requests(behavior: object, guard: CallGuard, *, method: str) -> object:
    """Guard a handler with many requests and many responses."""
    if inspect.isasyncgenfunction(behavior):
        generate = cast(
            "Callable[[Requests[Request], Context[Request, Response]], AsyncIterator[Response]]",
            behavior,
        )

        async def guarded_generator(
            requests: Requests[Request], context: Context[Request, Response]
        ) -> AsyncIterator[Response]:
            record = guard.begin(context, method=method)
            try:
                with guard.counted(method):
                    async for response in generate(requests, context):
                        yield response
                record.succeeded()
            except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
                await guard.end(error, context, record=record)
            finally:
                guard.over(record, is_stream=True)

        return guarded_generator

    write_all = cast("Callable[[Requests[Request], Context[Request, Response]], Awaitable[None]]", behavior)

    async def guarded_writer(requests: Requests[Request], context: Context[Request, Response]) -> None:
        record = guard.begin(context, method=method)
        try:
            with guard.counted(method):
                await write_all(requests, context)
            record.succeeded()
        except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
            await guard.end(error, context, record=record)
        finally:
            guard.over(record, is_stream=True)

    return guarded_writer
