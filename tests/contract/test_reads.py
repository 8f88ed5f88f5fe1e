"""What callers read at once, over the wire."""

from functools import partial

import pytest

from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash
from synchub.v1.sync_event_pb2 import StoredEvent, SyncEvent
from synchub.v1.sync_service_pb2 import (
    BindProjectRequest,
    ExportEventsRequest,
    GetRunRequest,
    ListEventsRequest,
    ListEventsResponse,
    ListProjectsRequest,
    ListRunsRequest,
    ReleaseProjectRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.pushing import events, push


def sequences(response: ListEventsResponse) -> list[int]:
    return [event.sequence for event in response.events]


def test_a_run_says_how_far_it_is(sync_stub: SyncServiceStub, hub_project: str) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 2))
    push(sync_stub, hub_project, project_id=hub_project, batch=events(4, 4, is_final=True))
    run = sync_stub.GetRun(GetRunRequest(hub_project=hub_project, project_id=hub_project, run_id="r")).run
    hashes = [
        content_hash("line", None, is_final=False, attributes={}, payload=f"payload {n}".encode())
        for n in (1, 2)
    ]
    assert (run.project_id, run.run_id, run.home_runtime_id) == (hub_project, "r", "runtime")
    assert (run.cursor, run.highest_sequence, run.event_count, run.is_complete) == (2, 4, 3, False)
    assert run.chain_hash == chain_hash_after(chain_hash_at_start(hub_project, "r"), hashes)
    assert 0 < run.first_receive_time.ToNanoseconds() <= run.last_receive_time.ToNanoseconds()
    push(sync_stub, hub_project, project_id=hub_project, batch=events(3, 3))
    run = sync_stub.GetRun(GetRunRequest(hub_project=hub_project, project_id=hub_project, run_id="r")).run
    assert (run.cursor, run.is_complete) == (4, True)


def test_a_run_of_somebody_else_is_refused_like_one_that_is_not_there(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    theirs = GetRunRequest(hub_project="stranger", project_id=hub_project, run_id="r")
    nowhere = GetRunRequest(hub_project="stranger", project_id=hub_project, run_id="none")
    refused = refusal_of(partial(sync_stub.GetRun, theirs))
    missing = refusal_of(partial(sync_stub.GetRun, nowhere))
    assert refused.reason == missing.reason == "NOT_FOUND"
    assert refused.message.replace("'r'", "'none'") == missing.message
    listed = refusal_of(
        partial(
            sync_stub.ListEvents,
            ListEventsRequest(hub_project="stranger", project_id=hub_project, run_id="r"),
        )
    )
    exported = refusal_of(
        lambda: list(
            sync_stub.ExportEvents(
                ExportEventsRequest(hub_project="stranger", project_id=hub_project, run_id="r")
            )
        )
    )
    assert listed.reason == exported.reason == "NOT_FOUND"


def test_an_event_is_read_back_as_it_was_pushed(sync_stub: SyncServiceStub, hub_project: str) -> None:
    pushed = SyncEvent(sequence=1, event_type="é", payload=b"\0\xff", attributes={"b": "2", "a": ""})
    pushed.event_time.FromNanoseconds(-1)
    push(sync_stub, hub_project, project_id=hub_project, batch=[pushed])
    (event,) = sync_stub.ListEvents(
        ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    ).events
    assert event.receive_time.ToNanoseconds() > 0
    event.ClearField("receive_time")
    digest = content_hash("é", -1, is_final=False, attributes={"a": "", "b": "2"}, payload=b"\0\xff")
    expected = StoredEvent(
        project_id=hub_project,
        run_id="r",
        sequence=1,
        position=1,
        event_type="é",
        attributes={"a": "", "b": "2"},
        payload=b"\0\xff",
        content_hash=digest,
    )
    expected.event_time.FromNanoseconds(-1)
    assert event == expected


@pytest.mark.parametrize(
    ("payload", "body"),
    [("é\0".encode(), "text"), (b"", "text"), (b"\xff", "payload"), (b"\xed\xa0\x80", "payload")],
)
def test_a_payload_is_given_as_text_where_it_is_asked_for_and_utf_8(
    sync_stub: SyncServiceStub, hub_project: str, *, payload: bytes, body: str
) -> None:
    push(
        sync_stub,
        hub_project,
        project_id=hub_project,
        batch=[SyncEvent(sequence=1, event_type="t", payload=payload)],
    )
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    (as_bytes,) = sync_stub.ListEvents(request).events
    request.payload_as_text = True
    (as_text,) = sync_stub.ListEvents(request).events
    assert (as_bytes.WhichOneof("body"), as_bytes.payload) == ("payload", payload)
    assert as_text.WhichOneof("body") == body
    assert (as_text.text.encode() if body == "text" else as_text.payload) == payload


def test_a_payload_that_was_dropped_is_told_as_such(sync_stub: SyncServiceStub, hub_project: str) -> None:
    dropped = SyncEvent(sequence=1, event_type="t", payload_dropped=True, content_hash=b"h" * 32)
    push(sync_stub, hub_project, project_id=hub_project, batch=[dropped])
    (event,) = sync_stub.ListEvents(
        ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    ).events
    assert (event.payload_dropped, event.WhichOneof("body"), event.content_hash) == (True, None, b"h" * 32)


def test_events_come_page_by_page_and_the_last_page_has_no_token(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 6))
    request = ListEventsRequest(
        hub_project=hub_project, project_id=hub_project, run_id="r", after_sequence=1, page_size=2
    )
    found: list[list[int]] = []
    while True:
        page = sync_stub.ListEvents(request)
        found.append(sequences(page))
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == [[2, 3], [4, 5], [6]]
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r", page_size=6)
    assert sync_stub.ListEvents(request).next_page_token == ""


