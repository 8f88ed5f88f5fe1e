"""The lease client on a hub that does what it should; what goes wrong is in the modules beside."""

import threading
import time
from collections.abc import Iterator

import pytest

from runtime_agent import limits
from runtime_agent.core.errors import UsageError
from runtime_agent.core.lease import AbortReason, LossReason
from runtime_agent.core.lease_errors import (
    LeaseGrantLate,
    LeaseHeld,
    LeaseLost,
    LeaseNotHeld,
)
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import ClientClosed
from runtime_agent.hub_client.lease_values import LeaseState
from tests.contract.holding import Holding, InBackground, JumpingClock, Losses, until

HOST_SLEEPS = 30.0


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def sleepy(grpc_addr: str, hub_project: str, clock: JumpingClock) -> Iterator[Holding]:
    """A holder on a machine that sleeps when the test says so."""
    holding = Holding(grpc_addr, hub_project, clock)
    yield holding
    holding.channel.close()


# --- having it ---


def test_a_block_holds_the_lease_and_gives_it_back(hub: HubClient) -> None:
    with hub.lease("r", holder_id="a", labels={"why": "test"}) as lease:
        lease.check()
        assert (lease.fencing_token, lease.epoch, lease.is_held) == (1, 0, True)
        assert 9.0 < lease.seconds_left <= 9.5
        seen = hub.get_lease("r")
        assert (seen.runtime_id, seen.holder_id, seen.labels) == ("runtime", "a", {"why": "test"})
        assert seen.state is LeaseState.LIVE
    assert hub.get_lease("r").state is LeaseState.RELEASED
    assert (lease.is_held, lease.seconds_left, lease.loss) == (False, 0.0, None)
    with pytest.raises(LeaseNotHeld):
        lease.check()


def test_a_block_that_raises_gives_the_lease_back_too(hub: HubClient) -> None:
    with pytest.raises(ZeroDivisionError), hub.lease("r"):
        raise ZeroDivisionError
    assert hub.get_lease("r").state is LeaseState.RELEASED


def test_before_it_was_acquired_nothing_is_held(hub: HubClient) -> None:
    lease = hub.lease("r")
    lease.release()
    assert (lease.is_held, lease.loss, lease.abort_requested) == (False, None, False)
    for ask in (lease.check, lambda: lease.fencing_token, lambda: lease.epoch):
        with pytest.raises(LeaseNotHeld):
            ask()
    assert list(hub.list_leases(include_ended=True)) == []


def test_the_holder_is_the_clients_instance_unless_it_is_named(hub: HubClient) -> None:
    with hub.lease("r") as lease:
        seen = hub.get_lease("r")
        assert (seen.holder_id, lease.holder_id) == (hub.instance_id, hub.instance_id)
        assert "pid" in seen.holder_display_name


def test_two_clients_are_two_holders(hub: HubClient, grpc_addr: str, hub_project: str) -> None:
    with HubClient.connect(grpc_addr, hub_project=hub_project) as other, hub.lease("r"):
        assert other.instance_id != hub.instance_id
        with pytest.raises(LeaseHeld):
            other.lease("r").acquire()


def test_a_held_lease_names_its_holder_and_its_expire_time(hub: HubClient) -> None:
    with hub.lease("r", holder_id="a", holder_display_name="Anna"):
        with pytest.raises(LeaseHeld) as caught:
            hub.lease("r", holder_id="b").acquire()
        assert (caught.value.resource, caught.value.holder_display_name) == ("r", "Anna")
        assert caught.value.expire_time_nanos == hub.get_lease("r").expire_time_nanos
        assert "'r' is held by 'Anna' until 20" in caught.value.sentence


def test_waiting_gets_the_lease_when_it_is_released(hub: HubClient) -> None:
    first = hub.lease("r", holder_id="a").acquire()
    second = hub.lease("r", holder_id="b", wait_seconds=20)
    waiting = InBackground(second.acquire)
    until(lambda: hub.resource_state("r").waiter_count == 1)
    first.release()
    waiting.result()
    assert second.fencing_token == 2
    # The time in the queue is not taken off: it was granted when the wait was over.
    assert second.seconds_left > 9.0
    second.release()


def test_waiting_ends_with_the_holders_name_when_its_time_is_over(hub: HubClient) -> None:
    with hub.lease("r", holder_id="a"), pytest.raises(LeaseHeld) as caught:
        hub.lease("r", holder_id="b", wait_seconds=0.2).acquire()
    assert caught.value.holder_display_name == "a"


