"""Who waits for a lease: in order, passed by nobody, and gone when its client is, against a real hub."""

import time
from collections.abc import Iterator

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.lease_calls import LeaseCalls, reason_of, refused
from tests.contract.leasing import CALL_SECONDS_MAX, acquire_request

TTL = 10.0
WAITERS_MAX = Limits().lease_waiters_max
VANISHED_ROUNDS = 30
SOON_SECONDS = 1.0
"""A lease that is free is granted sooner."""


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def grpc_server(
    tmp_path_factory: pytest.TempPathFactory, clock: HandClock, hub_limits: Limits
) -> Iterator[HubInThread]:
    """No lease expires by itself: who gets one that somebody had got it from a release."""
    with hub_in_hand(tmp_path_factory.mktemp("hub"), clock, limits=hub_limits) as hub:
        yield hub


@pytest.fixture
def calls(lease_stub: LeaseServiceStub, hub_project: str) -> LeaseCalls:
    return LeaseCalls(lease_stub, hub_project)


def wanted(calls: LeaseCalls, holder_id: str, *, secret: str = "") -> messages.AcquireLeaseRequest:
    """A request that waits if it has to."""
    return acquire_request(calls.hub_project, holder_id=holder_id, secret=secret, wait=600)


def waiting_in(calls: LeaseCalls) -> list[str]:
    return [waiter.holder_id for waiter in calls.state().waiters]


def test_who_waits_gets_it_in_order(calls: LeaseCalls) -> None:
    held = calls.acquire().credential
    names = "bcdef"
    waiting = [calls.waiting(name, f"{name}1") for name in names]
    assert waiting_in(calls) == list(names)
    for place, call in enumerate(waiting):
        assert not any(each.done() for each in waiting[place:])
        calls.release(held)
        granted = call.result()
        assert (granted.lease.holder_id, granted.lease.fencing_token) == (names[place], place + 2)
        held = granted.credential


def test_who_comes_later_is_not_served_before_who_waits(calls: LeaseCalls) -> None:
    """Tried at the moment of the release, again and again: the one that waits always has it first."""
    held = calls.acquire().credential
    for number in range(20):
        waiting = calls.waiting(f"b{number}", f"b{number}-")
        passing = [
            calls.stub.AcquireLease.future(
                acquire_request(calls.hub_project, holder_id=f"passer-{index}", secret=""),
                timeout=CALL_SECONDS_MAX,
            )
            for index in range(3)
        ]
        calls.release(held)
        held = waiting.result().credential
        assert [reason_of(call) for call in passing] == ["LEASE_HELD"] * 3


def test_the_live_holder_renews_and_restarts_while_others_wait(calls: LeaseCalls) -> None:
    calls.acquire()
    waiting = calls.waiting()
    assert calls.acquire().renewed
    assert calls.acquire("a", "a2").lease.fencing_token == 2
    assert not waiting.done()
    waiting.cancel()


def test_a_thousand_wait_and_the_next_one_is_refused(calls: LeaseCalls) -> None:
    held = calls.acquire().credential
    waiting = [
        calls.stub.AcquireLease.future(wanted(calls, f"waiter-{number}"), timeout=CALL_SECONDS_MAX)
        for number in range(WAITERS_MAX)
    ]
    calls.until_waiters(WAITERS_MAX)
    before = calls.state()
    assert len(before.waiters) == Limits().lease_waiters_shown_max
    refusal = refusal_of(lambda: calls.stub.AcquireLease(wanted(calls, "one more"), timeout=CALL_SECONDS_MAX))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    assert refusal.metadata == {"limit": "lease_waiters_max", "limitValue": str(WAITERS_MAX)}
    assert calls.state() == before
    # Another resource has a queue of its own, and one that leaves makes room.
    other = LeaseCalls(calls.stub, calls.hub_project, "s")
    other.acquire()
    other.waiting().cancel()
    waiting.pop().cancel()
    calls.until_waiters(WAITERS_MAX - 1)
    waiting.append(calls.stub.AcquireLease.future(wanted(calls, "one more"), timeout=CALL_SECONDS_MAX))
    calls.until_waiters(WAITERS_MAX)
    calls.release(held)
    first = next(call for call in waiting if call.done() or call is waiting[0])
    assert first.result().lease.fencing_token == 2
    for call in waiting:
        call.cancel()
    calls.until_waiters(0)


def test_a_second_call_under_the_same_nonce_takes_the_place_over(calls: LeaseCalls) -> None:
    held = calls.acquire().credential
    first, behind = calls.waiting("b", "b1"), calls.waiting("c", "c1")
    second = calls.stub.AcquireLease.future(wanted(calls, "b", secret="b1"), timeout=CALL_SECONDS_MAX)
    assert reason_of(first) == "LEASE_SUPERSEDED"
    assert waiting_in(calls) == ["b", "c"]
    calls.release(held)
    granted = second.result()
    assert granted.lease.holder_id == "b"
    assert not behind.done()
    behind.cancel()


def test_who_waits_stays_queued_under_maintenance_and_is_granted_after_it(calls: LeaseCalls) -> None:
    calls.acquire()
    waiting, behind = calls.waiting("b", "b1"), calls.waiting("c", "c1")
    maintenance = calls.begin()
    assert waiting_in(calls) == ["b", "c"]
    assert refused(calls.acquire, "d", "d1") == "RESOURCE_UNDER_MAINTENANCE"
    assert not waiting.done()
    calls.finish(maintenance.credential)
    granted = waiting.result()
    assert (granted.lease.holder_id, granted.lease.fencing_token, granted.lease.epoch) == ("b", 3, 1)
    assert not behind.done()
    behind.cancel()


def test_a_waiter_whose_client_vanished_is_not_waited_for(
    calls: LeaseCalls, grpc_server: HubInThread
) -> None:
    held = calls.acquire().credential
    with grpc.insecure_channel(grpc_server.address) as channel:
        LeaseCalls(LeaseServiceStub(channel), calls.hub_project).waiting("b", "b1")
        behind = calls.waiting("c", "c1")
    # Its connection is gone, without a word about the call.
    calls.until_waiters(1)
    calls.release(held)
    assert behind.result().lease.holder_id == "c"


def test_a_grant_to_a_client_that_vanishes_at_that_moment_blocks_nobody_for_longer_than_its_ttl(
    calls: LeaseCalls, clock: HandClock
) -> None:
    """Time stands still: a grant that nobody heard of and that is not given back would never end."""
    held = calls.acquire().credential
    noticed_count = 0
    for number in range(VANISHED_ROUNDS):
        vanishing = calls.waiting("b", f"b{number}-")
        releasing = calls.stub.ReleaseLease.future(
            messages.ReleaseLeaseRequest(hub_project=calls.hub_project, credential=held)
        )
        time.sleep(number * 0.0001)
        vanishing.cancel()
        releasing.result()
        if not vanishing.cancelled():
            calls.release(vanishing.result().credential)
        following = calls.stub.AcquireLease.future(wanted(calls, "next"), timeout=CALL_SECONDS_MAX)
        try:
            held = following.result(timeout=SOON_SECONDS).credential
            noticed_count += 1
        except grpc.FutureTimeoutError:
            # The answer was on its way before the hub could know: it is as if the client had heard it.
            state = calls.state()
            assert (state.lease.holder_id, state.lease.state) == ("b", messages.LEASE_STATE_LIVE)
            clock.pass_time(TTL)
            held = following.result().credential
    assert noticed_count
    calls.until_waiters(0)
    calls.release(held)
