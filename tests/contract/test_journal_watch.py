"""Watching the journal, over the wire."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import LeaseCredential
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import STREAM_SECONDS_MAX, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import (
    StreamWriter,
    commit,
    commit_request,
    everything,
    leased,
    new_event,
    new_message,
)

Seen = tuple[int, str]
"""Position and id of an event."""


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Progress comes soon, so that nobody waits long for it."""
    return Limits(watch_progress_seconds_max=0.5)


class Appender:
    """Appends events to one stream, one commit after the other."""

    def __init__(self, stub: JournalServiceStub, hub_project: str, *, credential: LeaseCredential) -> None:
        self._writer = StreamWriter(stub, hub_project, credential=credential)

    def append(self, *event_ids: str, event_type: str = "t", size: int = 0) -> None:
        self._writer.append(*(new_event(each, event_type, payload=bytes(size)) for each in event_ids))


@pytest.fixture
def stream(journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str) -> Appender:
    return Appender(journal_stub, hub_project, credential=leased(lease_stub, hub_project))


@contextmanager
def watching(
    stub: JournalServiceStub, request: messages.WatchJournalRequest
) -> Iterator[Iterator[messages.WatchJournalResponse]]:
    call = stub.WatchJournal(request, timeout=STREAM_SECONDS_MAX)
    try:
        yield call
    finally:
        call.cancel()


def until_progress(answers: Iterator[messages.WatchJournalResponse]) -> tuple[list[Seen], int]:
    """All events up to the first answer without any, and its position."""
    found: list[Seen] = []
    for answer in answers:
        assert answer.hub_generation
        if not answer.events:
            return found, answer.progress_position
        assert answer.progress_position >= answer.events[-1].position
        found += [(each.position, each.event_id) for each in answer.events]
    raise AssertionError("the watch ended")


def next_events(answers: Iterator[messages.WatchJournalResponse]) -> list[Seen]:
    for answer in answers:
        if answer.events:
            return [(each.position, each.event_id) for each in answer.events]
    raise AssertionError("the watch ended")


def test_first_what_is_stored_then_the_head_then_what_comes_of_all_streams(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, *, hub_project: str, stream: Appender
) -> None:
    other = Appender(journal_stub, hub_project, credential=leased(lease_stub, hub_project, "other"))
    stream.append("a", "b")
    other.append("c")
    with watching(journal_stub, messages.WatchJournalRequest(hub_project=hub_project)) as answers:
        assert until_progress(answers) == ([(1, "a"), (2, "b"), (3, "c")], 3)
        other.append("d")
        assert next_events(answers) == [(4, "d")]
        stream.append("e")
        assert next_events(answers) == [(5, "e")]


