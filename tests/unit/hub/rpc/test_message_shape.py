"""What is told of a message before it is decoded."""

from typing import cast

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from hub.core.errors import InvalidRequest, LimitReached
from hub.rpc.message_shape import (
    COUNTED_BYTES_MIN,
    FIELDS_MAX,
    bounded_deserializer,
    has_too_many_fields,
)
from synchub.contract import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from synchub.v1.presence_service_pb2 import ListRuntimesRequest
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest

LARGE = b"\x0a\x80\x80\x20" + b"a" * COUNTED_BYTES_MIN
"""One field that makes a message large enough to be looked at."""


def is_refused(raw: bytes, kind: type[Message] = PushEventsRequest) -> bool:
    return has_too_many_fields(raw, cast("Descriptor", kind.DESCRIPTOR))


def batch(count: int, *, payload_bytes: int) -> bytes:
    """A batch as large as a runtime may send, every field of each event set."""
    event = SyncEvent(
        sequence=2**62,
        event_type="line",
        attributes={f"key {n}": "value" for n in range(16)},
        payload=bytes(payload_bytes),
        content_hash=bytes(32),
        is_final=True,
    )
    event.event_time.seconds = 1
    return PushEventsRequest(project_id="p", run_id="r", events=[event] * count).SerializeToString()


@pytest.mark.parametrize(
    ("count", "payload_bytes"),
    [(BATCH_EVENTS_MAX, 3_500), (3, PAYLOAD_BYTES_MAX), (BATCH_EVENTS_MAX, 300), (700, 5_300)],
)
def test_the_largest_batches_have_few_enough(count: int, payload_bytes: int) -> None:
    raw = batch(count, payload_bytes=payload_bytes)
    assert COUNTED_BYTES_MIN < len(raw) < BATCH_BYTES_MAX
    assert not is_refused(raw)


@pytest.mark.parametrize(
    "part", [b"\x3a\x00", b"\x3a\x02\x22\x00", b"\x7b\x7c", b"\x78\x00", b"\x3d\0\0\0\0"]
)
def test_more_fields_than_any_request_has_are_too_many(part: bytes) -> None:
    enough = COUNTED_BYTES_MIN // len(part) + 1
    assert is_refused(part * enough)
    assert is_refused(part * enough + b"\xff")
    assert not is_refused(part * (FIELDS_MAX // 2 - 1) + LARGE)


def test_those_of_its_larger_parts_count() -> None:
    event = b"\x22\x00" * FIELDS_MAX
    assert is_refused(LARGE + b"\x3a\x80\x80\x02" + event)
    # The same bytes as a payload are none.
    assert not is_refused(LARGE + b"\x3a\x84\x80\x02\x2a\x80\x80\x02" + event)


def test_numbers_in_a_packed_list_count() -> None:
    raw = b"\x12\x80\x80\x20" + b"\x01" * 512 * 1024
    assert len(ListRuntimesRequest.FromString(raw).states) == 512 * 1024
    assert is_refused(raw, ListRuntimesRequest)


@pytest.mark.parametrize("end", [b"\x3a", b"\x3a\xff", b"\x3a\xff\xff\xff", b"\x78", b"\x07", b"\x79"])
def test_what_ends_too_early_is_left_to_the_decoder(end: bytes) -> None:
    assert not is_refused(LARGE + end)


def test_what_has_too_many_is_refused_before_it_is_decoded() -> None:
    deserialize = bounded_deserializer(PushEventsRequest.FromString, message_bytes_max=MESSAGE_BYTES_MAX)
    with pytest.raises(InvalidRequest, match="16384 fields"):
        deserialize(b"\x3a\x00" * (MESSAGE_BYTES_MAX // 2))
    raw = batch(2, payload_bytes=10)
    assert deserialize(raw) == PushEventsRequest.FromString(raw)


def test_what_is_too_large_is_refused_before_it_is_looked_at() -> None:
    raw = batch(2, payload_bytes=10)
    fitting = bounded_deserializer(PushEventsRequest.FromString, message_bytes_max=len(raw))
    assert fitting(raw) == PushEventsRequest.FromString(raw)
    with pytest.raises(LimitReached) as caught:
        bounded_deserializer(PushEventsRequest.FromString, message_bytes_max=len(raw) - 1)(raw)
    assert caught.value.metadata() == {"limit": "message_bytes_max", "limitValue": str(len(raw) - 1)}
