"""Grants whose caller is gone, and calls that meet in one commit."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.core.errors import LimitReached
from hub.core.lease import decide_check
from hub.core.lease_errors import LeaseHeld, LeaseMissing, LeaseSuperseded, ResourceUnderMaintenance
from hub.core.limits import Limits
from hub.core.tenure import Tenure, TenureState
from tests.unit.hub.lease_calls import (
    SECOND,
    TTL,
    Call,
    acquire,
    acquiring,
    begin,
    beginning,
    claim,
    credential,
    finish,
    taking_over,
    wait,
)
from tests.unit.hub.lease_gate import LeaseGate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[LeaseGate]:
    gate = LeaseGate(tmp_path)
    yield gate
    gate.close()


def lease_in(gate: LeaseGate, resource: str = "r") -> Tenure:
    lease = gate.view(resource).resource.lease
    assert lease is not None
    return lease


def begin_without_commit(gate: LeaseGate, *calls: Call) -> list["asyncio.Task[object]"]:
    """Bring calls as far as the writer's queue, in this order; its next commit is of all of them."""
    tasks: list[asyncio.Task[object]] = []
    for call in calls:
        tasks.append(gate.loop.create_task(call))
        gate.run_without_commits()
    return tasks


# --- a grant that nobody hears of -----------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_grant_whose_caller_is_gone_before_the_commit_is_released_at_once(
    gate: LeaseGate, seconds: int
) -> None:
    (task,) = begin_without_commit(gate, acquiring(gate, claim("a"), wait=seconds * SECOND))
    task.cancel()
    gate.settle()
    assert task.cancelled()
    lease = lease_in(gate)
    assert (lease.fencing_token, lease.state(gate.clock.now())) == (1, TenureState.RELEASED)
    assert acquire(gate, claim("b")).fencing_token == 2


def test_who_waits_behind_a_grant_that_nobody_hears_of_gets_the_resource(gate: LeaseGate) -> None:
    held = acquire(gate, claim("a"))
    first, second = wait(gate, claim("b")), wait(gate, claim("c"))
    releasing = gate.loop.create_task(gate.leases.release(gate.caller, credential(held), repeat=None))
    gate.run_without_commits()
    assert gate.writer.step() == 1
    # The release is durable and the first waiter tries; its client goes away before the next commit.
    gate.run_without_commits()
    first.cancel()
    gate.settle()
    assert releasing.done()
    assert first.cancelled()
    assert second.result().tenure.fencing_token == 3


def test_who_goes_away_when_its_turn_comes_lets_the_next_one_know(gate: LeaseGate) -> None:
    held = acquire(gate, claim("a"))
    first, second = wait(gate, claim("b")), wait(gate, claim("c"))
    releasing = gate.loop.create_task(gate.leases.release(gate.caller, credential(held), repeat=None))
    gate.run_without_commits()
    # The first one is woken by this commit, and is gone before it could try.
    gate.writer.step()
    first.cancel()
    gate.settle()
    assert releasing.done()
    assert second.result().tenure.fencing_token == 2


