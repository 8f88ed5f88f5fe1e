"""Every kind of handler is guarded: refusals become statuses, faults tell nothing but a reference."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio
import pytest
import structlog

from hub.core.errors import NotFound
from hub.core.identity_errors import CredentialMissing
from hub.core.limits import Limits
from hub.rpc import identity, interceptors
from hub.rpc.call_log import CallLog
from hub.rpc.identity import Call
from hub.rpc.interceptors import FaultReporter, RefusalInterceptor
from synchub.channel import Refusal, refusal_from_error
from tests.unit.hub.rpc.admitting import open_admission

Context = grpc.aio.ServicerContext[bytes, bytes]

SECRET: Final = "the password is swordfish"


def echo(raw: bytes) -> bytes:
    return raw


def fail(error: Exception) -> None:
    raise error


def handlers_raising(error: Exception) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
    """A handler of each kind of call and each way of writing it; all raise the error."""

    async def one_response(_request: object, _context: Context) -> bytes:
        fail(error)
        return b""

    async def generated(_request: object, _context: Context) -> AsyncIterator[bytes]:
        yield b"first"
        fail(error)

    async def written(_request: object, context: Context) -> None:
        await context.write(b"first")
        fail(error)

    make = {
        "unary_unary": (grpc.unary_unary_rpc_method_handler, one_response),
        "stream_unary": (grpc.stream_unary_rpc_method_handler, one_response),
        "unary_stream_generated": (grpc.unary_stream_rpc_method_handler, generated),
        "unary_stream_written": (grpc.unary_stream_rpc_method_handler, written),
        "stream_stream_generated": (grpc.stream_stream_rpc_method_handler, generated),
        "stream_stream_written": (grpc.stream_stream_rpc_method_handler, written),
    }
    return {name: kind(behaviour, echo, echo) for name, (kind, behaviour) in make.items()}


KINDS: Final = tuple(handlers_raising(Exception()))


async def ended(kind: str, error: Exception) -> tuple[list[bytes], Refusal]:
    """What came, and what the call ended with."""
    server = grpc.aio.server(
        interceptors=[
            RefusalInterceptor(
                FaultReporter(lambda: "none"),
                open_admission(),
                CallLog(new_request_id=lambda: "reference-1"),
                limits=Limits(),
            )
        ]
    )
    generic = grpc.method_handlers_generic_handler("test.Service", handlers_raising(error))
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    came: list[bytes] = []
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                await _call(channel, kind, came)
            except grpc.aio.AioRpcError as caught:
                return came, refusal_from_error(caught)
        raise AssertionError("the call ended well")
    finally:
        await server.stop(0)


async def _call(channel: grpc.aio.Channel, kind: str, came: list[bytes]) -> None:
    method = f"/test.Service/{kind}"
    if kind == "unary_unary":
        came.append(await channel.unary_unary(method, echo, echo)(b""))
    elif kind == "stream_unary":
        came.append(await channel.stream_unary(method, echo, echo)(iter([b""])))
    elif kind.startswith("unary_stream"):
        await _read_all(channel.unary_stream(method, echo, echo)(b""), came)
    else:
        await _read_all(channel.stream_stream(method, echo, echo)(iter([b""])), came)


async def _read_all(responses: AsyncIterable[bytes], came: list[bytes]) -> None:
    async for response in responses:
        came.append(response)  # noqa: PERF401 - what came before the error is to be seen


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_becomes_its_status(kind: str) -> None:
    came, refusal = await ended(kind, NotFound("run", {"runId": "r"}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert refusal.metadata == {"runId": "r"}
    assert came == ([b"first"] if "stream_" in kind and not kind.endswith("unary") else [])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_tells_its_reference_and_nothing_else_and_is_logged(kind: str) -> None:
    with structlog.testing.capture_logs() as logs:
        _, refusal = await ended(kind, RuntimeError(SECRET))
    assert (refusal.code, refusal.metadata) == (grpc.StatusCode.INTERNAL, {"reference": "reference-1"})
    assert "reference-1" in refusal.message
    assert SECRET not in refusal.message
    (entry,) = [each for each in logs if each["event"] == "call_failed"]
    assert (entry["reference"], entry["method"]) == ("reference-1", f"/test.Service/{kind}")


async def test_a_cancelled_handler_stays_cancelled() -> None:
    seen: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    started = asyncio.Event()

    async def waits(_request: object, _context: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            seen.set_result(error)
            raise

    server = grpc.aio.server(
        interceptors=[
            RefusalInterceptor(
                FaultReporter(lambda: ""),
                open_admission(),
                CallLog(),
                limits=Limits(),
            )
        ]
    )
    handler = grpc.stream_stream_rpc_method_handler(waits, echo, echo)
    generic = grpc.method_handlers_generic_handler("test.Service", {"Waits": handler})
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with structlog.testing.capture_logs() as logs:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/test.Service/Waits", echo, echo)()
            await call.write(b"")
            await asyncio.wait_for(started.wait(), 5)
            call.cancel()
            assert isinstance(await asyncio.wait_for(seen, 5), asyncio.CancelledError)
    await server.stop(0)
    assert logs == []


@pytest.mark.parametrize(("is_refused", "decoded"), [(True, [b""]), (False, [b"sent"])])
async def test_what_a_refused_call_sends_is_not_decoded(*, is_refused: bool, decoded: list[bytes]) -> None:
    seen: list[bytes] = []

    def decode(raw: bytes) -> None:
        seen.append(raw)

    admission = open_admission()
    with _the_running_call(Call("peer", None, CredentialMissing() if is_refused else None, admission)):
        interceptors._refusing_deserializer(decode)(b"sent")
    assert seen == decoded


@contextmanager
def _the_running_call(call: Call) -> Iterator[None]:
    token = identity._CALL.set(call)
    yield
    identity._CALL.reset(token)
