"""How long-lived calls are read, answered and ended, so that no answer and no refusal gets lost.

A status alone gets lost where the client is writing while the server ends the call. So a refusal that
ends a bidirectional stream is first said in band, then the client has a moment to close its side, then
the same status ends the call. One read and one write at a time, and a read is never cancelled: gRPC
would end the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import ceil
from types import TracebackType
from typing import Final, Generic, TypeVar

import grpc.aio
from google.rpc import status_pb2

from hub.core.errors import HubStopping, LimitReached, Refusal
from hub.core.limits import Limits
from hub.rpc.call_record import closing_status, current_record
from hub.rpc.identity import current_call
from hub.rpc.open_streams import OpenStreams

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]

CONNECTION_LOST: Final = (asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError)
"""What gRPC raises from a read or write where the client is gone."""
STATUS_SECONDS_MAX: Final = 2.0
"""How long sending a status may take; it waits behind answers that the client does not read."""


class BidirectionalStream(Generic[Request, Response]):
    """One bidirectional call, as an asynchronous context manager around its handler's body.

    A ``Refusal`` or fault that leaves the body ends the stream in the right order. ``write`` and
    ``end`` may be called from any task of the loop, ``read`` from one at a time.
    """

    __slots__ = (
        "_context",
        "_ending",
        "_error_response",
        "_first_message_seconds_max",
        "_first_message_timer",
        "_half_closed",
        "_is_cut",
        "_is_over",
        "_method",
        "_open_streams",
        "_reading",
        "_record",
        "_write_begin_seconds",
        "_write_lock",
        "_writing",
        "farewell",
        "on_drain",
        "on_ending",
    )

    def __init__(
        self,
        open_streams: OpenStreams,
        context: Context[Request, Response],
        *,
        method: str,
        error_response: Callable[[status_pb2.Status], Response],
        first_message_seconds_max: float | None = None,
    ) -> None:
        """Wrap a call; ``error_response`` makes the response that says a status in band.

        With ``first_message_seconds_max`` a client that says nothing for so long is refused.
        """
        self._open_streams = open_streams
        self._context = context
        self._method = method
        self._error_response = error_response
        self._record = current_record()
        self._half_closed = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._writing: asyncio.Task[object] | None = None
        self._write_begin_seconds = 0.0
        self._is_cut = False
        self._reading: asyncio.Task[object] | None = None
        self._is_over = False
        self._ending: asyncio.Task[None] | None = None
        self._first_message_seconds_max = first_message_seconds_max
        self._first_message_timer: asyncio.TimerHandle | None = None
        self.farewell: Callable[[], Response] | None = None
        """Makes a response that is written before the one that says why the stream ends."""
        self.on_drain: Callable[[], None] | None = None
        """What drains instead of ``end(HubStopping())``, to be called once all is answered."""
        self.on_ending: Callable[[], None] | None = None
        """Wakes a handler that is not reading when the stream is being ended: it has to read to the end."""

    @property
    def is_ending(self) -> bool:
        """Whether the stream is being ended; what is read then is not looked at any more."""
        return self._ending is not None

    async def __aenter__(self) -> "BidirectionalStream[Request, Response]":
        try:
            self._open_streams.add(self, kind=self._method)
        except Refusal as refusal:
            self.end(refusal)
            await self._read_to_the_end()
            await asyncio.gather(*filter(None, [self._ending]))
            raise
        seconds_max = self._first_message_seconds_max
        if seconds_max is not None:
            self._first_message_timer = asyncio.get_running_loop().call_later(
                seconds_max,
                lambda: self.end(LimitReached("first_message_seconds_max", ceil(seconds_max))),
            )
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._cancel_first_message_timer()
        try:
            if isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError):
                if isinstance(error, CONNECTION_LOST):
                    return False
                self._end_by(error)
            if self._ending is None or isinstance(error, asyncio.CancelledError):
                return False
            await self._read_to_the_end()
            await self._ending
            return True
        finally:
            if self._ending is not None and not self._ending.done():
                self._ending.cancel()
            self._open_streams.remove(self)

    async def read(self) -> Request | None:
        """Return the next request; None where no more will come, or the stream ends.

        Raises: InvalidRequest for bytes that are no request, LimitReached for too many of them.
        """
        while not self._half_closed.is_set():
            task = self._reading = asyncio.current_task()
            try:
                request = await self._context.read()
            except (grpc.aio.AbortError, *CONNECTION_LOST):
                request = None
            except asyncio.CancelledError:
                if not self._is_over or task is None or task.uncancel() > 0:
                    raise
                request = None
            except Refusal:
                if self._ending is None:
                    raise
                continue
            finally:
                self._reading = None
            if self._first_message_timer is not None:
                self._cancel_first_message_timer()
            if request is None or request is grpc.aio.EOF:
                self._half_closed.set()
                return None
            if self._ending is None:
                return request
        return None

    async def write(self, response: Response) -> None:
        """Write a response.

        Raises: LimitReached where the client does not read for too long; what is in
        ``CONNECTION_LOST`` where it is gone.
        """
        async with self._write_lock:
            await self._write(response)

    def cut_if_unread(self, before_seconds: float) -> None:
        """Give up a write that the client has not made room for since then."""
        if self._writing is not None and self._write_begin_seconds < before_seconds and not self._is_cut:
            self._is_cut = True
            self._writing.cancel()

    def write_soon(self, make_response: Callable[[], Response]) -> None:
        """Write a response as soon as it may be, without waiting; it is left out where it cannot be.

        It is made when its turn to be written comes, so that it may hold what came up until then.
        """

        async def write() -> None:
            try:
                async with self._write_lock:
                    if self._ending is None:
                        await self._write(make_response())
            except LimitReached as refusal:
                self.end(refusal)
            except (grpc.aio.AbortError, *CONNECTION_LOST):
                pass  # whoever reads the stream finds out

        self._open_streams.in_background(write())

    def end(self, refusal: Refusal) -> None:
        """Begin to end the stream with a refusal; the first one counts. Returns at once."""
        self._end_by(refusal)

    def drain(self) -> None:
        """End the stream because the hub stops."""
        if self.on_drain is not None:
            self.on_drain()
        else:
            self.end(HubStopping())

    async def _write(self, response: Response) -> None:
        """Write a response, holding the lock."""
        task = asyncio.current_task()
        self._write_begin_seconds = asyncio.get_running_loop().time()
        self._writing = task
        try:
            await self._context.write(response)
        except asyncio.CancelledError as error:
            # Like asyncio.timeout does: the cancellation was ours, unless somebody else's came too.
            if self._is_cut and task is not None and task.uncancel() == 0:
                seconds_max = self._open_streams.limits.unread_answer_seconds_max
                raise LimitReached("unread_answer_seconds_max", ceil(seconds_max)) from error
            raise
        finally:
            self._writing = None

    def _end_by(self, error: Exception) -> None:
        """Begin to end the stream with what was raised; the first one counts."""
        status = self._open_streams.reporter.status_of(error, method=self._method)
        if self._ending is None:
            if self._record is not None:
                self._record.ended_by(error)
            self._ending = asyncio.get_running_loop().create_task(self._say_and_end(status))
            if self.on_ending is not None:
                self.on_ending()

    async def _say_and_end(self, status: status_pb2.Status) -> None:
        """Say a status in band, wait for the half-close, end the call with it."""
        responses = [self._error_response(status)]
        if self.farewell is not None:
            responses.insert(0, self.farewell())
        async with self._write_lock:
            await _say_and_end(
                self._context,
                status,
                responses=responses,
                half_closed=self._half_closed.wait,
                limits=self._open_streams.limits,
            )
        # The status may lie behind answers that the client does not read: then no read would ever end.
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()

    async def _read_to_the_end(self) -> None:
        """Read and forget until the client has closed its side or the call has ended."""
        while not self._half_closed.is_set():
            await self.read()

    def _cancel_first_message_timer(self) -> None:
        if self._first_message_timer is not None:
            self._first_message_timer.cancel()
            self._first_message_timer = None


class WatchStream:
    """A call that is answered until the client leaves: counted, and ended by a refusal at a stop or where
    its credential ends.

    A context manager around the handler's body; it interrupts whatever the body waits for.
    """

    def __init__(self, open_streams: OpenStreams, *, method: str) -> None:
        """Prepare; ``method`` is its kind in the counts."""
        self._open_streams = open_streams
        self._method = method
        self._task: asyncio.Task[None] | None = None
        self._refusal: Refusal | None = None

    def __enter__(self) -> "WatchStream":
        self._task = asyncio.current_task()
        self._open_streams.add(self, kind=self._method)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open_streams.remove(self)
        refusal = self._refusal
        if refusal is None or not isinstance(error, asyncio.CancelledError):
            return
        # Like asyncio.timeout does: the cancellation was ours, unless somebody else's came too.
        if self._task is not None and self._task.uncancel() == 0:
            raise refusal from error

    def cut_if_unread(self, before_seconds: float) -> None:
        """Do nothing: ``write_answer`` has a timer of its own."""

    def end(self, refusal: Refusal) -> None:
        """Interrupt the body, and end the call with a refusal; the first one counts."""
        if self._task is not None and self._refusal is None:
            self._refusal = refusal
            self._task.cancel()

    def drain(self) -> None:
        """End the call because the hub stops."""
        self.end(HubStopping())


async def write_answer(context: Context[Request, Response], response: Response, *, limits: Limits) -> None:
    """Write a response that the client has to make room for in time.

    Raises: LimitReached where it does not, or too much of what the caller asked for is not read yet.
    """
    seconds_max, call = limits.unread_answer_seconds_max, current_call()
    unread = call.admission.unread
    size = unread.begin(call.asker, response, bytes_max=limits.credential_unread_answer_bytes_max)
    try:
        async with asyncio.timeout(seconds_max):
            await context.write(response)
    except TimeoutError as error:
        raise LimitReached("unread_answer_seconds_max", ceil(seconds_max)) from error
    finally:
        unread.end(call.asker, size)


async def _say_and_end(
    context: Context[Request, Response],
    status: status_pb2.Status,
    *,
    responses: Sequence[Response],
    half_closed: Callable[[], Awaitable[object]],
    limits: Limits,
) -> None:
    """Write responses, wait for the half-close, and end the call with the status.

    A write is not cancelled where the client takes its time: where it was the call's first, gRPC could not
    send the status any more, and the call would stay open.
    """
    writing = asyncio.ensure_future(_write_all(context, responses))
    try:
        with suppress(TimeoutError, grpc.aio.AbortError, *CONNECTION_LOST):
            async with asyncio.timeout(limits.half_close_wait_seconds):
                await asyncio.shield(writing)
                await half_closed()
        with suppress(TimeoutError, grpc.aio.AbortError, *CONNECTION_LOST):
            async with asyncio.timeout(STATUS_SECONDS_MAX):
                await writing
                await context.abort_with_status(closing_status(status, context))
    finally:
        writing.cancel()


async def _write_all(context: Context[Request, Response], responses: Sequence[Response]) -> None:
    """Write responses; where the client is gone, whoever ends the call finds out."""
    with suppress(grpc.aio.AbortError, *CONNECTION_LOST):
        for response in responses:
            await context.write(response)
