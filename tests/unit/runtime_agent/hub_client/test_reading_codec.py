"""The public client's values on the wire and back."""

from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.push_steps import Conflict
from runtime_agent.core.values import RunKey
from runtime_agent.hub_client import reading_codec as codec
from runtime_agent.hub_client.stored_values import (
    BatchToPush,
    EventToPush,
    PushResult,
    RuntimeState,
    StoredEvent,
    WatchUpdate,
)
from synchub.v1 import alert_pb2, presence_service_pb2, sync_event_pb2, sync_service_pb2

RUN = RunKey("p", "r")


def test_a_batch_becomes_a_request_with_each_field() -> None:
    batch = BatchToPush(
        RUN,
        (
            EventToPush(1, "line", b"\x00\xff"),
            EventToPush(2, "step", event_time_nanos=-1, attributes={"a": ""}, is_final=True),
            EventToPush(3, "gone", payload_dropped=True, content_hash=b"h" * 32),
        ),
        previous_chain_hash=b"c" * 32,
    )
    request = codec.push_request(batch, hub_project="h", runtime_id="rt", instance_id="i")
    assert request == sync_service_pb2.PushEventsRequest(
        hub_project="h",
        project_id="p",
        run_id="r",
        runtime_id="rt",
        instance_id="i",
        previous_chain_hash=b"c" * 32,
        events=[
            sync_event_pb2.SyncEvent(sequence=1, event_type="line", payload=b"\x00\xff"),
            sync_event_pb2.SyncEvent(
                sequence=2,
                event_type="step",
                event_time=Timestamp(seconds=-1, nanos=999_999_999),
                attributes={"a": ""},
                payload=b"",
                is_final=True,
            ),
            sync_event_pb2.SyncEvent(
                sequence=3, event_type="gone", content_hash=b"h" * 32, payload_dropped=True
            ),
        ],
    )


def test_a_push_response_becomes_a_result() -> None:
    response = sync_service_pb2.PushEventsResponse(
        project_id="p",
        run_id="r",
        cursor=4,
        chain_hash=b"c",
        accepted_count=1,
        duplicate_count=2,
        conflicts=[
            sync_service_pb2.EventConflict(
                sequence=5, reason=sync_service_pb2.CONFLICT_REASON_SEQUENCE_REUSED
            )
        ],
        go_back=True,
    )
    response.retry_delay.FromMilliseconds(1_500)
    assert codec.push_result_from_proto(response) == PushResult(
        RUN, 4, b"c", 1, 2, (Conflict(5, "SEQUENCE_REUSED"),), True, 1.5
    )


def test_text_and_dropped_payloads_are_told_apart_from_empty_ones() -> None:
    texts = [
        sync_event_pb2.StoredEvent(text="é"),
        sync_event_pb2.StoredEvent(payload=b""),
        sync_event_pb2.StoredEvent(),
        sync_event_pb2.StoredEvent(payload_dropped=True),
    ]
    payloads = [codec.stored_event_from_proto(each).payload for each in texts]
    assert payloads == ["é".encode(), b"", b"", None]


def test_an_update_of_a_watch_has_events_progress_and_generation() -> None:
    response = sync_service_pb2.WatchEventsResponse(
        events=[
            sync_event_pb2.StoredEvent(
                project_id="p",
                run_id="r",
                sequence=1,
                position=7,
                event_type="line",
                attributes={"k": "v"},
                payload=b"x",
                content_hash=b"h",
                receive_time=Timestamp(seconds=1, nanos=2),
            )
        ],
        progress_position=7,
        hub_generation="g",
    )
    event = StoredEvent(RUN, 1, 7, "line", None, {"k": "v"}, b"x", b"h", False, 1_000_000_002)
    assert codec.watch_update_from_proto(response) == WatchUpdate((event,), 7, "g")


def test_a_watch_begins_at_the_first_event_a_position_or_now() -> None:
    def start(*, after_position: int = 0, from_now: bool = False) -> str | None:
        request = codec.watch_request(
            "h",
            project_id="",
            run_id="",
            event_types=(),
            after_position=after_position,
            hub_generation="g",
            from_now=from_now,
        )
        return request.WhichOneof("start")

    assert [start(), start(after_position=3), start(from_now=True)] == [None, "after_position", "from_now"]


def test_reasons_and_states_of_a_newer_hub_do_no_harm() -> None:
    alert = alert_pb2.Alert.FromString(b"\x10\x63")  # reason 99
    assert codec.alert_from_proto(alert).reason == "ALERT_REASON_99"
    known = alert_pb2.Alert(reason=alert_pb2.ALERT_REASON_HISTORY_LOST)
    assert codec.alert_from_proto(known).reason == "HISTORY_LOST"
    runtime = presence_service_pb2.Runtime.FromString(b"\x10\x63")  # state 99
    assert codec.runtime_from_proto(runtime).state is RuntimeState.UNKNOWN
    assert codec.runtime_from_proto(runtime).last_heartbeat_time_nanos is None
