"""Each method of ``RuntimeAgentService``, over a real socket."""

import os
import stat
from collections.abc import Iterable

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent import limits
from runtime_agent.core.errors import (
    AppendIdReusedError,
    EventInvalidError,
    NothingToCopyError,
    RunExistsError,
    RunFinalError,
    RunNotQuarantinedError,
    RunUnknownError,
    WrongSequenceError,
)
from runtime_agent.core.values import Acknowledgement, Appended, AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import open_local_log
from synchub.channel import refusal_from_error, refusal_from_status
from synchub.v1 import runtime_agent_service_pb2 as pb
from synchub.v1.sync_event_pb2 import SyncEvent
from tests.unit.runtime_agent.local_api.conftest import RunningService

RUN = RunKey("p", "r")


def one(payload: bytes = b"x", *, run: RunKey = RUN, append_id: str = "", expected: int = 0) -> AppendRequest:
    return AppendRequest(run, (NewEvent("line", payload, 5),), append_id, expected)


def append(service: RunningService, request: AppendRequest) -> Appended:
    return service.client.append_soon(request).result(10)


def send(service: RunningService, *requests: pb.AppendEventsRequest) -> list[pb.AppendEventsResponse]:
    return list(service.client.stub.AppendEvents(iter(requests), timeout=10))


def quarantine(service: RunningService, run: RunKey = RUN) -> None:
    service.thread.call(
        lambda log: log.quarantine(run, reason="SEQUENCE_REUSED", detail="why", sequence=1, now_nanos=7)
    ).result(10)


def reasons(responses: Iterable[pb.AppendEventsResponse]) -> list[str]:
    return [refusal_from_status(each.error).reason if each.HasField("error") else "" for each in responses]


# --- appends --------------------------------------------------------------------------------------------


def test_an_append_is_answered_with_its_sequences_in_the_order_of_the_stream(service: RunningService) -> None:
    futures = [service.client.append_soon(one()) for _ in range(200)]
    assert [future.result(10) for future in futures] == [Appended(n, n) for n in range(1, 201)]


def test_an_append_id_sent_again_is_answered_and_not_doubled(service: RunningService) -> None:
    assert append(service, one(append_id="a")) == Appended(1, 1)
    assert append(service, one(append_id="a")) == Appended(1, 1, is_repeat=True)


def test_a_refusal_is_said_in_band_and_the_stream_goes_on(service: RunningService) -> None:
    event = SyncEvent(event_type="t", text="é")
    good = pb.AppendEventsRequest(project_id="p", run_id="r", events=[event])
    responses = send(
        service,
        pb.AppendEventsRequest(project_id="p", run_id="", events=[event]),
        good,
        pb.AppendEventsRequest(project_id="p", run_id="r", events=[event], expected_sequence=9),
        pb.AppendEventsRequest(project_id="p", run_id="r", events=[SyncEvent(event_type="t", is_final=True)]),
        good,
    )
    assert reasons(responses) == ["INVALID_REQUEST", "", "REVISION_CONFLICT", "", "RUN_COMPLETE"]
    assert [each.last_sequence for each in responses] == [0, 1, 0, 2, 0]
    stored = service.client.stub.ListLocalEvents(pb.ListLocalEventsRequest(project_id="p", run_id="r"))
    assert [each.event.payload for each in stored.events] == ["é".encode(), b""]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (SyncEvent(event_type="t", sequence=1), "events[0].sequence"),
        (SyncEvent(event_type="t", content_hash=b"x"), "events[0].content_hash"),
        (SyncEvent(event_type="t", payload_dropped=True), "events[0].payload_dropped"),
        (SyncEvent(event_type="t", event_time=Timestamp(nanos=-1)), "events[0].event_time"),
        (SyncEvent(event_type="t", event_time=Timestamp(seconds=10**10)), "events[0].event_time"),
    ],
)
def test_what_only_the_agent_gives_and_impossible_times_are_refused(
    service: RunningService, event: SyncEvent, field: str
) -> None:
    (response,) = send(service, pb.AppendEventsRequest(project_id="p", run_id="r", events=[event]))
    refusal = refusal_from_status(response.error)
    assert [violation.field for violation in refusal.violations] == [field]
    assert service.thread.read(lambda log: log.load_totals()).result(10).event_count == 0


def test_times_may_be_left_absent(service: RunningService) -> None:
    event = SyncEvent(event_type="t")
    send(
        service,
        pb.AppendEventsRequest(project_id="p", run_id="r", events=[event], leave_time_absent=True),
        pb.AppendEventsRequest(project_id="p", run_id="r", events=[event]),
    )
    stored = service.client.stub.ListLocalEvents(pb.ListLocalEventsRequest(project_id="p", run_id="r"))
    assert [each.event.HasField("event_time") for each in stored.events] == [False, True]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (AppendRequest(RUN, ()), EventInvalidError),
        (AppendRequest(RunKey("p", "\udc80"), (NewEvent("t"),)), EventInvalidError),
        (one(expected=9), WrongSequenceError),
        (one(b"other", append_id="a"), AppendIdReusedError),
        (one(run=RunKey("p", "ended")), RunFinalError),
    ],
)
def test_the_client_raises_what_the_log_raised(
    service: RunningService, request_: AppendRequest, error: type[Exception]
) -> None:
    append(service, one(append_id="a"))
    append(service, AppendRequest(RunKey("p", "ended"), (NewEvent("end", is_final=True),)))
    with pytest.raises(error):
        append(service, request_)
    assert append(service, one()) == Appended(2, 2)


