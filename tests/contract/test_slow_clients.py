"""Clients that open and say nothing, drip, or never read: they are ended, and nobody waits for them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol

import grpc
import grpc.aio
import pytest

from hub.app import RunningHub, running_hub
from hub.core.limits import Limits
from synchub.channel import Refusal, refusal_from_error
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    ExportEventsRequest,
    GetRunRequest,
    ListEventsRequest,
    PushEventsRequest,
    WatchEventsRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.every_method import METHODS, Method, method_named
from tests.contract.raw_http2 import DATA, RawConnection

PATIENCE_SECONDS: Final = 0.5
"""All that a client may take its time for, on the hub of these tests."""
LIMITS: Final = Limits(
    first_message_seconds_max=PATIENCE_SECONDS,
    unread_answer_seconds_max=PATIENCE_SECONDS,
    half_close_wait_seconds=0.01,
)
CALL_SECONDS_MAX: Final = 20.0
HANDSHAKE_SECONDS_MAX: Final = 15.0
ONLY_ONE_REQUEST: Final = [method for method in METHODS if not method.is_request_stream]
MEBIBYTE: Final = 1024 * 1024


class Readable(Protocol):
    """A call with answers."""

    async def read(self) -> object:
        """Wait for the next answer, or the end."""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    """On the loop of the test: gRPC does not work well with two loops in one process."""
    async with running_hub(settings_in(tmp_path, LIMITS)) as running:
        yield running


@pytest.fixture
async def channel(hub: RunningHub) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(hub.address) as opened:
        yield opened


async def refusal_of_silence(channel: grpc.aio.Channel, method: Method) -> Refusal:
    """What a call ends with on which nothing is ever said."""
    return await end_of(channel.stream_stream(method.path, bytes, bytes)(timeout=CALL_SECONDS_MAX))


async def end_of(call: Readable) -> Refusal:
    """What a call ends with, once all that came before is read."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.RpcError as error:
        return refusal_from_error(error)
    raise AssertionError("it ended well")


async def answers_at_once(hub: RunningHub) -> bool:
    """Whether a plain question is answered, on a connection of its own, in much less than it may take."""
    async with grpc.aio.insecure_channel(hub.address) as channel:
        await HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=CALL_SECONDS_MAX / 4)
    return True


async def test_a_call_whose_request_never_comes_is_refused(channel: grpc.aio.Channel) -> None:
    refusals = await asyncio.gather(*(refusal_of_silence(channel, method) for method in ONLY_ONE_REQUEST))
    assert {(each.reason, each.metadata["limit"]) for each in refusals} == {
        ("LIMIT_REACHED", "first_message_seconds_max")
    }


@pytest.mark.parametrize("name", ["PresenceService/Heartbeat", "LeaseService/RenewLeases"])
async def test_a_stream_on_which_nothing_is_ever_said_is_refused(
    channel: grpc.aio.Channel, name: str
) -> None:
    refusal = await refusal_of_silence(channel, method_named(name))
    assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "first_message_seconds_max")


async def test_a_call_whose_request_comes_byte_by_byte_ends(hub: RunningHub) -> None:
    def drip() -> float:
        with RawConnection(hub.address) as connection:
            connection.greet()
            connection.begin_call("/synchub.v1.SyncService/ListRuns")
            # A message of a mebibyte, and of that a byte.
            connection.send_frame(DATA, 0, 1, b"\0" + MEBIBYTE.to_bytes(4, "big") + b"\x0a")
            begin = time.monotonic()
            connection.end_of_call()
            return time.monotonic() - begin

    took = await asyncio.gather(*(asyncio.to_thread(drip) for _ in range(4)))
    assert max(took) < CALL_SECONDS_MAX / 2
    assert await answers_at_once(hub)


async def test_thousands_of_calls_that_are_begun_only_end_and_nobody_waits_for_them(hub: RunningHub) -> None:
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(hub.address, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            for _ in range(4)
        ]
        silent = [
            asyncio.ensure_future(refusal_of_silence(channels[n % 4], ONLY_ONE_REQUEST[n % 7]))
            for n in range(2_000)
        ]
        assert await answers_at_once(hub)
        assert {refusal.reason for refusal in await asyncio.gather(*silent)} == {"LIMIT_REACHED"}
    # What served them is gone.
    await asyncio.sleep(0)
    assert len([task for task in asyncio.all_tasks() if "handle" in repr(task.get_coro())]) < 50


async def test_connections_that_say_nothing_are_closed_and_nobody_waits_for_them(hub: RunningHub) -> None:
    host, _, port = hub.address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(500)]
    assert await answers_at_once(hub)
    async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
        # The hub says its settings, and hangs up.
        said = await asyncio.gather(*(reader.read() for reader, _ in opened))
    assert {len(each) for each in said} <= set(range(200))
    for _, writer in opened:
        writer.close()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"POST /synchub.v1.SyncService/ListRuns HTTP/1.1\r\nContent-Type: application/grpc-web\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1_000,
        bytes(10_000),
    ],
    ids=["HTTP/1", "gRPC-Web", "TLS", "no frames", "zeros"],
)
async def test_who_speaks_another_protocol_is_hung_up_on(hub: RunningHub, said: bytes) -> None:
    def speak() -> bool:
        with RawConnection(hub.address) as connection:
            connection.send(said)
            return connection.is_closed()

    assert await asyncio.to_thread(speak)
    assert await answers_at_once(hub)


