"""Calls of LeaseService that are made again under their ``request_id``."""

from collections.abc import Callable
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from hub.rpc.codec_lease import RepeatableRequest
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.hub_service_pb2 import ROLE_RUNTIME, CreateTokenRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.leasing import (
    acquire,
    acquire_request,
    begin_request,
    expired,
    nonce,
    release,
    seconds,
    state_of,
    takeover_request,
)
from tests.contract.secured import SecuredHub

Answer = (
    messages.AcquireLeaseResponse
    | messages.TakeoverLeaseResponse
    | messages.BeginMaintenanceResponse
    | messages.ReleaseLeaseResponse
    | messages.TransferLeaseResponse
    | messages.AbortLeaseResponse
    | messages.FinishMaintenanceResponse
)
Parameters = Callable[[LeaseServiceStub, str], RepeatableRequest]


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Leases may be short, so that an expiry is seen soon."""
    return Limits(lease_ttl_seconds_min=0.05)


def acquire_parameters(_stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    return acquire_request(hub_project)


def takeover_parameters(stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    expired(stub, hub_project)
    return takeover_request(hub_project)


def begin_parameters(_stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    return begin_request(hub_project)


def release_parameters(stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    held = acquire(stub, hub_project)
    return messages.ReleaseLeaseRequest(hub_project=hub_project, credential=held.credential)


def transfer_parameters(stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    held = acquire(stub, hub_project)
    return messages.TransferLeaseRequest(
        hub_project=hub_project,
        credential=held.credential,
        next_runtime_id="runtime",
        next_holder_id="b",
    )


def abort_parameters(stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    acquire(stub, hub_project)
    return messages.AbortLeaseRequest(
        hub_project=hub_project, resource="r", reason=messages.ABORT_REASON_EXTERNAL
    )


def finish_parameters(stub: LeaseServiceStub, hub_project: str) -> RepeatableRequest:
    begun = stub.BeginMaintenance(begin_request(hub_project))
    return messages.FinishMaintenanceRequest(hub_project=hub_project, credential=begun.credential)


def make(stub: LeaseServiceStub, request: RepeatableRequest) -> Answer:
    match request:
        case messages.AcquireLeaseRequest():
            return stub.AcquireLease(request)
        case messages.TakeoverLeaseRequest():
            return stub.TakeoverLease(request)
        case messages.BeginMaintenanceRequest():
            return stub.BeginMaintenance(request)
        case messages.ReleaseLeaseRequest():
            return stub.ReleaseLease(request)
        case messages.TransferLeaseRequest():
            return stub.TransferLease(request)
        case messages.AbortLeaseRequest():
            return stub.AbortLease(request)
        case messages.FinishMaintenanceRequest():
            return stub.FinishMaintenance(request)


PARAMETERS: Final[list[Parameters]] = [
    acquire_parameters,
    takeover_parameters,
    begin_parameters,
    release_parameters,
    transfer_parameters,
    abort_parameters,
    finish_parameters,
]


def changed(request: RepeatableRequest) -> RepeatableRequest:
    """Another call of the same kind."""
    match request:
        case messages.AbortLeaseRequest():
            request.reason = messages.ABORT_REASON_INTERNAL
        case messages.TransferLeaseRequest():
            request.next_holder_id = "c"
        case messages.ReleaseLeaseRequest():
            request.credential.fencing_token += 1
        case messages.FinishMaintenanceRequest():
            request.delete_state = True
        case _:
            request.holder_id = "other"
    return request


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_the_same_call_again_is_answered_as_before_and_changes_nothing(
    lease_stub: LeaseServiceStub,
    hub_project: str,
    parameters: Parameters,
) -> None:
    request = parameters(lease_stub, hub_project)
    request.request_id = "q"
    first = make(lease_stub, request)
    after = state_of(lease_stub, hub_project)
    again = make(lease_stub, request)
    assert (first.replayed, again.replayed) == (False, True)
    again.replayed = False
    assert again == first
    assert state_of(lease_stub, hub_project) == after


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_another_call_under_a_used_id_is_a_conflict_and_changes_nothing(
    lease_stub: LeaseServiceStub,
    hub_project: str,
    parameters: Parameters,
) -> None:
    request = parameters(lease_stub, hub_project)
    request.request_id = "q"
    make(lease_stub, request)
    after = state_of(lease_stub, hub_project)
    refusal = refusal_of(lambda: make(lease_stub, changed(request)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT")
    assert refusal.metadata == {"field": "request_id", "id": "q"}
    assert state_of(lease_stub, hub_project) == after


def test_an_id_of_another_kind_of_call_is_a_conflict(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    request = acquire_request(hub_project, request_id="q")
    held = lease_stub.AcquireLease(request)
    other = messages.ReleaseLeaseRequest(request_id="q", hub_project=hub_project, credential=held.credential)
    assert refusal_of(lambda: lease_stub.ReleaseLease(other)).reason == "IDEMPOTENCY_CONFLICT"
    assert state_of(lease_stub, hub_project).lease.state == messages.LEASE_STATE_LIVE


@pytest.mark.parametrize("parameters", [acquire_parameters, takeover_parameters, begin_parameters])
def test_a_request_id_without_a_nonce_is_refused(
    lease_stub: LeaseServiceStub,
    hub_project: str,
    parameters: Parameters,
) -> None:
    request = parameters(lease_stub, hub_project)
    request.request_id = "q"
    request.ClearField("nonce")  # type: ignore[arg-type]  # these three have one
    refusal = refusal_of(lambda: make(lease_stub, request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert [each.field for each in refusal.violations] == ["nonce"]


def test_a_longer_wait_is_the_same_call(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    lease_stub.AcquireLease(acquire_request(hub_project, request_id="q"))
    again = lease_stub.AcquireLease(acquire_request(hub_project, request_id="q", wait=5))
    assert again.replayed


def test_a_refusal_leaves_no_receipt(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = acquire(lease_stub, hub_project)
    request = acquire_request(hub_project, holder_id="b", secret="b1", request_id="q")
    assert refusal_of(lambda: lease_stub.AcquireLease(request)).reason == "LEASE_HELD"
    release(lease_stub, hub_project, held)
    granted = lease_stub.AcquireLease(request)
    assert (granted.replayed, granted.lease.fencing_token) == (False, 2)


def test_a_replayed_answer_has_the_nonce_of_its_request(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    request = acquire_request(hub_project, request_id="q", ttl=5)
    first = lease_stub.AcquireLease(request)
    release(lease_stub, hub_project, first)
    again = lease_stub.AcquireLease(request)
    assert again.credential == first.credential
    assert again.credential.nonce == nonce("a1")
    # It is the answer of then, also where the lease has ended since.
    assert (again.lease.state, again.lease.ttl) == (messages.LEASE_STATE_LIVE, seconds(5))
    assert state_of(lease_stub, hub_project).lease.state == messages.LEASE_STATE_RELEASED


def test_an_id_is_a_hub_projects_own(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    assert not lease_stub.AcquireLease(acquire_request(hub_project, request_id="q")).replayed
    other = acquire_request(f"{hub_project}-other", "s", request_id="q")
    assert not lease_stub.AcquireLease(other).replayed


def test_an_id_is_a_credentials_own_whatever_its_name(secured_hub: SecuredHub) -> None:
    request = CreateTokenRequest(display_name="same", role=ROLE_RUNTIME, project_id_prefixes=["one-"])
    made = [secured_hub.stubs("one/operator").hub.CreateToken(request) for _ in range(2)]
    first, second = (secured_hub.stubs_showing(each.bearer_token).lease for each in made)
    acquired = acquire_request("", request_id="q")
    assert not first.AcquireLease(acquired).replayed
    assert first.AcquireLease(acquired).replayed
    assert not second.AcquireLease(acquired).replayed