def test_a_page_holds_at_most_two_mebibytes_but_at_least_one_event(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    for n in (1, 2, 3, 4):
        large = SyncEvent(sequence=n, event_type="t", payload=bytes(900_000))
        push(sync_stub, hub_project, project_id=hub_project, batch=[large])
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    page = sync_stub.ListEvents(request)
    assert sequences(page) == [1, 2]
    request.page_token = page.next_page_token
    last = sync_stub.ListEvents(request)
    assert (sequences(last), last.next_page_token) == ([3, 4], "")


def test_the_newest_events_come_oldest_first_and_without_a_token(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 4))
    push(sync_stub, hub_project, project_id=hub_project, batch=events(5, 6, event_type="other"))
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r", newest_count=3)
    newest = sync_stub.ListEvents(request)
    assert (sequences(newest), newest.next_page_token) == ([4, 5, 6], "")
    request.event_types.append("line")
    assert sequences(sync_stub.ListEvents(request)) == [2, 3, 4]


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        (ListEventsRequest(project_id="p", run_id="r", newest_count=-1), "newest_count"),
        (ListEventsRequest(project_id="p", run_id="r", after_sequence=-1), "after_sequence"),
        (ListEventsRequest(project_id="p", run_id="r", page_size=-1), "page_size"),
        (ListEventsRequest(project_id="p", run_id="r", page_token="made up"), "page_token"),
        (ListEventsRequest(project_id="p", run_id="r", newest_count=1, page_token="x"), "newest_count"),
        (ListEventsRequest(project_id="p", run_id="r", event_types=[""]), "event_types[0]"),
        (ListEventsRequest(project_id="p", run_id="r", event_types=["t"] * 65), "event_types"),
        (ListEventsRequest(project_id="p"), "run_id"),
        (ListEventsRequest(project_id="a\nb", run_id="r"), "project_id"),
    ],
)
def test_what_breaks_a_bound_is_named(
    sync_stub: SyncServiceStub, *, request_fields: ListEventsRequest, field: str
) -> None:
    request_fields.hub_project = "tenant"
    refusal = refusal_of(partial(sync_stub.ListEvents, request_fields))
    assert refusal.reason == "INVALID_REQUEST"
    assert field in {violation.field for violation in refusal.violations}