@pytest.mark.parametrize(
    "headers",
    [
        (("grpc-timeout", "nonsense"),),
        (("grpc-timeout", "99999999999999999999S"),),
        (("grpc-timeout", "-1S"),),
        (("content-type", "application/grpc+json"),),
        (("content-type", "text/html"),),
        (("grpc-encoding", "rot13"),),
        ((":authority", "x" * 5_000),),
        ((":path", "/synchub.v1.SyncService/../HubService/BackupHub"),),
        ((":path", "//"),),
        (("Authorization", "Bearer x"),),
        (("x", "a\r\nauthorization: Bearer x"),),
        (("authorization", "Bearer x\0"),),
        (("te", "nothing"),),
        tuple((f"key-{n}", "value") for n in range(3_000)),
        (("long", "v" * 16_000),),
    ],
    ids=lambda headers: f"{headers[0][0]} {headers[0][1][:12]}",
)
async def test_headers_that_make_no_sense_do_no_harm(
    hub: RunningHub, headers: tuple[tuple[str, str], ...]
) -> None:
    def call() -> None:
        with RawConnection(hub.address) as connection:
            connection.greet()
            sent = [(name.encode(), value.encode()) for name, value in headers]
            connection.begin_call("/synchub.v1.SyncService/ListRuns", *sent)
            connection.send_frame(DATA, 1, 1, bytes(5))
            connection.end_of_call()

    await asyncio.to_thread(call)
    assert await answers_at_once(hub)


async def test_who_never_reads_what_was_asked_for_is_refused_in_time(
    hub: RunningHub, channel: grpc.aio.Channel
) -> None:
    stub = SyncServiceStub(channel)
    push = stub.PushEvents(timeout=60)
    for n in range(24):
        events = [
            SyncEvent(sequence=n * 2 + 1 + k, event_type="line", payload=bytes(MEBIBYTE)) for k in (0, 1)
        ]
        request = PushEventsRequest(
            hub_project="a", project_id="p", run_id="r", runtime_id="rt", events=events
        )
        await push.write(request)
        await push.read()
    await push.done_writing()

    async def late_end_of(call: Readable) -> Refusal:
        # Nothing is read, until the hub has given up long ago.
        await asyncio.sleep(PATIENCE_SECONDS * 4)
        return await end_of(call)

    unread: list[Readable] = [
        *(stub.WatchEvents(WatchEventsRequest(hub_project="a"), timeout=60) for _ in range(4)),
        *(
            stub.ExportEvents(ExportEventsRequest(hub_project="a", project_id="p"), timeout=60)
            for _ in range(4)
        ),
    ]
    ends = asyncio.gather(*(late_end_of(call) for call in unread))
    assert await answers_at_once(hub)
    assert {(each.reason, each.metadata["limit"]) for each in await ends} == {
        ("LIMIT_REACHED", "unread_answer_seconds_max")
    }


async def test_a_refused_stream_ends_with_its_status_however_late_that_can_be_written(
    channel: grpc.aio.Channel,
) -> None:
    refused = PushEventsRequest(hub_project="a", project_id="\0").SerializeToString()
    method = method_named("SyncService/PushEvents")
    for _ in range(300):
        call = channel.stream_stream(method.path, bytes, bytes)(timeout=CALL_SECONDS_MAX)
        await call.write(refused)
        assert (await end_of(call)).reason == "INVALID_REQUEST"


async def limit_reached(channel: grpc.aio.Channel, request: ListEventsRequest) -> str:
    """The limit that a call names which is refused; "" where it is answered."""
    try:
        await SyncServiceStub(channel).ListEvents(request)
    except grpc.aio.AioRpcError as error:
        return refusal_from_error(error).metadata["limit"]
    return ""


async def push_two_mebibytes(channel: grpc.aio.Channel) -> None:
    push = SyncServiceStub(channel).PushEvents(timeout=CALL_SECONDS_MAX)
    for n in (1, 2):
        event = SyncEvent(sequence=n, event_type="line", payload=bytes(MEBIBYTE - 1))
        request = PushEventsRequest(
            hub_project="a", project_id="p", run_id="r", runtime_id="rt", events=[event]
        )
        await push.write(request)
        await push.read()
    await push.done_writing()
    while await push.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize("method", ["ListEvents", "ExportEvents", "WatchEvents"])
async def test_answers_that_nobody_reads_are_kept_up_to_a_bound_and_then_no_large_one_is_given(
    tmp_path: Path, method: str
) -> None:
    limits = Limits(credential_unread_answer_bytes_max=4 * MEBIBYTE)
    request = ListEventsRequest(hub_project="a", project_id="p", run_id="r")
    async with (
        running_hub(settings_in(tmp_path, limits)) as hub,
        grpc.aio.insecure_channel(hub.address) as channel,
        asyncio.timeout(4 * CALL_SECONDS_MAX),
    ):
        await push_two_mebibytes(channel)
        assert await limit_reached(channel, request) == ""
        with RawConnection(hub.address) as connection:
            connection.greet()
            for n in range(16):
                connection.begin_call(f"/synchub.v1.SyncService/{method}", stream_id=2 * n + 1)
                connection.send_message(request.SerializeToString(), stream_id=2 * n + 1)
            while not (limit := await limit_reached(channel, request)):
                pass
            assert limit == "credential_unread_answer_bytes_max"
            # What is small is answered.
            small = GetRunRequest(hub_project="a", project_id="p", run_id="r")
            run = await SyncServiceStub(channel).GetRun(small)
            assert run.run.cursor == 2
            assert await answers_at_once(hub)
        while limit:  # it is a moment until the hub hears that the client is gone
            limit = await limit_reached(channel, request)