def test_a_lease_that_is_held_is_not_acquired_again(hub: HubClient) -> None:
    with hub.lease("r") as lease:
        with pytest.raises(UsageError, match="held already"):
            lease.acquire()
        lease.check()
        assert lease.fencing_token == 1


def test_an_object_that_was_released_acquires_again_with_a_new_nonce(sleepy: Holding) -> None:
    core = sleepy.core()
    nonces, tokens = [], []
    for _ in range(3):
        lease = sleepy.lease()
        lease = type(lease)(core, None)
        with lease:
            nonces.append(core.keeper.opened.credential.nonce)
            tokens.append(lease.fencing_token)
    assert len(set(nonces)) == 3
    assert tokens == [1, 2, 3]


def test_nothing_that_is_printed_holds_the_nonce(sleepy: Holding) -> None:
    core = sleepy.core()
    lease = type(sleepy.lease())(core, None)
    with lease:
        opened = core.keeper.opened
        printed = [repr(each) for each in (lease, core, core.keeper, opened, opened.credential, core.wish)]
        assert len(opened.credential.nonce) == 32
        assert not any(opened.credential.nonce in each for each in printed)
        assert "token=1" in repr(opened)


# --- keeping it ---


def test_a_program_that_blocks_keeps_its_lease(hub: HubClient) -> None:
    with hub.lease("r", ttl_seconds=3) as lease:
        time.sleep(3.5)  # blocked, for longer than the TTL
        lease.check()
        assert hub.get_lease("r").state is LeaseState.LIVE


def test_an_abort_is_seen_by_the_next_renewal_and_kept(hub: HubClient) -> None:
    with hub.lease("r", ttl_seconds=3) as lease:
        assert not lease.abort_requested
        assert hub.abort_lease("r", reason=AbortReason.EXTERNAL).abort_reason is AbortReason.EXTERNAL
        until(lambda: lease.abort_requested)
        assert lease.abort_reason is AbortReason.EXTERNAL
        hub.abort_lease("r", reason=AbortReason.INTERNAL)
        lease.check()
        assert lease.abort_reason is AbortReason.EXTERNAL


def test_an_abort_of_a_tenure_that_is_over_does_not_meet_its_successor(hub: HubClient) -> None:
    with hub.lease("r", holder_id="a") as first:
        pass
    with hub.lease("r", holder_id="b"):
        with pytest.raises(HubCallError) as caught:
            hub.abort_lease("r", fencing_token=first.fencing_token)
        assert caught.value.reason == "LEASE_SUPERSEDED"
        assert hub.get_lease("r").abort_reason is None


# --- losing it ---


def test_a_newer_self_ends_the_tenure_and_the_loss_is_told_once(hub: HubClient) -> None:
    losses = Losses()
    lease = hub.lease("r", holder_id="a", ttl_seconds=3, on_lost=losses).acquire()
    newer = hub.lease("r", holder_id="a").acquire()
    until(lambda: len(losses.told) > 0)
    assert losses.told[0].reason is LossReason.SUPERSEDED
    assert (losses.told[0].resource, losses.told[0].fencing_token) == ("r", 1)
    assert losses.threads[0] is not threading.main_thread()
    for _ in range(3):
        with pytest.raises(LeaseLost):
            lease.check()
    lease.release()
    assert (lease.fencing_token, lease.is_held) == (1, False)
    newer.check()
    assert hub.get_lease("r").state is LeaseState.LIVE
    newer.release()
    assert len(losses.told) == 1


def test_a_machine_that_slept_past_the_deadline_holds_nothing_from_its_first_look(
    sleepy: Holding, clock: JumpingClock
) -> None:
    losses = Losses()
    lease = sleepy.lease(on_lost=losses).acquire()
    lease.check()
    clock.slept_seconds = HOST_SLEEPS
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason is LossReason.DEADLINE
    until(lambda: len(losses.told) == 1)
    assert losses.told[0].reason is LossReason.DEADLINE
    lease.release()


def test_a_loss_is_told_also_where_nobody_looks(sleepy: Holding, clock: JumpingClock) -> None:
    losses = Losses()
    # Its next renewal is 20 minutes away; what a thread sleeps by does not count the machine's sleep.
    lease = sleepy.lease(ttl_seconds=3600, on_lost=losses).acquire()
    clock.slept_seconds = 3600
    until(lambda: len(losses.told) == 1)
    assert not lease.is_held


