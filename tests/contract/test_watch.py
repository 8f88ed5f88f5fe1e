"""Watching events, over the wire."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import WatchEventsRequest, WatchEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import STREAM_SECONDS_MAX, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.pushing import events, push


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Progress comes soon, so that nobody waits long for it."""
    return Limits(watch_progress_seconds_max=0.5)


@contextmanager
def watching(stub: SyncServiceStub, request: WatchEventsRequest) -> Iterator[Iterator[WatchEventsResponse]]:
    call = stub.WatchEvents(request, timeout=STREAM_SECONDS_MAX)
    try:
        yield call
    finally:
        call.cancel()


def until_progress(answers: Iterator[WatchEventsResponse]) -> tuple[list[tuple[str, int, int]], int]:
    """(run, sequence, position) of all events up to the first answer without any, and its position."""
    found: list[tuple[str, int, int]] = []
    for answer in answers:
        if not answer.events:
            return found, answer.progress_position
        assert answer.progress_position >= answer.events[-1].position
        found += [(each.run_id, each.sequence, each.position) for each in answer.events]
    raise AssertionError("the watch ended")


def next_events(answers: Iterator[WatchEventsResponse]) -> list[tuple[str, int, int]]:
    for answer in answers:
        if answer.events:
            return [(each.run_id, each.sequence, each.position) for each in answer.events]
    raise AssertionError("the watch ended")


def test_first_what_is_stored_then_the_head_then_what_comes(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 2))
    with watching(sync_stub, WatchEventsRequest(hub_project=hub_project)) as answers:
        assert until_progress(answers) == ([("r", 1, 1), ("r", 2, 2)], 2)
        push(sync_stub, hub_project, project_id=hub_project, run_id="s", batch=events(1, 1))
        assert next_events(answers) == [("s", 1, 3)]


def test_a_watch_of_nothing_is_told_at_once_and_again_and_again(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    with watching(sync_stub, WatchEventsRequest(hub_project=hub_project)) as answers:
        assert until_progress(answers) == ([], 0)
        assert until_progress(answers) == ([], 0)
        push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
        assert next_events(answers) == [("r", 1, 1)]


def test_each_scope_and_type_gets_its_own_and_progress_for_the_rest(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, run_id="a", batch=events(1, 1))
    push(sync_stub, hub_project, project_id=hub_project, run_id="b", batch=events(1, 1, event_type="x"))
    push(sync_stub, hub_project, project_id=f"{hub_project}2", run_id="c", batch=events(1, 1))
    request = WatchEventsRequest(hub_project=hub_project, project_id=hub_project)
    with watching(sync_stub, request) as answers:
        assert until_progress(answers) == ([("a", 1, 1), ("b", 1, 2)], 3)
    request.event_types.append("x")
    with watching(sync_stub, request) as answers:
        assert until_progress(answers) == ([("b", 1, 2)], 3)
    of_run = WatchEventsRequest(hub_project=hub_project, project_id=f"{hub_project}2", run_id="c")
    with watching(sync_stub, of_run) as answers:
        assert until_progress(answers) == ([("c", 1, 3)], 3)
        push(sync_stub, hub_project, project_id=hub_project, run_id="a", batch=events(2, 2))
        assert until_progress(answers)[0] == []
        push(sync_stub, hub_project, project_id=f"{hub_project}2", run_id="c", batch=events(2, 2))
        assert next_events(answers) == [("c", 2, 5)]


def test_a_watch_goes_on_after_the_progress_that_it_was_told(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 3))
    with watching(sync_stub, WatchEventsRequest(hub_project=hub_project)) as answers:
        answer = next(answers)
    push(sync_stub, hub_project, project_id=hub_project, batch=events(4, 4))
    resumed = WatchEventsRequest(
        hub_project=hub_project,
        hub_generation=answer.hub_generation,
        after_position=answer.progress_position,
    )
    with watching(sync_stub, resumed) as answers:
        assert until_progress(answers) == ([("r", 4, 4)], 4)


