"""What is seen of calls from outside: their request ids, the metrics of the hub, its health by gRPC."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from hub.rpc.self_call import CHECK_METHOD
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.lease_service_pb2 import AcquireLeaseRequest
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest, WatchEventsRequest
from tests.contract.conftest import settings_in
from tests.contract.secured import SecuredHub, running_secured_hub

SECONDS_MAX: Final = 20.0


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredHub]:
    with running_secured_hub(settings_in(tmp_path)) as running:
        yield running


def value_of(secured: SecuredHub, name: str, **labels: str) -> float:
    """A sample of the hub's page; 0 where it is not there."""
    with urllib.request.urlopen(f"http://{secured.hub.http_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (sample.name, sample.labels) == (name, labels):
                return float(sample.value)
    return 0.0


def echo(raw: bytes) -> bytes:
    return raw


def request_ids(metadata: object) -> list[str]:
    assert isinstance(metadata, tuple)
    return [value for key, value in metadata if key == "x-request-id"]


def batch(project_id: str = "one-p", payload: bytes = b"") -> PushEventsRequest:
    event = SyncEvent(sequence=1, event_type="line", payload=payload)
    return PushEventsRequest(project_id=project_id, run_id="r", runtime_id="r", events=[event])


def test_a_clients_request_id_comes_back_with_an_answer_and_with_a_refusal(secured: SecuredHub) -> None:
    stubs = secured.stubs("one/reader")
    sent = (("x-request-id", "from-the-client.1"),)
    answered, call = stubs.hub.GetHubInfo.with_call(GetHubInfoRequest(), metadata=sent, timeout=10)
    assert answered.hub_generation
    assert request_ids(call.trailing_metadata()) == ["from-the-client.1"]
    with pytest.raises(grpc.RpcError) as refused:
        stubs.sync.GetRun(GetRunRequest(project_id="p", run_id="r"), metadata=sent, timeout=10)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert request_ids(refused.value.trailing_metadata()) == ["from-the-client.1"]


@pytest.mark.parametrize("sent", ["", "a b", "x" * 65, '"}{'])
def test_a_request_id_that_may_not_stand_in_a_log_is_replaced(secured: SecuredHub, sent: str) -> None:
    stubs = secured.stubs("one/reader")
    _, call = stubs.hub.GetHubInfo.with_call(
        GetHubInfoRequest(), metadata=(("x-request-id", sent),), timeout=10
    )
    (request_id,) = request_ids(call.trailing_metadata())
    assert request_id not in ("", sent)
    assert request_id.isalnum()


def test_each_call_without_one_gets_its_own(secured: SecuredHub) -> None:
    stubs = secured.stubs("one/reader")
    seen: set[str] = set()
    for _ in range(3):
        _, call = stubs.hub.GetHubInfo.with_call(GetHubInfoRequest(), timeout=10)
        seen.update(request_ids(call.trailing_metadata()))
    assert len(seen) == 3


def test_a_stream_that_is_refused_in_band_names_its_request_id_and_is_counted_once(
    secured: SecuredHub,
) -> None:
    stubs = secured.stubs("one/reader")
    call = stubs.sync.PushEvents(iter([batch()]), metadata=(("x-request-id", "stream-1"),), timeout=10)
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert request_ids(call.trailing_metadata()) == ["stream-1"]
    counted = {"method": "PushEvents", "code": "PERMISSION_DENIED"}
    assert value_of(secured, "synchub_calls_total", **counted) == 1
    reason = {"reason": "PERMISSION_DENIED", "code": "PERMISSION_DENIED"}
    assert value_of(secured, "synchub_refusals_total", **reason) == 1


def test_calls_are_counted_by_how_they_end(secured: SecuredHub) -> None:
    stubs, runtime = secured.stubs("one/reader"), secured.stubs("one/runtime")
    stubs.hub.GetHubInfo(GetHubInfoRequest(), timeout=10)
    with pytest.raises(grpc.RpcError):
        stubs.sync.GetRun(GetRunRequest(project_id="p", run_id="r"), timeout=10)
    with pytest.raises(grpc.RpcError):
        secured.stubs_sending().sync.GetRun(GetRunRequest(project_id="p", run_id="r"), timeout=10)
    with pytest.raises(grpc.RpcError):
        stubs.channel.unary_unary("/synchub.v1.SyncService/NoSuchCall", echo, echo)(b"", timeout=10)
    twice = iter([batch(payload=b"12345"), batch(payload=b"12345")])
    assert [answer.cursor for answer in runtime.sync.PushEvents(twice, timeout=10)] == [1, 1]
    watching = stubs.sync.WatchEvents(WatchEventsRequest(), timeout=10)
    next(iter(watching))
    watching.cancel()

    def calls(method: str, code: str) -> float:
        return value_of(secured, "synchub_calls_total", method=method, code=code)

    assert calls("GetHubInfo", "OK") == 1
    assert calls("GetRun", "NOT_FOUND") == 1
    assert calls("GetRun", "UNAUTHENTICATED") == 1
    assert calls("other", "UNIMPLEMENTED") == 1
    assert calls("PushEvents", "OK") == 1
    assert value_of(secured, "synchub_call_seconds_count", method="GetRun") == 2
    reason = {"reason": "CREDENTIAL_MISSING", "code": "UNAUTHENTICATED"}
    assert value_of(secured, "synchub_refusals_total", **reason) == 1
    one = {"hub_project": "one"}
    assert value_of(secured, "synchub_events_total", outcome="accepted", **one) == 1
    assert value_of(secured, "synchub_events_total", outcome="duplicate", **one) == 1
    assert value_of(secured, "synchub_batches_total", outcome="duplicate", **one) == 1
    assert value_of(secured, "synchub_tokens", state="live") == 16
    assert value_of(secured, "synchub_tokens", state="expired") == 2
    assert value_of(secured, "synchub_tokens", state="revoked") == 2


def test_leases_are_counted_as_they_begin_and_end(secured: SecuredHub) -> None:
    stubs = secured.stubs("one/runtime")
    for holder in ("a", "b"):
        request = AcquireLeaseRequest(resource="l", runtime_id="r", holder_id=holder)
        request.ttl.seconds = 1
        request.wait_timeout.seconds = 10
        stubs.lease.AcquireLease(request, timeout=20)
    assert value_of(secured, "synchub_lease_grants_total", hub_project="one") == 2
    assert value_of(secured, "synchub_lease_expiries_total", hub_project="one") == 1


def test_runtimes_are_counted_by_presence_with_what_they_have_not_pushed(secured: SecuredHub) -> None:
    first = HeartbeatRequest(runtime_id="r", instance_id="one", unsynced_event_count=7)
    going_on = threading.Event()

    def heartbeats() -> Iterator[HeartbeatRequest]:
        yield first
        going_on.wait(SECONDS_MAX)

    stream = secured.stubs("one/runtime").presence.Heartbeat(heartbeats(), timeout=SECONDS_MAX)
    next(stream)
    end = time.monotonic() + SECONDS_MAX
    while value_of(secured, "synchub_runtimes_heard", hub_project="one", state="ONLINE") != 1:
        assert time.monotonic() < end
    assert value_of(secured, "synchub_unsynced_events", hub_project="one") == 7
    assert value_of(secured, "synchub_streams_open", method="Heartbeat") == 1
    going_on.set()
    list(stream)


def test_a_denied_call_is_a_line_that_says_who_and_which(secured: SecuredHub) -> None:
    with capture_logs() as lines:
        with pytest.raises(grpc.RpcError):
            secured.stubs("one/revoked").sync.GetRun(GetRunRequest(project_id="p", run_id="r"), timeout=10)
        # The line is written once the call is over; a later call is answered after that.
        secured.stubs("one/reader").hub.GetHubInfo(GetHubInfoRequest(), timeout=10)
    denied = [line for line in lines if line["event"] == "call_refused"]
    assert [(line["log_level"], line["reason"]) for line in denied] == [("warning", "CREDENTIAL_REVOKED")]


def test_health_by_grpc_is_open_and_says_serving(secured: SecuredHub) -> None:
    check = secured.stubs_sending().channel.unary_unary(
        CHECK_METHOD,
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    for service in ("", "synchub.v1.SyncService"):
        answer = check(HealthCheckRequest(service=service), timeout=10)
        assert answer.status == HealthCheckResponse.SERVING
