"""The lease client when answers are lost, the hub is away or restarted, and its own process is frozen."""

import dataclasses
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.config import Endpoint
from runtime_agent.core.lease import LossReason
from runtime_agent.core.lease_errors import LeaseHeld, LeaseLost
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_values import LeaseState
from tests.contract.conftest import settings_in
from tests.contract.holding import SECONDS_MAX, Holding, InBackground, JumpingClock, Losses, until
from tests.contract.hub_in_thread import HubInThread
from tests.robustness.tcp_proxy import TcpProxy

FROZEN_HOLDER = """
import sys, time
from runtime_agent.hub_client.client import HubClient
from runtime_agent.core.lease_errors import LeaseLost

def told(lost):
    print("lost", lost.reason.name, flush=True)

with HubClient.connect(sys.argv[1], hub_project=sys.argv[2]) as hub:
    lease = hub.lease("r", holder_id="frozen", ttl_seconds=1, on_lost=told).acquire()
    print("held", lease.fencing_token, flush=True)
    sys.stdin.readline()
    try:
        lease.check()
    except LeaseLost as lost:
        print("check", lost.reason.name, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    """A client that reaches the hub whatever the proxy does."""
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
def proxy(grpc_addr: str, rng: random.Random) -> Iterator[TcpProxy]:
    with TcpProxy(grpc_addr, rng) as proxy:
        yield proxy


@pytest.fixture
def holding(proxy: TcpProxy, hub_project: str) -> Iterator[Holding]:
    """A holder behind the proxy."""
    holding = Holding(proxy.address, hub_project)
    # What is asked once a client is asked now, so that it is no part of what is lost.
    with holding.lease("warm-up"):
        pass
    yield holding
    holding.channel.close()


def live_token(hub: HubClient, holder_id: str) -> int:
    """The token that a holder has by what the hub knows, 0 for none."""
    lease = hub.resource_state("r").lease
    is_its = lease is not None and lease.state is LeaseState.LIVE and lease.holder_id == holder_id
    return lease.fencing_token if is_its and lease is not None else 0


# --- lost answers ---


def test_a_lost_answer_that_is_asked_for_again_gives_the_same_tenure(
    hub: HubClient, proxy: TcpProxy, holding: Holding
) -> None:
    lease = holding.lease()
    proxy.drops_answers = True
    acquiring = InBackground(lease.acquire)
    until(lambda: live_token(hub, "a") == 2)
    begun = hub.get_lease("r").acquire_time_nanos
    assert not lease.is_held
    proxy.drops_answers = False
    proxy.cut_all()
    acquiring.result()
    lease.check()
    assert lease.fencing_token == 2
    seen = hub.get_lease("r")
    assert (seen.fencing_token, seen.acquire_time_nanos) == (2, begun)
    lease.release()


def test_a_tenure_that_expired_unheard_is_followed_by_a_new_one(
    hub: HubClient, proxy: TcpProxy, holding: Holding
) -> None:
    lease = holding.lease(ttl_seconds=1)
    proxy.drops_answers = True
    acquiring = InBackground(lease.acquire)
    until(lambda: live_token(hub, "a") == 2)
    until(lambda: hub.get_lease("r").state is LeaseState.EXPIRED)
    proxy.drops_answers = False
    proxy.cut_all()
    acquiring.result()
    assert lease.fencing_token == 3
    lease.release()


def test_a_newer_self_is_not_fought_by_one_whose_answer_was_lost(
    hub: HubClient, proxy: TcpProxy, holding: Holding
) -> None:
    lease = holding.lease()
    proxy.drops_answers = True
    acquiring = InBackground(lease.acquire)
    until(lambda: live_token(hub, "a") == 2)
    newer = hub.lease("r", holder_id="a").acquire()
    proxy.drops_answers = False
    proxy.cut_all()
    with pytest.raises(LeaseLost) as caught:
        acquiring.result()
    assert caught.value.reason is LossReason.SUPERSEDED
    newer.check()
    assert live_token(hub, "a") == newer.fencing_token == 3
    newer.release()


def test_a_lost_answer_to_a_takeover_gives_the_same_tenure(
    hub: HubClient, proxy: TcpProxy, holding: Holding, hub_project: str
) -> None:
    dead = Holding(proxy.address, hub_project)
    dead.lease("dead", ttl_seconds=1).acquire()
    dead.channel.close()
    until(lambda: hub.get_lease("r").state is LeaseState.EXPIRED)
    lease = holding.lease("b")
    proxy.drops_answers = True
    taking = InBackground(lease.take_over)
    until(lambda: live_token(hub, "b") > 0)
    token = live_token(hub, "b")
    proxy.drops_answers = False
    proxy.cut_all()
    taking.result()
    lease.check()
    assert lease.fencing_token == token == live_token(hub, "b")
    lease.release()


def test_a_lost_answer_to_a_transfer_is_no_loss(hub: HubClient, proxy: TcpProxy, holding: Holding) -> None:
    losses = Losses()
    lease = holding.lease(on_lost=losses).acquire()
    proxy.drops_answers = True
    handing = InBackground(lambda: lease.transfer("b"))
    until(lambda: hub.get_lease("r").state is LeaseState.UNCLAIMED)
    proxy.drops_answers = False
    proxy.cut_all()
    handing.result()
    with hub.lease("r", holder_id="b") as next_one:
        assert next_one.fencing_token == lease.fencing_token + 1
    assert losses.told == []


def test_a_lost_answer_to_a_release_is_a_release(hub: HubClient, proxy: TcpProxy, holding: Holding) -> None:
    lease = holding.lease().acquire()
    proxy.drops_answers = True
    releasing = InBackground(lease.release)
    until(lambda: hub.get_lease("r").state is LeaseState.RELEASED)
    proxy.drops_answers = False
    proxy.cut_all()
    releasing.result()


def test_a_late_release_does_not_meet_the_next_holder(hub: HubClient, holding: Holding) -> None:
    losses = Losses()
    lease = holding.lease(on_lost=losses).acquire()
    # The machine of the holder hangs, and another self of it took its place before it knows.
    newer = hub.lease("r", holder_id="a").acquire()
    lease.release()
    newer.check()
    assert live_token(hub, "a") == newer.fencing_token
    newer.release()


# --- connections that break or hang ---


def test_renewals_survive_connections_that_are_cut(hub: HubClient, proxy: TcpProxy, holding: Holding) -> None:
    losses = Losses()
    with holding.lease(ttl_seconds=3, on_lost=losses) as lease:
        for _ in range(8):
            time.sleep(0.5)  # the time of the test is the lease's: more than its TTL passes
            proxy.cut_all()
        lease.check()
        assert live_token(hub, "a") == lease.fencing_token
    assert losses.told == []


def test_a_connection_that_hangs_half_open_is_left_for_a_new_one(
    hub: HubClient, proxy: TcpProxy, holding: Holding
) -> None:
    losses = Losses()
    with holding.lease(ttl_seconds=4, on_lost=losses) as lease:
        proxy.half_open_all()
        renewed = hub.get_lease("r").renew_time_nanos
        until(lambda: hub.get_lease("r").renew_time_nanos != renewed)
        lease.check()
    assert losses.told == []


def test_a_hub_that_stays_silent_costs_the_lease_before_another_can_have_it(
    hub: HubClient, proxy: TcpProxy, holding: Holding
) -> None:
    losses = Losses()
    lease = holding.lease(ttl_seconds=2, on_lost=losses).acquire()
    proxy.drops_answers = True
    # The renewals arrive, so the hub keeps it alive; the holder hears nothing and must stop all the same.
    until(lambda: len(losses.told) == 1)
    assert losses.told[0].reason is LossReason.DEADLINE
    # Which way it was not heard depends on where a call was at that moment.
    assert losses.told[0].cause
    assert losses.told[0].cause in losses.told[0].sentence
    assert live_token(hub, "a") == lease.fencing_token
    with pytest.raises(LeaseHeld):
        hub.lease("r", holder_id="b").acquire()


def test_an_acquire_says_that_no_hub_can_be_reached_once_its_time_is_over(hub_project: str) -> None:
    clock = JumpingClock()
    nowhere = Holding("127.0.0.1:1", hub_project, clock)
    acquiring = InBackground(nowhere.lease().acquire)
    assert not acquiring.is_over
    clock.slept_seconds = 30.0
    with pytest.raises(HubCallError, match="no hub can be reached") as caught:
        acquiring.result()
    assert caught.value.reason == ""


# --- the hub's restart ---


def test_a_restart_of_the_hub_is_survived_and_a_waiter_goes_on_waiting(tmp_path: Path) -> None:
    losses = Losses()
    settings = settings_in(tmp_path)
    with HubInThread(settings) as before:
        address = before.address
        client = HubClient.connect(address, hub_project="h", runtime_id="runtime")
        lease = client.lease("r", holder_id="a", ttl_seconds=12, on_lost=losses).acquire()
        waiter = client.lease("r", holder_id="b", wait_seconds=60)
        waiting = InBackground(waiter.acquire)
        until(lambda: client.resource_state("r").waiter_count == 1)
    host, _, port = address.rpartition(":")
    settings = dataclasses.replace(settings, listen=Endpoint(host, int(port)))
    with HubInThread(settings), client:
        renewed = lease.seconds_left
        until(lambda: lease.seconds_left > renewed)
        lease.check()
        assert client.get_lease("r").fencing_token == lease.fencing_token == 1
        until(lambda: client.resource_state("r").waiter_count == 1)
        lease.release()
        waiting.result()
        assert waiter.fencing_token == 2
        waiter.release()
    assert losses.told == []


# --- a frozen process ---


def test_a_frozen_process_is_told_once_when_it_wakes_up_late(
    hub: HubClient, grpc_addr: str, hub_project: str
) -> None:
    command = [sys.executable, "-c", FROZEN_HOLDER, grpc_addr, hub_project]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "held 1\n"
            process.send_signal(signal.SIGSTOP)
            with hub.lease("r", holder_id="b", wait_seconds=SECONDS_MAX) as lease:
                assert lease.fencing_token == 2
                process.send_signal(signal.SIGCONT)
                process.stdin.write("\n")
                lines = sorted(process.stdout.readline() for _ in range(2))
                assert lines == ["check DEADLINE\n", "lost DEADLINE\n"]
                process.stdin.write("\n")
                rest, _ = process.communicate(timeout=SECONDS_MAX)
                assert rest == ""
                lease.check()
        finally:
            process.kill()
