"""Leases that are handed on, taken over, interrupted by maintenance, and looked at, on a real hub."""

import time
from collections.abc import Iterator

import pytest

from runtime_agent.core.errors import UsageError
from runtime_agent.core.lease import AbortReason, LossReason
from runtime_agent.core.lease_errors import (
    LeaseHeld,
    LeaseNotHeld,
    ResourceUnderMaintenance,
)
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import Call
from runtime_agent.hub_client.lease_values import LeaseState
from tests.contract.holding import Holding, JumpingClock, Losses, until

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


# --- handing it on, taking it over, maintenance ---


def test_a_block_may_begin_with_a_lease_that_is_held(hub: HubClient) -> None:
    with hub.lease("r").acquire() as lease:
        assert lease.fencing_token == 1
    assert hub.get_lease("r").state is LeaseState.RELEASED


def test_a_lease_is_handed_on_and_is_no_loss(hub: HubClient) -> None:
    losses = Losses()
    lease = hub.lease("r", holder_id="a", ttl_seconds=3, on_lost=losses).acquire()
    unclaimed = lease.transfer("b", next_holder_display_name="Bert", ttl_seconds=5)
    assert (unclaimed.state, unclaimed.fencing_token) == (LeaseState.UNCLAIMED, 2)
    assert (unclaimed.runtime_id, unclaimed.holder_display_name) == ("runtime", "Bert")
    with pytest.raises(LeaseNotHeld):
        lease.check()
    with hub.lease("r", holder_id="b") as next_one:
        assert next_one.fencing_token == 2
        time.sleep(1.2)  # longer than until the next renewal of the first holder would have been
    assert losses.told == []


def test_a_lease_that_is_being_handed_on_is_not_renewed_meanwhile(sleepy: Holding) -> None:
    losses = Losses()
    core = sleepy.core(ttl_seconds=3)
    with type(sleepy.lease())(core, losses):
        steps = core.transfer("b", next_runtime_id="runtime", next_holder_display_name="", ttl_seconds=None)
        call = next(steps)
        assert isinstance(call, Call)
        answer = sleepy.channel.call(call)
        time.sleep(1.2)  # the answer is on its way while the next renewal would have been due
        core.check()
        with pytest.raises(StopIteration):
            steps.send(answer)
    assert losses.told == []


def test_a_transfer_that_is_refused_leaves_the_lease_as_it_was(hub: HubClient) -> None:
    with hub.lease("r", ttl_seconds=3) as lease:
        with pytest.raises(HubCallError) as caught:
            lease.transfer("b" * 300)
        assert caught.value.reason == "INVALID_REQUEST"
        time.sleep(3.5)  # it is renewed as before
        lease.check()


def test_a_lease_that_expired_is_taken_over(hub: HubClient, sleepy: Holding, clock: JumpingClock) -> None:
    losses = Losses()
    sleepy.lease(ttl_seconds=2, on_lost=losses).acquire()
    with pytest.raises(LeaseHeld):
        hub.lease("r", holder_id="b").take_over()
    clock.slept_seconds = HOST_SLEEPS
    until(lambda: hub.get_lease("r").state is LeaseState.EXPIRED)
    with hub.lease("r", holder_id="b").take_over() as lease:
        assert lease.fencing_token == 2


def test_what_was_released_is_not_taken_over(hub: HubClient) -> None:
    with hub.lease("r"):
        pass
    with pytest.raises(HubCallError) as caught:
        hub.lease("r", holder_id="b").take_over()
    assert caught.value.reason == "LEASE_MISSING"


