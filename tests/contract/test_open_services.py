"""Services that anybody may call, credential or not: what a stranger can make the hub keep is bounded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import (  # type: ignore[attr-defined]  # its stubs are older
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from hub.app import RunningHub, running_hub
from hub.core.limits import Limits
from synchub.channel import Refusal, refusal_from_error
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from tests.contract.conftest import settings_in

STREAMS_MAX: Final = 3
LIMITS: Final = Limits(open_service_streams_max=STREAMS_MAX)
LARGE: Final = "x" * LIMITS.open_service_message_bytes_max
SECONDS_MAX: Final = 20.0

WatchCall = grpc.aio.UnaryStreamCall[Message, HealthCheckResponse]


def watch(channel: grpc.aio.Channel, service: str = "") -> WatchCall:
    call: WatchCall = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )(HealthCheckRequest(service=service), timeout=SECONDS_MAX)
    return call


async def check(channel: grpc.aio.Channel, service: str = "") -> HealthCheckResponse:
    answer: HealthCheckResponse = await channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )(HealthCheckRequest(service=service), timeout=SECONDS_MAX)
    return answer


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running_hub(settings_in(tmp_path, LIMITS)) as running:
        yield running


@pytest.fixture
async def channel(hub: RunningHub) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(hub.address) as opened:
        yield opened


async def watched(channel: grpc.aio.Channel) -> WatchCall:
    """A stream that is open: its first answer has come."""
    call = watch(channel)
    answer = await call.read()
    assert isinstance(answer, HealthCheckResponse)
    assert answer.status == HealthCheckResponse.SERVING
    return call


async def refusal_of_watch(channel: grpc.aio.Channel, service: str = "") -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch(channel, service).read()
    return refusal_from_error(caught.value)


async def refusal_of_reflection(channel: grpc.aio.Channel, *, symbol: str) -> Refusal:
    request = ServerReflectionRequest(file_containing_symbol=symbol)
    call = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )(iter([request]), timeout=SECONDS_MAX)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    return refusal_from_error(caught.value)


async def test_streams_of_health_and_reflection_are_bounded_together(channel: grpc.aio.Channel) -> None:
    watches = [await watched(channel) for _ in range(STREAMS_MAX)]
    for refusal in (await refusal_of_watch(channel), await refusal_of_reflection(channel, symbol="a.B")):
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert refusal.metadata == {"limit": "open_service_streams_max", "limitValue": str(STREAMS_MAX)}
    # What is not kept open goes on, and so do the hub's own calls.
    assert (await check(channel)).status == HealthCheckResponse.SERVING
    await HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX)

    watches[0].cancel()
    async with asyncio.timeout(SECONDS_MAX):
        while True:  # it is a moment until the hub hears that there is room
            with suppress(grpc.aio.AioRpcError):
                await watched(channel)
                break


async def test_a_name_too_large_is_never_kept(channel: grpc.aio.Channel) -> None:
    watched_refusal = await refusal_of_watch(channel, LARGE)
    reflected = await refusal_of_reflection(channel, symbol=LARGE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(channel, LARGE)
    for refusal in (watched_refusal, reflected, refusal_from_error(caught.value)):
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert refusal.metadata["limit"] == "open_service_message_bytes_max"


async def test_a_name_that_is_not_known_is_answered_as_before(channel: grpc.aio.Channel) -> None:
    call = watch(channel, "a")
    answer = await call.read()
    assert isinstance(answer, HealthCheckResponse)
    assert answer.status == HealthCheckResponse.SERVICE_UNKNOWN
    call.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(channel, "a")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_health_of_every_service_is_listed(channel: grpc.aio.Channel) -> None:
    listed: HealthListResponse = await channel.unary_unary(
        "/grpc.health.v1.Health/List",
        request_serializer=HealthListRequest.SerializeToString,
        response_deserializer=HealthListResponse.FromString,
    )(HealthListRequest(), timeout=SECONDS_MAX)

    names = ["", *(f"synchub.v1.{name}Service" for name in ("Hub", "Journal", "Lease", "Presence", "Sync"))]
    assert sorted(listed.statuses) == names
    for name in names:
        assert listed.statuses[name] == await check(channel, name)
        assert listed.statuses[name].status == HealthCheckResponse.SERVING
