"""The journal's values on the wire and back, and what its refusals become."""

import dataclasses

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.journal_errors import (
    IdempotencyConflict,
    PositionLost,
    RevisionConflict,
    StaleCause,
    StaleLease,
)
from runtime_agent.hub_client import journal_codec as codec
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import (
    ClaimedMessage,
    ClaimedMessages,
    Committed,
    JournalEvent,
    JournalStream,
    JournalUpdate,
    NewJournalEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxMessage,
    OutboxOutcome,
    OutboxState,
    ReturnedMessage,
    StoredProjection,
)
from runtime_agent.hub_client.lease_values import LeaseCredential
from synchub.channel import Refusal
from synchub.v1 import journal_service_pb2 as pb
from synchub.v1 import lease_service_pb2

CREDENTIAL = LeaseCredential("s", "rt", "a", 7, "secret")
ON_THE_WIRE = lease_service_pb2.LeaseCredential(
    resource="s", runtime_id="rt", holder_id="a", fencing_token=7, nonce="secret"
)


def test_a_commit_becomes_a_request_with_each_field() -> None:
    request = codec.commit_request(
        "h",
        CREDENTIAL,
        message_id="m",
        stream_id="s",
        expected_revision=4,
        events=[
            NewJournalEvent("e1", "noted", b"\x00\xff", -1, "cor", "cau", "0af7651916cd43dd8448eb211c80319c"),
            NewJournalEvent("e2", "noted"),
        ],
        outbox_messages=[
            NewOutboxMessage("o1", "mail", b"p", "e1", "k", 1_000_000_001),
            NewOutboxMessage("o2", "mail"),
        ],
        projections=[NewProjection("p1", b"v")],
        reply=b"r",
    )
    assert request == pb.CommitRequest(
        hub_project="h",
        message_id="m",
        stream_id="s",
        credential=ON_THE_WIRE,
        expected_revision=4,
        events=[
            pb.NewJournalEvent(
                event_id="e1",
                event_type="noted",
                payload=b"\x00\xff",
                event_time=Timestamp(seconds=-1, nanos=999_999_999),
                correlation_id="cor",
                causation_id="cau",
                trace_id="0af7651916cd43dd8448eb211c80319c",
            ),
            pb.NewJournalEvent(event_id="e2", event_type="noted", payload=b""),
        ],
        outbox_messages=[
            pb.NewOutboxMessage(
                outbox_id="o1",
                event_id="e1",
                destination="mail",
                ordering_key="k",
                payload=b"p",
                available_time=Timestamp(seconds=1, nanos=1),
            ),
            pb.NewOutboxMessage(outbox_id="o2", destination="mail", payload=b""),
        ],
        projections=[pb.NewProjection(projection_id="p1", value=b"v")],
        reply=b"r",
    )


def test_a_committed_response_becomes_a_result() -> None:
    response = pb.CommitResponse(
        previous_revision=4,
        revision=6,
        commit_time=Timestamp(seconds=1, nanos=2),
        positions=[8, 9],
        reply=b"r",
        recovered=True,
    )
    assert codec.committed_from_proto(response) == Committed(4, 6, 1_000_000_002, (8, 9), b"r", True)


def test_an_event_is_read_with_each_field_and_text_is_its_bytes() -> None:
    event = pb.JournalEvent(
        stream_id="s",
        revision=2,
        position=9,
        event_id="e",
        event_type="noted",
        text="grün",
        event_time=Timestamp(seconds=-1, nanos=5),
        commit_time=Timestamp(seconds=3),
        message_id="m",
        correlation_id="cor",
        causation_id="cau",
        trace_id="t",
        fencing_token=7,
        epoch=1,
    )
    expected = JournalEvent(
        stream_id="s",
        revision=2,
        position=9,
        event_id="e",
        event_type="noted",
        payload="grün".encode(),
        event_time_nanos=-999_999_995,
        commit_time_nanos=3_000_000_000,
        message_id="m",
        correlation_id="cor",
        causation_id="cau",
        trace_id="t",
        fencing_token=7,
        epoch=1,
    )
    assert codec.journal_event_from_proto(event) == expected
    page = pb.ListJournalResponse(events=[event], next_position=9, hub_generation="g", done=True)
    assert codec.journal_page_from_proto(page) == JournalUpdate((expected,), 9, "g")
    update = pb.WatchJournalResponse(events=[event], progress_position=9, hub_generation="g")
    assert codec.journal_update_from_proto(update) == JournalUpdate((expected,), 9, "g")


def test_a_read_of_a_stream_shows_a_credential_only_where_there_is_one() -> None:
    fenced = codec.stream_events_request(
        "h", "s", after_revision=1, through_revision=2, credential=CREDENTIAL
    )
    assert fenced == pb.ListStreamEventsRequest(
        hub_project="h", stream_id="s", after_revision=1, through_revision=2, credential=ON_THE_WIRE
    )
    plain = codec.stream_events_request("h", "s", after_revision=0, through_revision=0, credential=None)
    assert not plain.HasField("credential")


