"""Every bound on what one request may hold is a setting, and a refusal names it; nothing of it is stored."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from hub.rpc.options import OWN_REFUSAL_BYTES
from synchub.channel import Refusal, refusal_from_status
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import GetRuntimeRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import ListProjectsRequest, PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import STREAM_SECONDS_MAX, Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import commit_request, leased, new_event
from tests.contract.pushing import events

MIB: Final = 1024 * 1024
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""What a message may have here; the other bounds are lowered too, so that each can be met."""


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    return Limits(
        message_bytes_max=MESSAGE_BYTES_MAX,
        batch_bytes_max=32 * 1024,
        batch_events_max=10,
        payload_bytes_max=4 * 1024,
        attribute_count_max=3,
        attribute_key_bytes_max=20,
        attributes_bytes_max=100,
        commit_bytes_max=16 * 1024,
        page_bytes_max=MESSAGE_BYTES_MAX // 2,
        watch_page_bytes_max=MESSAGE_BYTES_MAX // 2,
    )


def request_of(hub_project: str, *batch: SyncEvent) -> PushEventsRequest:
    return PushEventsRequest(
        hub_project=hub_project, project_id=f"p-{hub_project}"[:200], run_id="r", runtime_id="x", events=batch
    )


def event(payload: bytes = b"", attributes: Mapping[str, str] | None = None) -> SyncEvent:
    return SyncEvent(sequence=1, event_type="line", payload=payload, attributes=attributes)


def refused_push(stub: SyncServiceStub, request: PushEventsRequest) -> Refusal:
    """What a stream says of a request in band; it ends with the same."""
    with Conversation(stub.PushEvents) as stream:
        stream.send(request)
        said = refusal_from_status(stream.read().error)
        stream.half_close()
        assert stream.refusal() == said
    return said


def is_stored(stub: SyncServiceStub, hub_project: str) -> bool:
    return bool(stub.ListProjects(ListProjectsRequest(hub_project=hub_project)).projects)


@pytest.mark.parametrize(
    ("batch", "field", "limit"),
    [
        ([event(b"x" * (4 * 1024 + 1))], "events[0].payload", "payload_bytes_max = 4096"),
        ([event(attributes=dict.fromkeys("abcd", ""))], "events[0].attributes", "attribute_count_max = 3"),
        ([event(attributes={"k" * 21: ""})], "events[0].attributes", "attribute_key_bytes_max = 20"),
        ([event(attributes={"key": "v" * 98})], "events[0].attributes", "attributes_bytes_max = 100"),
        (events(1, 11), "events", "batch_events_max = 10"),
        ([event(b"x" * 4_000)] * 9, "events", "batch_bytes_max = 32768"),
    ],
    ids=["payload", "attributes", "key", "attribute bytes", "events", "batch bytes"],
)
def test_what_breaks_a_bound_of_a_batch_is_told_its_name(
    sync_stub: SyncServiceStub, hub_project: str, *, batch: list[SyncEvent], field: str, limit: str
) -> None:
    refusal = refused_push(sync_stub, request_of(hub_project, *batch))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    described = {violation.field: violation.description for violation in refusal.violations}
    assert re.search(limit, described[field])
    assert not is_stored(sync_stub, hub_project)


def test_a_commit_that_is_too_large_is_told_the_bounds_name(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    large = [new_event(f"e{number}", payload=b"x" * 4_000) for number in range(5)]
    request = commit_request(hub_project, leased(lease_stub, hub_project), events=large)
    refusal = refusal_of(lambda: journal_stub.Commit(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert re.search("commit_bytes_max = 16384", refusal.message)


# --- messages ---


def request_of_size(bytes_count: int) -> GetRuntimeRequest:
    request = GetRuntimeRequest(hub_project="h", runtime_id="x" * bytes_count)
    return GetRuntimeRequest(hub_project="h", runtime_id="x" * (2 * bytes_count - request.ByteSize()))


@pytest.mark.parametrize("beyond", [1, OWN_REFUSAL_BYTES])
def test_a_message_that_is_too_large_is_refused_with_the_limits_name(
    presence_stub: PresenceServiceStub, beyond: int
) -> None:
    request = request_of_size(MESSAGE_BYTES_MAX + beyond)
    assert request.ByteSize() == MESSAGE_BYTES_MAX + beyond
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    assert refusal.metadata == {"limit": "message_bytes_max", "limitValue": str(MESSAGE_BYTES_MAX)}


def test_a_message_of_just_the_size_is_looked_at(presence_stub: PresenceServiceStub) -> None:
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request_of_size(MESSAGE_BYTES_MAX)))
    assert refusal.reason == "INVALID_REQUEST"


def test_one_that_is_larger_still_is_refused_by_grpc(presence_stub: PresenceServiceStub) -> None:
    request = request_of_size(MESSAGE_BYTES_MAX + OWN_REFUSAL_BYTES + 1)
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "")


def test_on_a_push_stream_it_is_refused_in_its_turn_and_what_came_before_is_stored(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    large = request_of(hub_project, event(b"x" * (MESSAGE_BYTES_MAX + 1)))
    with Conversation(sync_stub.PushEvents) as stream:
        for number in range(1, 6):
            stream.send(request_of(hub_project, *events(number, number)))
        stream.send(large)
        answers = [stream.read() for _ in range(6)]
        stream.half_close()
        said = refusal_from_status(answers[-1].error)
        assert stream.refusal() == said
    assert [answer.cursor for answer in answers] == [1, 2, 3, 4, 5, 0]
    assert (said.reason, said.metadata["limit"]) == ("LIMIT_REACHED", "message_bytes_max")


# --- what is small on the wire and large once it is decompressed ---


@pytest.fixture
def spacious_hub(tmp_path: Path) -> Iterator[grpc.Channel]:
    """A hub with the limits as they are by default, and a client that sends what it is told."""
    options = [("grpc.max_send_message_length", -1)]
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address, options) as channel:
        yield channel


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_request_that_is_too_large_once_decompressed_is_refused(
    spacious_hub: grpc.Channel, compression: grpc.Compression
) -> None:
    unary = PresenceServiceStub(spacious_hub).GetRuntime
    bomb = GetRuntimeRequest(hub_project="h", runtime_id="\0" * (64 * MIB))
    refusal = refusal_of(lambda: unary(bomb, compression=compression, timeout=STREAM_SECONDS_MAX))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "")
    # Compression as such is taken.
    small = GetRuntimeRequest(hub_project="h", runtime_id="r" * 200)
    assert refusal_of(lambda: unary(small, compression=compression)).reason == "NOT_FOUND"


def test_a_batch_that_is_too_large_once_decompressed_ends_its_stream_and_no_other(
    spacious_hub: grpc.Channel,
) -> None:
    stub = SyncServiceStub(spacious_hub)
    bomb = request_of("h", event(b"\0" * (64 * MIB)))
    with Conversation(stub.PushEvents) as beside:
        beside.ask(request_of("h", *events(1, 1)))
        ask: Callable[[], object] = lambda: list(  # noqa: E731
            stub.PushEvents(iter([bomb]), compression=grpc.Compression.Gzip, timeout=STREAM_SECONDS_MAX)
        )
        assert refusal_of(ask).code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert beside.ask(request_of("h", *events(2, 2))).cursor == 2
