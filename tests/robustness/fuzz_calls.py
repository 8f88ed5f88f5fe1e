"""Sends bytes to any method of a hub, many at once, and holds every answer against what a hub may answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from synchub.channel import refusal_from_error, refusal_from_status
from tests.contract.every_method import METHODS, Method
from tests.robustness.fuzz_bytes import Mutations
from tests.robustness.fuzz_values import MESSAGE_BYTES_MAX, Values, descriptor_of

CALL_SECONDS_MAX: Final = 20.0
"""What is not answered by then hangs."""
WATCH_SECONDS: Final = 0.05
"""How long a watch is listened to for more answers after its first one."""
ANSWERS_READ_MAX: Final = 4
SHOWN_BYTES: Final = 600
NO_ANSWERS: Final = frozenset(
    (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAVAILABLE,
    )
)
"""Codes that no request may bring about."""
SECRETS_OF_THE_HOUSE: Final = ("sqlite", "Traceback", ".py", "SELECT", "INSERT", "/tmp", "hub.db")
"""What no refusal may say."""

_NO_METADATA: Final = (grpc.aio.Metadata(), grpc.aio.Metadata())

STATUS_LOST: Final = "Internal error from Core"
"""What a client of gRPC makes of a call that is ended while it sends; streams of ours say why before."""

Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Input:
    """What is sent: the messages of one call, as bytes."""

    method: Method
    messages: tuple[bytes, ...]
    metadata: Metadata = ()
    is_cancelled: bool = False
    """Whether the client leaves without waiting for the end."""

    def __str__(self) -> str:
        shown = [f"{len(each)} bytes {each[:SHOWN_BYTES].hex()}" for each in self.messages[:4]]
        return f"{self.method} {self.metadata} {shown}"


class Inputs:
    """Makes calls from chance and what was learned."""

    def __init__(self, rng: Random, *, credentials: Sequence[Metadata] = ((),)) -> None:
        """``credentials``: metadata that calls come with, one of these each."""
        self._rng = rng
        self._credentials = credentials
        self._mutations = Mutations(rng)
        self.values = Values(rng)

    def next(self, method: Method) -> Input:
        """Make the next call of a method."""
        count = self._rng.choice((0, 1, 2, 3, 6)) if method.is_request_stream else 1
        return Input(
            method,
            tuple(self._message(method) for _ in range(count)),
            tuple(self._rng.choice(self._credentials)),
            is_cancelled=self._rng.random() < 0.1,
        )

    def _message(self, method: Method) -> bytes:
        of = self._rng.choice(METHODS) if self._rng.random() < 0.02 else method
        message = self.values.request(descriptor_of(of.request_class))
        if hasattr(message, "wait_timeout"):
            message.wait_timeout.seconds = min(message.wait_timeout.seconds, 0)
            message.wait_timeout.nanos = min(message.wait_timeout.nanos, 1_000_000)
        raw = self._mutations.broken_texts(message.SerializeToString())
        broken = self._mutations.broken(raw) if self._rng.random() < 0.25 else raw
        return broken[:MESSAGE_BYTES_MAX]


@dataclass(slots=True)
class Findings:
    """What came of the calls."""

    count: int = 0
    by_outcome: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each method ended with each code and reason ("OK", "INVALID_ARGUMENT INVALID_REQUEST")."""
    faults: list[str] = field(default_factory=list)

    def methods_that_ended(self, outcome: str) -> set[str]:
        """The methods that ended so at least once."""
        return {method for method, ended in self.by_outcome if ended == outcome}

    def outcomes(self) -> set[str]:
        return {ended for _, ended in self.by_outcome}


