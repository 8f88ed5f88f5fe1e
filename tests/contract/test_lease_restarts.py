"""Leases over restarts of a real hub: waiters, receipts, aborts, and a wall clock that steps back."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.lease_calls import LeaseCalls, refused

TTL: Final = 10.0
WALL_NANOS: Final = 1_800_000_000_000_000_000
DAY_NANOS: Final = 86_400_000_000_000
EXPIRED: Final = messages.LEASE_STATE_EXPIRED


@contextmanager
def life(
    folder: Path, clock: HandClock | None = None, *, wall_nanos: int = WALL_NANOS
) -> Iterator[LeaseCalls]:
    """One life of a hub over the store in a folder; its wall clock shows this."""
    with (
        hub_in_hand(folder, clock or HandClock(), wall_nanos=wall_nanos) as hub,
        grpc.insecure_channel(hub.address) as channel,
    ):
        yield LeaseCalls(LeaseServiceStub(channel), "h")


def copied(folder: Path, copy: Path) -> Path:
    """The store as a kill at this moment would leave it."""
    shutil.copytree(folder, copy)
    return copy


def told_by_renewal(calls: LeaseCalls, held: messages.AcquireLeaseResponse) -> None:
    assert refused(calls.renew, held.credential) == "LEASE_EXPIRED"


def told_by_check(calls: LeaseCalls, _held: messages.AcquireLeaseResponse) -> None:
    assert calls.stale_cause(1) == "LEASE_EXPIRED"


def told_by_state(calls: LeaseCalls, _held: messages.AcquireLeaseResponse) -> None:
    assert calls.state().lease.state == EXPIRED


def told_by_get(calls: LeaseCalls, _held: messages.AcquireLeaseResponse) -> None:
    request = messages.GetLeaseRequest(hub_project=calls.hub_project, resource=calls.resource)
    assert calls.stub.GetLease(request).lease.state == EXPIRED


def told_by_list(calls: LeaseCalls, _held: messages.AcquireLeaseResponse) -> None:
    request = messages.ListLeasesRequest(hub_project=calls.hub_project, include_ended=True)
    assert [lease.state for lease in calls.stub.ListLeases(request).leases] == [EXPIRED]


@pytest.mark.parametrize("tell", [told_by_renewal, told_by_check, told_by_state, told_by_get, told_by_list])
def test_an_expiry_that_was_told_is_not_revived_by_a_kill_and_a_wall_clock_that_steps_back(
    tmp_path: Path, tell: Callable[[LeaseCalls, messages.AcquireLeaseResponse], None]
) -> None:
    clock = HandClock()
    (tmp_path / "hub").mkdir()
    with life(tmp_path / "hub", clock) as calls:
        held = calls.acquire()
        clock.pass_time(TTL)
        tell(calls, held)
        killed = copied(tmp_path / "hub", tmp_path / "killed")
    for wall_nanos in (WALL_NANOS - DAY_NANOS, WALL_NANOS):
        with life(killed, wall_nanos=wall_nanos) as calls:
            told_by_renewal(calls, held)
            told_by_check(calls, held)
            assert calls.state().lease == with_state(held.lease, EXPIRED)


def with_state(lease: messages.Lease, state: messages.LeaseState.ValueType) -> messages.Lease:
    changed = messages.Lease()
    changed.CopyFrom(lease)
    changed.state = state
    return changed


def test_a_live_lease_lives_on_over_a_restart_until_its_expire_time(tmp_path: Path) -> None:
    clock = HandClock()
    with life(tmp_path, clock) as calls:
        held = calls.acquire()
        clock.pass_time(TTL / 2)
    clock = HandClock()
    with life(tmp_path, clock, wall_nanos=WALL_NANOS - DAY_NANOS) as calls:
        assert calls.state().lease == held.lease
        clock.pass_time(TTL)
        assert refused(calls.renew, held.credential) == "LEASE_EXPIRED"


def test_a_wall_clock_that_is_ahead_at_the_restart_ends_what_it_has_passed(tmp_path: Path) -> None:
    with life(tmp_path) as calls:
        held = calls.acquire()
    with life(tmp_path, wall_nanos=held.lease.expire_time.ToNanoseconds()) as calls:
        assert refused(calls.renew, held.credential) == "LEASE_EXPIRED"
        assert calls.takeover().lease.fencing_token == 2
    with life(tmp_path, wall_nanos=held.lease.expire_time.ToNanoseconds() - 1) as calls:
        assert calls.state().lease.holder_id == "b"


def test_who_waits_at_a_restart_is_told_so_and_waits_again_under_the_same_nonce(tmp_path: Path) -> None:
    with hub_in_hand(tmp_path, HandClock()) as hub, grpc.insecure_channel(hub.address) as channel:
        calls = LeaseCalls(LeaseServiceStub(channel), "h")
        held = calls.acquire(ttl=3_600)
        waiting = [calls.waiting(name, f"{name}1") for name in "bcd"]
        hub.begin_stop()
        refusals = [refusal_of(call.result) for call in waiting]
    assert [(refusal.code, refusal.reason) for refusal in refusals] == [
        (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING")
    ] * 3
    with life(tmp_path, wall_nanos=held.lease.acquire_time.ToNanoseconds()) as calls:
        state = calls.state()
        assert (state.lease, state.waiter_count) == (held.lease, 0)
        # Whoever comes back first is first.
        again = [calls.waiting(name, f"{name}1") for name in "dbc"]
        calls.release(held.credential)
        granted = again[0].result()
        assert (granted.lease.holder_id, granted.lease.fencing_token) == ("d", 2)
        assert not again[1].done()
        for call in again[1:]:
            call.cancel()


def test_receipts_nonces_fences_and_aborts_outlive_a_restart(tmp_path: Path) -> None:
    with life(tmp_path) as calls:
        fenced = calls.acquire("f", "f1")
        calls.finish(calls.begin().credential)
        first = calls.acquire(request_id="q")
        calls.abort(request_id="abort")
    with life(tmp_path) as calls:
        replayed = calls.acquire(request_id="q")
        assert (replayed.replayed, replayed.lease) == (True, first.lease)
        assert calls.abort(request_id="abort").replayed
        assert refused(calls.acquire, "x", "x1", request_id="q") == "IDEMPOTENCY_CONFLICT"
        assert refused(calls.renew, fenced.credential) == "LEASE_FENCED"
        assert refused(calls.begin) == "LEASE_SUPERSEDED"
        assert calls.renew(first.credential).lease.is_abort_requested
        assert calls.acquire("a", "a2").lease.fencing_token == 4
        assert refused(calls.acquire, "a", "a1") == "LEASE_SUPERSEDED"


def test_an_abort_of_before_the_restart_is_told_with_the_first_heartbeat_after_it(tmp_path: Path) -> None:
    with life(tmp_path) as calls:
        calls.acquire()
        calls.abort()
    with (
        hub_in_hand(tmp_path, HandClock(), wall_nanos=WALL_NANOS) as hub,
        grpc.insecure_channel(hub.address) as channel,
        Conversation(PresenceServiceStub(channel).Heartbeat) as stream,
    ):
        answer = stream.ask(HeartbeatRequest(hub_project="h", runtime_id="runtime", instance_id="one"))
    (notice,) = answer.notices
    assert (notice.lease_abort.resource, notice.lease_abort.fencing_token) == ("r", 1)
    assert notice.lease_abort.reason == messages.ABORT_REASON_EXTERNAL


def test_a_maintenance_goes_on_over_a_restart_and_keeps_everybody_out(tmp_path: Path) -> None:
    with life(tmp_path) as calls:
        held = calls.acquire()
        begun = calls.begin()
    clock = HandClock()
    with life(tmp_path, clock) as calls:
        assert refused(calls.acquire, "b", "b1") == "RESOURCE_UNDER_MAINTENANCE"
        assert refused(calls.renew, held.credential) == "LEASE_FENCED"
        again = calls.begin()
        assert (again.credential, again.epoch) == (begun.credential, begun.epoch)
        calls.finish(begun.credential)
        assert calls.acquire("b", "b1").lease.epoch == 1
