"""Addresses, channels, and errors as values."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from synchub import channel
from synchub.channel import AddressError, FieldViolation, HubAddress, Refusal, parse_addresses
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub


def packed(message: Message) -> AnyMessage:
    detail = AnyMessage()
    detail.Pack(message)
    return detail


def test_addresses_are_read_in_their_order_and_each_once() -> None:
    assert parse_addresses(" 127.0.0.1:7443 , [::1]:1,hub.example:65535,127.0.0.1:7443") == (
        HubAddress("127.0.0.1", 7443),
        HubAddress("::1", 1),
        HubAddress("hub.example", 65535),
    )


def test_addresses_are_written_as_they_are_read() -> None:
    text = "127.0.0.1:7443,[::1]:1,hub.example:65535"
    assert channel.addresses_text(parse_addresses(text)) == text


@pytest.mark.parametrize(
    ("text", "part_of_the_sentence"),
    [
        ("", "no address of a hub is given"),
        ("  ", "no address of a hub is given"),
        ("a:1,", "has no host or no port"),
        ("hub", "has no host or no port"),
        (":7443", "has no host or no port"),
        ("hub:", "is no number"),
        ("hub:http", "is no number"),
        ("hub:+1", "is no number"),
        ("hub:0", "is not between 1 and 65535"),
        ("hub:65536", "is not between 1 and 65535"),
        ("hub:999999", "is no number"),
        ("::1:7443", "IPv6 host without brackets"),
        ("[hub]:7443", "brackets around what is no IPv6 address"),
        ("http://hub:7443", "looks like a URL"),
        ("a b:1", "is not a name in ASCII"),
        (",".join(f"h{n}:1" for n in range(17)), "17 addresses are given; at most 16"),
    ],
)
def test_a_wrong_address_is_told_in_a_sentence(text: str, part_of_the_sentence: str) -> None:
    with pytest.raises(AddressError, match=part_of_the_sentence):
        parse_addresses(text)


def test_one_name_is_left_to_grpc_and_several_are_resolved() -> None:
    assert channel.resolve_names(parse_addresses("localhost:1")) == ()
    resolved = channel.resolve_names(parse_addresses("localhost:1,127.0.0.2:2,no-such-host.invalid:3"))
    assert {address.port for address in resolved} == {1, 2}
    assert HubAddress("127.0.0.2", 2) in resolved


def test_a_hub_that_is_not_there_is_explained_with_its_address() -> None:
    addresses = parse_addresses("127.0.0.1:1")
    with channel.dial(addresses) as connection, pytest.raises(grpc.RpcError) as caught:
        HubServiceStub(connection).GetHubInfo(GetHubInfoRequest(), timeout=5)
    refusal = channel.refusal_from_error(caught.value)
    assert refusal.is_connection_loss
    assert refusal.code is grpc.StatusCode.UNAVAILABLE
    assert channel.explain(refusal, addresses).startswith("no hub can be reached at 127.0.0.1:1 (")


def test_several_addresses_of_both_families_make_one_channel() -> None:
    addresses = parse_addresses("127.0.0.1:1,[::1]:1")
    with channel.dial(addresses) as connection, pytest.raises(grpc.RpcError) as caught:
        HubServiceStub(connection).GetHubInfo(GetHubInfoRequest(), timeout=5)
    assert channel.refusal_from_error(caught.value).code is grpc.StatusCode.UNAVAILABLE


async def test_the_channel_for_event_loops_meets_the_same_refusal() -> None:
    async with await channel.dial_aio(parse_addresses("127.0.0.1:1,127.0.0.2:1")) as connection:
        with pytest.raises(grpc.RpcError) as caught:
            await HubServiceStub(connection).GetHubInfo(GetHubInfoRequest(), timeout=5)
    assert channel.refusal_from_error(caught.value).code is grpc.StatusCode.UNAVAILABLE


def test_a_status_in_band_is_decoded_with_all_its_details() -> None:
    status = status_pb2.Status(
        code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
        message="too much",
        details=[
            packed(
                error_details_pb2.ErrorInfo(
                    domain="synchub", reason="RATE_LIMITED", metadata={"projectId": "p"}
                )
            ),
            packed(
                error_details_pb2.BadRequest(
                    field_violations=[
                        error_details_pb2.BadRequest.FieldViolation(field="events[0]", description="is odd")
                    ]
                )
            ),
            packed(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))),
        ],
    )
    assert channel.refusal_from_status(status) == Refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "too much",
        reason="RATE_LIMITED",
        metadata={"projectId": "p"},
        violations=(FieldViolation("events[0]", "is odd"),),
        retry_delay_seconds=1.5,
    )


def test_details_of_others_and_broken_ones_are_left_out() -> None:
    status = status_pb2.Status(
        code=999,
        message="odd",
        details=[
            packed(error_details_pb2.ErrorInfo(domain="elsewhere", reason="OTHER")),
            AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff"),
            packed(error_details_pb2.Help()),
        ],
    )
    assert channel.refusal_from_status(status) == Refusal(grpc.StatusCode.UNKNOWN, "odd")


def test_field_violations_are_explained_by_the_first_three() -> None:
    refusal = Refusal(
        grpc.StatusCode.INVALID_ARGUMENT,
        "bad",
        reason="INVALID_REQUEST",
        violations=tuple(FieldViolation(f"f{n}", "is odd") for n in range(5)),
    )
    assert channel.explain(refusal, ()) == "the hub refused the request: f0 is odd; f1 is odd; f2 is odd"


def test_only_calls_that_may_be_sent_twice_are_retried() -> None:
    retried = {method for methods in channel.IDEMPOTENT_UNARY_METHODS.values() for method in methods}
    assert "ReleaseProject" not in retried
    assert retried.isdisjoint({"PushEvents", "Heartbeat", "WatchEvents", "ExportEvents"})
    assert {"RenewLease", "RenewMaintenance", "GetLease", "CheckLease"} <= retried
    # Sent again without a nonce or a request id of the caller's, these would do something else.
    assert retried.isdisjoint(
        {"AcquireLease", "TakeoverLease", "TransferLease", "ReleaseLease", "AbortLease"}
    )