def test_a_stream_that_reads_no_answers_does_not_hold_up_another(service: RunningService) -> None:
    request = pb.AppendEventsRequest(
        project_id="p", run_id="silent", events=[SyncEvent(event_type="t", payload=bytes(1000))]
    )
    silent = service.client.stub.AppendEvents(iter([request] * 500))
    assert append(service, one()) == Appended(1, 1)
    silent.cancel()


# --- reads ----------------------------------------------------------------------------------------------


def test_local_events_come_in_pages(service: RunningService) -> None:
    for number in range(5):
        append(service, one(b"%d" % number))
    service.thread.call(
        lambda log: log.acknowledge([Acknowledgement(RUN, 2)], hub_generation="", now_nanos=1)
    ).result(10)
    seen: list[tuple[int, bytes, bool]] = []
    request = pb.ListLocalEventsRequest(project_id="p", run_id="r", page_size=2)
    while True:
        page = service.client.stub.ListLocalEvents(request)
        seen += [(each.event.sequence, each.event.payload, each.is_acknowledged) for each in page.events]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == [(n, b"%d" % (n - 1), n <= 2) for n in range(1, 6)]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.ListLocalEventsRequest(project_id="p", run_id="none"), "NOT_FOUND"),
        (pb.ListLocalEventsRequest(project_id="p", run_id="r", page_size=-1), "INVALID_REQUEST"),
        (pb.ListLocalEventsRequest(project_id="p", run_id="r", page_token="x"), "INVALID_REQUEST"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    service: RunningService, request_: pb.ListLocalEventsRequest, reason: str
) -> None:
    append(service, one())
    with pytest.raises(grpc.RpcError) as error:
        service.client.stub.ListLocalEvents(request_)
    assert refusal_from_error(error.value).reason == reason


def test_a_tail_has_what_is_stored_then_what_comes(service: RunningService) -> None:
    append(service, one(b"a"))
    append(service, one(b"b", run=RunKey("p", "other")))
    tail = service.client.tail(after_local_position=0, project_id="p", run_id="")
    assert [next(tail).event.payload for _ in range(2)] == [b"a", b"b"]
    append(service, one(b"c"))
    event = next(tail)
    assert (event.event.payload, event.local_position) == (b"c", 3)
    resumed = service.client.tail(after_local_position=1, project_id="p", run_id="r")
    assert next(resumed).event.payload == b"c"


def test_the_status_says_what_the_log_holds_and_how_the_link_stands(service: RunningService) -> None:
    append(service, one())
    quarantine(service)
    status = service.client.load_status()
    assert (status.hub_project, status.runtime_id, status.instance_id, status.pid, status.version) == (
        "hp",
        "rt",
        "instance",
        42,
        "1.2.3",
    )
    assert status.hub_link_state == pb.HUB_LINK_STATE_WAITING
    assert (status.hub_link_detail, status.hub_address) == ("no hub", "127.0.0.1:1")
    assert (status.run_count, status.event_count, status.unsynced_event_count) == (1, 1, 1)
    assert status.quarantined_run_count == 1


# --- quarantine -----------------------------------------------------------------------------------------


def test_quarantined_runs_are_listed_in_pages(service: RunningService) -> None:
    for name in ("a", "b", "c"):
        append(service, one(run=RunKey("p", name)))
        quarantine(service, RunKey("p", name))
    first = service.client.stub.ListQuarantinedRuns(pb.ListQuarantinedRunsRequest(page_size=2))
    rest = service.client.stub.ListQuarantinedRuns(
        pb.ListQuarantinedRunsRequest(page_size=2, page_token=first.next_page_token)
    )
    assert [each.run_id for each in (*first.quarantined_runs, *rest.quarantined_runs)] == ["a", "b", "c"]
    assert rest.next_page_token == ""
    entry = first.quarantined_runs[0]
    assert (entry.reason, entry.detail, entry.sequence, entry.last_sequence) == (
        "SEQUENCE_REUSED",
        "why",
        1,
        1,
    )


def test_a_release_tells_the_link_which_run_to_sync(service: RunningService) -> None:
    append(service, one())
    quarantine(service)
    assert service.client.release_as(RUN, "copy") == 1
    service.client.release(RUN)
    assert service.link.released == [RunKey("p", "copy"), RUN]


def test_a_drop_tells_the_link_and_counts(service: RunningService) -> None:
    append(service, one())
    quarantine(service)
    assert service.client.drop(RUN) == 1
    assert service.link.dropped == [RUN]


def test_decisions_about_wrong_runs_are_refused(service: RunningService) -> None:
    append(service, one())
    with pytest.raises(RunNotQuarantinedError):
        service.client.release(RUN)
    with pytest.raises(RunUnknownError):
        service.client.drop(RunKey("p", "none"))
    quarantine(service)
    with pytest.raises(RunExistsError):
        service.client.release_as(RUN, "r")
    service.client.release_as(RUN, "copy")
    with pytest.raises(NothingToCopyError):
        service.client.release_as(RUN, "copy2")
    assert service.link.dropped == []


# --- the socket -----------------------------------------------------------------------------------------


def test_the_socket_is_its_owners_alone(service: RunningService) -> None:
    mode = os.stat(service.client.path).st_mode
    assert stat.S_ISSOCK(mode)
    assert mode & 0o177 == 0


def test_a_long_or_odd_path_works(oddly_placed_service: RunningService) -> None:
    assert append(oddly_placed_service, one()) == Appended(1, 1)
    path = oddly_placed_service.client.path
    assert "x" * 120 not in path or len(path) > limits.SOCKET_PATH_BYTES_MAX


def test_with_an_agent_running_programs_go_through_it(service: RunningService) -> None:
    with open_local_log(service.folder) as log:
        assert log.is_through_agent
        assert log.append(one()) == Appended(1, 1)
