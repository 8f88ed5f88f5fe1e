"""Watches of the journal by the client: no event is left out and none comes twice, whatever breaks."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from hub.config import Endpoint
from hub.core.limits import Limits
from runtime_agent.core.journal_errors import PositionLost
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import JournalUpdate, NewJournalEvent
from runtime_agent.hub_client.journal_watch import AsyncJournalWatch, JournalWatch
from runtime_agent.hub_client.lease import Lease
from tests.contract.conftest import settings_in
from tests.contract.holding import SECONDS_MAX, InBackground
from tests.contract.hub_in_thread import HubInThread
from tests.robustness.tcp_proxy import TcpProxy

EVENTS: Final = 300
LARGE_EVENTS: Final = 20
CUT_SHARE: Final = 0.05
"""After so many of the commits all connections of the watcher are cut."""


class Appender:
    """Appends events named by their number, under a lease of its own."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._lease: Lease = hub.lease("s", ttl_seconds=600).acquire()
        self.count = 0

    def append(self, event_type: str = "noted", *, payload: bytes = b"") -> None:
        self.count += 1
        event = NewJournalEvent(str(self.count), event_type, payload)
        self._hub.commit(
            f"m{self.count}", "s", lease=self._lease, expected_revision=self.count - 1, events=[event]
        )


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
async def async_hub(grpc_addr: str, hub_project: str) -> AsyncIterator[AsyncHubClient]:
    client = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime")
    async with client:
        yield client


@pytest.fixture
def proxy(grpc_addr: str, rng: random.Random) -> Iterator[TcpProxy]:
    with TcpProxy(grpc_addr, rng) as proxy:
        yield proxy


def numbers_until_head(watch: JournalWatch) -> list[int]:
    """The numbers of the events up to the first update without any."""
    numbers: list[int] = []
    for update in watch:
        if not update.events:
            break
        numbers += [int(event.event_id) for event in update.events]
    return numbers


def numbers_through(watch: JournalWatch, last: int) -> list[int]:
    """The numbers of the events up to this one."""
    numbers: list[int] = []
    for update in watch:
        numbers += [int(event.event_id) for event in update.events]
        if numbers and numbers[-1] == last:
            break
    return numbers


def test_a_watch_tells_what_is_stored_then_the_head_then_what_comes(hub: HubClient) -> None:
    appender = Appender(hub)
    for _ in range(3):
        appender.append()
    with hub.watch_journal() as watch:
        assert numbers_until_head(watch) == [1, 2, 3]
        assert watch.position == 3
        appender.append()
        assert numbers_through(watch, 4) == [4]
    assert list(watch) == []


def test_a_watch_of_some_types_moves_over_the_others(hub: HubClient) -> None:
    appender = Appender(hub)
    for kind in ("noted", "rare", "noted"):
        appender.append(kind)
    with hub.watch_journal(event_types=["rare"]) as watch:
        assert numbers_until_head(watch) == [2]
        assert watch.position == 3


def test_a_watch_from_now_tells_only_what_comes_also_after_a_cut(
    hub: HubClient, proxy: TcpProxy, hub_project: str
) -> None:
    appender = Appender(hub)
    appender.append()
    with (
        HubClient.connect(proxy.address, hub_project=hub_project) as behind,
        behind.watch_journal(from_now=True) as watch,
    ):
        assert next(watch) == JournalUpdate((), 1, watch.hub_generation)
        proxy.cut_all()
        appender.append()
        assert numbers_through(watch, 2) == [2]


def test_a_watch_from_now_of_an_empty_journal_begins_at_its_first_event_after_a_cut(
    hub: HubClient, proxy: TcpProxy, hub_project: str
) -> None:
    appender = Appender(hub)
    with (
        HubClient.connect(proxy.address, hub_project=hub_project) as behind,
        behind.watch_journal(from_now=True) as watch,
    ):
        assert next(watch).progress_position == 0
        proxy.cut_all()
        appender.append()
        assert numbers_through(watch, 1) == [1]


