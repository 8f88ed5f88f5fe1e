"""How a hub starts, stops, comes back, and keeps its bounds."""

import asyncio
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from hub.config import Endpoint
from hub.core.errors import StartRefused
from hub.core.limits import Limits
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.presence_service_pb2 import (
    GetRuntimeRequest,
    HeartbeatRequest,
    RuntimeState,
    WatchRuntimesRequest,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest, WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread

STORM_STREAMS: Final = 2_000
STORM_SECONDS_MAX: Final = 60.0


@contextmanager
def channel_to(hub: HubInThread) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(hub.address) as channel:
        yield channel


def heartbeat(runtime_id: str = "runtime", instance_id: str = "one") -> HeartbeatRequest:
    return HeartbeatRequest(hub_project="h", runtime_id=runtime_id, instance_id=instance_id)


def batch(first_sequence: int, count: int) -> PushEventsRequest:
    return PushEventsRequest(
        hub_project="h",
        project_id="p",
        run_id="r",
        runtime_id="runtime",
        events=[
            SyncEvent(sequence=sequence, event_type="line", text=str(sequence))
            for sequence in range(first_sequence, first_sequence + count)
        ],
    )


def page(hub: HubInThread, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{hub.http_address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_stop_tells_heartbeats_when_to_come_back_and_ends_them_in_band_and_by_status(
    tmp_path: Path,
) -> None:
    limits = Limits(drain_reconnect_seconds_max=3.0)
    with HubInThread(settings_in(tmp_path, limits)) as hub, channel_to(hub) as channel:
        streams = [Conversation(PresenceServiceStub(channel).Heartbeat) for _ in range(5)]
        for index, stream in enumerate(streams):
            stream.ask(heartbeat(f"runtime-{index}"))
        hub.begin_stop()
        delays: list[float] = []
        for stream in streams:
            (notice,) = stream.read().notices
            delays.append(notice.drain.reconnect_delay.ToNanoseconds() / 1e9)
            assert stream.read().error.code == grpc.StatusCode.UNAVAILABLE.value[0]
            stream.half_close()
            refusal = stream.refusal()
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING")
        assert all(0.0 <= delay <= 3.0 for delay in delays)
        assert len(set(delays)) == len(delays)
        hub.join()


def test_a_stop_answers_what_is_stored_and_ends_pushes_and_watches(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        with Conversation(stub.PushEvents) as stream:
            stream.ask(batch(1, 1))
            events = stub.WatchEvents(WatchEventsRequest(hub_project="h"), timeout=20)
            runtimes = PresenceServiceStub(channel).WatchRuntimes(
                WatchRuntimesRequest(hub_project="h"), timeout=20
            )
            assert next(runtimes).is_snapshot_complete
            assert len(next(events).events) == 1
            for first_sequence in range(2, 2 + 50 * 100, 100):
                stream.send(batch(first_sequence, 100))
            answered = [stream.read().cursor]
            hub.begin_stop()
            responses = stream.read_all()
            answered += [each.cursor for each in responses if not each.HasField("error")]
            assert responses[-1].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
            assert stream.refusal().reason == "HUB_STOPPING"
        assert refusal_of(lambda: list(events)).reason == "HUB_STOPPING"
        assert refusal_of(lambda: list(runtimes)).reason == "HUB_STOPPING"
        hub.join()
    with HubInThread(settings_in(tmp_path)) as hub, channel_to(hub) as channel:
        run = SyncServiceStub(channel).GetRun(GetRunRequest(hub_project="h", project_id="p", run_id="r")).run
        assert answered[-1] == run.cursor == run.event_count


def test_a_stop_is_told_to_whoever_watches_the_health(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, channel_to(hub) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(service="synchub.v1.SyncService"), timeout=20)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        hub.begin_stop()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        refusal_of(lambda: list(watch))
        hub.join()


def test_a_stop_does_not_wait_for_clients_that_never_close_their_side(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, channel_to(hub) as channel:
        streams = [Conversation(PresenceServiceStub(channel).Heartbeat) for _ in range(20)]
        for index, stream in enumerate(streams):
            stream.ask(heartbeat(f"runtime-{index}"))
        begin = time.monotonic()
        hub.begin_stop()
        hub.join()
        assert time.monotonic() - begin < Limits().drain_seconds_max
        assert {stream.refusal().reason for stream in streams} == {"HUB_STOPPING"}


def test_a_second_signal_hastens_the_stop(tmp_path: Path) -> None:
    limits = Limits(half_close_wait_seconds=60.0, drain_seconds_max=60.0)
    with (
        HubInThread(settings_in(tmp_path, limits)) as hub,
        channel_to(hub) as channel,
        Conversation(PresenceServiceStub(channel).Heartbeat) as stream,
    ):
        stream.ask(heartbeat())
        begin = time.monotonic()
        hub.begin_stop()
        assert stream.read().notices
        hub.hasten()
        hub.join()
        assert time.monotonic() - begin < limits.half_close_wait_seconds / 2


def test_after_a_restart_nobody_is_lost_before_one_ttl(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, Limits(broken_stream_grace_seconds=0.05))
    request = GetRuntimeRequest(hub_project="h", runtime_id="runtime")
    said = heartbeat()
    said.host, said.unsynced_event_count = "host", 3
    with HubInThread(settings) as hub, channel_to(hub) as channel:
        stub = PresenceServiceStub(channel)
        with Conversation(stub.Heartbeat) as stream:
            stream.ask(said)
        while stub.GetRuntime(request).runtime.state != RuntimeState.RUNTIME_STATE_LOST:
            time.sleep(0.02)
        before = stub.GetRuntime(request).runtime
    with HubInThread(settings) as hub, channel_to(hub) as channel:
        stub = PresenceServiceStub(channel)
        after = stub.GetRuntime(request).runtime
        assert after.state == RuntimeState.RUNTIME_STATE_ONLINE
        after.state = before.state
        assert after == before
        with Conversation(stub.Heartbeat) as stream:
            stream.ask(said)
            again = stub.GetRuntime(request).runtime
            assert again.instance_start_time == before.instance_start_time
            assert again.last_heartbeat_time.ToNanoseconds() > before.last_heartbeat_time.ToNanoseconds()


def test_a_restart_forgets_no_instance(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with HubInThread(settings) as hub, channel_to(hub) as channel:
        for instance_id in ("one", "two"):
            with Conversation(PresenceServiceStub(channel).Heartbeat) as stream:
                stream.ask(heartbeat(instance_id=instance_id))
    with (
        HubInThread(settings) as hub,
        channel_to(hub) as channel,
        Conversation(PresenceServiceStub(channel).Heartbeat) as stream,
    ):
        stream.send(heartbeat(instance_id="one"))
        assert stream.refusal().reason == "RUNTIME_DUPLICATED"


def test_one_stream_too_many_is_refused_in_band_and_by_status(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path, Limits(open_streams_max=2))) as hub, channel_to(hub) as channel:
        stub = PresenceServiceStub(channel)
        with Conversation(stub.Heartbeat) as first, Conversation(stub.Heartbeat) as second:
            first.ask(heartbeat("1"))
            second.ask(heartbeat("2"))
            with Conversation(stub.Heartbeat) as third:
                assert third.ask(heartbeat("3")).HasField("error")
                third.half_close()
                refusal = third.refusal()
            watch = refusal_of(lambda: list(stub.WatchRuntimes(WatchRuntimesRequest(hub_project="h"))))
            for each in (refusal, watch):
                assert (each.code, each.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
                assert each.metadata == {"limit": "open_streams_max", "limitValue": "2"}
            # Calls that are short are not counted: health and reads go on.
            HubServiceStub(channel).GetHubInfo(GetHubInfoRequest())


def test_a_watcher_that_does_not_read_ends(tmp_path: Path) -> None:
    limits = Limits(unread_answer_seconds_max=0.3)
    with HubInThread(settings_in(tmp_path, limits)) as hub, channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        with Conversation(stub.PushEvents) as stream:
            for sequence in range(1, 41):
                request = batch(sequence, 1)
                request.events[0].payload = bytes(1024 * 1024)
                stream.ask(request)
        watch = stub.WatchEvents(WatchEventsRequest(hub_project="h"), timeout=30)
        while 'synchub_streams_open{method="WatchEvents"} 1.0' not in page(hub, "/metrics")[1]:
            time.sleep(0.02)
        while 'synchub_streams_open{method="WatchEvents"} 0.0' not in page(hub, "/metrics")[1]:
            time.sleep(0.02)
        refusal = refusal_of(lambda: list(watch))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert refusal.metadata["limit"] == "unread_answer_seconds_max"


def test_a_stream_whose_answers_nobody_reads_ends(tmp_path: Path) -> None:
    limits = Limits(unread_answer_seconds_max=0.3)
    with HubInThread(settings_in(tmp_path, limits)) as hub, channel_to(hub) as channel:
        with Conversation(SyncServiceStub(channel).PushEvents) as stream:
            stream.ask(batch(1, 1_024))
            conflicts = batch(1, 1_024)
            for event in conflicts.events:
                event.text = "another"
            # Each answer has a thousand conflicts, so that they fill what gRPC buffers.
            for _ in range(300):
                stream.send(conflicts)
            while 'synchub_streams_open{method="PushEvents"} 0.0' not in page(hub, "/metrics")[1]:
                time.sleep(0.02)
            refusal = stream.refusal()
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert refusal.metadata["limit"] == "unread_answer_seconds_max"


def test_a_second_hub_of_the_same_store_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    second = HubInThread(settings_in(tmp_path))
    with (
        HubInThread(settings_in(tmp_path)),
        pytest.raises(StartRefused, match=f"pid {os.getpid()}"),
        second,
    ):
        pass


@pytest.mark.parametrize("port_of", ["listen", "http"])
def test_a_port_in_use_is_refused(tmp_path: Path, port_of: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1])
        settings = settings_in(tmp_path)
        settings = (
            replace(settings, listen=endpoint) if port_of == "listen" else replace(settings, http=endpoint)
        )
        with pytest.raises(StartRefused, match="cannot listen"), HubInThread(settings):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
@pytest.mark.parametrize("port_of", ["listen", "http"])
def test_an_address_beyond_loopback_is_refused(tmp_path: Path, host: str, port_of: str) -> None:
    settings = settings_in(tmp_path)
    endpoint = Endpoint(host, 0)
    settings = replace(settings, listen=endpoint) if port_of == "listen" else replace(settings, http=endpoint)
    with pytest.raises(StartRefused, match="not a loopback address"), HubInThread(settings):
        pass
    assert not settings.database.exists()


def test_a_hub_listens_on_ipv6_too(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path), listen=Endpoint("::1", 0), http=Endpoint("::1", 0))
    with HubInThread(settings) as hub, channel_to(hub) as channel:
        assert hub.address.startswith("[::1]:")
        HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=10)
        assert page(hub, "/healthz")[0] == 200


def test_the_http_port_says_whether_the_hub_lives(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, channel_to(hub) as channel:
        assert page(hub, "/healthz") == (200, '{"status":"ok"}')
        assert json.loads(page(hub, "/readyz")[1]) == {"status": "ready", "warnings": []}
        assert page(hub, "/nope")[0] == 404
        with Conversation(SyncServiceStub(channel).PushEvents) as stream:
            stream.ask(batch(1, 3))
            stream.ask(batch(2, 3))
            metrics = page(hub, "/metrics")[1].splitlines()
        assert 'synchub_events_total{hub_project="h",outcome="accepted"} 4.0' in metrics
        assert 'synchub_events_total{hub_project="h",outcome="duplicate"} 2.0' in metrics
        assert 'synchub_streams_open{method="PushEvents"} 1.0' in metrics


def test_a_storm_of_new_streams_loses_none(tmp_path: Path) -> None:
    async def storm(address: str) -> list[int]:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = PresenceServiceStub(channel)

            async def one(index: int) -> int:
                call = stub.Heartbeat()
                await call.write(heartbeat(f"runtime-{index}"))
                answer = await call.read()
                assert answer is not grpc.aio.EOF
                await call.write(heartbeat(f"runtime-{index}"))
                await call.read()
                call.cancel()
                return index

            return await asyncio.gather(*(one(index) for index in range(STORM_STREAMS)))

    with HubInThread(settings_in(tmp_path)) as hub:
        begin = time.monotonic()
        assert asyncio.run(storm(hub.address)) == list(range(STORM_STREAMS))
        assert time.monotonic() - begin < STORM_SECONDS_MAX