def test_what_a_watcher_gets_is_what_a_reader_reads(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    stream.append("stored", size=10)
    with watching(journal_stub, messages.WatchJournalRequest(hub_project=hub_project)) as answers:
        watched = list(next(answers).events)
        until_progress(answers)
        stream.append("live", event_type="u", size=20)
        live = next(answer for answer in answers if answer.events)
    assert [*watched, *live.events] == everything(journal_stub, hub_project).events


def test_a_watch_of_nothing_is_told_at_once_and_again_and_again(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    with watching(journal_stub, messages.WatchJournalRequest(hub_project=hub_project)) as answers:
        assert until_progress(answers) == ([], 0)
        assert until_progress(answers) == ([], 0)
        stream.append("a")
        assert next_events(answers) == [(1, "a")]


def test_only_the_types_asked_for_come_and_progress_for_the_rest(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    stream.append("a", event_type="x")
    stream.append("b", event_type="y")
    stream.append("c", event_type="X")
    request = messages.WatchJournalRequest(hub_project=hub_project, event_types=["x", "never"])
    with watching(journal_stub, request) as answers:
        assert until_progress(answers) == ([(1, "a")], 3)
        stream.append("d", event_type="y")
        assert until_progress(answers) == ([], 4)
        stream.append("e", event_type="x")
        assert next_events(answers) == [(5, "e")]


def test_a_commit_without_events_is_no_progress(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    commit(journal_stub, commit_request(hub_project, credential, outbox_messages=[new_message("o")]))
    with watching(journal_stub, messages.WatchJournalRequest(hub_project=hub_project)) as answers:
        assert until_progress(answers) == ([], 0)


def test_a_watch_goes_on_after_the_progress_that_it_was_told(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    stream.append("a", "b", "c")
    with watching(journal_stub, messages.WatchJournalRequest(hub_project=hub_project)) as answers:
        answer = next(answers)
    stream.append("d")
    resumed = messages.WatchJournalRequest(
        hub_project=hub_project,
        hub_generation=answer.hub_generation,
        after_position=answer.progress_position,
    )
    with watching(journal_stub, resumed) as answers:
        assert until_progress(answers) == ([(4, "d")], 4)
    for position in range(5):
        resumed.after_position = position
        with watching(journal_stub, resumed) as answers:
            events, head = until_progress(answers)
        assert ([event[0] for event in events], head) == (list(range(position + 1, 5)), 4)


def test_from_now_leaves_out_what_is_stored(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    stream.append("a", "b")
    request = messages.WatchJournalRequest(hub_project=hub_project, from_now=True)
    with watching(journal_stub, request) as answers:
        assert until_progress(answers) == ([], 2)
        stream.append("c")
        assert next_events(answers) == [(3, "c")]


def test_many_watchers_beside_a_writer_miss_nothing_and_see_nothing_twice(
    journal_stub: JournalServiceStub, *, hub_project: str, stream: Appender
) -> None:
    count, watchers = 150, 4
    seen: list[list[Seen]] = [[] for _ in range(watchers)]
    faults: list[BaseException] = []

    def watch(mine: list[Seen], *, breaks_off: bool) -> None:
        request = messages.WatchJournalRequest(hub_project=hub_project)
        try:
            while len(mine) < count:
                with watching(journal_stub, request) as answers:
                    for answer in answers:
                        mine += [(each.position, each.event_id) for each in answer.events]
                        request.hub_generation = answer.hub_generation
                        request.after_position = answer.progress_position
                        if breaks_off or len(mine) >= count:
                            break
        except BaseException as fault:  # noqa: BLE001 - told to the test's own thread
            faults.append(fault)

    threads = [
        threading.Thread(target=watch, args=(mine,), kwargs={"breaks_off": n % 2 == 0}, daemon=True)
        for n, mine in enumerate(seen)
    ]
    for thread in threads:
        thread.start()
    for n in range(count):
        stream.append(f"e{n}")
    for thread in threads:
        thread.join(STREAM_SECONDS_MAX)
    assert faults == []
    assert seen == [[(n + 1, f"e{n}") for n in range(count)]] * watchers


@pytest.mark.parametrize(
    ("fields", "reason", "fact"),
    [
        ({"after_position": 1}, "INVALID_REQUEST", ("field", "hub_generation")),
        ({"after_position": -1}, "INVALID_REQUEST", ("field", "after_position")),
        ({"from_now": False}, "INVALID_REQUEST", ("field", "from_now")),
        ({"event_types": [""]}, "INVALID_REQUEST", ("field", "event_types[0]")),
        ({"event_types": ["t"] * 65}, "INVALID_REQUEST", ("field", "event_types")),
        ({"hub_generation": " "}, "INVALID_REQUEST", ("field", "hub_generation")),
        ({"after_position": 1, "hub_generation": "other"}, "GENERATION_CHANGED", ("lowestPosition", "0")),
    ],
)
def test_what_cannot_begin_is_refused_by_the_watch_and_by_the_list_alike(
    journal_stub: JournalServiceStub, *, fields: dict[str, object], reason: str, fact: tuple[str, str]
) -> None:
    watch = messages.WatchJournalRequest(hub_project="tenant", **fields)  # type: ignore[arg-type]
    listed = messages.ListJournalRequest(hub_project="tenant", **fields)  # type: ignore[arg-type]
    for refusal in (
        refusal_of(lambda: list(journal_stub.WatchJournal(watch, timeout=STREAM_SECONDS_MAX))),
        refusal_of(lambda: journal_stub.ListJournal(listed, timeout=STREAM_SECONDS_MAX)),
    ):
        assert (refusal.reason, refusal.metadata[fact[0]]) == (reason, fact[1])


def test_a_position_ahead_of_the_head_is_refused_with_the_head(
    journal_stub: JournalServiceStub, hub_stub: HubServiceStub, *, hub_project: str, stream: Appender
) -> None:
    stream.append("a", "b")
    generation = hub_stub.GetHubInfo(GetHubInfoRequest()).hub_generation
    fields = {"hub_project": hub_project, "after_position": 3, "hub_generation": generation}
    watch = messages.WatchJournalRequest(**fields)  # type: ignore[arg-type]
    listed = messages.ListJournalRequest(**fields)  # type: ignore[arg-type]
    for refusal in (
        refusal_of(lambda: list(journal_stub.WatchJournal(watch, timeout=STREAM_SECONDS_MAX))),
        refusal_of(lambda: journal_stub.ListJournal(listed, timeout=STREAM_SECONDS_MAX)),
    ):
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "POSITION_AHEAD")
        assert refusal.metadata["headPosition"] == "2"


def test_watches_end_when_the_hub_stops_and_go_on_at_the_next_start(tmp_path: Path, hub_project: str) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = JournalServiceStub(channel)
        credential = leased(LeaseServiceStub(channel), hub_project)
        stream = Appender(stub, hub_project, credential=credential)
        stream.append("a", "b")
        call = stub.WatchJournal(
            messages.WatchJournalRequest(hub_project=hub_project), timeout=STREAM_SECONDS_MAX
        )
        answer = next(call)
        assert until_progress(call) == ([], 2)
        hub.begin_stop()
        refusal = refusal_of(partial(list, call))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING")
        hub.join()
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = JournalServiceStub(channel)
        request = commit_request(
            hub_project, credential, message_id="later", expected_revision=2, events=[new_event("c")]
        )
        commit(stub, request)
        resumed = messages.WatchJournalRequest(
            hub_project=hub_project,
            hub_generation=answer.hub_generation,
            after_position=answer.progress_position,
        )
        with watching(stub, resumed) as answers:
            assert until_progress(answers) == ([(3, "c")], 3)


def test_a_watcher_that_does_not_read_is_ended_and_slows_nobody(tmp_path: Path, hub_project: str) -> None:
    limits = Limits(unread_answer_seconds_max=0.5, watch_progress_seconds_max=1.0)
    with HubInThread(settings_in(tmp_path, limits)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = JournalServiceStub(channel)
        credential = leased(LeaseServiceStub(channel), hub_project)
        stream = Appender(stub, hub_project, credential=credential)
        for n in range(30):
            stream.append(f"e{n}", size=1_000_000)
        request = messages.WatchJournalRequest(hub_project=hub_project)
        slow = stub.WatchJournal(request, timeout=STREAM_SECONDS_MAX)
        first = next(slow)
        with watching(stub, request) as answers:
            assert len(until_progress(answers)[0]) == 30
            # It is told what comes although the other one stands still.
            for n in range(30, 39):
                stream.append(f"e{n}")
                assert next_events(answers) == [(n + 1, f"e{n}")]
            # Two more answers are longer than the slow one is given.
            assert [until_progress(answers) for _ in range(2)] == [([], 39), ([], 39)]
        refusal = refusal_of(partial(list, slow))
        assert len(first.events) == 1
        assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "unread_answer_seconds_max")
