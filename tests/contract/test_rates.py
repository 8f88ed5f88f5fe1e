"""How much may come at a time, over the real wire: what is above it is slowed or refused, never lost."""

import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from hub.core.limits import Limits
from synchub.channel import Refusal, refusal_from_error, refusal_from_status
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    GetRunRequest,
    ListAlertsRequest,
    PushEventsRequest,
    PushEventsResponse,
    ReconcileRun,
    ReconcileRunsRequest,
    WatchEventsRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import STREAM_SECONDS_MAX, Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import commit_request, leased, new_events
from tests.contract.pushing import events, push
from tests.contract.secured import running_secured_hub

TRIES_MAX: Final = 100
"""Calls after which one should have been refused."""


@contextmanager
def running_hub(folder: Path, limits: Limits) -> Iterator[tuple[HubInThread, grpc.Channel]]:
    with HubInThread(settings_in(folder, limits)) as hub, grpc.insecure_channel(hub.address) as channel:
        yield hub, channel


def request(first: int, last: int, *, hub_project: str = "h", run_id: str = "r") -> PushEventsRequest:
    return PushEventsRequest(
        hub_project=hub_project,
        project_id="p-" + hub_project,
        run_id=run_id,
        runtime_id="runtime",
        events=events(first, last),
    )


def delay_of(response: PushEventsResponse) -> float:
    return response.retry_delay.ToNanoseconds() / 1e9 if response.HasField("retry_delay") else 0.0


def event_count(channel: grpc.Channel, *, hub_project: str = "h", run_id: str = "r") -> int:
    """How many events of a run are stored."""
    asked = GetRunRequest(hub_project=hub_project, project_id="p-" + hub_project, run_id=run_id)
    try:
        return SyncServiceStub(channel).GetRun(asked, timeout=STREAM_SECONDS_MAX).run.event_count
    except grpc.RpcError:
        return 0


def until_delayed(hub: HubInThread, count: int) -> None:
    """Return once the hub has read so many batches that wait or let others wait."""
    end = time.monotonic() + STREAM_SECONDS_MAX
    while True:
        with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=STREAM_SECONDS_MAX) as page:
            lines = page.read().decode().splitlines()
        delays = [line for line in lines if line.startswith("synchub_rate_delays_total{")]
        if sum(float(line.rpartition(" ")[2]) for line in delays) >= count:
            return
        assert time.monotonic() < end


# --- pushes are slowed ---


def test_a_batch_above_the_rate_is_stored_and_its_answer_says_how_long_to_wait(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=10)
    with running_hub(tmp_path, limits) as (_, channel):
        with Conversation(SyncServiceStub(channel).PushEvents) as stream:
            within = stream.ask(request(1, 5))
            above = stream.ask(request(6, 5 + 15))
        assert (within.accepted_count, delay_of(within)) == (5, 0.0)
        assert above.accepted_count == 15
        assert 0.5 < delay_of(above) <= 1.0
        assert event_count(channel) == 20


def test_a_client_that_does_not_wait_is_not_read_until_the_time_is_over(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=100)
    with (
        running_hub(tmp_path, limits) as (_, channel),
        Conversation(SyncServiceStub(channel).PushEvents) as stream,
    ):
        begin = time.monotonic()
        for first in range(1, 401, 100):
            stream.send(request(first, first + 99))
        answers = [stream.read() for _ in range(4)]
        # The bucket held the first one; each other one but the last took its time.
        assert time.monotonic() - begin >= 2.0
        assert [answer.accepted_count for answer in answers] == [100] * 4
        assert answers[-1].cursor == 400


def test_streams_of_one_hub_project_share_its_rate(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=100)
    with running_hub(tmp_path, limits) as (_, channel), ExitStack() as stack:
        streams = [stack.enter_context(Conversation(SyncServiceStub(channel).PushEvents)) for _ in range(4)]
        begin = time.monotonic()
        for number, stream in enumerate(streams):
            stream.send(request(1, 100, run_id=f"r{number}"))
        assert [stream.read().accepted_count for stream in streams] == [100] * 4
        # The first is in the bucket, and the second is let in on credit.
        assert time.monotonic() - begin >= 1.9


def test_another_hub_project_is_not_slowed_meanwhile(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=10)
    with (
        running_hub(tmp_path, limits) as (_, channel),
        Conversation(SyncServiceStub(channel).PushEvents) as flood,
        Conversation(SyncServiceStub(channel).PushEvents) as quiet,
    ):
        assert delay_of(flood.ask(request(1, 500))) > 10
        flood.send(request(501, 1_000))
        for number in range(1, 6):
            answer = quiet.ask(request(number, number, hub_project="quiet"))
            assert (answer.accepted_count, delay_of(answer)) == (1, 0.0)
        assert event_count(channel) == 500