def test_a_watch_through_cuts_tells_each_event_once_in_order(
    hub: HubClient, proxy: TcpProxy, hub_project: str, *, rng: random.Random
) -> None:
    appender = Appender(hub)

    def append() -> None:
        for _ in range(EVENTS):
            appender.append()
            if rng.random() < CUT_SHARE:
                proxy.cut_all()

    with (
        HubClient.connect(proxy.address, hub_project=hub_project) as behind,
        behind.watch_journal() as watch,
    ):
        appending = InBackground(append)
        assert numbers_through(watch, EVENTS) == list(range(1, EVENTS + 1))
        appending.result()
    assert proxy.connection_count > 3


def test_a_watch_goes_on_from_where_another_one_ended(hub: HubClient) -> None:
    appender = Appender(hub)
    for _ in range(2):
        appender.append()
    with hub.watch_journal() as first:
        numbers_until_head(first)
    appender.append()
    with hub.watch_journal(after_position=first.position, hub_generation=first.hub_generation) as second:
        assert numbers_until_head(second) == [3]


def test_a_position_ahead_or_without_its_generation_ends_the_watch(hub: HubClient) -> None:
    with hub.watch_journal() as watch:
        next(watch)
    for generation, reason in ((watch.hub_generation, "POSITION_AHEAD"), ("", "INVALID_REQUEST")):
        with pytest.raises(HubCallError) as caught:
            next(hub.watch_journal(after_position=5, hub_generation=generation))
        assert caught.value.reason == reason


def test_a_position_of_an_unknown_generation_is_lost(hub: HubClient) -> None:
    with pytest.raises(PositionLost) as caught:
        next(hub.watch_journal(after_position=5, hub_generation="another life"))
    assert caught.value.lowest_position == 0
    with pytest.raises(PositionLost) as listed:
        list(hub.list_journal(after_position=5, hub_generation="another life"))
    assert caught.value.hub_generation == listed.value.hub_generation != ""


@pytest.mark.parametrize("what", ["watch", "client"])
def test_closing_ends_a_watch_that_waits_in_another_thread(hub: HubClient, what: str) -> None:
    watch = hub.watch_journal()
    next(watch)
    waiting = InBackground(lambda: list(watch))
    (watch if what == "watch" else hub).close()
    waiting.result()


def test_a_watch_outlives_a_restart_of_its_hub(tmp_path: Path, hub_project: str) -> None:
    settings = settings_in(tmp_path)
    with ExitStack() as held:
        with HubInThread(settings) as first:
            address = first.address
            hub = held.enter_context(HubClient.connect(address, hub_project=hub_project))
            appender = Appender(hub)
            appender.append()
            watch = held.enter_context(hub.watch_journal())
            assert numbers_until_head(watch) == [1]
        host, _, port = address.rpartition(":")
        with HubInThread(replace(settings, listen=Endpoint(host, int(port)))):
            appending = InBackground(appender.append)
            assert numbers_through(watch, 2) == [2]
            appending.result()


@pytest.fixture
def impatient_hub(tmp_path: Path) -> Iterator[HubInThread]:
    """A hub that ends a stream whose answers nobody reads for half a second."""
    limits = Limits(unread_answer_seconds_max=0.5, watch_progress_seconds_max=1.0)
    with HubInThread(settings_in(tmp_path, limits)) as hub:
        yield hub


def fill(hub: HubClient) -> None:
    """Store more than a connection holds unread, so that the hub waits for a reader."""
    appender = Appender(hub)
    for _ in range(LARGE_EVENTS):
        appender.append(payload=bytes(1_000_000))