class Attack:
    """Drives calls over a channel."""

    def __init__(self, channel: grpc.aio.Channel, inputs: Inputs) -> None:
        self._channel = channel
        self._inputs = inputs
        self.findings = Findings()

    async def run(self, methods: Sequence[Method], *, count: int, at_once: int = 8) -> None:
        """Make so many calls, the methods in turn."""
        todo = iter(range(count))

        async def work() -> None:
            for n in todo:
                await self.call(self._inputs.next(methods[n % len(methods)]))

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())

    async def call(self, given: Input) -> str:
        """Make one call; return how it ended."""
        self.findings.count += 1
        error: grpc.RpcError | None = None
        answers: list[bytes] = []
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                await self._exchange(given, answers)
        except grpc.RpcError as raised:
            error = raised
        except TimeoutError:
            self._note(given, "HANGS", "it was not answered")
            return "HANGS"
        for answer in answers if given.method in METHODS else ():  # reflection sends back what it was sent
            self._check_answer(given, answer)
        ended = "OK"
        if error is not None:
            ended = self._check_refusal(given, error, said_in_band=_said_in_band(given.method, answers))
        self.findings.by_outcome[given.method.name, ended] += 1
        return ended

    async def _exchange(self, given: Input, answers: list[bytes]) -> None:
        method, metadata = given.method, given.metadata
        if method.is_request_stream:
            both = self._channel.stream_stream(method.path, as_they_are, as_they_are)
            await _converse(both(metadata=metadata), given, answers)
        elif method.is_response_stream:
            stream = self._channel.unary_stream(method.path, as_they_are, as_they_are)
            await _listen(stream(given.messages[0], metadata=metadata), answers)
        else:
            one = self._channel.unary_unary(method.path, as_they_are, as_they_are)
            call = one(given.messages[0], metadata=metadata)
            if given.is_cancelled:
                call.cancel()
                raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, *_NO_METADATA)
            answers.append(await call)

    def _check_answer(self, given: Input, raw: bytes) -> None:
        answer: Message = given.method.response_class()
        try:
            answer.ParseFromString(raw)
        except DecodeError:
            self._note(given, "OK", f"the answer cannot be decoded: {raw[:SHOWN_BYTES].hex()}")
            return
        self._inputs.values.learn(answer)

    def _check_refusal(self, given: Input, error: grpc.RpcError, *, said_in_band: str) -> str:
        refusal = refusal_from_error(error)
        ended = f"{refusal.code.name} {refusal.reason}".strip()
        if refusal.code is grpc.StatusCode.CANCELLED:
            return ended
        if refusal.message == STATUS_LOST and (said_in_band or given.method not in METHODS):
            return said_in_band or ended
        if refusal.code in NO_ANSWERS:
            self._note(given, ended, refusal.message)
        elif not refusal.reason and given.method in METHODS:
            self._note(given, ended, f"no reason is told: {refusal.message}")
        for word in SECRETS_OF_THE_HOUSE:
            if word in refusal.message:
                self._note(given, ended, f"it says {word!r}: {refusal.message}")
        return ended

    def _note(self, given: Input, ended: str, fault: str) -> None:
        self.findings.faults.append(f"{ended}: {fault}\n    {given}")


def _said_in_band(method: Method, answers: Sequence[bytes]) -> str:
    """Return how a stream said that it ends; "" where it did not."""
    if not (answers and method.is_request_stream and method in METHODS):
        return ""
    last = method.response_class.FromString(answers[-1])
    if not last.HasField("error"):
        return ""
    refusal = refusal_from_status(getattr(last, "error"))  # noqa: B009 - of the answers of all streams
    return f"{refusal.code.name} {refusal.reason}"


async def _listen(call: "grpc.aio.UnaryStreamCall[bytes, bytes]", answers: list[bytes]) -> None:
    """Read until the end, or from a watch for a short time after its first answer."""
    while len(answers) < ANSWERS_READ_MAX:
        # What asks a stream for more may not be cancelled: it would end the call.
        reading = asyncio.ensure_future(call.read())
        await asyncio.wait([reading], timeout=WATCH_SECONDS if answers else None)
        if not reading.done():
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.RpcError):
                await reading
            return
        answer = reading.result()
        if answer is grpc.aio.EOF:
            return
        assert isinstance(answer, bytes)
        answers.append(answer)
    call.cancel()


async def _converse(
    call: "grpc.aio.StreamStreamCall[bytes, bytes]", given: Input, answers: list[bytes]
) -> None:
    """Send everything, close the own side or leave, and read to the end."""

    async def send() -> None:
        # The call may have ended meanwhile: reading tells how.
        with suppress(asyncio.InvalidStateError, grpc.RpcError, grpc.aio.UsageError):
            for message in given.messages:
                await call.write(message)
            if given.is_cancelled:
                call.cancel()
            else:
                await call.done_writing()

    sending = asyncio.ensure_future(send())
    try:
        while (answer := await call.read()) is not grpc.aio.EOF:
            assert isinstance(answer, bytes)
            answers.append(answer)
    except asyncio.CancelledError:
        if not call.cancelled():
            raise
    finally:
        await sending
    if not given.is_cancelled and not call.cancelled() and await call.code() is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            await call.code(),
            await call.initial_metadata(),
            await call.trailing_metadata(),
            details=await call.details(),
        )


def as_they_are(raw: bytes) -> bytes:
    """In place of what makes messages of bytes and bytes of messages."""
    return raw