def test_bytes_are_a_rate_too(tmp_path: Path) -> None:
    limits = Limits(hub_project_bytes_per_second=10_000)
    with (
        running_hub(tmp_path, limits) as (_, channel),
        Conversation(SyncServiceStub(channel).PushEvents) as stream,
    ):
        large = SyncEvent(sequence=1, event_type="line", payload=b"x" * 25_000)
        asked = request(1, 1)
        del asked.events[:]
        asked.events.append(large)
        answer = stream.ask(asked)
        assert (answer.accepted_count, 1.0 < delay_of(answer) <= 2.0) == (1, True)


def test_a_slowed_stream_is_ended_by_a_stop_at_once_and_what_waited_is_unknown(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=1)
    with running_hub(tmp_path, limits) as (hub, channel):
        with Conversation(SyncServiceStub(channel).PushEvents) as stream:
            assert delay_of(stream.ask(request(1, 100))) > 50
            stream.send(request(101, 200))
            begin = time.monotonic()
            hub.begin_stop()
            said = stream.read()
            stream.half_close()
            assert refusal_from_status(said.error).reason == "HUB_STOPPING"
            assert stream.refusal().reason == "HUB_STOPPING"
        hub.join()
        assert time.monotonic() - begin < 5
    with running_hub(tmp_path, Limits()) as (_, channel):
        assert event_count(channel) == 100


def test_a_batch_that_waits_for_others_is_not_stored_once_its_stream_ends(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=1)
    with running_hub(tmp_path, limits) as (hub, channel):
        with (
            Conversation(SyncServiceStub(channel).PushEvents) as first,
            Conversation(SyncServiceStub(channel).PushEvents) as second,
        ):
            first.ask(request(1, 100))
            second.send(request(1, 1, run_id="waits"))
            hub.begin_stop()
            second.read_all()
        hub.join()
    with running_hub(tmp_path, Limits()) as (_, channel):
        assert (event_count(channel), event_count(channel, run_id="waits")) == (100, 0)


def test_who_gives_up_waiting_gives_back_what_did_not_come(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=100)
    with running_hub(tmp_path, limits) as (hub, channel):
        stub = SyncServiceStub(channel)
        with Conversation(stub.PushEvents) as stream:
            told = delay_of(stream.ask(request(1, 200)))
            clear = time.monotonic() + told
            for number in range(5):
                with Conversation(stub.PushEvents) as impatient:
                    impatient.send(request(1, 1_000, run_id=f"gone{number}"))
                    until_delayed(hub, 2 + number)
            assert push(stub, "h", project_id="p-h", run_id="late", batch=events(1, 1)).accepted_count == 1
        # Had they been counted, it would have waited for minutes.
        assert time.monotonic() < clear + 5
        assert [event_count(channel, run_id=f"gone{number}") for number in range(5)] == [0] * 5


# --- commits and calls are refused ---


def assert_rate_limited(refusal: Refusal, limit: str, limit_value: int) -> None:
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
    assert (refusal.metadata["limit"], refusal.metadata["limitValue"]) == (limit, str(limit_value))
    assert limit in refusal.message
    assert refusal.retry_delay_seconds is not None
    assert 0 < refusal.retry_delay_seconds <= 200


def test_a_commit_above_the_rate_is_refused_with_the_time_to_come_again(tmp_path: Path) -> None:
    limits = Limits(hub_project_events_per_second=10)
    with running_hub(tmp_path, limits) as (_, channel):
        stub, credential = JournalServiceStub(channel), leased(LeaseServiceStub(channel), "h")
        first = commit_request("h", credential, events=new_events("e", 20))
        second = commit_request(
            "h", credential, message_id="m2", expected_revision=20, events=new_events("f", 1)
        )
        assert stub.Commit(first).revision == 20
        refusal = refusal_of(lambda: stub.Commit(second))
        assert_rate_limited(refusal, "hub_project_events_per_second", 10)
        time.sleep(refusal.retry_delay_seconds or 0)
        assert stub.Commit(second).previous_revision == 20


@pytest.fixture
def few_calls() -> Limits:
    return Limits(credential_requests_per_second=1, credential_requests_burst=5)


def first_refusal(call: Callable[[], object]) -> Refusal:
    """What a call is refused with when it is made again and again."""
    for _ in range(TRIES_MAX):
        try:
            call()
        except grpc.RpcError as error:
            return refusal_from_error(error)
    raise AssertionError("it was never refused")