@pytest.mark.parametrize(
    ("position", "from_now", "start"), [(0, False, None), (4, False, "after_position"), (0, True, "from_now")]
)
def test_a_watch_begins_at_one_place(position: int, from_now: bool, start: str | None) -> None:
    request = codec.watch_request(
        "h", ["noted"], after_position=position, hub_generation="g", from_now=from_now
    )
    assert (request.hub_project, list(request.event_types), request.hub_generation) == ("h", ["noted"], "g")
    assert (request.WhichOneof("start"), request.after_position) == (start, position)


def test_streams_and_projections_are_read_with_each_field() -> None:
    stream = pb.JournalStream(
        stream_id="s",
        revision=3,
        fencing_token=7,
        is_leased=True,
        create_time=Timestamp(seconds=1),
        last_commit_time=Timestamp(seconds=2),
    )
    assert codec.stream_from_proto(stream) == JournalStream("s", 3, 7, True, 1_000_000_000, 2_000_000_000)
    projection = pb.Projection(
        projection_id="p", stream_id="s", value=b"v", revision=3, commit_time=Timestamp(seconds=2)
    )
    assert codec.projection_from_proto(projection) == StoredProjection("p", "s", b"v", 3, 2_000_000_000)


def test_claimed_messages_are_read_with_each_field_and_unknown_states_as_such() -> None:
    message = pb.OutboxMessage(
        outbox_id="o",
        event_id="e",
        destination="mail",
        ordering_key="k",
        payload=b"p",
        state=pb.OUTBOX_MESSAGE_STATE_CLAIMED,
        available_time=Timestamp(seconds=5),
        create_time=Timestamp(seconds=1),
        attempt_count=2,
        stream_id="s",
        message_id="m",
    )
    expected = OutboxMessage(
        "o", "e", "mail", "k", b"p", OutboxState.CLAIMED, 5_000_000_000, 1_000_000_000, 2, "s", "m"
    )
    response = pb.ClaimOutboxMessagesResponse(
        messages=[pb.ClaimedOutboxMessage(message=message, claim_id="c")],
        claim_expire_time=Timestamp(seconds=5),
    )
    assert codec.claimed_from_proto(response) == ClaimedMessages(
        (ClaimedMessage(expected, "c"),), 5_000_000_000, None
    )
    response.next_available_time.seconds = 6
    assert codec.claimed_from_proto(response).next_available_time_nanos == 6_000_000_000
    message.state = 99  # type: ignore[assignment]
    assert codec.outbox_message_from_proto(message) == dataclasses.replace(
        expected, state=OutboxState.UNKNOWN
    )


def test_every_state_and_outcome_of_the_wire_has_a_value() -> None:
    for name, number in pb.OutboxMessageState.items()[1:]:
        state = codec.returned_from_proto(pb.ReturnOutboxMessageResponse(state=number)).state
        assert f"OUTBOX_MESSAGE_STATE_{state.value}" == name
        assert codec.outbox_state_to_proto(state) == number
    assert codec.outbox_state_to_proto(None) == pb.OUTBOX_MESSAGE_STATE_UNSPECIFIED
    for name, outcome in pb.OutboxOutcome.items()[1:]:
        assert f"OUTBOX_OUTCOME_{codec.outcome_from_proto(outcome).value}" == name
    unknown = codec.returned_from_proto(pb.ReturnOutboxMessageResponse())
    assert unknown == ReturnedMessage(OutboxOutcome.UNKNOWN, OutboxState.UNKNOWN)


@pytest.mark.parametrize(
    ("reason", "metadata", "meant"),
    [
        (
            "STALE_LEASE",
            {"streamId": "s", "fencingToken": "7", "cause": "LEASE_EXPIRED"},
            StaleLease("s", 7, StaleCause.EXPIRED),
        ),
        ("STALE_LEASE", {"cause": "SOMETHING_NEW"}, StaleLease("", 0, StaleCause.UNKNOWN)),
        (
            "REVISION_CONFLICT",
            {"streamId": "s", "expectedRevision": "1", "actualRevision": "2"},
            RevisionConflict("s", 1, 2),
        ),
        (
            "IDEMPOTENCY_CONFLICT",
            {"field": "events[0].event_id", "id": "e"},
            IdempotencyConflict("events[0].event_id", "e"),
        ),
        ("GENERATION_CHANGED", {"hubGeneration": "g", "lowestPosition": "4"}, PositionLost("g", 4)),
    ],
)
def test_a_refusal_of_the_journal_becomes_an_error_with_its_facts(
    reason: str, metadata: dict[str, str], meant: RuntimeAgentError
) -> None:
    error = HubCallError(Refusal(grpc.StatusCode.ABORTED, "", reason, metadata))
    found = codec.journal_refusal(error)
    assert type(found) is type(meant)
    # They compare by identity, as exceptions do: their fields are compared here.
    assert dataclasses.asdict(found) == dataclasses.asdict(meant)
    assert found.sentence


def test_any_other_refusal_stays_what_it_is() -> None:
    error = HubCallError(Refusal(grpc.StatusCode.NOT_FOUND, "", "NOT_FOUND"))
    assert codec.journal_refusal(error) is error
