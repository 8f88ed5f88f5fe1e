"""A bidirectional stream in the hands of a test: send, read, close, one step at a time."""

import queue
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import grpc

from synchub.channel import Refusal, refusal_from_error

Request = TypeVar("Request")
Response = TypeVar("Response")

STREAM_SECONDS_MAX: Final = 20.0
"""Deadline of every stream, so that a test that waits in vain ends."""


class Conversation(Generic[Request, Response]):
    """Drives one call of a stub from a single thread."""

    def __init__(self, method: "grpc.StreamStreamMultiCallable[Request, Response]") -> None:
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.call = method(self._given(), timeout=STREAM_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._requests.put(None)
        self.call.cancel()

    def send(self, request: Request) -> None:
        self._requests.put(request)

    def half_close(self) -> None:
        self._requests.put(None)

    def read(self) -> Response:
        return next(self.call)

    def ask(self, request: Request) -> Response:
        self.send(request)
        return self.read()

    def read_all(self) -> list[Response]:
        """Everything that still comes before the call ends, well or not."""
        responses: list[Response] = []
        try:
            responses.extend(self.call)
        except grpc.RpcError:
            pass
        return responses

    def refusal(self) -> Refusal:
        """What the call ended with; it must have been refused."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return refusal_from_error(error)
        raise AssertionError("the call ended well")

    def _given(self) -> Iterator[Request]:
        while (request := self._requests.get()) is not None:
            yield request


def refusal_of(call: Callable[[], object]) -> Refusal:
    """What a unary call is refused with."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return refusal_from_error(error)
    raise AssertionError(f"the call was answered: {answer}")