def test_calls_of_one_credential_above_the_rate_are_refused_and_others_go_on(
    tmp_path: Path, few_calls: Limits
) -> None:
    with running_secured_hub(settings_in(tmp_path, few_calls)) as hub:
        info = hub.stubs("one/reader").hub.GetHubInfo
        for _ in range(5):
            info(GetHubInfoRequest())
        refusal = first_refusal(lambda: info(GetHubInfoRequest()))
        assert_rate_limited(refusal, "credential_requests_per_second", 1)
        for other in ("two/reader", "one/admin"):
            hub.stubs(other).hub.GetHubInfo(GetHubInfoRequest())


def test_a_stream_that_is_opened_above_the_rate_is_told_so_in_band_and_an_open_one_goes_on(
    tmp_path: Path, few_calls: Limits
) -> None:
    with running_secured_hub(settings_in(tmp_path, few_calls)) as hub:
        stubs = hub.stubs("one/runtime")
        beat = HeartbeatRequest(runtime_id="r", instance_id="i")
        pushed = PushEventsRequest(project_id="one-p", run_id="r", runtime_id="r", events=events(1, 1))
        told: list[str] = []
        with Conversation(stubs.presence.Heartbeat) as heartbeats:
            heartbeats.ask(beat)
            while "RATE_LIMITED" not in told and len(told) < TRIES_MAX:
                with Conversation(stubs.sync.PushEvents) as stream:
                    told.append(refusal_from_status(stream.ask(pushed).error).reason)
                    stream.half_close()
                    stream.read_all()
            assert told[-1] == "RATE_LIMITED"
            # What is open is no call that begins.
            for _ in range(20):
                assert heartbeats.ask(beat).HasField("hub_time")


def test_a_watch_that_is_opened_above_the_rate_is_refused(tmp_path: Path, few_calls: Limits) -> None:
    with running_secured_hub(settings_in(tmp_path, few_calls)) as hub:
        watch = hub.stubs("one/reader").sync.WatchEvents
        asked = WatchEventsRequest(project_id="one-p")
        refusal = first_refusal(lambda: next(watch(asked, timeout=STREAM_SECONDS_MAX)))
        assert_rate_limited(refusal, "credential_requests_per_second", 1)


def test_health_is_told_however_much_is_asked(tmp_path: Path, few_calls: Limits) -> None:
    with running_hub(tmp_path, few_calls) as (_, channel):
        info = HubServiceStub(channel).GetHubInfo
        first_refusal(lambda: info(GetHubInfoRequest()))
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        answers = {check(HealthCheckRequest(), timeout=STREAM_SECONDS_MAX).status for _ in range(20)}
        assert answers == {HealthCheckResponse.SERVING}


# --- guesses ---


def states(stub: SyncServiceStub, project_ids: Sequence[str]) -> list[int]:
    runs = [ReconcileRun(project_id=each, run_id="r", chain_hash=bytes(32)) for each in project_ids]
    asked = ReconcileRunsRequest(hub_project="h", runtime_id="runtime", instance_id="i", runs=runs)
    return [run.state for run in stub.ReconcileRuns(asked, timeout=STREAM_SECONDS_MAX).runs]


def test_who_guesses_projects_of_others_is_slowed_and_learns_nothing_more(tmp_path: Path) -> None:
    limits = Limits(hub_project_mismatches_per_minute=3)
    with running_hub(tmp_path, limits) as (_, channel):
        stub = SyncServiceStub(channel)
        for number in range(10):
            push(stub, "owner", project_id=f"taken-{number}", batch=events(1, 1))
        push(stub, "h", project_id="own", batch=events(1, 1))
        assert len(set(states(stub, [f"taken-{number}" for number in range(10)]))) == 1
        told = []
        for project_id in ("taken-0", "nobodys"):
            with Conversation(stub.PushEvents) as stream:
                stream.send(
                    PushEventsRequest(
                        hub_project="h",
                        project_id=project_id,
                        run_id="r",
                        runtime_id="x",
                        events=events(1, 1),
                    )
                )
                refusal = refusal_from_status(stream.read().error)
                stream.half_close()
            assert_rate_limited(refusal, "hub_project_mismatches_per_minute", 3)
            told.append((refusal.message, refusal.metadata))
        assert told[0] == told[1]
        assert_rate_limited(
            refusal_of(lambda: states(stub, ["nobodys"])), "hub_project_mismatches_per_minute", 3
        )
        # Its own go on, and the owner hears nothing of the guesses that were not told.
        assert push(stub, "h", project_id="own", batch=events(2, 2)).accepted_count == 1
        alerts = stub.ListAlerts(ListAlertsRequest(hub_project="h")).alerts
        assert [alert.project_id for alert in alerts] == []
