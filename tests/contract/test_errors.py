"""What a client sees when something is wrong with a call."""

import re

import grpc
import pytest

from hub.core.errors import (
    GenerationChanged,
    HubStopping,
    IdempotencyConflict,
    InvalidRequest,
    LimitReached,
    NotFound,
    PositionAhead,
    QuotaExceeded,
    RateLimited,
    Reason,
    Refusal,
    RuntimeDuplicated,
    StorageUnavailable,
    Violation,
)
from hub.core.identity_errors import (
    CredentialExpired,
    CredentialInvalid,
    CredentialMissing,
    CredentialRevoked,
    IdentityMismatch,
    project_taken,
)
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
    RevisionConflict,
    StaleLease,
)
from hub.core.values import HubGeneration, InstanceId, ResourceName, RuntimeId
from hub.rpc.error_table import (
    STATUS_BYTES_MAX,
    STATUS_CODES,
    Reference,
    status_from_refusal,
    status_of_fault,
)
from synchub.channel import refusal_from_status
from synchub.v1.presence_service_pb2 import (
    GetRuntimeRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    ListRuntimesResponse,
    WatchRuntimesResponse,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2 import PushEventsResponse
from tests.contract.conversation import Conversation, refusal_of

LONG = "ü" * 256

REFUSALS: list[Refusal] = [
    InvalidRequest([Violation("run_id", "is empty")]),
    NotFound("run", {"projectId": "p", "runId": "r"}),
    CredentialMissing(),
    CredentialInvalid(),
    CredentialExpired(),
    CredentialRevoked(),
    IdentityMismatch("runtime_id", "r"),
    project_taken("p"),
    RuntimeDuplicated(RuntimeId("r"), InstanceId("i")),
    GenerationChanged(HubGeneration("g"), 7),
    PositionAhead(8, 7),
    LeaseHeld(ResourceName("s"), "Ada", expire_nanos=7, now_nanos=1),
    LeaseFenced(ResourceName("s"), 1, 2),
    LeaseMissing(ResourceName("s"), 1),
    LeaseSuperseded(ResourceName("s"), 1),
    LeaseExpired(ResourceName("s"), 1, 7),
    ResourceUnderMaintenance(ResourceName("s"), "Ada", expire_nanos=7, now_nanos=1),
    StaleLease(ResourceName("s"), 1, "LEASE_FENCED"),
    RevisionConflict("s", 4, 5),
    IdempotencyConflict("request_id", "q"),
    QuotaExceeded("hub_project_stored_bytes_max", 9),
    RateLimited("writer_queue_bytes_max", 9),
    LimitReached("open_streams_max", 9),
    StorageUnavailable(),
    HubStopping(),
]
MALFORMED = {
    "cut": b"\x0a\xff",
    "not UTF-8": b"\x0a\x02\xc3\x28",
    "another type": b"\x0d\x00",
    "noise": bytes(range(255, 200, -1)),
}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
def test_a_refusal_is_read_back_with_its_reason_and_facts(refusal: Refusal) -> None:
    read = refusal_from_status(status_from_refusal(refusal))
    assert read.code == STATUS_CODES[refusal.reason]
    assert (read.reason, read.message) == (refusal.reason, str(refusal))
    assert read.metadata == refusal.metadata()


def test_every_reason_is_among_those_tried() -> None:
    assert {refusal.reason for refusal in REFUSALS} == set(Reason)


def test_what_may_help_later_says_when() -> None:
    assert refusal_from_status(status_from_refusal(StorageUnavailable())).retry_delay_seconds == 1.0
    assert refusal_from_status(status_from_refusal(NotFound("run", {}))).retry_delay_seconds is None


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidRequest([Violation(f"events[{n}].{LONG}", LONG * 4) for n in range(16)], {"runId": LONG * 9}),
        NotFound("run", {"projectId": LONG, "runId": LONG}),
        RuntimeDuplicated(RuntimeId(LONG), InstanceId(LONG)),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
def test_a_status_stays_below_what_metadata_can_carry(refusal: Refusal) -> None:
    status = status_from_refusal(refusal)
    assert status.ByteSize() <= STATUS_BYTES_MAX
    assert refusal_from_status(status).reason == refusal.reason


def test_a_cut_sentence_ends_between_two_characters() -> None:
    status = status_from_refusal(NotFound("run", {"projectId": LONG * 2}))
    assert status.message.endswith("ü…")


def test_a_fault_of_the_hub_tells_nothing_but_where_to_look() -> None:
    read = refusal_from_status(status_of_fault(Reference("abc")))
    assert (read.code, read.reason, read.metadata) == (
        grpc.StatusCode.INTERNAL,
        "INTERNAL",
        {"reference": "abc"},
    )


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_request_are_an_invalid_request(grpc_channel: grpc.Channel, raw: bytes) -> None:
    call = grpc_channel.unary_unary(
        "/synchub.v1.PresenceService/ListRuntimes",
        request_serializer=bytes,
        response_deserializer=ListRuntimesResponse.FromString,
    )
    refusal = refusal_of(lambda: call(raw))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert [each.field for each in refusal.violations] == ["request"]


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_request_are_an_invalid_request_on_a_watch(
    grpc_channel: grpc.Channel, raw: bytes
) -> None:
    call = grpc_channel.unary_stream(
        "/synchub.v1.PresenceService/WatchRuntimes",
        request_serializer=bytes,
        response_deserializer=WatchRuntimesResponse.FromString,
    )
    refusal = refusal_of(lambda: list(call(raw, timeout=10)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize(
    ("method", "response_type"),
    [
        ("synchub.v1.PresenceService/Heartbeat", HeartbeatResponse),
        ("synchub.v1.SyncService/PushEvents", PushEventsResponse),
    ],
)
def test_bytes_that_are_no_request_end_a_stream_in_band_and_by_status(
    grpc_channel: grpc.Channel,
    raw: bytes,
    method: str,
    response_type: type[HeartbeatResponse] | type[PushEventsResponse],
) -> None:
    call = grpc_channel.stream_stream(
        f"/{method}", request_serializer=bytes, response_deserializer=response_type.FromString
    )
    with Conversation(call) as stream:
        response = stream.ask(raw)
        assert isinstance(response, HeartbeatResponse | PushEventsResponse)
        assert refusal_from_status(response.error).reason == "INVALID_REQUEST"
        stream.half_close()
        refusal = stream.refusal()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


def test_a_refused_stream_ends_by_itself_where_the_client_never_closes_its_side(
    grpc_channel: grpc.Channel,
) -> None:
    call = grpc_channel.stream_stream(
        "/synchub.v1.PresenceService/Heartbeat",
        request_serializer=bytes,
        response_deserializer=HeartbeatResponse.FromString,
    )
    with Conversation(call) as stream:
        stream.send(b"\x0a\xff")
        assert stream.refusal().reason == "INVALID_REQUEST"


def test_a_refused_stream_ends_well_while_the_client_goes_on_sending(
    presence_stub: PresenceServiceStub,
) -> None:
    with Conversation(presence_stub.Heartbeat) as stream:
        for _ in range(2_000):
            stream.send(HeartbeatRequest(labels={"k": "v" * 1_000}))
        assert stream.read().HasField("error")
        assert stream.refusal().reason == "INVALID_REQUEST"


def test_an_unknown_method_is_unimplemented(grpc_channel: grpc.Channel) -> None:
    call = grpc_channel.unary_unary(
        "/synchub.v1.PresenceService/Nope",
        request_serializer=bytes,
        response_deserializer=ListRuntimesResponse.FromString,
    )
    assert refusal_of(lambda: call(b"")).code == grpc.StatusCode.UNIMPLEMENTED


def test_large_metadata_does_not_reach_a_handler(presence_stub: PresenceServiceStub) -> None:
    request = GetRuntimeRequest(hub_project="h", runtime_id="r")
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request, metadata=(("key", "v" * 100_000),)))
    assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_message_that_is_too_large_is_refused_by_its_size(presence_stub: PresenceServiceStub) -> None:
    request = GetRuntimeRequest(hub_project="h" * (9 * 1024 * 1024), runtime_id="r")
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request))
    assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert re.search("larger than max", refusal.message)


@pytest.mark.parametrize("hub_project", ["", " h", "h\0", "h" * 257, "\u0085"])
def test_a_hub_project_that_is_no_identifier_is_refused(
    presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    request = GetRuntimeRequest(hub_project=hub_project, runtime_id="r")
    refusal = refusal_of(lambda: presence_stub.GetRuntime(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert [each.field for each in refusal.violations] == ["hub_project"]
