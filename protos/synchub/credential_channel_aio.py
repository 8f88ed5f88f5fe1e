"""The channel of ``credential_channel.py`` for event loops; it belongs to the loop that it is made in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from synchub.credential_connections import Connections, LentMethod
from synchub.credentials import CredentialSource, TlsContents

Request = TypeVar("Request")
Response = TypeVar("Response")
CallT = TypeVar("CallT", bound=grpc.aio.Call)

MetadataGiven: TypeAlias = grpc.aio.Metadata | Sequence[tuple[str, str | bytes]]
"""Metadata of a call, as a caller gives it."""


class CredentialChannelAio(grpc.aio.Channel):
    """See ``CredentialChannel``."""

    def __init__(
        self, source: CredentialSource, *, dial: Callable[[TlsContents | None], grpc.aio.Channel]
    ) -> None:
        """``dial`` makes an inner channel; it neither blocks nor fails."""
        self._closing: set[asyncio.Task[None]] = set()
        self._connections = Connections(source, dial=dial, close=self._close_aside)

    async def close(self, grace: float | None = None) -> None:
        """End all calls, after ``grace`` seconds where given. Idempotent."""
        channels = self._connections.take_all()
        await asyncio.gather(*(channel.close(grace) for channel in channels), *self._closing)

    async def __aenter__(self) -> "CredentialChannelAio":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the newest connection."""
        return self._connections.newest.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the connection that is the newest one now has another state.

        It stays open meanwhile, so that whoever watches it does not lose it by a replaced certificate.
        """
        watched = self._connections.hold()
        try:
            await watched.channel.wait_for_state_change(last_observed_state)
        finally:
            self._connections.give_back(watched)

    async def channel_ready(self) -> None:
        """Wait until the connection that is the newest one now is up."""
        await self._connections.newest.channel_ready()

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.aio.UnaryUnaryMultiCallable[Request, Response]":
        """Return a method with one request and one response."""
        lent = LentMethod(
            self._connections,
            lambda on: on.unary_unary(method, request_serializer, response_deserializer),
        )
        return cast("grpc.aio.UnaryUnaryMultiCallable[Request, Response]", _UnaryUnary(lent))

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.aio.UnaryStreamMultiCallable[Request, Response]":
        """Return a method with one request and a stream of responses."""
        lent = LentMethod(
            self._connections,
            lambda on: on.unary_stream(method, request_serializer, response_deserializer),
        )
        return cast("grpc.aio.UnaryStreamMultiCallable[Request, Response]", _UnaryStream(lent))

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.aio.StreamUnaryMultiCallable[Request, Response]":
        """Return a method with a stream of requests and one response."""
        lent = LentMethod(
            self._connections,
            lambda on: on.stream_unary(method, request_serializer, response_deserializer),
        )
        return cast("grpc.aio.StreamUnaryMultiCallable[Request, Response]", _StreamUnary(lent))

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.aio.StreamStreamMultiCallable[Request, Response]":
        """Return a method with streams both ways."""
        lent = LentMethod(
            self._connections,
            lambda on: on.stream_stream(method, request_serializer, response_deserializer),
        )
        return cast("grpc.aio.StreamStreamMultiCallable[Request, Response]", _StreamStream(lent))

    def _close_aside(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(), name="close-old-connection")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _given_back_at_end(begin: Callable[[], CallT], is_over: Callable[[], None]) -> CallT:
    """Begin a call, and say when it is over, however it ends."""
    try:
        call = begin()
    except BaseException:
        is_over()
        raise
    call.add_done_callback(lambda _: is_over())
    return call


class _UnaryUnary(Generic[Request, Response]):
    """A method with one request and one response."""

    def __init__(
        self, method: "LentMethod[grpc.aio.Channel, grpc.aio.UnaryUnaryMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "grpc.aio.UnaryUnaryCall[Request, Response]":
        """Begin the call."""
        method, shown, is_over = self._method.borrow(metadata)
        return _given_back_at_end(
            lambda: method(
                request,
                timeout=timeout,
                metadata=shown,
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            ),
            is_over,
        )


class _UnaryStream(Generic[Request, Response]):
    """A method with one request and a stream of responses."""

    def __init__(
        self, method: "LentMethod[grpc.aio.Channel, grpc.aio.UnaryStreamMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "grpc.aio.UnaryStreamCall[Request, Response]":
        """Begin the call."""
        method, shown, is_over = self._method.borrow(metadata)
        return _given_back_at_end(
            lambda: method(
                request,
                timeout=timeout,
                metadata=shown,
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            ),
            is_over,
        )


class _StreamUnary(Generic[Request, Response]):
    """A method with a stream of requests and one response."""

    def __init__(
        self, method: "LentMethod[grpc.aio.Channel, grpc.aio.StreamUnaryMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request_iterator: AsyncIterator[Request] | Iterator[Request] | None = None,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "grpc.aio.StreamUnaryCall[Request, Response]":
        """Begin the call."""
        method, shown, is_over = self._method.borrow(metadata)
        return _given_back_at_end(
            lambda: method(
                request_iterator,
                timeout=timeout,
                metadata=shown,
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            ),
            is_over,
        )


class _StreamStream(Generic[Request, Response]):
    """A method with streams both ways."""

    def __init__(
        self, method: "LentMethod[grpc.aio.Channel, grpc.aio.StreamStreamMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request_iterator: AsyncIterator[Request] | Iterator[Request] | None = None,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "grpc.aio.StreamStreamCall[Request, Response]":
        """Begin the call."""
        method, shown, is_over = self._method.borrow(metadata)
        return _given_back_at_end(
            lambda: method(
                request_iterator,
                timeout=timeout,
                metadata=shown,
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            ),
            is_over,
        )
