"""What holds for every call: refusals become statuses, faults become INTERNAL with a reference.

The text of an exception that nobody caught would reach the client word for word; so nothing that is
not a ``Refusal`` leaves the hub. It works for all four kinds of calls and for both ways of writing a
streaming handler (a generator, or ``read()`` and ``write()``).
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar, cast

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from hub.core.errors import InvalidRequest, Refusal, Violation
from hub.rpc.error_table import Reference, grpc_status, status_from_refusal, status_of_fault
from hub.rpc.streams import CONNECTION_LOST, STATUS_SECONDS_MAX, ErrorReporter

log = structlog.get_logger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")
Deserializer = Callable[[bytes], Request]
Context = grpc.aio.ServicerContext[Request, Response]
if TYPE_CHECKING:
    # Generic in its stubs only.
    MethodHandler = grpc.RpcMethodHandler[Request, Response]
    FindHandler = Callable[
        [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Request, Response] | None]
    ]

OWN_METHODS_PREFIX: Final = "/synchub."
"""Methods whose undecodable requests are refused in our own words."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands for a unary request whose bytes are not the message that they should be."""

    refusal: InvalidRequest


class FaultReporter:
    """Turns what a handler raised into a status; faults are logged under a reference."""

    def __init__(self, new_reference: Callable[[], str]) -> None:
        """Keep what makes the references that name a fault."""
        self._new_reference = new_reference

    def status_of(self, error: Exception, *, method: str) -> status_pb2.Status:
        """Return the status of a refusal, or INTERNAL with a reference that is also in the log."""
        if isinstance(error, Refusal):
            return status_from_refusal(error)
        reference = Reference(self._new_reference())
        log.error("call_failed", method=method, reference=reference, exc_info=error)
        return status_of_fault(reference)


class RefusalInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler once."""

    def __init__(self, reporter: ErrorReporter) -> None:
        """Keep what turns errors into statuses."""
        self._guard = CallGuard(reporter)
        self._wrapped: dict[str, tuple[object, object]] = {}

    async def intercept_service(
        self,
        continuation: "FindHandler[Request, Response]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "MethodHandler[Request, Response] | None":
        """Return the handler of a call, guarded; None for a method that nobody serves."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = (handler, guarded_handler(handler, method, guard=self._guard))
            self._wrapped[method] = known
        return cast("MethodHandler[Request, Response]", known[1])


class CallGuard:
    """Ends calls by what their handlers raise."""

    def __init__(self, reporter: ErrorReporter) -> None:
        """Keep what turns errors into statuses."""
        self._reporter = reporter

    async def end(self, error: Exception, context: Context[Request, Response], *, method: str) -> NoReturn:
        """End a call with the status of an exception; what has ended it already goes on."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, CONNECTION_LOST) or context.done():
            log.debug("client_gone", method=method, error=type(error).__name__)
            raise asyncio.CancelledError from error
        status = self._reporter.status_of(error, method=method)
        try:
            async with asyncio.timeout(STATUS_SECONDS_MAX):
                await context.abort_with_status(grpc_status(status))
        except (TimeoutError, *CONNECTION_LOST) as late:
            # The status lies behind answers that the client does not read; gRPC keeps it for then.
            raise asyncio.CancelledError from late


def guarded_handler(
    handler: "MethodHandler[Request, Response]", method: str, *, guard: CallGuard
) -> "MethodHandler[Request, Response]":
    """Return a handler that does the same, but lets out only statuses."""
    guarded = _GuardedHandler(handler, guard, method)
    if handler.request_streaming and handler.response_streaming:
        guarded.stream_stream = _guard_stream(handler.stream_stream, guard, method=method)
    elif handler.request_streaming:
        guarded.stream_unary = _guard_unary(handler.stream_unary, guard, method=method)
    elif handler.response_streaming:
        guarded.unary_stream = _guard_stream(handler.unary_stream, guard, method=method)
    else:
        guarded.unary_unary = _guard_unary(handler.unary_unary, guard, method=method)
    return cast("MethodHandler[Request, Response]", guarded)


class _GuardedHandler(Generic[Request, Response]):
    """The attributes that gRPC reads from a method handler."""

    def __init__(self, handler: "MethodHandler[Request, Response]", guard: CallGuard, method: str) -> None:
        self.request_streaming = handler.request_streaming
        self.response_streaming = handler.response_streaming
        self.response_serializer = handler.response_serializer
        self.request_deserializer: object = handler.request_deserializer
        if handler.request_deserializer is not None and method.startswith(OWN_METHODS_PREFIX):
            make = _refusing_deserializer if handler.request_streaming else _marking_deserializer
            self.request_deserializer = make(handler.request_deserializer)
        self.unary_unary: object = None
        self.unary_stream: object = None
        self.stream_unary: object = None
        self.stream_stream: object = None


def _undecodable() -> InvalidRequest:
    sentence = "cannot be decoded: it is another message, or a text in it is not UTF-8"
    return InvalidRequest([Violation("request", sentence)])


def _marking_deserializer(deserializer: Deserializer[Request]) -> Deserializer[Request | Undecodable]:
    """Return a deserializer that marks what it cannot decode, for the guard to refuse."""

    def deserialize(raw: bytes) -> Request | Undecodable:
        try:
            return deserializer(raw)
        except DecodeError:
            return Undecodable(_undecodable())

    return deserialize


def _refusing_deserializer(deserializer: Deserializer[Request]) -> Deserializer[Request]:
    """Return a deserializer that refuses what it cannot decode, to whoever reads the stream."""

    def deserialize(raw: bytes) -> Request:
        try:
            return deserializer(raw)
        except DecodeError as error:
            raise _undecodable() from error

    return deserialize


def _guard_unary(behavior: object, guard: CallGuard, *, method: str) -> object:
    """Guard a handler with one response."""
    answer = cast("Callable[[Request, Context[Request, Response]], Awaitable[Response]]", behavior)

    async def guarded(request: Request, context: Context[Request, Response]) -> Response:
        try:
            if isinstance(request, Undecodable):
                raise request.refusal
            return await answer(request, context)
        except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
            await guard.end(error, context, method=method)

    return guarded


def _guard_stream(behavior: object, guard: CallGuard, *, method: str) -> object:
    """Guard a handler with many responses, given as a generator or written by hand."""
    if inspect.isasyncgenfunction(behavior):
        generate = cast("Callable[[Request, Context[Request, Response]], AsyncIterator[Response]]", behavior)

        async def guarded_generator(
            request: Request, context: Context[Request, Response]
        ) -> AsyncIterator[Response]:
            try:
                if isinstance(request, Undecodable):
                    raise request.refusal
                async for response in generate(request, context):
                    yield response
            except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
                await guard.end(error, context, method=method)

        return guarded_generator

    write_all = cast("Callable[[Request, Context[Request, Response]], Awaitable[None]]", behavior)

    async def guarded_writer(request: Request, context: Context[Request, Response]) -> None:
        try:
            if isinstance(request, Undecodable):
                raise request.refusal
            await write_all(request, context)
        except Exception as error:  # noqa: BLE001 - the last place where a fault can be caught
            await guard.end(error, context, method=method)

    return guarded_writer