def test_a_takeover_and_a_maintenance_that_nobody_hears_of_are_given_back_too(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    gate.pass_time(TTL)
    (takeover,) = begin_without_commit(gate, taking_over(gate, claim("b")))
    takeover.cancel()
    gate.settle()
    assert lease_in(gate).state(gate.clock.now()) is TenureState.RELEASED
    (maintenance,) = begin_without_commit(gate, beginning(gate, claim("m")))
    maintenance.cancel()
    gate.settle()
    resource = gate.view("r").resource
    assert resource.maintenance is not None
    assert resource.maintenance.state(gate.clock.now()) is TenureState.RELEASED
    assert acquire(gate, claim("c")).fencing_token == 4


@pytest.mark.parametrize("request_id", [None, "q"])
def test_who_asks_again_under_the_same_nonce_keeps_the_grant_of_the_lost_call(
    gate: LeaseGate, request_id: str | None
) -> None:
    lost, again = begin_without_commit(
        gate,
        acquiring(gate, claim("a"), request_id=request_id),
        acquiring(gate, claim("a"), request_id=request_id),
    )
    lost.cancel()
    gate.settle()
    assert again.done()
    lease = lease_in(gate)
    assert (lease.fencing_token, lease.state(gate.clock.now())) == (1, TenureState.LIVE)


def test_who_asks_again_once_the_lost_call_is_granted_keeps_it_too(gate: LeaseGate) -> None:
    (lost,) = begin_without_commit(gate, acquiring(gate, claim("a"), request_id="q"))
    lost.cancel()
    gate.run_without_commits()
    again = gate.loop.create_task(acquiring(gate, claim("a"), request_id="q"))
    gate.writer.step()
    gate.settle()
    assert again.result().is_replayed
    assert lease_in(gate).state(gate.clock.now()) is TenureState.LIVE


@pytest.mark.parametrize("request_id", [None, "q"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_grant_that_several_calls_asked_for_and_none_heard_of_is_released_at_once(
    gate: LeaseGate, request_id: str | None, order: tuple[int, ...]
) -> None:
    calls = begin_without_commit(gate, *(acquiring(gate, claim("a"), request_id=request_id) for _ in order))
    for number in order:
        calls[number].cancel()
        gate.run_without_commits()
    gate.settle()
    lease = lease_in(gate)
    assert (lease.fencing_token, lease.state(gate.clock.now())) == (1, TenureState.RELEASED)
    assert gate.stored()["receipt"] == []


def test_a_grant_whose_repeat_is_refused_is_released_at_once(gate: LeaseGate) -> None:
    calls = begin_without_commit(gate, acquiring(gate, claim("a")), taking_over(gate, claim("a")))
    lost, refused = calls
    lost.cancel()
    gate.settle()
    assert isinstance(refused.exception(), LeaseHeld)
    assert lease_in(gate).state(gate.clock.now()) is TenureState.RELEASED


def test_a_grant_that_one_of_several_calls_heard_of_is_kept(gate: LeaseGate) -> None:
    heard, lost = begin_without_commit(gate, acquiring(gate, claim("a")), acquiring(gate, claim("a")))
    lost.cancel()
    gate.settle()
    assert heard.done()
    (lost,) = begin_without_commit(gate, acquiring(gate, claim("a")))
    lost.cancel()
    gate.settle()
    assert lease_in(gate).state(gate.clock.now()) is TenureState.LIVE


def test_the_nonce_of_a_grant_that_was_given_back_opens_nothing(gate: LeaseGate) -> None:
    (task,) = begin_without_commit(gate, acquiring(gate, claim("a")))
    task.cancel()
    gate.settle()
    with pytest.raises(LeaseSuperseded):
        acquire(gate, claim("a"))


def test_a_grant_that_was_given_back_leaves_no_answer_to_be_replayed(gate: LeaseGate) -> None:
    (task,) = begin_without_commit(gate, acquiring(gate, claim("a"), request_id="q"))
    task.cancel()
    gate.settle()
    acquire(gate, claim("b"))
    # The stored answer would say that the resource is a's.
    with pytest.raises(LeaseSuperseded):
        gate.answer(acquiring(gate, claim("a"), request_id="q"))


def test_a_grant_that_expired_before_its_commit_was_heard_of_is_not_given_back_twice(
    gate: LeaseGate,
) -> None:
    (task,) = begin_without_commit(gate, acquiring(gate, claim("a", ttl=SECOND)))
    task.cancel()
    gate.writer.step()
    gate.pass_time(SECOND)
    assert lease_in(gate).state(gate.clock.now()) is TenureState.EXPIRED


# --- in one commit --------------------------------------------------------------------------------


def test_of_two_takeovers_in_one_commit_the_first_is_granted(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    gate.pass_time(TTL)
    first, second = begin_without_commit(gate, taking_over(gate, claim("b")), taking_over(gate, claim("c")))
    gate.settle()
    assert first.exception() is None
    assert isinstance(second.exception(), LeaseHeld)
    assert (lease_in(gate).holder.holder_id, lease_in(gate).fencing_token) == ("b", 2)


def test_an_acquire_before_a_maintenance_in_one_commit_is_fenced_by_it(gate: LeaseGate) -> None:
    acquired, begun = begin_without_commit(gate, acquiring(gate, claim("a")), beginning(gate, claim("m")))
    gate.settle()
    assert (acquired.exception(), begun.exception()) == (None, None)
    resource = gate.view("r").resource
    assert lease_in(gate).state(gate.clock.now()) is TenureState.FENCED
    assert decide_check(resource, 2, now_nanos=gate.clock.now(), nonce_hash=None) == resource.maintenance


def test_an_acquire_after_a_maintenance_in_one_commit_is_refused(gate: LeaseGate) -> None:
    begun, acquired = begin_without_commit(gate, beginning(gate, claim("m")), acquiring(gate, claim("a")))
    gate.settle()
    assert begun.exception() is None
    assert isinstance(acquired.exception(), ResourceUnderMaintenance)
    assert gate.view("r").resource.lease is None


def test_of_two_maintenances_in_one_commit_the_first_is_begun(gate: LeaseGate) -> None:
    first, second = begin_without_commit(gate, beginning(gate, claim("m")), beginning(gate, claim("n")))
    gate.settle()
    assert first.exception() is None
    assert isinstance(second.exception(), ResourceUnderMaintenance)
    assert gate.view("r").resource.epoch == 1


def test_a_release_and_a_renewal_in_one_commit_follow_their_order(gate: LeaseGate) -> None:
    held = acquire(gate, claim("a"))
    released, renewed = (
        gate.loop.create_task(gate.leases.release(gate.caller, credential(held), repeat=None)),
        gate.loop.create_task(gate.leases.renew(gate.caller, credential(held), ttl_nanos=None)),
    )
    gate.settle()
    assert released.exception() is None
    assert isinstance(renewed.exception(), LeaseMissing)
    assert lease_in(gate).renew_nanos == held.renew_nanos


# --- who waits ------------------------------------------------------------------------------------


def test_who_does_not_wait_does_not_pass_those_who_do(gate: LeaseGate) -> None:
    held = acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"))
    release_call = gate.leases.release(gate.caller, credential(held), repeat=None)
    releasing = gate.loop.create_task(release_call)
    passing, taking = begin_without_commit(
        gate, acquiring(gate, claim("c")), acquiring(gate, claim("d"), wait=SECOND)
    )
    gate.settle()
    assert releasing.done()
    assert waiting.result().tenure.fencing_token == 2
    refusal = passing.exception()
    assert isinstance(refusal, LeaseHeld)
    # At that moment it was free, but not for everybody.
    assert (refusal.holder_name, refusal.expire_nanos) == ("", None)
    assert not taking.done()


def test_a_takeover_does_not_pass_those_who_wait(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"))
    gate.elapsed_nanos += TTL
    # Time has passed, and nobody has looked yet.
    (takeover,) = begin_without_commit(gate, taking_over(gate, claim("c")))
    gate.settle()
    refusal = takeover.exception()
    assert isinstance(refusal, LeaseHeld)
    assert refusal.expire_nanos is None
    assert waiting.result().tenure.fencing_token == 2


def test_the_live_holder_itself_passes_those_who_wait(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"))
    assert acquire(gate, claim("a", nonce="a2")).fencing_token == 2
    assert not waiting.done()


def test_who_need_not_wait_needs_no_place_in_a_full_queue(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path, limits=Limits(lease_waiters_max=1))
    gate.answer(acquiring(gate, claim("a"), request_id="q"))
    waiting = wait(gate, claim("b"))
    assert gate.answer(acquiring(gate, claim("a"), wait=SECOND)).is_renewed
    assert gate.answer(acquiring(gate, claim("a"), wait=SECOND, request_id="q")).is_replayed
    with pytest.raises(LimitReached):
        gate.answer(acquiring(gate, claim("c"), wait=SECOND))
    assert not waiting.done()
    assert gate.view("r").waiter_count == 1
    gate.close()


def test_the_place_of_an_earlier_call_is_taken_over_under_maintenance_too(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    earlier, behind = wait(gate, claim("b")), wait(gate, claim("c"))
    maintenance = begin(gate, claim("m"))
    later = gate.start(acquiring(gate, claim("b"), wait=60 * SECOND))
    assert isinstance(earlier.exception(), LeaseSuperseded)
    assert not later.done()
    finish(gate, maintenance)
    assert later.result().tenure.fencing_token == 3
    assert not behind.done()


def test_who_comes_under_maintenance_is_refused_at_once_and_does_not_queue(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"))
    begin(gate, claim("m"))
    with pytest.raises(ResourceUnderMaintenance):
        gate.answer(acquiring(gate, claim("c"), wait=60 * SECOND))
    assert not waiting.done()
    assert gate.view("r").waiter_count == 1


def test_a_waiter_whose_time_is_over_under_maintenance_is_told_so(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"), seconds=5)
    begin(gate, claim("m"))
    gate.pass_time(5 * SECOND)
    assert isinstance(waiting.exception(), ResourceUnderMaintenance)
    assert gate.view("r").waiter_count == 0


def test_a_waiter_whose_time_is_over_at_the_expiry_is_granted(gate: LeaseGate) -> None:
    acquire(gate, claim("a"))
    waiting = wait(gate, claim("b"), seconds=10)
    gate.pass_time(TTL)
    answer = waiting.result()
    assert (answer.tenure.fencing_token, answer.waited_nanos) == (2, TTL)


def test_a_lease_handed_to_who_waits_is_claimed_past_the_queue(gate: LeaseGate) -> None:
    held = acquire(gate, claim("a"))
    first, named = wait(gate, claim("b")), wait(gate, claim("c"))
    gate.answer(
        gate.leases.transfer(
            gate.caller,
            credential(held),
            next_holder=claim("c").holder,
            ttl_nanos=None,
            repeat=None,
        )
    )
    answer = named.result()
    assert (answer.tenure.fencing_token, answer.is_renewed) == (2, True)
    assert not first.done()
