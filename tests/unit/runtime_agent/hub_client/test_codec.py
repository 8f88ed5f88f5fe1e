"""What stands on the wire is what stands in the log."""

from runtime_agent.core.push_steps import Conflict, PushAnswer
from runtime_agent.core.values import LogEvent, RunKey, RuntimeIdentity
from runtime_agent.hub_client.codec import (
    DrainNotice,
    DuplicateNotice,
    HeartbeatAnswer,
    PushSender,
    encode_batch,
    heartbeat_answer_from_proto,
    push_answer_from_proto,
)
from runtime_agent.limits import EVENT_OVERHEAD_BYTES
from synchub.contract import EVENT_TIME_NANOS_MAX, EVENT_TIME_NANOS_MIN, SEQUENCE_MAX, content_hash
from synchub.v1 import presence_service_pb2, sync_service_pb2
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse

RUN = RunKey("p", "n1")
SENDER = PushSender(RuntimeIdentity("hp", "r1"), "i1")


def event(sequence: int, **changes: object) -> LogEvent:
    plain = LogEvent(sequence, "t", None, {}, False, b"x", b"c" * 32, b"h" * 32, 1)
    return plain._replace(**changes)  # type: ignore[arg-type]  # named by the caller


def test_a_batch_on_the_wire_has_every_field_of_its_events() -> None:
    events = (
        event(7, event_time_nanos=-1, attributes={"k": "é"}),
        event(8, payload=None, is_final=True, content_hash=b"d" * 32, chain_hash=b"i" * 32),
    )
    batch = encode_batch(SENDER, RUN, events=events, previous_chain_hash=b"g" * 32)
    request = PushEventsRequest.FromString(batch.message)
    ids = (
        request.hub_project,
        request.runtime_id,
        request.instance_id,
        request.project_id,
        request.run_id,
    )
    assert ids == ("hp", "r1", "i1", "p", "n1")
    assert (request.previous_chain_hash, batch.chain_hash) == (b"g" * 32, b"i" * 32)
    assert (batch.first_sequence, batch.last_sequence, batch.event_count) == (7, 8, 2)
    first, last = request.events
    assert (first.sequence, first.event_type, first.payload) == (7, "t", b"x")
    assert (first.event_time.seconds, first.event_time.nanos) == (-1, 999_999_999)
    assert (dict(first.attributes), first.content_hash) == ({"k": "é"}, b"c" * 32)
    assert (first.is_final, first.payload_dropped) == (False, False)
    assert (last.payload_dropped, last.is_final, last.HasField("event_time")) == (True, True, False)
    assert (last.content_hash, last.WhichOneof("body")) == (b"d" * 32, None)


def test_the_content_hash_that_is_sent_is_that_of_what_is_sent() -> None:
    for nanos in (None, 0, -1, EVENT_TIME_NANOS_MIN, EVENT_TIME_NANOS_MAX):
        for payload in (b"", b"\x00", b"text"):
            own = content_hash("t", nanos, is_final=False, attributes={}, payload=payload)
            logged = event(1, event_time_nanos=nanos, payload=payload, content_hash=own)
            batch = encode_batch(SENDER, RUN, events=[logged], previous_chain_hash=b"")
            (sent,) = PushEventsRequest.FromString(batch.message).events
            time_nanos = (
                sent.event_time.seconds * 10**9 + sent.event_time.nanos
                if sent.HasField("event_time")
                else None
            )
            received = content_hash(
                sent.event_type,
                time_nanos,
                is_final=sent.is_final,
                attributes=dict(sent.attributes),
                payload=sent.payload,
            )
            assert received == own


def test_an_event_takes_no_more_in_a_message_than_is_counted_for_it() -> None:
    largest = event(
        SEQUENCE_MAX, event_type="t" * 128, event_time_nanos=EVENT_TIME_NANOS_MIN, is_final=True, payload=b"x"
    )
    empty = len(encode_batch(SENDER, RUN, events=[event(1)], previous_chain_hash=b"g" * 32).message)
    one = len(encode_batch(SENDER, RUN, events=[largest], previous_chain_hash=b"g" * 32).message)
    two = len(encode_batch(SENDER, RUN, events=[largest, largest], previous_chain_hash=b"g" * 32).message)
    assert two - one <= EVENT_OVERHEAD_BYTES + 128 + 1
    assert empty <= SENDER.envelope_bytes(RUN) + EVENT_OVERHEAD_BYTES + 2


def test_an_answer_says_conflicts_by_their_bare_reasons() -> None:
    response = PushEventsResponse(
        project_id="p", run_id="n1", cursor=3, chain_hash=b"h", accepted_count=1, duplicate_count=2
    )
    response.conflicts.add(sequence=4, reason=sync_service_pb2.CONFLICT_REASON_RUN_COMPLETE)
    response.conflicts.add(sequence=5, reason=99)  # of a newer hub
    response.retry_delay.FromMilliseconds(1_500)
    assert push_answer_from_proto(response) == PushAnswer(
        RUN,
        3,
        b"h",
        1,
        2,
        (Conflict(4, "RUN_COMPLETE"), Conflict(5, "CONFLICT_REASON_99")),
        False,
        1.5,
    )


def test_notices_are_read_and_those_of_a_newer_hub_are_left_out() -> None:
    response = presence_service_pb2.HeartbeatResponse()
    response.heartbeat_interval.FromSeconds(3)
    response.notices.add().duplicate_instance.current_instance_id = "i2"
    response.notices.add().drain.reconnect_delay.FromMilliseconds(250)
    response.notices.add()
    assert heartbeat_answer_from_proto(response) == HeartbeatAnswer(
        3.0, (DuplicateNotice("i2"), DrainNotice(0.25))
    )