def test_a_program_that_is_slow_or_was_paused_goes_on_where_it_was(
    impatient_hub: HubInThread, hub_project: str
) -> None:
    with HubClient.connect(impatient_hub.address, hub_project=hub_project) as hub:
        fill(hub)
        with hub.watch_journal() as watch:
            first = next(watch)
            with hub.watch_journal(from_now=True) as beside:
                # Its updates are a second apart: longer than the hub waits for the other one.
                assert [update.events for update in islice(beside, 3)] == [(), (), ()]
            numbers = [int(event.event_id) for event in first.events] + numbers_until_head(watch)
    assert numbers == list(range(1, LARGE_EVENTS + 1))


# --- the twin ---


async def numbers_of(watch: AsyncJournalWatch, last: int) -> list[int]:
    numbers: list[int] = []
    async with asyncio.timeout(SECONDS_MAX):
        async for update in watch:
            numbers += [int(event.event_id) for event in update.events]
            if numbers and numbers[-1] == last:
                break
    return numbers


async def test_the_twin_tells_each_event_once_through_cuts(
    hub: HubClient, proxy: TcpProxy, hub_project: str, *, rng: random.Random
) -> None:
    appender = Appender(hub)

    def append() -> None:
        for _ in range(EVENTS):
            appender.append()
            if rng.random() < CUT_SHARE:
                proxy.cut_all()

    async with (
        await AsyncHubClient.connect(proxy.address, hub_project=hub_project) as behind,
        behind.watch_journal() as watch,
    ):
        appending = asyncio.create_task(asyncio.to_thread(append))
        assert await numbers_of(watch, EVENTS) == list(range(1, EVENTS + 1))
        await appending
    assert proxy.connection_count > 3


async def test_a_cancelled_iteration_of_the_twin_loses_nothing(
    hub: HubClient, async_hub: AsyncHubClient
) -> None:
    appender = Appender(hub)
    numbers: list[int] = []
    cancelled_count = 0

    def append() -> None:
        for _ in range(EVENTS):
            appender.append()

    appending = asyncio.create_task(asyncio.to_thread(append))
    async with async_hub.watch_journal() as watch, asyncio.timeout(SECONDS_MAX):
        while len(numbers) < EVENTS:
            try:
                update = await asyncio.wait_for(anext(watch), 0.003)
            except TimeoutError:
                cancelled_count += 1
            else:
                numbers += [int(event.event_id) for event in update.events]
    await appending
    assert numbers == list(range(1, EVENTS + 1))
    assert cancelled_count > 3


async def test_closing_ends_a_watch_of_the_twin_that_waits_in_another_task(
    async_hub: AsyncHubClient,
) -> None:
    for end in ("watch", "client"):
        watch = async_hub.watch_journal()
        await anext(watch)

        async def read(watch: AsyncJournalWatch = watch) -> list[JournalUpdate]:
            return [update async for update in watch]

        waiting = asyncio.create_task(read())
        await asyncio.sleep(0)
        await (watch.close() if end == "watch" else async_hub.close())
        async with asyncio.timeout(SECONDS_MAX):
            assert await waiting == []


async def test_a_refused_watch_of_the_twin_ends(async_hub: AsyncHubClient) -> None:
    with pytest.raises(PositionLost):
        await anext(async_hub.watch_journal(after_position=5, hub_generation="another life"))
    with pytest.raises(HubCallError) as caught:
        await anext(async_hub.watch_journal(after_position=5))
    assert caught.value.reason == "INVALID_REQUEST"


async def test_a_slow_task_of_the_twin_goes_on_where_it_was(
    impatient_hub: HubInThread, hub_project: str
) -> None:
    with HubClient.connect(impatient_hub.address, hub_project=hub_project) as hub:
        await asyncio.to_thread(fill, hub)
    client = await AsyncHubClient.connect(impatient_hub.address, hub_project=hub_project)
    async with client, client.watch_journal() as watch, client.watch_journal(from_now=True) as beside:
        numbers = [int(event.event_id) for event in (await anext(watch)).events]
        for _ in range(3):
            assert (await anext(beside)).events == ()
        numbers += await numbers_of(watch, LARGE_EVENTS)
    assert numbers == list(range(1, LARGE_EVENTS + 1))