def test_after_a_loss_the_same_object_acquires_anew(sleepy: Holding, clock: JumpingClock) -> None:
    losses = Losses()
    core = sleepy.core()
    lease = type(sleepy.lease())(core, losses)
    lease.acquire()
    nonce = core.keeper.opened.credential.nonce
    clock.slept_seconds = HOST_SLEEPS
    until(lambda: len(losses.told) == 1)
    lease.acquire()
    lease.check()
    assert lease.fencing_token == 2
    assert lease.loss is None
    assert core.keeper.opened.credential.nonce != nonce
    lease.release()
    assert len(losses.told) == 1


def test_on_lost_itself_may_acquire_anew(sleepy: Holding, clock: JumpingClock) -> None:
    lease = sleepy.lease()

    def acquire_anew(_: LeaseLost) -> None:
        lease.acquire()

    lease.on_lost = acquire_anew
    lease.acquire()
    clock.slept_seconds = HOST_SLEEPS
    until(lambda: lease.fencing_token == 2)
    lease.check()
    lease.release()


def test_what_was_released_is_not_told_as_lost(sleepy: Holding, clock: JumpingClock) -> None:
    losses = Losses()
    with sleepy.lease(on_lost=losses) as lease:
        pass
    clock.slept_seconds = HOST_SLEEPS
    with pytest.raises(LeaseNotHeld):
        lease.check()
    assert losses.told == []


def test_a_client_that_is_closed_loses_what_it_holds(grpc_addr: str, hub_project: str) -> None:
    losses = Losses()
    with HubClient.connect(grpc_addr, hub_project=hub_project) as client:
        client.lease("r", ttl_seconds=3, on_lost=losses).acquire()
    until(lambda: len(losses.told) == 1)
    assert losses.told[0].reason is LossReason.CLIENT_CLOSED


def test_a_client_that_is_closed_acquires_nothing_and_says_so_at_once(
    grpc_addr: str, hub_project: str
) -> None:
    with HubClient.connect(grpc_addr, hub_project=hub_project) as client:
        lease = client.lease("r")
    begun = time.monotonic()
    with pytest.raises(ClientClosed):
        lease.acquire()
    assert time.monotonic() - begun < 5


# --- grants that come too late ---


def test_a_grant_that_comes_too_late_is_given_back_and_another_asked_for(
    hub: HubClient, sleepy: Holding, clock: JumpingClock
) -> None:
    first = hub.lease("r", holder_id="first").acquire()
    lease = sleepy.lease(wait_seconds=60)
    waiting = InBackground(lease.acquire)
    until(lambda: hub.resource_state("r").waiter_count == 1)
    clock.slept_seconds = HOST_SLEEPS
    first.release()
    waiting.result()
    lease.check()
    # The second token was granted to a machine that slept through it.
    assert lease.fencing_token == 3
    assert lease.seconds_left > 9.0
    lease.release()


def test_a_grant_that_comes_after_the_callers_time_is_given_back_and_said(
    hub: HubClient, sleepy: Holding, clock: JumpingClock
) -> None:
    first = hub.lease("r", holder_id="first").acquire()
    lease = sleepy.lease(wait_seconds=15)
    waiting = InBackground(lease.acquire)
    until(lambda: hub.resource_state("r").waiter_count == 1)
    clock.slept_seconds = HOST_SLEEPS
    first.release()
    with pytest.raises(LeaseGrantLate) as caught:
        waiting.result()
    assert (caught.value.resource, caught.value.late_count) == ("r", 1)
    assert not lease.is_held
    state = hub.resource_state("r")
    assert state.lease is not None
    assert (state.fencing_token, state.lease.state) == (2, LeaseState.RELEASED)


def test_a_margin_that_leaves_nothing_of_the_ttl_is_said(hub: HubClient) -> None:
    with pytest.raises(UsageError, match="leaves nothing after the margin"):
        hub.lease("r", ttl_seconds=2, margin_seconds=3).acquire()
    assert hub.get_lease("r").state is LeaseState.RELEASED


def test_the_margin_is_larger_where_the_clocks_of_two_databases_may_differ(sleepy: Holding) -> None:
    with sleepy.lease():
        assert sleepy.channel.engine == "sqlite"
    sleepy.channel.engine = "postgresql"
    with sleepy.lease() as lease:
        longest = 10.0 - limits.LEASE_MARGIN_SECONDS - limits.LEASE_DATABASE_SKEW_SECONDS
        assert longest - 1.0 < lease.seconds_left <= longest
