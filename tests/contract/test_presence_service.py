"""PresenceService over the wire: heartbeats, instances, and who is alive."""

import time
from collections.abc import Callable
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1.alert_pb2 import AlertReason
from synchub.v1.presence_service_pb2 import (
    GetRuntimeRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    ListRuntimesRequest,
    Runtime,
    RuntimeState,
    WatchRuntimesRequest,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import RunKey
from synchub.v1.sync_service_pb2 import ListAlertsRequest, ReconcileRunsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import Conversation, refusal_of

ONLINE: Final = RuntimeState.RUNTIME_STATE_ONLINE
OFFLINE: Final = RuntimeState.RUNTIME_STATE_OFFLINE
LOST: Final = RuntimeState.RUNTIME_STATE_LOST

SECONDS_MAX: Final = 10.0
Heartbeats = Conversation[HeartbeatRequest, HeartbeatResponse]


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Short times, so that a loss is seen soon."""
    return Limits(
        heartbeat_interval_seconds=0.5,
        presence_ttl_seconds=1.5,
        broken_stream_grace_seconds=0.3,
        presence_flush_seconds=0.1,
        first_message_seconds_max=0.5,
    )


def eventually(look: Callable[[], int], expected: int) -> None:
    """What the hub finds out by its own clock is there soon; the bound is generous."""
    deadline = time.monotonic() + SECONDS_MAX
    while look() != expected:
        assert time.monotonic() < deadline, f"still {look()} instead of {expected}"
        time.sleep(0.02)


def heartbeat(hub_project: str, runtime_id: str = "runtime", instance_id: str = "one") -> HeartbeatRequest:
    return HeartbeatRequest(hub_project=hub_project, runtime_id=runtime_id, instance_id=instance_id)


def goodbye(hub_project: str) -> HeartbeatRequest:
    request = heartbeat(hub_project)
    request.is_goodbye = True
    return request


def runtime_of(stub: PresenceServiceStub, hub_project: str, runtime_id: str = "runtime") -> Runtime:
    request = GetRuntimeRequest(hub_project=hub_project, runtime_id=runtime_id)
    return stub.GetRuntime(request).runtime


def state_of(stub: PresenceServiceStub, hub_project: str, runtime_id: str = "runtime") -> int:
    return runtime_of(stub, hub_project, runtime_id).state


def test_a_heartbeat_is_answered_with_hub_time_and_the_interval_wanted(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        first = stream.ask(heartbeat(hub_project))
        second = stream.ask(heartbeat(hub_project))
    assert first.heartbeat_interval.ToMilliseconds() == 500
    assert first.hub_time.ToNanoseconds() < second.hub_time.ToNanoseconds()
    assert not first.notices
    assert not first.HasField("error")


def test_a_runtime_is_read_back_as_it_said(presence_stub: PresenceServiceStub, hub_project: str) -> None:
    said = HeartbeatRequest(
        hub_project=hub_project,
        runtime_id="rüntime",
        instance_id="one",
        host="höst",
        pid=4_711,
        version="1.2",
        labels={"zone": "a", "empty": ""},
        active_runs=[RunKey(project_id="p", run_id="r")],
        unsynced_event_count=7,
    )
    with Conversation(presence_stub.Heartbeat) as stream:
        answer = stream.ask(said)
        runtime = runtime_of(presence_stub, hub_project, "rüntime")
    assert runtime.instance_start_time.ToNanoseconds() <= answer.hub_time.ToNanoseconds()
    runtime.ClearField("instance_start_time")
    assert runtime == Runtime(
        runtime_id="rüntime",
        state=ONLINE,
        instance_id="one",
        host="höst",
        pid=4_711,
        version="1.2",
        labels={"zone": "a", "empty": ""},
        active_runs=[RunKey(project_id="p", run_id="r")],
        unsynced_event_count=7,
        last_heartbeat_time=answer.hub_time,
    )


def test_a_runtime_of_another_hub_project_is_not_found(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        refusal = refusal_of(lambda: runtime_of(presence_stub, f"{hub_project}-other"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert refusal.metadata == {"runtimeId": "runtime"}


def test_a_runtime_that_said_goodbye_is_offline_and_stays_so(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        stream.ask(goodbye(hub_project))
        assert state_of(presence_stub, hub_project) == OFFLINE
        stream.half_close()
        assert stream.read_all() == []
    time.sleep(0.5)
    assert state_of(presence_stub, hub_project) == OFFLINE


def test_a_heartbeat_after_a_goodbye_is_online_again(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(goodbye(hub_project))
        stream.ask(heartbeat(hub_project))
        assert state_of(presence_stub, hub_project) == ONLINE


def test_a_broken_stream_is_lost_after_the_grace(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        last = stream.ask(heartbeat(hub_project)).hub_time.ToNanoseconds()
    eventually(lambda: state_of(presence_stub, hub_project), LOST)
    # Not because of the TTL: the grace is much shorter.
    assert runtime_of(presence_stub, hub_project).last_heartbeat_time.ToNanoseconds() == last


def test_a_stream_that_just_ends_is_a_break_too(presence_stub: PresenceServiceStub, hub_project: str) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        stream.half_close()
        stream.read_all()
    eventually(lambda: state_of(presence_stub, hub_project), LOST)


def test_silence_on_an_open_stream_is_lost_after_the_ttl(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        eventually(lambda: state_of(presence_stub, hub_project), LOST)
        stream.ask(heartbeat(hub_project))
        assert state_of(presence_stub, hub_project) == ONLINE


def test_a_break_of_an_older_stream_does_not_count(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as newer:
        with Conversation(presence_stub.Heartbeat) as older:
            older.ask(heartbeat(hub_project))
            newer.ask(heartbeat(hub_project))
        for _ in range(8):
            time.sleep(0.1)
            newer.ask(heartbeat(hub_project))
            assert state_of(presence_stub, hub_project) == ONLINE


def test_a_goodbye_of_an_older_stream_does_not_count(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with (
        Conversation(presence_stub.Heartbeat) as older,
        Conversation(presence_stub.Heartbeat) as newer,
    ):
        older.ask(heartbeat(hub_project))
        newer.ask(heartbeat(hub_project))
        older.ask(goodbye(hub_project))
        assert state_of(presence_stub, hub_project) == ONLINE


def test_a_goodbye_as_the_first_word_of_a_new_stream_counts(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with (
        Conversation(presence_stub.Heartbeat) as older,
        Conversation(presence_stub.Heartbeat) as newer,
    ):
        older.ask(heartbeat(hub_project))
        newer.ask(goodbye(hub_project))
        assert state_of(presence_stub, hub_project) == OFFLINE


def test_a_restart_makes_the_new_instance_current_and_raises_no_alert(
    presence_stub: PresenceServiceStub, sync_stub: SyncServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as before:
        before.ask(heartbeat(hub_project, instance_id="one"))
    with Conversation(presence_stub.Heartbeat) as after:
        after.ask(heartbeat(hub_project, instance_id="two"))
        assert runtime_of(presence_stub, hub_project).instance_id == "two"
    assert not sync_stub.ListAlerts(ListAlertsRequest(hub_project=hub_project)).alerts


def test_an_older_instance_hears_of_its_successor_and_is_refused_with_an_alert(
    presence_stub: PresenceServiceStub, sync_stub: SyncServiceStub, hub_project: str
) -> None:
    with (
        Conversation(presence_stub.Heartbeat) as older,
        Conversation(presence_stub.Heartbeat) as newer,
    ):
        older.ask(heartbeat(hub_project, instance_id="one"))
        newer.ask(heartbeat(hub_project, instance_id="two"))
        (notice,) = older.read().notices
        assert notice.duplicate_instance.current_instance_id == "two"
        in_band = older.ask(heartbeat(hub_project, instance_id="one")).error
        assert in_band.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        older.half_close()
        refusal = older.refusal()
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "RUNTIME_DUPLICATED",
        )
        assert refusal.metadata == {"runtimeId": "runtime", "id": "one"}
        assert runtime_of(presence_stub, hub_project).instance_id == "two"
        assert state_of(presence_stub, hub_project) == ONLINE
    (alert,) = sync_stub.ListAlerts(ListAlertsRequest(hub_project=hub_project)).alerts
    assert (alert.reason, alert.runtime_id) == (AlertReason.ALERT_REASON_RUNTIME_DUPLICATED, "runtime")


def test_an_instance_that_was_current_before_never_is_again(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    for instance_id in ("one", "two"):
        with Conversation(presence_stub.Heartbeat) as stream:
            stream.ask(heartbeat(hub_project, instance_id=instance_id))
    with Conversation(presence_stub.Heartbeat) as again:
        again.send(heartbeat(hub_project, instance_id="one"))
        assert again.refusal().reason == "RUNTIME_DUPLICATED"
    assert runtime_of(presence_stub, hub_project).instance_id == "two"


def test_a_reconcile_makes_its_instance_current_for_heartbeats_too(
    presence_stub: PresenceServiceStub, sync_stub: SyncServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as older:
        older.ask(heartbeat(hub_project, instance_id="one"))
        sync_stub.ReconcileRuns(
            ReconcileRunsRequest(hub_project=hub_project, runtime_id="runtime", instance_id="two")
        )
        (notice,) = older.read().notices
        assert notice.duplicate_instance.current_instance_id == "two"
        assert older.ask(heartbeat(hub_project, instance_id="one")).HasField("error")
    runtime = runtime_of(presence_stub, hub_project)
    assert runtime.instance_id == "two"
    assert not runtime.HasField("last_heartbeat_time")


@pytest.mark.parametrize("field", ["hub_project", "runtime_id", "instance_id"])
def test_the_identity_of_a_stream_may_not_change(
    presence_stub: PresenceServiceStub, hub_project: str, field: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        other = heartbeat(hub_project)
        setattr(other, field, "another")
        assert stream.ask(other).error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        refusal = stream.refusal()
    assert (refusal.reason, [each.field for each in refusal.violations]) == ("INVALID_REQUEST", [field])


def test_a_heartbeat_that_breaks_bounds_names_each_field(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.send(
            HeartbeatRequest(
                runtime_id="\0",
                host=" h",
                pid=-1,
                version="v" * 257,
                labels={"k" * 129: ""},
                active_runs=[RunKey()] * 1_001,
                unsynced_event_count=-1,
            )
        )
        refusal = stream.refusal()
    assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
    assert [each.field for each in refusal.violations] == [
        "hub_project",
        "runtime_id",
        "instance_id",
        "host",
        "pid",
        "version",
        "labels",
        "unsynced_event_count",
        "active_runs",
    ]
    assert not presence_stub.ListRuntimes(ListRuntimesRequest(hub_project=hub_project)).runtimes


def test_a_stream_that_says_nothing_ends(presence_stub: PresenceServiceStub) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        refusal = stream.refusal()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    assert refusal.metadata["limit"] == "first_message_seconds_max"


def test_runtimes_are_listed_by_the_bytes_of_their_ids_page_by_page(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    runtime_ids = ["a", "B", "ä", "z", "A/b"]
    for runtime_id in runtime_ids:
        with Conversation(presence_stub.Heartbeat) as stream:
            stream.ask(heartbeat(hub_project, runtime_id))
    listed: list[str] = []
    request = ListRuntimesRequest(hub_project=hub_project, page_size=2)
    while True:
        page = presence_stub.ListRuntimes(request)
        assert len(page.runtimes) <= 2
        listed += [runtime.runtime_id for runtime in page.runtimes]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert listed == sorted(runtime_ids, key=str.encode)


def test_runtimes_are_listed_by_state(presence_stub: PresenceServiceStub, hub_project: str) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(goodbye(hub_project))
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project, "living"))
        for states, expected in (
            ([ONLINE], ["living"]),
            ([OFFLINE], ["runtime"]),
            ([LOST], []),
            ([ONLINE, OFFLINE], ["living", "runtime"]),
        ):
            request = ListRuntimesRequest(hub_project=hub_project, states=states)
            listed = presence_stub.ListRuntimes(request)
            assert [runtime.runtime_id for runtime in listed.runtimes] == expected


@pytest.mark.parametrize(
    ("request_with_fault", "field"),
    [
        (ListRuntimesRequest(), "hub_project"),
        (ListRuntimesRequest(hub_project="h", page_size=-1), "page_size"),
        (ListRuntimesRequest(hub_project="h", page_token="x"), "page_token"),
        (ListRuntimesRequest(hub_project="h", states=[RuntimeState.RUNTIME_STATE_UNSPECIFIED]), "states[0]"),
    ],
)
def test_a_list_request_that_breaks_a_bound_is_refused(
    presence_stub: PresenceServiceStub, request_with_fault: ListRuntimesRequest, field: str
) -> None:
    refusal = refusal_of(lambda: presence_stub.ListRuntimes(request_with_fault))
    assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
    assert [each.field for each in refusal.violations] == [field]


def test_a_watch_gives_a_snapshot_and_then_what_changes(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        stream.ask(heartbeat(hub_project))
        watch = presence_stub.WatchRuntimes(WatchRuntimesRequest(hub_project=hub_project), timeout=20)
        snapshot = next(watch)
        assert [runtime.runtime_id for runtime in snapshot.runtimes] == ["runtime"]
        assert not snapshot.is_snapshot_complete
        assert next(watch).is_snapshot_complete
        stream.ask(goodbye(hub_project))
        (runtime,) = next(watch).runtimes
        assert runtime.state == OFFLINE
        with Conversation(presence_stub.Heartbeat) as another:
            another.ask(heartbeat(hub_project, "another"))
            seen = next(watch).runtimes[-1]
            assert (seen.runtime_id, seen.state) == ("another", ONLINE)
        while seen.state != LOST:
            seen = next(watch).runtimes[-1]
        assert seen.runtime_id == "another"
        watch.cancel()


def test_an_empty_snapshot_is_complete_at_once(presence_stub: PresenceServiceStub, hub_project: str) -> None:
    watch = presence_stub.WatchRuntimes(WatchRuntimesRequest(hub_project=hub_project), timeout=20)
    first = next(watch)
    assert (len(first.runtimes), first.is_snapshot_complete) == (0, True)
    watch.cancel()
