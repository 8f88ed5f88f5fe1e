"""What the refusals of leases look like on the wire."""

from typing import Final

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from hub.core.errors import IdempotencyConflict, Refusal
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
)
from hub.core.values import ResourceName
from hub.rpc.error_table import STATUS_BYTES_MAX, status_from_refusal
from synchub.channel import refusal_from_status
from synchub.contract import NANOS_PER_SECOND

NAME: Final = ResourceName("r")
EXPIRE: Final = 1_700_000_000 * NANOS_PER_SECOND
EXPIRE_TEXT: Final = "2023-11-14T22:13:20.000000000Z"
HELD: Final[list[Refusal]] = [
    LeaseHeld(NAME, "Ada", expire_nanos=EXPIRE, now_nanos=EXPIRE - 1_500_000_000),
    ResourceUnderMaintenance(NAME, "Ada", expire_nanos=EXPIRE, now_nanos=EXPIRE - 1_500_000_000),
]


def resource_info_of(status: status_pb2.Status) -> tuple[str, str, str]:
    info = error_details_pb2.ResourceInfo()
    assert [detail.Unpack(info) for detail in status.details].count(True) == 1
    return info.resource_type, info.resource_name, info.owner


@pytest.mark.parametrize("refusal", HELD, ids=lambda refusal: refusal.reason)
def test_what_is_held_says_by_whom_until_when_and_when_to_try_again(refusal: Refusal) -> None:
    status = status_from_refusal(refusal)
    told = refusal_from_status(status)
    assert (told.code, told.reason) == (grpc.StatusCode.FAILED_PRECONDITION, refusal.reason)
    assert told.metadata == {"resource": "r", "holderDisplayName": "Ada", "expireTime": EXPIRE_TEXT}
    assert told.retry_delay_seconds == 1.5
    assert resource_info_of(status) == ("resource", "r", "Ada")


def test_what_has_expired_meanwhile_may_be_tried_at_once() -> None:
    refusal = LeaseHeld(NAME, "Ada", expire_nanos=EXPIRE, now_nanos=EXPIRE + 1)
    assert refusal_from_status(status_from_refusal(refusal)).retry_delay_seconds == 0


def test_a_free_resource_for_which_others_wait_says_to_try_again_in_a_moment() -> None:
    told = refusal_from_status(status_from_refusal(LeaseHeld(NAME, "", expire_nanos=None, now_nanos=EXPIRE)))
    assert (told.metadata, told.retry_delay_seconds) == ({"resource": "r"}, 1.0)


@pytest.mark.parametrize(
    ("refusal", "code", "metadata"),
    [
        (
            LeaseFenced(NAME, 1, 2),
            grpc.StatusCode.FAILED_PRECONDITION,
            {"resource": "r", "fencingToken": "1"},
        ),
        (LeaseMissing(NAME, 0), grpc.StatusCode.FAILED_PRECONDITION, {"resource": "r"}),
        (
            LeaseSuperseded(NAME, 1),
            grpc.StatusCode.FAILED_PRECONDITION,
            {"resource": "r", "fencingToken": "1"},
        ),
        (
            LeaseExpired(NAME, 1, EXPIRE),
            grpc.StatusCode.FAILED_PRECONDITION,
            {"resource": "r", "fencingToken": "1", "expireTime": EXPIRE_TEXT},
        ),
        (
            IdempotencyConflict("request_id", "q"),
            grpc.StatusCode.ALREADY_EXISTS,
            {"field": "request_id", "id": "q"},
        ),
    ],
    ids=lambda value: value.reason if isinstance(value, Refusal) else "",
)
def test_trying_again_does_not_help_where_the_lease_is_lost(
    refusal: Refusal, code: grpc.StatusCode, metadata: dict[str, str]
) -> None:
    told = refusal_from_status(status_from_refusal(refusal))
    assert (told.code, told.reason, told.metadata) == (code, refusal.reason, metadata)
    assert told.retry_delay_seconds is None


def test_the_longest_names_fit_into_a_status() -> None:
    longest = ResourceName("ä" * 128)
    refusal = LeaseHeld(longest, "ö" * 128, expire_nanos=EXPIRE, now_nanos=0)
    status = status_from_refusal(refusal)
    assert status.ByteSize() <= STATUS_BYTES_MAX
    assert len(status.details) == 3
    assert refusal_from_status(status).metadata["holderDisplayName"] == "ö" * 128