def test_runs_are_listed_in_order_narrowed_and_page_by_page(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    for run_id, is_final in (("b", True), ("a", False), ("c", False)):
        push(
            sync_stub,
            hub_project,
            project_id=hub_project,
            run_id=run_id,
            runtime_id=f"of-{run_id}",
            batch=events(1, 1, is_final=is_final),
        )

    def run_ids(request: ListRunsRequest) -> list[str]:
        request.hub_project = hub_project
        return [run.run_id for run in sync_stub.ListRuns(request).runs]

    assert run_ids(ListRunsRequest()) == ["a", "b", "c"]
    assert run_ids(ListRunsRequest(project_id=hub_project)) == ["a", "b", "c"]
    assert run_ids(ListRunsRequest(project_id="none")) == []
    assert run_ids(ListRunsRequest(runtime_id="of-c")) == ["c"]
    assert run_ids(ListRunsRequest(is_complete=True)) == ["b"]
    assert run_ids(ListRunsRequest(is_complete=False)) == ["a", "c"]
    first = sync_stub.ListRuns(ListRunsRequest(hub_project=hub_project, page_size=2))
    assert [run.run_id for run in first.runs] == ["a", "b"]
    assert run_ids(ListRunsRequest(page_size=2, page_token=first.next_page_token)) == ["c"]


def test_a_page_token_of_another_request_is_refused(sync_stub: SyncServiceStub, hub_project: str) -> None:
    for run_id in "ab":
        push(sync_stub, hub_project, project_id=hub_project, run_id=run_id, batch=events(1, 1))
    token = sync_stub.ListRuns(ListRunsRequest(hub_project=hub_project, page_size=1)).next_page_token
    other = ListRunsRequest(hub_project=hub_project, runtime_id="other", page_token=token)
    refusal = refusal_of(partial(sync_stub.ListRuns, other))
    assert (refusal.reason, refusal.violations[0].field) == ("INVALID_REQUEST", "page_token")


def test_an_export_has_everything_by_project_run_and_sequence(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    for run_id, batch in (("b", events(1, 2)), ("a", events(2, 2)), ("a", events(1, 1))):
        push(sync_stub, hub_project, project_id=hub_project, run_id=run_id, batch=batch)

    def exported(request: ExportEventsRequest) -> list[tuple[str, int, bytes]]:
        request.hub_project = hub_project
        responses = sync_stub.ExportEvents(request)
        return [(each.run_id, each.sequence, each.payload) for part in responses for each in part.events]

    everything = [(run, n, f"payload {n}".encode()) for run in "ab" for n in (1, 2)]
    assert exported(ExportEventsRequest()) == everything
    assert exported(ExportEventsRequest(project_id=hub_project)) == everything
    assert exported(ExportEventsRequest(project_id=hub_project, run_id="b")) == everything[2:]
    refusal = refusal_of(lambda: exported(ExportEventsRequest(run_id="b")))
    assert (refusal.reason, refusal.violations[0].field) == ("INVALID_REQUEST", "project_id")


def test_a_project_is_bound_listed_and_released_until_it_has_events(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    project_id = f"{hub_project}-project"
    request = BindProjectRequest(hub_project=hub_project, project_id=project_id)
    bound = sync_stub.BindProject(request).project
    assert sync_stub.BindProject(request).project == bound
    assert list(sync_stub.ListProjects(ListProjectsRequest(hub_project=hub_project)).projects) == [bound]
    theirs = BindProjectRequest(hub_project="stranger", project_id=project_id)
    assert refusal_of(partial(sync_stub.BindProject, theirs)).reason == "PERMISSION_DENIED"
    release = ReleaseProjectRequest(hub_project=hub_project, project_id=project_id)
    sync_stub.ReleaseProject(release)
    assert list(sync_stub.ListProjects(ListProjectsRequest(hub_project=hub_project)).projects) == []
    assert refusal_of(partial(sync_stub.ReleaseProject, release)).reason == "NOT_FOUND"
    push(sync_stub, hub_project, project_id=project_id, batch=events(1, 1))
    assert refusal_of(partial(sync_stub.ReleaseProject, release)).reason == "INVALID_REQUEST"
    (project,) = sync_stub.ListProjects(ListProjectsRequest(hub_project=hub_project)).projects
    assert (project.project_id, project.run_count) == (project_id, 1)
