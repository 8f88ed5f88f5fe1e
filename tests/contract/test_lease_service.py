"""LeaseService over the wire: what each unary call answers."""

from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.leasing import (
    CALL_SECONDS_MAX,
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

LIVE: Final = messages.LEASE_STATE_LIVE


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Leases may be short, so that an expiry is seen soon."""
    return Limits(lease_ttl_seconds_min=0.05)


# --- each call ---


def test_a_free_resource_is_acquired(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    request = acquire_request(
        hub_project, runtime_id="rüntime", ttl=7.5, display_name="Ada", labels={"pid": "1", "empty": ""}
    )
    answer = lease_stub.AcquireLease(request)
    lease = answer.lease
    acquire_nanos = lease.acquire_time.ToNanoseconds()
    assert lease.renew_time == lease.acquire_time
    assert lease.expire_time.ToNanoseconds() == acquire_nanos + 7_500_000_000
    for field in ("acquire_time", "renew_time", "expire_time"):
        lease.ClearField(field)
    assert lease == messages.Lease(
        resource="r",
        runtime_id="rüntime",
        holder_id="a",
        holder_display_name="Ada",
        fencing_token=1,
        ttl=seconds(7.5),
        labels={"pid": "1", "empty": ""},
        state=LIVE,
    )
    assert answer.credential == messages.LeaseCredential(
        resource="r", runtime_id="rüntime", holder_id="a", fencing_token=1, nonce=nonce("a1")
    )
    assert (answer.renewed, answer.replayed) == (False, False)
    assert 0 <= answer.waited.ToNanoseconds() < CALL_SECONDS_MAX * 1e9


def test_the_hub_makes_a_nonce_where_the_caller_has_none(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    nonces = {acquire(lease_stub, hub_project, name, secret="").credential.nonce for name in "pqr"}
    nonces.add(lease_stub.BeginMaintenance(begin_request(hub_project, secret="")).credential.nonce)
    assert {len(each) for each in nonces} == {22}
    assert len(nonces) == 4


def test_a_credential_made_by_the_hub_renews(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = acquire(lease_stub, hub_project, secret="")
    request = messages.RenewLeaseRequest(hub_project=hub_project, credential=held.credential)
    assert lease_stub.RenewLease(request).lease.fencing_token == 1


def test_the_same_holder_and_nonce_get_the_same_tenure(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    first = acquire(lease_stub, hub_project)
    again = acquire(lease_stub, hub_project)
    assert (again.renewed, again.lease.fencing_token) == (True, 1)
    assert again.lease.acquire_time == first.lease.acquire_time
    assert again.lease.expire_time.ToNanoseconds() > first.lease.expire_time.ToNanoseconds()
    anew = acquire(lease_stub, hub_project, secret="a2")
    assert (anew.renewed, anew.lease.fencing_token) == (False, 2)


def test_a_renewal_is_from_now_on_and_keeps_the_ttl(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = acquire(lease_stub, hub_project)
    request = messages.RenewLeaseRequest(hub_project=hub_project, credential=held.credential)
    request.ttl.FromSeconds(2)
    shorter = lease_stub.RenewLease(request).lease
    request.ClearField("ttl")
    same = lease_stub.RenewLease(request).lease
    assert shorter.expire_time.ToNanoseconds() < held.lease.expire_time.ToNanoseconds()
    assert [shorter.ttl, same.ttl] == [seconds(2), seconds(2)]
    assert same.renew_time.ToNanoseconds() > shorter.renew_time.ToNanoseconds()
    assert same.acquire_time == held.lease.acquire_time


def test_a_released_resource_is_free_and_its_next_token_larger(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    release(lease_stub, hub_project, acquire(lease_stub, hub_project))
    assert state_of(lease_stub, hub_project).lease.state == messages.LEASE_STATE_RELEASED
    assert acquire(lease_stub, hub_project, holder_id="b", secret="b1").lease.fencing_token == 2


def test_a_lease_held_by_another_is_refused_with_who_and_until_when(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = lease_stub.AcquireLease(acquire_request(hub_project, display_name="Ada"))
    refusal = refusal_of(lambda: acquire(lease_stub, hub_project, holder_id="b", secret="b1"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_HELD")
    assert refusal.metadata == {
        "resource": "r",
        "holderDisplayName": "Ada",
        "expireTime": held.lease.expire_time.ToJsonString(),
    }
    assert refusal.retry_delay_seconds is not None
    assert 0 < refusal.retry_delay_seconds <= 10


def test_who_waits_is_granted_the_lease_when_it_is_released(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    waiting = lease_stub.AcquireLease.future(
        acquire_request(hub_project, holder_id="b", secret="b1", wait=CALL_SECONDS_MAX, display_name="Bob"),
        timeout=CALL_SECONDS_MAX,
    )
    while (state := state_of(lease_stub, hub_project)).waiter_count == 0:
        assert not waiting.done()
    (waiter,) = state.waiters
    assert (waiter.runtime_id, waiter.holder_id, waiter.holder_display_name) == ("runtime", "b", "Bob")
    assert waiter.wait_begin_time.ToNanoseconds() > held.lease.acquire_time.ToNanoseconds()
    release(lease_stub, hub_project, held)
    granted = waiting.result()
    assert granted.lease.fencing_token == 2
    queued = granted.lease.acquire_time.ToNanoseconds() - waiter.wait_begin_time.ToNanoseconds()
    assert granted.waited.ToNanoseconds() == queued
    assert state_of(lease_stub, hub_project).waiter_count == 0


def test_a_transferred_lease_is_unclaimed_until_its_next_holder_acquires_it(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    request = messages.TransferLeaseRequest(
        hub_project=hub_project,
        credential=held.credential,
        next_runtime_id="runtime",
        next_holder_id="b",
        next_holder_display_name="Bob",
        ttl=seconds(4),
    )
    lease = lease_stub.TransferLease(request).lease
    assert (lease.fencing_token, lease.holder_id, lease.holder_display_name) == (2, "b", "Bob")
    assert (lease.state, lease.ttl) == (messages.LEASE_STATE_UNCLAIMED, seconds(4))
    claimed = acquire(lease_stub, hub_project, holder_id="b", secret="b1")
    assert (claimed.renewed, claimed.lease.fencing_token, claimed.lease.state) == (True, 2, LIVE)


def test_an_expired_lease_is_taken_over(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    expired(lease_stub, hub_project)
    taken = lease_stub.TakeoverLease(takeover_request(hub_project))
    assert (taken.lease.fencing_token, taken.lease.holder_id, taken.lease.state) == (2, "b", LIVE)
    assert (taken.credential.fencing_token, taken.credential.nonce) == (2, nonce("b1"))
    assert not taken.replayed


def test_an_abort_shows_in_every_renewal_and_external_stays(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    reasons = (messages.ABORT_REASON_INTERNAL, messages.ABORT_REASON_EXTERNAL, messages.ABORT_REASON_INTERNAL)
    shown: list[int] = []
    for reason in reasons:
        request = messages.AbortLeaseRequest(
            hub_project=hub_project, resource="r", fencing_token=1, reason=reason
        )
        aborted = lease_stub.AbortLease(request).lease
        renewed = lease_stub.RenewLease(
            messages.RenewLeaseRequest(hub_project=hub_project, credential=held.credential)
        ).lease
        assert (aborted.is_abort_requested, renewed.is_abort_requested) == (True, True)
        assert aborted.abort_reason == renewed.abort_reason
        shown.append(renewed.abort_reason)
    assert shown == [reasons[0], reasons[1], reasons[1]]


def test_an_abort_without_a_token_means_whoever_holds_it(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    acquire(lease_stub, hub_project)
    request = messages.AbortLeaseRequest(
        hub_project=hub_project, resource="r", reason=messages.ABORT_REASON_EXTERNAL
    )
    lease = lease_stub.AbortLease(request).lease
    assert (lease.fencing_token, lease.abort_reason) == (1, messages.ABORT_REASON_EXTERNAL)


def test_a_check_says_whether_a_token_is_current_or_why_not(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    def check(fencing_token: int, secret: str = "") -> messages.CheckLeaseResponse:
        return lease_stub.CheckLease(
            messages.CheckLeaseRequest(
                hub_project=hub_project,
                resource="r",
                fencing_token=fencing_token,
                nonce=nonce(secret) if secret else "",
            )
        )

    missing = messages.CheckLeaseResponse(reason=messages.STALE_CAUSE_LEASE_MISSING)
    superseded = messages.CheckLeaseResponse(reason=messages.STALE_CAUSE_LEASE_SUPERSEDED)
    assert check(1) == missing
    held = acquire(lease_stub, hub_project)
    current = messages.CheckLeaseResponse(is_current=True, expire_time=held.lease.expire_time)
    assert [check(1), check(1, "a1"), check(1, "other"), check(2)] == [
        current,
        current,
        superseded,
        superseded,
    ]
    release(lease_stub, hub_project, held)
    assert check(1) == missing
    begun = lease_stub.BeginMaintenance(begin_request(hub_project))
    assert check(1) == messages.CheckLeaseResponse(reason=messages.STALE_CAUSE_LEASE_FENCED)
    assert check(2, "m1") == messages.CheckLeaseResponse(is_current=True, expire_time=begun.expire_time)


def test_a_check_of_an_expired_lease_says_so(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    expired(lease_stub, hub_project)
    request = messages.CheckLeaseRequest(hub_project=hub_project, resource="r", fencing_token=1)
    expected = messages.CheckLeaseResponse(reason=messages.STALE_CAUSE_LEASE_EXPIRED)
    assert lease_stub.CheckLease(request) == expected


def test_a_lease_is_read_back_without_its_nonce(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = acquire(lease_stub, hub_project)
    request = messages.GetLeaseRequest(hub_project=hub_project, resource="r")
    answer = lease_stub.GetLease(request)
    assert answer.lease == held.lease
    assert nonce("a1") not in str(answer)


def test_a_resource_without_a_lease_has_none_to_read(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    lease_stub.BeginMaintenance(begin_request(hub_project))
    request = messages.GetLeaseRequest(hub_project=hub_project, resource="r")
    refusal = refusal_of(lambda: lease_stub.GetLease(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert refusal.metadata == {"resource": "r"}


def test_a_resource_that_was_never_used_reads_as_the_floor(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    assert state_of(lease_stub, hub_project) == messages.GetResourceStateResponse()


def test_a_maintenance_is_begun_renewed_and_finished(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = lease_stub.AcquireLease(acquire_request(hub_project, labels={"pid": "1"}))
    begun = lease_stub.BeginMaintenance(begin_request(hub_project))
    assert (begun.epoch, begun.ttl, begun.replayed) == (1, seconds(30), False)
    assert begun.credential == messages.LeaseCredential(
        resource="r", runtime_id="operator", holder_id="m", fencing_token=2, nonce=nonce("m1")
    )
    state = state_of(lease_stub, hub_project)
    assert (state.fencing_token, state.epoch) == (2, 1)
    assert (state.lease.fencing_token, state.lease.state) == (1, messages.LEASE_STATE_FENCED)
    assert (state.maintenance.state, state.maintenance.is_maintenance) == (LIVE, True)
    assert state.maintenance.expire_time == begun.expire_time

    renewal = messages.RenewMaintenanceRequest(hub_project=hub_project, credential=begun.credential)
    renewal.ttl.FromSeconds(60)
    renewed = lease_stub.RenewMaintenance(renewal)
    assert (renewed.epoch, renewed.ttl) == (1, seconds(60))
    assert renewed.expire_time.ToNanoseconds() > begun.expire_time.ToNanoseconds()

    finished = lease_stub.FinishMaintenance(
        messages.FinishMaintenanceRequest(
            hub_project=hub_project, credential=begun.credential, delete_state=True
        )
    )
    assert finished == messages.FinishMaintenanceResponse(epoch=1)
    state = state_of(lease_stub, hub_project)
    assert (dict(held.lease.labels), dict(state.lease.labels)) == ({"pid": "1"}, {})
    assert (state.fencing_token, state.epoch) == (2, 1)
    anew = acquire(lease_stub, hub_project, secret="a2").lease
    assert (anew.fencing_token, anew.epoch) == (3, 1)


def test_a_resource_under_maintenance_is_refused_with_who_and_until_when(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    begun = lease_stub.BeginMaintenance(begin_request(hub_project))
    refusal = refusal_of(lambda: acquire(lease_stub, hub_project))
    assert refusal.reason == "RESOURCE_UNDER_MAINTENANCE"
    assert refusal.metadata == {
        "resource": "r",
        "holderDisplayName": "m",
        "expireTime": begun.expire_time.ToJsonString(),
    }
    assert refusal.retry_delay_seconds is not None
    assert 0 < refusal.retry_delay_seconds <= 30