def test_a_maintenance_ends_the_lease_and_keeps_everybody_out(hub: HubClient) -> None:
    losses = Losses()
    lease = hub.lease("r", ttl_seconds=3, on_lost=losses).acquire()
    with hub.maintenance("r", holder_id="operator") as maintenance:
        assert (maintenance.fencing_token, maintenance.epoch) == (2, 1)
        until(lambda: len(losses.told) == 1)
        assert losses.told[0].reason is LossReason.FENCED
        with pytest.raises(ResourceUnderMaintenance) as caught:
            lease.acquire()
        assert (caught.value.resource, caught.value.holder_display_name) == ("r", "operator")
        assert hub.check_lease("r", fencing_token=2).is_current
        assert hub.check_lease("r", fencing_token=1).loss is LossReason.FENCED
    with lease:
        assert (lease.fencing_token, lease.epoch) == (3, 1)


def test_a_maintenance_is_kept_for_longer_than_its_ttl(hub: HubClient) -> None:
    with hub.maintenance("r", ttl_seconds=3) as maintenance:
        time.sleep(3.5)  # blocked, for longer than the TTL
        maintenance.check()
        with pytest.raises(ResourceUnderMaintenance):
            hub.lease("r").acquire()


def test_a_finish_may_forget_the_labels_of_the_last_lease(hub: HubClient) -> None:
    with hub.lease("r", labels={"secret": "no"}):
        pass
    maintenance = hub.maintenance("r").begin()
    maintenance.finish(delete_state=True)
    with pytest.raises(LeaseNotHeld):
        maintenance.finish()
    state = hub.resource_state("r")
    assert (state.fencing_token, state.epoch) == (2, 1)
    assert state.lease is None or state.lease.labels == {}


def test_a_maintenance_may_outlive_its_process(hub: HubClient) -> None:
    begun = hub.begin_maintenance("r", ttl_seconds=60)
    renewed = hub.renew_maintenance(begun.credential, ttl_seconds=90)
    assert (begun.epoch, begun.ttl_seconds, renewed.epoch, renewed.ttl_seconds) == (1, 60.0, 1, 90.0)
    with pytest.raises(ResourceUnderMaintenance):
        hub.lease("r").acquire()
    assert hub.finish_maintenance(begun.credential) == 1
    with hub.lease("r") as lease:
        assert lease.fencing_token == 2


# --- looking ---


def test_leases_are_listed_and_watched(hub: HubClient) -> None:
    with hub.lease("b"), hub.lease("a"):
        assert [each.resource for each in hub.list_leases()] == ["a", "b"]
        watch = hub.watch_leases()
        seen = []
        for update in watch:
            seen += [each.resource for each in update.leases]
            if update.is_snapshot_complete:
                break
        assert sorted(seen) == ["a", "b"]
        hub.abort_lease("a")
        (changed,) = next(watch).leases
        assert (changed.resource, changed.abort_reason) == ("a", AbortReason.EXTERNAL)
    assert list(hub.list_leases()) == []
    assert [each.resource for each in hub.list_leases(include_ended=True)] == ["a", "b"]


def test_names_of_turns_and_processes_are_no_names_for_a_lease(hub: HubClient) -> None:
    with pytest.raises(UsageError, match="kept for turns and processes"):
        hub.lease("synchub.turn/orders")


@pytest.mark.parametrize("wait_seconds", [-1.0, 601.0, float("nan")])
def test_a_wait_that_no_hub_takes_is_refused_here(hub: HubClient, wait_seconds: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 600"):
        hub.lease("r", wait_seconds=wait_seconds)


@pytest.mark.parametrize("ttl_seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ttl_that_is_no_time_is_refused_here(hub: HubClient, ttl_seconds: float) -> None:
    with pytest.raises(UsageError, match="no number of seconds above 0"):
        hub.lease("r", ttl_seconds=ttl_seconds)


def test_names_and_labels_that_no_hub_takes_are_refused_here(hub: HubClient) -> None:
    with pytest.raises(UsageError, match="resource has a lone surrogate"):
        hub.lease("a\udcff")
    with pytest.raises(UsageError, match="holder_id has the control code point"):
        hub.lease("r", holder_id="a\n")
    with pytest.raises(UsageError, match="labels has 17 pairs"):
        hub.lease("r", labels={str(number): "" for number in range(17)})
