"""What breaks a bound in a call of LeaseService is refused, named field by field, and changes nothing."""

from collections.abc import Callable
from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.leasing import acquire, nonce, state_of

Call = Callable[[LeaseServiceStub], object]

BAD: Final = "bad\n"
CREDENTIAL: Final = messages.LeaseCredential(
    resource=BAD, runtime_id=BAD, holder_id=BAD, fencing_token=-1, nonce="secret-but-short"
)
CREDENTIAL_FIELDS: Final = [
    "credential.resource",
    "credential.runtime_id",
    "credential.holder_id",
    "credential.fencing_token",
    "credential.nonce",
]
MALFORMED: Final = Duration(seconds=1, nanos=-1)

BAD_CALLS: Final[dict[str, tuple[Call, list[str]]]] = {
    "AcquireLease": (
        lambda stub: stub.AcquireLease(
            messages.AcquireLeaseRequest(
                request_id=BAD,
                runtime_id=BAD,
                holder_display_name=BAD,
                nonce="secret-but-short",
                ttl=Duration(seconds=-1),
                labels={"k" * 129: ""},
                wait_timeout=Duration(seconds=601),
            )
        ),
        [
            "hub_project",
            "resource",
            "runtime_id",
            "holder_id",
            "holder_display_name",
            "nonce",
            "labels",
            "ttl",
            "request_id",
            "wait_timeout",
        ],
    ),
    "RenewLease": (
        lambda stub: stub.RenewLease(messages.RenewLeaseRequest(credential=CREDENTIAL, ttl=MALFORMED)),
        ["hub_project", *CREDENTIAL_FIELDS, "ttl"],
    ),
    "ReleaseLease": (
        lambda stub: stub.ReleaseLease(messages.ReleaseLeaseRequest(request_id=BAD, credential=CREDENTIAL)),
        ["hub_project", *CREDENTIAL_FIELDS, "request_id"],
    ),
    "TransferLease": (
        lambda stub: stub.TransferLease(
            messages.TransferLeaseRequest(
                request_id=BAD,
                credential=CREDENTIAL,
                next_runtime_id=BAD,
                next_holder_display_name=BAD,
                ttl=MALFORMED,
            )
        ),
        [
            "hub_project",
            *CREDENTIAL_FIELDS,
            "next_runtime_id",
            "next_holder_id",
            "next_holder_display_name",
            "ttl",
            "request_id",
        ],
    ),
    "TakeoverLease": (
        lambda stub: stub.TakeoverLease(
            messages.TakeoverLeaseRequest(
                request_id=BAD,
                holder_id=BAD,
                holder_display_name=BAD,
                nonce="secret-but-short",
                ttl=MALFORMED,
                labels={"": ""},
            )
        ),
        [
            "hub_project",
            "resource",
            "runtime_id",
            "holder_id",
            "holder_display_name",
            "nonce",
            "labels",
            "ttl",
            "request_id",
        ],
    ),
    "AbortLease": (
        lambda stub: stub.AbortLease(messages.AbortLeaseRequest(request_id=BAD, fencing_token=-1)),
        ["hub_project", "resource", "fencing_token", "reason", "request_id"],
    ),
    "CheckLease": (
        lambda stub: stub.CheckLease(messages.CheckLeaseRequest(nonce="secret-but-short")),
        ["hub_project", "resource", "fencing_token", "nonce"],
    ),
    "GetLease": (
        lambda stub: stub.GetLease(messages.GetLeaseRequest(resource=BAD)),
        ["hub_project", "resource"],
    ),
    "ListLeases": (
        lambda stub: stub.ListLeases(messages.ListLeasesRequest(page_size=-1, page_token="x")),
        ["hub_project", "page_size", "page_token"],
    ),
    "WatchLeases": (
        lambda stub: list(stub.WatchLeases(messages.WatchLeasesRequest(hub_project=BAD))),
        ["hub_project"],
    ),
    "BeginMaintenance": (
        lambda stub: stub.BeginMaintenance(
            messages.BeginMaintenanceRequest(
                request_id=BAD,
                runtime_id=BAD,
                holder_display_name=BAD,
                nonce="secret-but-short",
                ttl=Duration(nanos=-1),
            )
        ),
        [
            "hub_project",
            "resource",
            "runtime_id",
            "holder_id",
            "holder_display_name",
            "nonce",
            "ttl",
            "request_id",
        ],
    ),
    "RenewMaintenance": (
        lambda stub: stub.RenewMaintenance(
            messages.RenewMaintenanceRequest(credential=CREDENTIAL, ttl=MALFORMED)
        ),
        ["hub_project", *CREDENTIAL_FIELDS, "ttl"],
    ),
    "FinishMaintenance": (
        lambda stub: stub.FinishMaintenance(
            messages.FinishMaintenanceRequest(request_id=BAD, credential=CREDENTIAL)
        ),
        ["hub_project", *CREDENTIAL_FIELDS, "request_id"],
    ),
    "GetResourceState": (
        lambda stub: stub.GetResourceState(messages.GetResourceStateRequest()),
        ["hub_project", "resource"],
    ),
}


