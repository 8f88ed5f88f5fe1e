"""Leases on an event loop: the same promises, kept also while the loop is blocked or a task cancelled."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from runtime_agent.core.lease import AbortReason, LossReason
from runtime_agent.core.lease_errors import (
    LeaseHeld,
    LeaseLost,
    LeaseNotHeld,
    OwnerHasRole,
    QueryHasTopic,
    ResourceUnderMaintenance,
)
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_values import LeaseState
from tests.contract.holding import LOOK_SECONDS, SECONDS_MAX, Losses
from tests.contract.holding import until as block_until


@pytest.fixture
async def hub(grpc_addr: str, hub_project: str) -> AsyncIterator[AsyncHubClient]:
    client = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime")
    async with client:
        yield client


@pytest.fixture
def other(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    """A client that blocks, to see from outside."""
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the hub tells nobody
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_block_holds_the_lease_and_gives_it_back(hub: AsyncHubClient) -> None:
    async with hub.lease("r", labels={"why": "test"}) as lease:
        lease.check()
        assert (lease.fencing_token, lease.epoch, lease.is_held) == (1, 0, True)
        assert (await hub.get_lease("r")).labels == {"why": "test"}
    assert (await hub.get_lease("r")).state is LeaseState.RELEASED
    with pytest.raises(LeaseNotHeld):
        lease.check()


async def test_a_loop_that_is_blocked_keeps_its_lease(hub: AsyncHubClient, other: HubClient) -> None:
    async with hub.lease("r", ttl_seconds=3) as lease:
        time.sleep(3.5)  # noqa: ASYNC251 - blocked, for longer than the TTL, is what this is about
        lease.check()
        assert other.get_lease("r").state is LeaseState.LIVE


async def test_a_loss_is_told_once_on_the_loop(hub: AsyncHubClient) -> None:
    losses = Losses()
    lease = await hub.lease("r", holder_id="a", ttl_seconds=3, on_lost=losses).acquire()
    async with hub.lease("r", holder_id="a") as newer:
        await until(lambda: len(losses.told) > 0)
        assert losses.told[0].reason is LossReason.SUPERSEDED
        assert losses.threads == [threading.current_thread()]
        with pytest.raises(LeaseLost):
            lease.check()
        await lease.release()
        newer.check()
    assert len(losses.told) == 1
    await lease.acquire()
    assert lease.fencing_token == 3
    await lease.release()


async def test_many_tasks_wait_at_the_same_time_and_each_gets_its_turn(hub: AsyncHubClient) -> None:
    tokens: list[int] = []

    async def work(number: int) -> None:
        async with hub.lease("r", holder_id=f"task {number}", wait_seconds=SECONDS_MAX) as lease:
            lease.check()
            tokens.append(lease.fencing_token)

    await asyncio.gather(*(work(number) for number in range(40)))
    assert tokens == list(range(1, 41))


async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue(
    hub: AsyncHubClient, other: HubClient
) -> None:
    async with hub.lease("r", holder_id="a"):
        waiting = asyncio.create_task(hub.lease("r", holder_id="b", wait_seconds=60).acquire())
        await until(lambda: other.resource_state("r").waiter_count == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: other.resource_state("r").waiter_count == 0)
    state = await hub.resource_state("r")
    assert state.fencing_token == 1


async def test_a_task_that_is_cancelled_as_its_grant_arrives_gives_it_back(
    hub: AsyncHubClient, other: HubClient
) -> None:
    async with hub.lease("warm-up"):
        pass
    acquiring = asyncio.create_task(hub.lease("r", holder_id="b").acquire())
    await asyncio.sleep(0)  # it sends its call …
    block_until(lambda: other.resource_state("r").lease is not None)
    time.sleep(0.2)  # noqa: ASYNC251 - … and the answer arrives while the loop is blocked
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await until(lambda: other.get_lease("r").state is LeaseState.RELEASED)


async def test_a_lease_is_handed_on_and_taken_over(hub: AsyncHubClient, other: HubClient) -> None:
    lease = await hub.lease("r", holder_id="a").acquire()
    assert (await lease.transfer("b", ttl_seconds=1)).state is LeaseState.UNCLAIMED
    await until(lambda: other.get_lease("r").state is LeaseState.EXPIRED)
    async with await hub.lease("r", holder_id="c").take_over() as taken:
        assert taken.fencing_token == 3


async def test_a_maintenance_keeps_everybody_out(hub: AsyncHubClient) -> None:
    async with hub.maintenance("r") as maintenance:
        assert maintenance.epoch == 1
        with pytest.raises(ResourceUnderMaintenance):
            await hub.lease("r").acquire()
    begun = await hub.maintenance("r").begin()
    await begun.finish(delete_state=True)
    credential = (await hub.begin_maintenance("r")).credential
    assert (await hub.renew_maintenance(credential)).epoch == 3
    assert await hub.finish_maintenance(credential) == 3


async def test_turns_and_processes_have_their_rules_here_too(hub: AsyncHubClient) -> None:
    async with hub.turn("orders", query_id="q1", origin="web", owner="a") as turn:
        with pytest.raises(LeaseHeld):
            await hub.turn("orders", query_id="q2", origin="web", owner="b").acquire()
        with pytest.raises(QueryHasTopic):
            await hub.turn("bills", query_id="q1", origin="web", owner="a").acquire()
        await hub.abort_turn("orders", query_id="q1", reason=AbortReason.INTERNAL)
        await until(lambda: turn.abort_requested)
    async with hub.process_lease("scheduler", owner="a") as process:
        assert (process.role, process.owner) == ("scheduler", "a")
        with pytest.raises(OwnerHasRole):
            await hub.process_lease("sweeper", owner="a", wait_seconds=0).acquire()
        with pytest.raises(LeaseHeld):
            await hub.process_lease("scheduler", owner="b", wait_seconds=0).acquire()


async def test_leases_are_listed_watched_and_checked(hub: AsyncHubClient) -> None:
    async with hub.lease("r") as lease:
        assert [each.resource async for each in hub.list_leases()] == ["r"]
        async for update in hub.watch_leases():
            assert [each.resource for each in update.leases] == ["r"]
            break
        assert (await hub.check_lease("r", fencing_token=lease.fencing_token)).is_current
        assert (await hub.check_lease("r", fencing_token=7)).loss is LossReason.SUPERSEDED
    with pytest.raises(HubCallError) as caught:
        await hub.abort_lease("r")
    assert caught.value.reason == "LEASE_MISSING"