def test_from_now_leaves_out_what_is_stored(sync_stub: SyncServiceStub, hub_project: str) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 3))
    with watching(sync_stub, WatchEventsRequest(hub_project=hub_project, from_now=True)) as answers:
        assert until_progress(answers) == ([], 3)
        push(sync_stub, hub_project, project_id=hub_project, batch=events(4, 4))
        assert next_events(answers) == [("r", 4, 4)]


@pytest.mark.parametrize(
    ("request_fields", "reason", "fact"),
    [
        (WatchEventsRequest(after_position=1), "INVALID_REQUEST", ("field", "hub_generation")),
        (WatchEventsRequest(after_position=-1), "INVALID_REQUEST", ("field", "after_position")),
        (WatchEventsRequest(from_now=False), "INVALID_REQUEST", ("field", "from_now")),
        (WatchEventsRequest(run_id="r"), "INVALID_REQUEST", ("field", "project_id")),
        (
            WatchEventsRequest(after_position=1, hub_generation="other"),
            "GENERATION_CHANGED",
            ("lowestPosition", "0"),
        ),
    ],
)
def test_a_watch_that_cannot_begin_is_refused(
    sync_stub: SyncServiceStub, *, request_fields: WatchEventsRequest, reason: str, fact: tuple[str, str]
) -> None:
    request_fields.hub_project = "tenant"
    refusal = refusal_of(lambda: list(sync_stub.WatchEvents(request_fields, timeout=STREAM_SECONDS_MAX)))
    assert (refusal.reason, refusal.metadata[fact[0]]) == (reason, fact[1])


def test_a_position_ahead_of_the_head_is_refused_with_the_head(
    sync_stub: SyncServiceStub, hub_stub: HubServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 2))
    generation = hub_stub.GetHubInfo(GetHubInfoRequest()).hub_generation
    request = WatchEventsRequest(hub_project=hub_project, after_position=3, hub_generation=generation)
    refusal = refusal_of(lambda: list(sync_stub.WatchEvents(request, timeout=STREAM_SECONDS_MAX)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "POSITION_AHEAD")
    assert refusal.metadata["headPosition"] == "2"


def test_watches_end_when_the_hub_stops_and_go_on_at_the_next_start(tmp_path: Path, hub_project: str) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = SyncServiceStub(channel)
        push(stub, hub_project, project_id=hub_project, batch=events(1, 2))
        call = stub.WatchEvents(WatchEventsRequest(hub_project=hub_project), timeout=STREAM_SECONDS_MAX)
        answer = next(call)
        assert until_progress(call) == ([], 2)
        hub.begin_stop()
        refusal = refusal_of(partial(list, call))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING")
        hub.join()
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = SyncServiceStub(channel)
        push(stub, hub_project, project_id=hub_project, batch=events(3, 3))
        request = WatchEventsRequest(
            hub_project=hub_project,
            hub_generation=answer.hub_generation,
            after_position=answer.progress_position,
        )
        with watching(stub, request) as answers:
            assert until_progress(answers) == ([("r", 3, 3)], 3)


def test_a_watcher_that_does_not_read_is_ended_and_slows_nobody(tmp_path: Path, hub_project: str) -> None:
    limits = Limits(unread_answer_seconds_max=0.5, watch_progress_seconds_max=1.0)
    large = bytes(1_000_000)
    with HubInThread(settings_in(tmp_path, limits)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = SyncServiceStub(channel)
        for n in range(1, 31):
            batch = [SyncEvent(sequence=n, event_type="t", payload=large)]
            push(stub, hub_project, project_id=hub_project, batch=batch)
        request = WatchEventsRequest(hub_project=hub_project)
        slow = stub.WatchEvents(request, timeout=STREAM_SECONDS_MAX)
        first = next(slow)
        with watching(stub, request) as answers:
            assert len(until_progress(answers)[0]) == 30
            # It is told what comes although the other one stands still.
            for n in range(31, 40):
                push(stub, hub_project, project_id=hub_project, batch=events(n, n))
                assert next_events(answers) == [("r", n, n)]
            # Two more answers are longer than the slow one is given.
            assert [until_progress(answers) for _ in range(2)] == [([], 39), ([], 39)]
        refusal = refusal_of(partial(list, slow))
        assert len(first.events) == 1
        assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "unread_answer_seconds_max")
