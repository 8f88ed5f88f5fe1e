"""JournalService over the wire: what each call answers, and tenants that see nothing of each other."""

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import (
    FinishMaintenanceRequest,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import (
    TRACE_ID,
    claim,
    claimed_ids,
    commit,
    commit_request,
    everything,
    full_request,
    given_back,
    ids,
    leased,
    new_event,
    new_events,
    new_message,
    outbox,
    projection,
    stream_events,
    stream_page,
)
from tests.contract.leasing import begin_request

# --- each call ---


def test_a_commit_is_stored_whole_and_read_back(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    answer = commit(journal_stub, full_request(hub_project, credential))
    commit_time = answer.commit_time
    assert commit_time.ToNanoseconds() > 0
    assert answer == messages.CommitResponse(
        previous_revision=0, revision=2, commit_time=commit_time, positions=[1, 2], reply=b"\0reply"
    )
    assert stream_events(journal_stub, hub_project) == [
        messages.JournalEvent(
            stream_id="s",
            revision=1,
            position=1,
            event_id="é1",
            event_type="order.placed",
            payload=b"\0\xff",
            event_time=Timestamp(seconds=-1, nanos=1),
            commit_time=commit_time,
            message_id="m1",
            correlation_id="cor",
            causation_id="cau",
            trace_id=TRACE_ID,
            fencing_token=1,
        ),
        messages.JournalEvent(
            stream_id="s",
            revision=2,
            position=2,
            event_id="e2",
            event_type="order.paid",
            payload="grün".encode(),
            event_time=commit_time,
            commit_time=commit_time,
            message_id="m1",
            fencing_token=1,
        ),
    ]
    assert outbox(journal_stub, hub_project) == [
        messages.OutboxMessage(
            outbox_id="o1",
            event_id="é1",
            destination="mail",
            ordering_key="k",
            payload=b"\xff",
            state=messages.OUTBOX_MESSAGE_STATE_PENDING,
            available_time=commit_time,
            create_time=commit_time,
            stream_id="s",
            message_id="m1",
        ),
        messages.OutboxMessage(
            outbox_id="o2",
            destination="other",
            payload=b"o2",
            state=messages.OUTBOX_MESSAGE_STATE_PENDING,
            available_time=commit_time,
            create_time=commit_time,
            stream_id="s",
            message_id="m1",
        ),
    ]
    assert projection(journal_stub, hub_project, "p1") == messages.Projection(
        projection_id="p1", stream_id="s", value=b"\0v", revision=2, commit_time=commit_time
    )
    assert projection(journal_stub, hub_project, "p2") == messages.Projection(
        projection_id="p2", stream_id="s", revision=2, commit_time=commit_time
    )


def test_a_stream_tells_where_it_is_under_which_token_and_whether_it_is_leased(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    first = leased(lease_stub, hub_project)
    created = commit(journal_stub, commit_request(hub_project, first, events=new_events("e", 1)))
    given_back(lease_stub, hub_project, first)
    second = leased(lease_stub, hub_project, secret="a2")
    last = commit(
        journal_stub,
        commit_request(hub_project, second, message_id="m2", expected_revision=1, events=new_events("f", 2)),
    )
    other = leased(lease_stub, hub_project, "other")
    empty = commit(journal_stub, commit_request(hub_project, other, message_id="m3", stream_id="other"))
    given_back(lease_stub, hub_project, other)
    streams = everything(journal_stub, hub_project).streams
    assert streams == [
        messages.JournalStream(
            stream_id="other",
            fencing_token=1,
            create_time=empty.commit_time,
            last_commit_time=empty.commit_time,
        ),
        messages.JournalStream(
            stream_id="s",
            revision=3,
            fencing_token=2,
            is_leased=True,
            create_time=created.commit_time,
            last_commit_time=last.commit_time,
        ),
    ]


def test_a_commit_may_order_nothing(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    answer = commit(
        journal_stub, commit_request(hub_project, credential, outbox_messages=[new_message("o1")])
    )
    assert (answer.previous_revision, answer.revision, list(answer.positions)) == (0, 0, [])
    after = everything(journal_stub, hub_project)
    assert ([each.stream_id for each in after.streams], after.events, after.head_position) == (["s"], [], 0)
    assert [each.outbox_id for each in after.outbox_messages] == ["o1"]


def test_a_projection_is_replaced_by_the_stream_it_belongs_to(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credential = leased(lease_stub, hub_project)
    for revision, value in enumerate((b"first", b"second", b"")):
        request = commit_request(
            hub_project,
            credential,
            message_id=f"m{revision}",
            expected_revision=revision,
            events=new_events(f"e{revision}-", 1),
            projections=[messages.NewProjection(projection_id="p", value=value)],
        )
        answer = commit(journal_stub, request)
        assert projection(journal_stub, hub_project, "p") == messages.Projection(
            projection_id="p",
            stream_id="s",
            value=value,
            revision=revision + 1,
            commit_time=answer.commit_time,
        )


def test_the_journal_has_all_streams_by_position(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    credentials = {name: leased(lease_stub, hub_project, name) for name in ("b", "a")}
    revisions = dict.fromkeys(credentials, 0)
    for n, name in enumerate("bab"):
        request = commit_request(
            hub_project,
            credentials[name],
            message_id=f"m{n}",
            stream_id=name,
            expected_revision=revisions[name],
            events=new_events(f"{n}-", 2, event_type=f"of {name}"),
        )
        revisions[name] = commit(journal_stub, request).revision
    found = everything(journal_stub, hub_project)
    assert [(each.position, each.stream_id, each.revision) for each in found.events] == [
        (1, "b", 1),
        (2, "b", 2),
        (3, "a", 1),
        (4, "a", 2),
        (5, "b", 3),
        (6, "b", 4),
    ]
    assert found.head_position == 6
    of_type = messages.ListJournalRequest(hub_project=hub_project, event_types=["of a", "never"])
    page = journal_stub.ListJournal(of_type)
    assert (ids(page.events), page.next_position, page.done) == (["1-1", "1-2"], 6, True)


def test_an_event_carries_the_token_and_the_epoch_it_was_written_under(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    lease = leased(lease_stub, hub_project)
    commit(journal_stub, commit_request(hub_project, lease, events=new_events("e", 1)))
    maintenance = lease_stub.BeginMaintenance(begin_request(hub_project, "s")).credential
    request = commit_request(
        hub_project, maintenance, message_id="m2", expected_revision=1, events=new_events("f", 1)
    )
    commit(journal_stub, request)
    finish = FinishMaintenanceRequest(hub_project=hub_project, credential=maintenance)
    lease_stub.FinishMaintenance(finish)
    lease = leased(lease_stub, hub_project, secret="a2")
    request = commit_request(
        hub_project, lease, message_id="m3", expected_revision=2, events=new_events("g", 1)
    )
    commit(journal_stub, request)
    events = stream_events(journal_stub, hub_project)
    assert [(each.fencing_token, each.epoch) for each in events] == [(1, 0), (2, 1), (3, 1)]


def test_payloads_are_given_as_text_where_that_is_asked_for_and_they_are_text(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    commit(journal_stub, full_request(hub_project, leased(lease_stub, hub_project)))
    stream = messages.ListStreamEventsRequest(hub_project=hub_project, stream_id="s", payload_as_text=True)
    journal = messages.ListJournalRequest(hub_project=hub_project, payload_as_text=True)
    for events in (journal_stub.ListStreamEvents(stream).events, journal_stub.ListJournal(journal).events):
        assert [(each.WhichOneof("body"), each.payload, each.text) for each in events] == [
            ("payload", b"\0\xff", ""),
            ("text", b"", "grün"),
        ]
    listed = journal_stub.ListOutboxMessages(
        messages.ListOutboxMessagesRequest(hub_project=hub_project, payload_as_text=True)
    )
    assert [(each.payload, each.text) for each in listed.messages] == [(b"\xff", ""), (b"", "o2")]


def test_a_stream_that_was_never_written_reads_as_empty(
    journal_stub: JournalServiceStub, hub_project: str
) -> None:
    assert stream_page(journal_stub, hub_project) == messages.ListStreamEventsResponse(done=True)
    assert everything(journal_stub, hub_project) == ([], [], [], 0)


def test_a_projection_that_was_never_set_is_not_found(
    journal_stub: JournalServiceStub, hub_project: str
) -> None:
    refusal = refusal_of(lambda: projection(journal_stub, hub_project, "p"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert refusal.metadata["projectionId"] == "p"


# --- tenants ---


def test_two_hub_projects_see_nothing_of_each_other(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    mine, other = hub_project, f"{hub_project} of others"
    request = full_request(mine, leased(lease_stub, mine))
    commit(journal_stub, request)
    before = everything(journal_stub, mine)

    assert everything(journal_stub, other) == ([], [], [], 0)
    assert stream_page(journal_stub, other) == messages.ListStreamEventsResponse(done=True)
    assert refusal_of(lambda: projection(journal_stub, other, "p1")).reason == "NOT_FOUND"
    assert claim(journal_stub, other).messages == []
    for call in (
        lambda: journal_stub.ReleaseOutboxMessage(
            messages.ReleaseOutboxMessageRequest(hub_project=other, outbox_id="o1")
        ),
        lambda: journal_stub.AcknowledgeOutboxMessage(
            messages.AcknowledgeOutboxMessageRequest(hub_project=other, outbox_id="o1", claim_id="c")
        ),
        lambda: journal_stub.ReturnOutboxMessage(
            messages.ReturnOutboxMessageRequest(hub_project=other, outbox_id="o1", claim_id="c")
        ),
    ):
        assert refusal_of(call).reason == "NOT_FOUND"
    # A credential of the one opens nothing in the other.
    request.hub_project = other
    refusal = refusal_of(lambda: commit(journal_stub, request))
    assert (refusal.reason, refusal.metadata["cause"]) == ("STALE_LEASE", "LEASE_MISSING")
    # Every name may be used again there, and begins at 1 again.
    request.credential.CopyFrom(leased(lease_stub, other, secret="b1"))
    answer = commit(journal_stub, request)
    assert (answer.recovered, answer.revision, list(answer.positions)) == (False, 2, [1, 2])
    assert everything(journal_stub, mine) == before


def test_names_are_told_apart_byte_by_byte(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    # NFC and NFD, case, and a part of a name: each is a name of its own.
    names = ["é", "e\u0301", "E", "e", "e/f", "e%", "e_"]
    for n, name in enumerate(names):
        credential = leased(lease_stub, hub_project, name)
        request = commit_request(
            hub_project,
            credential,
            message_id=name,
            stream_id=name,
            events=[new_event(name)],
            outbox_messages=[new_message(name, name)],
            projections=[messages.NewProjection(projection_id=name, value=name.encode())],
        )
        answer = commit(journal_stub, request)
        assert (answer.recovered, answer.revision, list(answer.positions)) == (False, 1, [n + 1])
    for name in names:
        assert ids(stream_events(journal_stub, hub_project, name)) == [name]
        assert projection(journal_stub, hub_project, name).value == name.encode()
        assert claimed_ids(claim(journal_stub, hub_project, name)) == [name]
    listed = [each.stream_id for each in everything(journal_stub, hub_project).streams]
    assert listed == sorted(names, key=str.encode)