def test_every_call_with_one_request_is_here() -> None:
    service = messages.DESCRIPTOR.services_by_name["LeaseService"]
    assert set(BAD_CALLS) == {method.name for method in service.methods} - {"RenewLeases"}


@pytest.mark.parametrize("method", BAD_CALLS)
def test_all_that_is_wrong_with_a_call_is_named_at_once(lease_stub: LeaseServiceStub, method: str) -> None:
    call, fields = BAD_CALLS[method]
    refusal = refusal_of(lambda: call(lease_stub))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert [each.field for each in refusal.violations] == fields
    assert "secret-but-short" not in repr(refusal)


WITHOUT_A_CREDENTIAL: Final[dict[str, Call]] = {
    "RenewLease": lambda stub: stub.RenewLease(messages.RenewLeaseRequest(hub_project="h")),
    "ReleaseLease": lambda stub: stub.ReleaseLease(messages.ReleaseLeaseRequest(hub_project="h")),
    "TransferLease": lambda stub: stub.TransferLease(
        messages.TransferLeaseRequest(hub_project="h", next_runtime_id="r", next_holder_id="b")
    ),
    "RenewMaintenance": lambda stub: stub.RenewMaintenance(messages.RenewMaintenanceRequest(hub_project="h")),
    "FinishMaintenance": lambda stub: stub.FinishMaintenance(
        messages.FinishMaintenanceRequest(hub_project="h")
    ),
}


@pytest.mark.parametrize("method", WITHOUT_A_CREDENTIAL)
def test_a_credential_that_is_not_there_is_missed_once(lease_stub: LeaseServiceStub, method: str) -> None:
    refusal = refusal_of(lambda: WITHOUT_A_CREDENTIAL[method](lease_stub))
    assert [(each.field, each.description) for each in refusal.violations] == [("credential", "is missing")]


def test_a_call_that_breaks_a_bound_changes_nothing(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = acquire(lease_stub, hub_project)
    before = state_of(lease_stub, hub_project)
    renewal = messages.RenewLeaseRequest(
        hub_project=hub_project, credential=held.credential, ttl=Duration(seconds=-5)
    )
    refusal = refusal_of(lambda: lease_stub.RenewLease(renewal))
    assert [each.field for each in refusal.violations] == ["ttl"]
    assert state_of(lease_stub, hub_project) == before


@pytest.mark.parametrize("number", [3, 2**31 - 1, -1])
def test_a_number_that_is_no_abort_reason_is_refused(
    lease_stub: LeaseServiceStub, hub_project: str, number: int
) -> None:
    acquire(lease_stub, hub_project)
    request = messages.AbortLeaseRequest(hub_project=hub_project, resource="r")
    # As a client with a newer contract would send it.
    request.MergeFromString(bytes([5 << 3]) + varint(number))
    refusal = refusal_of(lambda: lease_stub.AbortLease(request))
    assert [each.field for each in refusal.violations] == ["reason"]
    assert not state_of(lease_stub, hub_project).lease.is_abort_requested


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    number %= 1 << 64
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def test_a_wait_that_is_too_long_names_its_limit(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    request = messages.AcquireLeaseRequest(
        hub_project=hub_project,
        resource="r",
        runtime_id="runtime",
        holder_id="a",
        nonce=nonce("a1"),
        wait_timeout=Duration(seconds=600, nanos=1),
    )
    (violation,) = refusal_of(lambda: lease_stub.AcquireLease(request)).violations
    assert violation.field == "wait_timeout"
    assert "lease_wait_seconds_max" in violation.description


@pytest.mark.parametrize(
    ("asked", "granted_seconds"), [(None, 10), (Duration(), 10), (Duration(nanos=1), 1), (10**9, 3_600)]
)
def test_a_ttl_is_brought_within_its_bounds_and_the_granted_one_told(
    lease_stub: LeaseServiceStub, hub_project: str, asked: Duration | int | None, granted_seconds: int
) -> None:
    request = messages.AcquireLeaseRequest(
        hub_project=hub_project,
        resource="r",
        runtime_id="runtime",
        holder_id="a",
        ttl=Duration(seconds=asked) if isinstance(asked, int) else asked,
    )
    lease = lease_stub.AcquireLease(request).lease
    assert lease.ttl.ToSeconds() == granted_seconds
    lasting = lease.expire_time.ToNanoseconds() - lease.renew_time.ToNanoseconds()
    assert lasting == granted_seconds * 10**9
