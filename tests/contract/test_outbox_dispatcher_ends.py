"""Dispatchers of the client that end, are cancelled, or whose hub is not heard: nothing is lost."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hub.config import Endpoint
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import (
    OutboxOutcome,
    OutboxState,
)
from tests.contract.conftest import settings_in
from tests.contract.holding import SECONDS_MAX
from tests.contract.hub_in_thread import HubInThread
from tests.contract.sending import Sender, delivered, states, until_settled
from tests.robustness.tcp_proxy import TcpProxy


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
async def async_hub(grpc_addr: str, hub_project: str) -> AsyncIterator[AsyncHubClient]:
    client = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime")
    async with client, asyncio.timeout(2 * SECONDS_MAX):
        yield client


@pytest.fixture
def sender(hub: HubClient) -> Sender:
    return Sender(hub)


# --- ends ---


async def test_what_is_claimed_is_given_back_when_the_dispatcher_is_closed(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(6)
    async with async_hub.outbox("mail") as outbox:
        for _ in range(3):  # the fourth is claimed with the third, or out and not answered
            async with await anext(outbox):
                pass
        unanswered = await anext(outbox)
        assert OutboxState.CLAIMED in states(hub).values()
    assert states(hub) == dict.fromkeys("456", OutboxState.PENDING)
    # Its late answer is not even sent.
    async with unanswered:
        pass
    assert unanswered.outcome is None
    assert states(hub) == dict.fromkeys("456", OutboxState.PENDING)


async def test_closing_the_client_gives_back_what_its_dispatchers_have_claimed(
    grpc_addr: str, hub_project: str, hub: HubClient, sender: Sender
) -> None:
    sender.send(1)
    other = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project)
    outbox = other.outbox("mail")
    await anext(outbox)
    assert states(hub) == {"1": OutboxState.CLAIMED}
    await other.close()
    assert states(hub) == {"1": OutboxState.PENDING}
    with pytest.raises(StopAsyncIteration):
        await anext(outbox)


async def test_a_program_that_is_cancelled_as_a_whole_gives_back_what_it_was_handling(
    grpc_addr: str, hub_project: str, hub: HubClient, sender: Sender
) -> None:
    sender.send(3)
    is_inside = asyncio.Event()

    async def deliver() -> None:
        async with (
            await AsyncHubClient.connect(grpc_addr, hub_project=hub_project) as other,
            other.outbox("mail") as outbox,
        ):
            async for message in outbox:
                async with message:
                    is_inside.set()
                    await asyncio.sleep(3600)

    delivering = asyncio.create_task(deliver())
    await is_inside.wait()
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert states(hub) == dict.fromkeys("123", OutboxState.PENDING)


def all_wait(hub: HubClient, count: int) -> bool:
    """Whether so many messages wait to be claimed, and nothing else is there."""
    return states(hub) == dict.fromkeys(map(str, range(1, count + 1)), OutboxState.PENDING)


async def test_what_is_being_claimed_while_the_client_is_closed_is_given_back(
    grpc_addr: str, hub_project: str, hub: HubClient, sender: Sender, *, rng: random.Random
) -> None:
    with TcpProxy(grpc_addr, rng) as proxy:
        for number in range(1, 6):
            other = await AsyncHubClient.connect(proxy.address, hub_project=hub_project)
            blocking = await asyncio.to_thread(HubClient.connect, proxy.address, hub_project=hub_project)
            # Connected, so that a claim is quickly at the hub and its answer slowly here.
            assert [each async for each in other.list_outbox(destination="nobody")] == []
            assert list(blocking.list_outbox(destination="nobody")) == []
            proxy.delay_seconds_max = 0.1
            waiting = [
                asyncio.ensure_future(anext(other.outbox("mail", visibility_seconds=600), None)),
                asyncio.ensure_future(
                    asyncio.to_thread(next, blocking.outbox("mail", visibility_seconds=600), None)
                ),
            ]
            await asyncio.to_thread(sender.send)
            await asyncio.sleep(rng.uniform(0, 0.2))
            await other.close()
            await asyncio.to_thread(blocking.close)
            await asyncio.gather(*waiting)
            proxy.delay_seconds_max = 0.0
            await until_settled(partial(all_wait, hub, number))


async def test_an_iteration_that_is_cancelled_loses_no_message(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    def send() -> None:
        for _ in range(50):
            sender.send()

    sending = asyncio.ensure_future(asyncio.to_thread(send))
    seen: list[tuple[int, int]] = []
    cancelled_count = 0
    async with async_hub.outbox("mail") as outbox:
        while len(seen) < 50:
            try:
                message = await asyncio.wait_for(anext(outbox), 0.002)
            except TimeoutError:
                cancelled_count += 1
            else:
                async with message:
                    seen.append((int(message.outbox_id), message.attempt_count))
        await sending
    assert sorted(seen) == [(n, 1) for n in range(1, 51)]
    assert cancelled_count > 3
    assert states(hub) == {}


# --- failures around ---


async def test_an_acknowledgement_whose_answer_was_lost_is_sent_again(
    grpc_addr: str, hub_project: str, hub: HubClient, sender: Sender, *, rng: random.Random
) -> None:
    sender.send()
    with TcpProxy(grpc_addr, rng) as proxy:
        async with (
            await AsyncHubClient.connect(proxy.address, hub_project=hub_project) as behind,
            behind.outbox("mail") as outbox,
        ):
            message = await anext(outbox)
            proxy.drops_answers = True
            answering = asyncio.create_task(message.acknowledge())
            await until_settled(lambda: delivered(hub) == ["1"])
            proxy.drops_answers = False
            proxy.cut_all()
            assert await answering is OutboxOutcome.ALREADY_DELIVERED


async def test_a_claim_whose_answer_was_lost_comes_again_when_its_time_is_over(
    grpc_addr: str, hub_project: str, hub: HubClient, sender: Sender, *, rng: random.Random
) -> None:
    with TcpProxy(grpc_addr, rng) as proxy:
        async with (
            await AsyncHubClient.connect(proxy.address, hub_project=hub_project) as behind,
            behind.outbox("mail", visibility_seconds=2.0) as outbox,
        ):
            waiting = asyncio.ensure_future(anext(outbox))
            await asyncio.sleep(0.2)
            proxy.drops_answers = True
            await asyncio.to_thread(sender.send)
            await until_settled(lambda: states(hub) == {"1": OutboxState.CLAIMED})
            proxy.drops_answers = False
            proxy.cut_all()
            async with await waiting as message:
                assert (message.outbox_id, message.attempt_count) == ("1", 2)
    assert delivered(hub) == ["1"]


async def test_a_block_that_outlasts_its_time_changes_nothing_any_more(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send()
    async with async_hub.outbox("mail", visibility_seconds=0.3) as slow:
        async with await anext(slow) as late:
            await until_settled(lambda: states(hub) == {"1": OutboxState.PENDING})
            assert late.seconds_left == 0
            (other,) = hub.claim_outbox("mail", visibility_seconds=600).messages
        assert late.outcome is OutboxOutcome.CLAIM_LOST
    assert states(hub) == {"1": OutboxState.CLAIMED}
    assert hub.acknowledge_outbox("1", other.claim_id) is OutboxOutcome.DONE


async def test_a_dispatcher_outlives_a_restart_of_its_hub(tmp_path: Path, hub_project: str) -> None:
    settings = settings_in(tmp_path)
    seen = []
    with ExitStack() as held:
        with HubInThread(settings) as first:
            address = first.address
            hub = held.enter_context(HubClient.connect(address, hub_project=hub_project))
            sender = Sender(hub)
            sender.send(2)
            client = await AsyncHubClient.connect(address, hub_project=hub_project)
            outbox = client.outbox("mail")
            async with await anext(outbox) as message:
                seen.append(message.outbox_id)
            second = await anext(outbox)
        # Acknowledged while no hub is there: it goes on until the hub is back.
        answering = asyncio.create_task(second.acknowledge())
        waiting = asyncio.ensure_future(anext(outbox))
        await asyncio.sleep(0.3)
        host, _, port = address.rpartition(":")
        with HubInThread(replace(settings, listen=Endpoint(host, int(port)))):
            async with asyncio.timeout(SECONDS_MAX):
                assert await answering is OutboxOutcome.DONE
                await asyncio.to_thread(sender.send)
                async with await waiting as message:
                    seen.append(message.outbox_id)
            await client.close()
            assert (seen, delivered(hub)) == (["1", "3"], ["1", "2", "3"])


async def test_closing_does_not_wait_long_for_a_hub_that_does_not_answer(
    grpc_addr: str, hub_project: str, *, rng: random.Random
) -> None:
    with TcpProxy(grpc_addr, rng) as proxy:
        behind = await AsyncHubClient.connect(proxy.address, hub_project=hub_project)
        blocking = HubClient.connect(proxy.address, hub_project=hub_project)
        assert [each async for each in behind.list_outbox()] == list(blocking.list_outbox()) == []
        proxy.drops_answers = True
        waiting = [
            asyncio.ensure_future(anext(behind.outbox("mail"), None)),
            asyncio.ensure_future(asyncio.to_thread(next, blocking.outbox("mail"), None)),
        ]
        await asyncio.sleep(0.1)
        began_at = time.monotonic()
        await behind.close()
        await asyncio.to_thread(blocking.close)
        assert await asyncio.gather(*waiting) == [None, None]
        assert time.monotonic() - began_at < 8
