"""A blocking channel that shows credentials with each call and follows what their files say.

What it promises is said in ``credential_connections.py``; its twin for event loops is
``credential_channel_aio.py``. gRPC's classes of methods take no type parameters at run time, hence the casts.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

import grpc

from synchub.credential_connections import Connections, LentMethod
from synchub.credentials import CredentialSource, TlsContents

if TYPE_CHECKING:
    # Types that only the stubs have.
    from grpc import _CallFuture, _CallIterator

Request = TypeVar("Request")
Response = TypeVar("Response")

MetadataGiven: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Metadata of a call, as a caller gives it."""


class CredentialChannel(grpc.Channel):
    """See the module."""

    def __init__(
        self, source: CredentialSource, *, dial: Callable[[TlsContents | None], grpc.Channel]
    ) -> None:
        """``dial`` makes an inner channel; it neither blocks nor fails."""
        self._connections = Connections(source, dial=dial, close=_close_aside)

    def subscribe(
        self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False
    ) -> None:
        """Tell of the connection that is the newest one now."""
        self._connections.newest.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no more."""
        self._connections.newest.unsubscribe(callback)

    def close(self) -> None:
        """End all calls. Idempotent."""
        for channel in self._connections.take_all():
            channel.close()

    def __enter__(self) -> "CredentialChannel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.UnaryUnaryMultiCallable[Request, Response]":
        """Return a method with one request and one response."""
        lent = LentMethod(
            self._connections,
            lambda on: on.unary_unary(method, request_serializer, response_deserializer),
        )
        return cast("grpc.UnaryUnaryMultiCallable[Request, Response]", _UnaryUnary(lent))

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.UnaryStreamMultiCallable[Request, Response]":
        """Return a method with one request and a stream of responses."""
        lent = LentMethod(
            self._connections,
            lambda on: on.unary_stream(method, request_serializer, response_deserializer),
        )
        return cast("grpc.UnaryStreamMultiCallable[Request, Response]", _UnaryStream(lent))

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.StreamUnaryMultiCallable[Request, Response]":
        """Return a method with a stream of requests and one response."""
        lent = LentMethod(
            self._connections,
            lambda on: on.stream_unary(method, request_serializer, response_deserializer),
        )
        return cast("grpc.StreamUnaryMultiCallable[Request, Response]", _StreamUnary(lent))

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes] | None = None,
        response_deserializer: Callable[[bytes], Response] | None = None,
        _registered_method: bool | None = False,
    ) -> "grpc.StreamStreamMultiCallable[Request, Response]":
        """Return a method with streams both ways."""
        lent = LentMethod(
            self._connections,
            lambda on: on.stream_stream(method, request_serializer, response_deserializer),
        )
        return cast("grpc.StreamStreamMultiCallable[Request, Response]", _StreamStream(lent))


def _close_aside(channel: grpc.Channel) -> None:
    """Close on a thread of its own: this may be gRPC's, which ``close`` would wait for."""
    threading.Thread(target=channel.close, name="close-old-connection", daemon=True).start()


@contextmanager
def _given_back_at_failure(is_over: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        is_over()
        raise


class _UnaryUnary(Generic[Request, Response]):
    """A method with one request and one response."""

    def __init__(
        self, method: "LentMethod[grpc.Channel, grpc.UnaryUnaryMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request: Request,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Response:
        """Call, and wait for the response."""
        call, shown, is_over = self._method.borrow(metadata)
        try:
            return call(request, timeout, shown, credentials, wait_for_ready, compression)
        finally:
            is_over()

    def with_call(
        self,
        request: Request,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Response, grpc.Call]:
        """The same, and return the call besides."""
        call, shown, is_over = self._method.borrow(metadata)
        try:
            return call.with_call(request, timeout, shown, credentials, wait_for_ready, compression)
        finally:
            is_over()

    def future(
        self,
        request: Request,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "_CallFuture[Response]":
        """Begin the call."""
        call, shown, is_over = self._method.borrow(metadata)
        with _given_back_at_failure(is_over):
            begun = call.future(request, timeout, shown, credentials, wait_for_ready, compression)
        if not begun.add_callback(is_over):
            is_over()  # it has ended already
        return begun


class _UnaryStream(Generic[Request, Response]):
    """A method with one request and a stream of responses."""

    def __init__(
        self, method: "LentMethod[grpc.Channel, grpc.UnaryStreamMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request: Request,
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "_CallIterator[Response]":
        """Begin the call."""
        call, shown, is_over = self._method.borrow(metadata)
        with _given_back_at_failure(is_over):
            begun = call(request, timeout, shown, credentials, wait_for_ready, compression)
        if not begun.add_callback(is_over):
            is_over()  # it has ended already
        return begun


class _StreamUnary(Generic[Request, Response]):
    """A method with a stream of requests and one response."""

    def __init__(
        self, method: "LentMethod[grpc.Channel, grpc.StreamUnaryMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request_iterator: Iterator[Request],
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Response:
        """Call, and wait for the response."""
        call, shown, is_over = self._method.borrow(metadata)
        try:
            return call(request_iterator, timeout, shown, credentials, wait_for_ready, compression)
        finally:
            is_over()

    def with_call(
        self,
        request_iterator: Iterator[Request],
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Response, grpc.Call]:
        """The same, and return the call besides."""
        call, shown, is_over = self._method.borrow(metadata)
        try:
            return call.with_call(request_iterator, timeout, shown, credentials, wait_for_ready, compression)
        finally:
            is_over()

    def future(
        self,
        request_iterator: Iterator[Request],
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "_CallFuture[Response]":
        """Begin the call."""
        call, shown, is_over = self._method.borrow(metadata)
        with _given_back_at_failure(is_over):
            begun = call.future(request_iterator, timeout, shown, credentials, wait_for_ready, compression)
        if not begun.add_callback(is_over):
            is_over()  # it has ended already
        return begun


class _StreamStream(Generic[Request, Response]):
    """A method with streams both ways."""

    def __init__(
        self, method: "LentMethod[grpc.Channel, grpc.StreamStreamMultiCallable[Request, Response]]"
    ) -> None:
        self._method = method

    def __call__(
        self,
        request_iterator: Iterator[Request],
        timeout: float | None = None,
        metadata: MetadataGiven | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> "_CallIterator[Response]":
        """Begin the call."""
        call, shown, is_over = self._method.borrow(metadata)
        with _given_back_at_failure(is_over):
            begun = call(request_iterator, timeout, shown, credentials, wait_for_ready, compression)
        if not begun.add_callback(is_over):
            is_over()  # it has ended already
        return begun
