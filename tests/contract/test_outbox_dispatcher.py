"""Dispatchers of the client: at least once, in bounded numbers, through failures of all that is around."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from runtime_agent.core.errors import UsageError
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.async_outbox import AsyncOutgoingMessage
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import (
    OutboxMessage,
    OutboxOutcome,
    OutboxState,
)
from tests.contract.holding import SECONDS_MAX, InBackground
from tests.contract.sending import Failures, Sender, delivered, states

TRIES_MAX: Final = 10


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


# --- the good way ---


async def test_a_block_that_ends_delivers_its_message_in_order(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(20)
    seen = []
    async with async_hub.outbox("mail") as outbox:
        async for message in outbox:
            async with message:
                seen.append((message.outbox_id, message.payload, message.attempt_count))
                assert 20 < message.seconds_left <= 30
            assert message.outcome is OutboxOutcome.DONE
            if len(seen) == 20:
                break
    assert seen == [(str(n), str(n).encode(), 1) for n in range(1, 21)]
    assert states(hub) == {}


async def test_a_message_that_comes_while_it_waits_is_there_within_a_second(
    async_hub: AsyncHubClient, sender: Sender
) -> None:
    async with async_hub.outbox("mail") as outbox:
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(outbox))
            await asyncio.sleep(0.3)
            sent_at = time.monotonic()
            await asyncio.to_thread(sender.send)
            async with await waiting:
                # The poll, and what this machine takes besides.
                assert time.monotonic() - sent_at < 1.6


def test_the_twin_that_blocks_does_the_same(hub: HubClient, sender: Sender) -> None:
    sender.send(5)
    seen = []
    failures = Failures()
    with hub.outbox("mail", retry_seconds_first=0.0, retry_seconds_max=0.0, on_failure=failures) as outbox:
        for message in outbox:
            with message:
                seen.append((message.outbox_id, message.attempt_count))
                if seen[-1] == ("2", 1):
                    raise ZeroDivisionError
            if len(seen) == 6:
                break
    assert sorted(seen) == [("1", 1), ("2", 1), ("2", 2), ("3", 1), ("4", 1), ("5", 1)]
    assert failures.told == [("2", "ZeroDivisionError")]
    assert states(hub) == {}


def test_closing_ends_the_twin_that_waits_in_another_thread(hub: HubClient) -> None:
    outbox = hub.outbox("mail")
    seen: list[object] = []
    waiting = InBackground(lambda: seen.extend(outbox))
    outbox.close()
    waiting.result()
    assert seen == []


def test_threads_handle_at_most_as_many_as_may_be_in_flight(hub: HubClient, sender: Sender) -> None:
    sender.send(8)
    lock = threading.Lock()
    running: list[int] = [0, 0]

    def handle(message: object) -> None:
        with message:  # type: ignore[attr-defined]
            with lock:
                running[0] += 1
                running[1] = max(running)
            time.sleep(0.05)
            with lock:
                running[0] -= 1

    threads = []
    with hub.outbox("mail", in_flight_max=3) as outbox:
        for message in outbox:
            threads.append(threading.Thread(target=handle, args=(message,)))
            threads[-1].start()
            if len(threads) == 8:
                break
        for thread in threads:
            thread.join(SECONDS_MAX)
    assert running == [0, 3]
    assert states(hub) == {}


# --- failures of the block ---


async def test_a_block_that_raises_gives_its_message_back_and_the_loop_goes_on(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(2)
    failures = Failures()
    seen = []
    async with async_hub.outbox("mail", retry_seconds_first=60, on_failure=failures) as outbox:
        async for message in outbox:
            async with message:
                seen.append(message.outbox_id)
                if message.outbox_id == "1":
                    raise ConnectionError("the mail server is away")
            if len(seen) == 2:
                break
    assert seen == ["1", "2"]
    assert failures.told == [("1", "ConnectionError")]
    (waiting,) = hub.list_outbox()
    assert (waiting.outbox_id, waiting.state, waiting.attempt_count) == ("1", OutboxState.PENDING, 1)


async def test_without_anybody_to_tell_the_error_goes_where_uncaught_ones_go(
    async_hub: AsyncHubClient, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender.send()
    told: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: told.append((kind, str(error))))
    async with async_hub.outbox("mail") as outbox, await anext(outbox):
        raise ConnectionError("away")
    assert told == [(ConnectionError, "away")]


async def test_a_message_that_fails_again_and_again_is_dead_and_delivered_after_its_release(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send()
    failures = Failures()
    attempts = []
    async with async_hub.outbox(
        "mail", retry_seconds_first=0, retry_seconds_max=0, on_failure=failures
    ) as outbox:
        async for message in outbox:
            async with message:
                attempts.append(message.attempt_count)
                raise ConnectionError
            if message.attempt_count == TRIES_MAX:
                break
        assert attempts == list(range(1, TRIES_MAX + 1))
        assert states(hub) == {"1": OutboxState.DEAD}
        assert len(failures.told) == TRIES_MAX
        hub.release_outbox("1")
        async with await anext(outbox) as message:
            assert message.attempt_count == 1
    assert delivered(hub) == ["1"]


async def test_what_on_failure_raises_ends_the_loop_and_the_message_is_given_back(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send()

    def give_up(message: OutboxMessage, error: Exception) -> None:
        raise error

    async def deliver() -> None:
        async with async_hub.outbox("mail", on_failure=give_up) as outbox:
            async for message in outbox:
                async with message:
                    raise ConnectionError

    with pytest.raises(ConnectionError):
        await deliver()
    assert states(hub) == {"1": OutboxState.PENDING}


async def test_a_message_may_be_answered_by_calls(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(2)
    async with async_hub.outbox("mail") as outbox:
        async with await anext(outbox) as first:
            returned = await first.retry(3600)
            assert (returned.outcome, returned.state) == (OutboxOutcome.DONE, OutboxState.PENDING)
        second = await anext(outbox)
        assert await second.acknowledge() is OutboxOutcome.DONE
    assert states(hub) == {"1": OutboxState.PENDING}
    (waiting,) = hub.list_outbox()
    assert waiting.available_time_nanos - waiting.create_time_nanos > 3_500 * 1_000_000_000


async def test_a_cancelled_block_gives_its_message_back_at_once(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send()
    is_inside = asyncio.Event()

    async def handle(message: AsyncOutgoingMessage) -> None:
        async with message:
            is_inside.set()
            await asyncio.sleep(3600)

    async with async_hub.outbox("mail") as outbox:
        handling = asyncio.create_task(handle(await anext(outbox)))
        await is_inside.wait()
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
        async with await anext(outbox) as message:
            assert (message.outbox_id, message.attempt_count) == ("1", 2)
    assert delivered(hub) == ["1"]


# --- bounds and order ---


async def test_tasks_handle_at_most_as_many_as_may_be_in_flight(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(30)
    running, most, done = 0, 0, 0

    async def handle(message: AsyncOutgoingMessage) -> None:
        nonlocal running, most, done
        async with message:
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            done += 1

    async with async_hub.outbox("mail", in_flight_max=4) as outbox, asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(handle(await anext(outbox)))
    assert (most, done) == (4, 30)
    assert states(hub) == {}


async def test_a_slow_handler_does_not_claim_what_it_cannot_handle(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(30)
    async with async_hub.outbox("mail", visibility_seconds=1.0) as outbox:
        for _ in range(4):
            async with await anext(outbox):
                # More than a tenth of the time: claims stay at one message.
                await asyncio.sleep(0.15)
            claimed = [name for name, state in states(hub).items() if state is OutboxState.CLAIMED]
            assert len(claimed) <= 2
    # Whatever was claimed too early was handed out in time: no try was wasted.
    assert {each.attempt_count for each in hub.list_outbox()} <= {0, 1}


async def test_messages_of_a_key_wait_for_the_one_before_them(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(3, ordering_key="k")
    seen = []
    async with async_hub.outbox(
        "mail", retry_seconds_first=0, retry_seconds_max=0, on_failure=Failures()
    ) as outbox:
        async for message in outbox:
            async with message:
                seen.append((message.outbox_id, message.attempt_count))
                if message.attempt_count < 3:
                    raise ConnectionError
            if len(seen) == 9:
                break
    assert seen == [(str(n), attempt) for n in (1, 2, 3) for attempt in (1, 2, 3)]
    assert states(hub) == {}


async def test_the_next_message_of_a_key_is_not_waited_for_once_the_one_before_is_delivered(
    async_hub: AsyncHubClient, hub: HubClient, sender: Sender
) -> None:
    sender.send(12, ordering_key="k")
    seen: list[str] = []

    async def handle(message: AsyncOutgoingMessage) -> None:
        async with message:
            # Long enough that the dispatcher has found nothing more, and waits.
            await asyncio.sleep(0.05)
            seen.append(message.outbox_id)

    began_at = time.monotonic()
    async with async_hub.outbox("mail") as outbox, asyncio.TaskGroup() as tasks:
        for _ in range(12):
            tasks.create_task(handle(await anext(outbox)))
    assert seen == [str(n) for n in range(1, 13)]
    # Each would wait for half a second at least.
    assert time.monotonic() - began_at < 5


async def test_a_hub_that_refuses_ends_the_loop(async_hub: AsyncHubClient) -> None:
    with pytest.raises(HubCallError) as caught:
        await anext(async_hub.outbox("mail", visibility_seconds=7200))
    assert caught.value.reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "wish",
    [{"in_flight_max": 0}, {"visibility_seconds": 0}, {"retry_seconds_first": 2, "retry_seconds_max": 1}],
)
def test_a_dispatcher_that_could_not_work_is_not_made(hub: HubClient, wish: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        hub.outbox("mail", **wish)  # type: ignore[arg-type]
