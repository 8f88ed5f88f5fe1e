"""PushEvents over the wire: what a batch is answered, and what ends a stream."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

import grpc
import pytest

from synchub.channel import Refusal, refusal_from_status
from synchub.contract import (
    BATCH_BYTES_MAX,
    EVENT_TIME_NANOS_MAX,
    EVENT_TIME_NANOS_MIN,
    PAYLOAD_BYTES_MAX,
    SEQUENCE_MAX,
    chain_hash_after,
    chain_hash_at_start,
    content_hash,
)
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    CONFLICT_REASON_CONTENT_HASH_MISMATCH,
    CONFLICT_REASON_HISTORY_DIVERGED,
    CONFLICT_REASON_HOME_RUNTIME_MISMATCH,
    CONFLICT_REASON_PROJECT_MISMATCH,
    CONFLICT_REASON_RUN_COMPLETE,
    CONFLICT_REASON_SEQUENCE_REUSED,
    ListEventsRequest,
    PushEventsRequest,
    PushEventsResponse,
    ReconcileRunsRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import STREAM_SECONDS_MAX, Conversation
from tests.contract.pushing import events, push

STREAMS_COUNT: Final = 1_000


def request_of(
    hub_project: str,
    batch: Sequence[SyncEvent],
    *,
    run_id: str = "r",
    runtime_id: str = "runtime",
    instance_id: str = "",
    proof: bytes = b"",
) -> PushEventsRequest:
    return PushEventsRequest(
        hub_project=hub_project,
        project_id=hub_project,
        run_id=run_id,
        runtime_id=runtime_id,
        instance_id=instance_id,
        previous_chain_hash=proof,
        events=batch,
    )


def push_one(stub: SyncServiceStub, request: PushEventsRequest) -> PushEventsResponse:
    (response,) = stub.PushEvents(iter([request]), timeout=STREAM_SECONDS_MAX)
    return response


def hash_of(event: SyncEvent) -> bytes:
    return content_hash(
        event.event_type,
        None,
        is_final=event.is_final,
        attributes=event.attributes,
        payload=event.payload or event.text.encode(),
    )


def stored_sequences(stub: SyncServiceStub, hub_project: str, run_id: str = "r") -> list[int]:
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id=run_id)
    try:
        return [event.sequence for event in stub.ListEvents(request).events]
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return []


def reasons(response: PushEventsResponse) -> list[tuple[int, int]]:
    return [(conflict.sequence, conflict.reason) for conflict in response.conflicts]


def in_band(response: PushEventsResponse) -> Refusal:
    assert response.HasField("error")
    return refusal_from_status(response.error)


def test_accepted_events_move_the_cursor_and_the_chain_hash(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    pushed = events(1, 3)
    response = push_one(sync_stub, request_of(hub_project, pushed))
    chain = chain_hash_after(chain_hash_at_start(hub_project, "r"), map(hash_of, pushed))
    assert response == PushEventsResponse(
        project_id=hub_project, run_id="r", cursor=3, chain_hash=chain, accepted_count=3
    )


def test_a_resent_batch_is_answered_as_duplicates(sync_stub: SyncServiceStub, hub_project: str) -> None:
    first = push_one(sync_stub, request_of(hub_project, events(1, 2, is_final=True)))
    again = push_one(sync_stub, request_of(hub_project, events(1, 2, is_final=True)))
    assert (again.accepted_count, again.duplicate_count, len(again.conflicts)) == (0, 2, 0)
    assert (again.cursor, again.chain_hash) == (first.cursor, first.chain_hash)
    assert stored_sequences(sync_stub, hub_project) == [1, 2]


def test_a_project_of_another_hub_project_tells_nothing_and_not_whether_the_run_exists(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push_one(sync_stub, request_of(hub_project, events(1, 1)))
    for run_id in ("r", "none"):
        request = request_of(hub_project, events(1, 1), run_id=run_id)
        request.hub_project = "stranger"
        response = push_one(sync_stub, request)
        assert reasons(response) == [(1, CONFLICT_REASON_PROJECT_MISMATCH)]
        assert (response.cursor, response.chain_hash) == (0, b"")
        assert response.conflicts[0].stored_content_hash == b""
    assert stored_sequences(sync_stub, hub_project, "none") == []


def test_a_run_of_another_runtime_is_a_conflict_that_tells_nothing(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push_one(sync_stub, request_of(hub_project, events(1, 1)))
    response = push_one(sync_stub, request_of(hub_project, events(1, 2), runtime_id="other"))
    assert reasons(response) == [(n, CONFLICT_REASON_HOME_RUNTIME_MISMATCH) for n in (1, 2)]
    assert (response.cursor, response.chain_hash) == (0, b"")
    assert stored_sequences(sync_stub, hub_project) == [1]


def test_a_wrong_content_hash_is_a_conflict_also_over_a_duplicate(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push_one(sync_stub, request_of(hub_project, events(1, 1)))
    wrong = events(1, 2)
    for each in wrong:
        each.content_hash = b"\1" * 32
    response = push_one(sync_stub, request_of(hub_project, wrong))
    assert reasons(response) == [(n, CONFLICT_REASON_CONTENT_HASH_MISMATCH) for n in (1, 2)]
    assert stored_sequences(sync_stub, hub_project) == [1]


def test_a_reused_sequence_is_a_conflict_with_the_stored_hash_and_stops_nothing(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    (first,) = events(1, 1)
    push_one(sync_stub, request_of(hub_project, [first]))
    other = SyncEvent(sequence=1, event_type="line", text="other")
    response = push_one(sync_stub, request_of(hub_project, [other, *events(2, 2)]))
    assert reasons(response) == [(1, CONFLICT_REASON_SEQUENCE_REUSED)]
    assert response.conflicts[0].stored_content_hash == hash_of(first)
    assert (response.accepted_count, response.cursor) == (1, 2)


def test_a_batch_with_another_history_is_not_spliced_in(sync_stub: SyncServiceStub, hub_project: str) -> None:
    push_one(sync_stub, request_of(hub_project, events(1, 2)))
    response = push_one(sync_stub, request_of(hub_project, events(2, 4), proof=b"\7" * 32))
    assert reasons(response) == [(n, CONFLICT_REASON_HISTORY_DIVERGED) for n in (3, 4)]
    assert (response.duplicate_count, response.cursor) == (1, 2)
    assert stored_sequences(sync_stub, hub_project) == [1, 2]


def test_a_proven_batch_beyond_the_cursor_is_told_to_go_back(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    first = push_one(sync_stub, request_of(hub_project, events(1, 1)))
    response = push_one(sync_stub, request_of(hub_project, events(3, 4), proof=b"\7" * 32))
    assert response == PushEventsResponse(
        project_id=hub_project, run_id="r", cursor=1, chain_hash=first.chain_hash, go_back=True
    )
    assert stored_sequences(sync_stub, hub_project) == [1]


def test_a_run_is_complete_both_ways(sync_stub: SyncServiceStub, hub_project: str) -> None:
    push_one(sync_stub, request_of(hub_project, events(1, 2, is_final=True)))
    above = push_one(sync_stub, request_of(hub_project, events(3, 3)))
    assert reasons(above) == [(3, CONFLICT_REASON_RUN_COMPLETE)]
    push_one(sync_stub, request_of(hub_project, events(5, 5), run_id="q"))
    below = push_one(sync_stub, request_of(hub_project, events(4, 4, is_final=True), run_id="q"))
    assert reasons(below) == [(4, CONFLICT_REASON_RUN_COMPLETE)]
    assert stored_sequences(sync_stub, hub_project, "q") == [5]


def test_the_cursor_jumps_once_the_gap_closes(sync_stub: SyncServiceStub, hub_project: str) -> None:
    assert push_one(sync_stub, request_of(hub_project, events(2, 3))).cursor == 0
    assert push_one(sync_stub, request_of(hub_project, events(1, 1))).cursor == 3


def test_the_same_sequence_several_times_in_one_batch_is_answered_in_order(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    other = SyncEvent(sequence=1, event_type="line", text="other")
    response = push_one(sync_stub, request_of(hub_project, [*events(1, 1), *events(1, 1), other]))
    assert (response.accepted_count, response.duplicate_count) == (1, 1)
    assert reasons(response) == [(1, CONFLICT_REASON_SEQUENCE_REUSED)]


def test_a_dropped_payload_is_stored_and_filled_in_later(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    (whole,) = events(1, 1)
    dropped = SyncEvent(sequence=1, event_type="line", payload_dropped=True, content_hash=hash_of(whole))
    assert push_one(sync_stub, request_of(hub_project, [dropped])).accepted_count == 1
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    (before,) = sync_stub.ListEvents(request).events
    assert before.payload_dropped
    assert push_one(sync_stub, request_of(hub_project, [whole])).duplicate_count == 1
    (after,) = sync_stub.ListEvents(request).events
    assert (after.payload_dropped, after.payload) == (False, b"payload 1")
    assert after.position == before.position


def test_answers_come_in_the_order_of_the_requests(sync_stub: SyncServiceStub, hub_project: str) -> None:
    with Conversation(sync_stub.PushEvents) as stream:
        for n in range(1, 301):
            stream.send(request_of(hub_project, events(n, n), run_id=f"run {n % 7}"))
        stream.half_close()
        answers = stream.read_all()
    assert [answer.run_id for answer in answers] == [f"run {n % 7}" for n in range(1, 301)]
    assert sum(answer.accepted_count for answer in answers) == 300


@pytest.mark.parametrize(
    "broken",
    [
        SyncEvent(sequence=0, event_type="line"),
        SyncEvent(sequence=-1, event_type="line"),
        SyncEvent(sequence=2, event_type=""),
        SyncEvent(sequence=2, event_type="a\0b"),
        SyncEvent(sequence=2, event_type=" line"),
        SyncEvent(sequence=2, event_type="x" * 129),
        SyncEvent(sequence=2, event_type="line", payload=b"x" * (PAYLOAD_BYTES_MAX + 1)),
        SyncEvent(sequence=2, event_type="line", attributes={"": "value"}),
        SyncEvent(sequence=2, event_type="line", attributes={"key": "a\0b"}),
        SyncEvent(sequence=2, event_type="line", payload_dropped=True),
        SyncEvent(sequence=2, event_type="line", content_hash=b"short"),
    ],
    ids=lambda event: str(event).replace("\n", " ")[:40],
)
def test_a_broken_event_is_refused_in_its_turn_and_nothing_of_its_batch_is_stored(
    sync_stub: SyncServiceStub, hub_project: str, broken: SyncEvent
) -> None:
    project_id = "".join(character for character in hub_project if character.isprintable()).strip()
    with Conversation(sync_stub.PushEvents) as stream:
        stream.send(request_of(project_id, events(1, 1), run_id="before"))
        stream.send(request_of(project_id, [*events(1, 1), broken], run_id="bad"))
        assert stream.read().accepted_count == 1
        refusal = in_band(stream.read())
        assert (refusal.reason, refusal.metadata["runId"]) == ("INVALID_REQUEST", "bad")
        stream.half_close()
        assert stream.refusal().reason == "INVALID_REQUEST"
    assert stored_sequences(sync_stub, project_id, "bad") == []
    assert stored_sequences(sync_stub, project_id, "before") == [1]


def test_what_comes_behind_a_refusal_is_not_stored(sync_stub: SyncServiceStub, hub_project: str) -> None:
    with Conversation(sync_stub.PushEvents) as stream:
        stream.send(request_of(hub_project, [], run_id="bad"))
        stream.send(request_of(hub_project, events(1, 1), run_id="after"))
        assert in_band(stream.read()).reason == "INVALID_REQUEST"
        stream.half_close()
        assert stream.refusal().reason == "INVALID_REQUEST"
    assert stored_sequences(sync_stub, hub_project, "after") == []


def test_a_proof_needs_consecutive_sequences(sync_stub: SyncServiceStub, hub_project: str) -> None:
    with Conversation(sync_stub.PushEvents) as stream:
        batch = [*events(1, 1), *events(3, 3)]
        stream.send(request_of(hub_project, batch, proof=chain_hash_at_start(hub_project, "r")))
        assert in_band(stream.read()).metadata["field"] == "events"


def test_a_request_beyond_the_bound_of_a_batch_names_its_run(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    large = [SyncEvent(sequence=n, event_type="line", payload=b"x" * PAYLOAD_BYTES_MAX) for n in range(1, 5)]
    request = request_of(hub_project, large)
    assert request.ByteSize() > BATCH_BYTES_MAX
    with Conversation(sync_stub.PushEvents) as stream:
        stream.send(request)
        refusal = in_band(stream.read())
    assert (refusal.reason, refusal.metadata["runId"]) == ("INVALID_REQUEST", "r")
    assert stored_sequences(sync_stub, hub_project) == []


def test_a_payload_of_one_mebibyte_and_an_empty_one_are_stored(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    largest = b"\0" * PAYLOAD_BYTES_MAX
    batch = [
        SyncEvent(sequence=1, event_type="line", payload=largest),
        SyncEvent(sequence=2, event_type="line"),
    ]
    assert push_one(sync_stub, request_of(hub_project, batch)).accepted_count == 2
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    assert [event.payload for event in sync_stub.ListEvents(request).events] == [largest, b""]


def test_text_and_payload_of_equal_bytes_are_the_same_event(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    text = SyncEvent(sequence=1, event_type="line", text="é")
    payload = SyncEvent(sequence=1, event_type="line", payload="é".encode())
    push_one(sync_stub, request_of(hub_project, [text]))
    assert push_one(sync_stub, request_of(hub_project, [payload])).duplicate_count == 1
    absent, empty = (
        SyncEvent(sequence=2, event_type="line"),
        SyncEvent(sequence=2, event_type="line", text=""),
    )
    push_one(sync_stub, request_of(hub_project, [absent]))
    assert push_one(sync_stub, request_of(hub_project, [empty])).duplicate_count == 1


def test_the_last_sequence_is_taken_and_waits_for_the_gap(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    batch = events(SEQUENCE_MAX, SEQUENCE_MAX)
    response = push_one(sync_stub, request_of(hub_project, batch))
    assert (response.accepted_count, response.cursor) == (1, 0)
    assert push_one(sync_stub, request_of(hub_project, batch)).duplicate_count == 1


@pytest.mark.parametrize("nanos", [EVENT_TIME_NANOS_MIN, -1, 0, EVENT_TIME_NANOS_MAX])
def test_times_at_the_edges_come_back_to_the_nanosecond(
    sync_stub: SyncServiceStub, hub_project: str, nanos: int
) -> None:
    event = SyncEvent(sequence=1, event_type="line")
    event.event_time.seconds, event.event_time.nanos = divmod(nanos, 1_000_000_000)
    push_one(sync_stub, request_of(hub_project, [event]))
    request = ListEventsRequest(hub_project=hub_project, project_id=hub_project, run_id="r")
    (stored,) = sync_stub.ListEvents(request).events
    assert stored.event_time.seconds * 1_000_000_000 + stored.event_time.nanos == nanos


@pytest.mark.parametrize("nanos", [EVENT_TIME_NANOS_MIN - 1, EVENT_TIME_NANOS_MAX + 1])
def test_times_beyond_the_edges_are_refused(sync_stub: SyncServiceStub, hub_project: str, nanos: int) -> None:
    event = SyncEvent(sequence=1, event_type="line")
    event.event_time.seconds, event.event_time.nanos = divmod(nanos, 1_000_000_000)
    with Conversation(sync_stub.PushEvents) as stream:
        stream.send(request_of(hub_project, [event]))
        assert in_band(stream.read()).metadata["field"] == "events[0].event_time"


def test_ids_are_compared_byte_by_byte(sync_stub: SyncServiceStub, hub_project: str) -> None:
    run_ids = ["é", "e\u0301", "E\u0301", "a", "A", "a b", "a  b", "\U0001f600", "x" * 256]
    for run_id in run_ids:
        response = push_one(sync_stub, request_of(hub_project, events(1, 1), run_id=run_id))
        assert (run_id, response.accepted_count) == (run_id, 1)
    pairs = [("a/b", "c"), ("a", "b/c"), ("a/b/c", "d")]
    for project_id, run_id in pairs:
        response = push(
            sync_stub,
            hub_project,
            project_id=f"{hub_project}/{project_id}",
            run_id=run_id,
            batch=events(1, 1),
        )
        assert (project_id, run_id, response.accepted_count) == (project_id, run_id, 1)


def test_an_instance_with_a_successor_is_refused_and_one_that_is_not_named_is_not_checked(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    for instance_id in ("one", "two"):
        sync_stub.ReconcileRuns(
            ReconcileRunsRequest(hub_project=hub_project, runtime_id="runtime", instance_id=instance_id)
        )
    with Conversation(sync_stub.PushEvents) as stream:
        stream.send(request_of(hub_project, events(1, 1), instance_id="one"))
        assert in_band(stream.read()).reason == "RUNTIME_DUPLICATED"
        stream.half_close()
        assert stream.refusal().reason == "RUNTIME_DUPLICATED"
    assert stored_sequences(sync_stub, hub_project) == []
    for instance_id in ("two", "", "never reconciled"):
        push_one(sync_stub, request_of(hub_project, events(1, 1), instance_id=instance_id))
    assert stored_sequences(sync_stub, hub_project) == [1]


def test_bytes_that_are_no_message_end_the_stream_and_the_hub_serves_on(
    grpc_channel: grpc.Channel, sync_stub: SyncServiceStub, hub_project: str
) -> None:
    raw: grpc.StreamStreamMultiCallable[bytes, bytes]
    raw = grpc_channel.stream_stream("/synchub.v1.SyncService/PushEvents")
    with pytest.raises(grpc.RpcError) as caught:
        list(raw(iter([b"\xff\xff\xff"]), timeout=STREAM_SECONDS_MAX))
    assert caught.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert push_one(sync_stub, request_of(hub_project, events(1, 1))).accepted_count == 1


def test_streams_that_are_cancelled_do_not_disturb_others(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    for n in range(50):
        with Conversation(sync_stub.PushEvents) as stream:
            stream.send(request_of(hub_project, events(1, 500), run_id=f"cancelled {n}"))
    assert push_one(sync_stub, request_of(hub_project, events(1, 1))).accepted_count == 1
    for n in range(50):
        # A batch is stored whole or not at all, and its repetition settles which.
        again = push_one(sync_stub, request_of(hub_project, events(1, 500), run_id=f"cancelled {n}"))
        assert (again.accepted_count, again.duplicate_count) in ((500, 0), (0, 500))


def test_a_client_that_never_reads_slows_nobody(sync_stub: SyncServiceStub, hub_project: str) -> None:
    idle = sync_stub.PushEvents(
        repeat(request_of(hub_project, events(1, 1), run_id="unread"), 5_000), timeout=STREAM_SECONDS_MAX
    )
    try:
        for n in range(1, 21):
            assert push_one(sync_stub, request_of(hub_project, events(n, n))).cursor == n
    finally:
        idle.cancel()


def test_a_thousand_streams_at_once_are_all_answered(sync_stub: SyncServiceStub, hub_project: str) -> None:
    calls = [
        sync_stub.PushEvents(
            iter([request_of(hub_project, events(1, 1), run_id=f"stream {n}")]), timeout=60.0
        )
        for n in range(STREAMS_COUNT)
    ]
    assert [next(call).accepted_count for call in calls] == [1] * STREAMS_COUNT
    for call in calls:
        call.cancel()
