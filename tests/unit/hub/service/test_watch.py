"""Watchers over a real store: complete, in order, awake only when there is something for them."""

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

import pytest

from hub.core.errors import GenerationChanged, InvalidRequest, PositionAhead
from hub.core.limits import Limits
from hub.core.selection import EventScope, PageBounds
from hub.core.values import Caller, HubProject, ProjectId, Role, RunId
from hub.service import watch_feed
from hub.service.readers import Readers
from hub.service.watch import EventWatch, WatchAnswer, Watches, WatchQuery
from hub.store.contract import Changes
from hub.store.store import SqlStore
from tests.unit.hub.stored_runs import StoreWriter, event

HUB_PROJECT: Final = HubProject("hub-project")
CALLER: Final = Caller(HUB_PROJECT, None, Role.ANONYMOUS, "peer", "")
SECONDS_MAX: Final = 30.0
"""What nothing here takes; then a test fails instead of hanging."""


class Clock:
    """Seconds that move only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def watches_over(
    store: SqlStore, clock: Clock | None, limits: Limits | None = None
) -> AsyncIterator[Watches]:
    with ThreadPoolExecutor(2) as executor:
        yield Watches(
            Readers(store, executor),
            limits=limits or Limits(),
            monotonic_seconds=clock or asyncio.get_running_loop().time,
        )


async def answer_of(watch: EventWatch) -> WatchAnswer:
    async with asyncio.timeout(SECONDS_MAX):
        return await watch.next_answer()


def positions(answer: WatchAnswer) -> list[int]:
    return [each.position for each in answer.events]


async def settled() -> None:
    """Let everything run that can run without a thread."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_stored_comes_first_then_progress_with_the_head_then_what_is_new(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(1), event(2)])
    async with watches_over(store, clock) as watches, watches.watching(CALLER, WatchQuery()) as watch:
        stored = await answer_of(watch)
        assert (positions(stored), stored.progress_position) == ([1, 2], 2)
        assert await answer_of(watch) == WatchAnswer((), 2)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        assert not waiting.done()
        watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(3)]))
        live = await waiting
        assert (positions(live), live.progress_position) == ([3], 3)


async def test_a_watch_of_nothing_yet_is_told_at_once_that_the_head_is_0(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    async with watches_over(store, clock) as watches, watches.watching(CALLER, WatchQuery()) as watch:
        assert await answer_of(watch) == WatchAnswer((), 0)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(1)]))
        assert positions(await waiting) == [1]


async def test_a_watch_from_now_begins_at_the_head(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(1)])
    query = WatchQuery(is_from_now=True)
    async with watches_over(store, clock) as watches, watches.watching(CALLER, query) as watch:
        assert await answer_of(watch) == WatchAnswer((), 1)
        watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(2)]))
        assert positions(await answer_of(watch)) == [2]


async def test_a_watch_goes_on_after_the_position_that_it_names(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(n) for n in range(1, 5)])
    query = WatchQuery(after_position=3, hub_generation=store.hub_generation)
    async with watches_over(store, clock) as watches, watches.watching(CALLER, query) as watch:
        assert positions(await answer_of(watch)) == [4]


@pytest.mark.parametrize(
    ("generation", "after_position", "refusal"),
    [("", 1, InvalidRequest), ("unknown", 1, GenerationChanged), (None, 2, PositionAhead)],
)
async def test_a_position_that_does_not_hold_is_refused(
    store: SqlStore,
    writer: StoreWriter,
    clock: Clock,
    *,
    generation: str | None,
    after_position: int,
    refusal: type[Exception],
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(1)])
    hub_generation = store.hub_generation if generation is None else generation
    query = WatchQuery(after_position=after_position, hub_generation=hub_generation)
    async with watches_over(store, clock) as watches:
        with pytest.raises(refusal):
            async with watches.watching(CALLER, query):
                pass


async def test_progress_rises_with_events_that_were_not_asked_for(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    limits = Limits(watch_progress_seconds_max=0.02)
    query = WatchQuery(EventScope(ProjectId("p"), RunId("r")))
    async with watches_over(store, None, limits) as watches, watches.watching(CALLER, query) as watch:
        assert await answer_of(watch) == WatchAnswer((), 0)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        watches.announce(writer.push(HUB_PROJECT, "p", "other", events=[event(1)]))
        assert await waiting == WatchAnswer((), 1)


async def test_progress_is_told_in_time_while_events_flow(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    async with watches_over(store, clock) as watches, watches.watching(CALLER, WatchQuery()) as watch:
        assert await answer_of(watch) == WatchAnswer((), 0)
        watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(1)]))
        assert positions(await answer_of(watch)) == [1]
        watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(2)]))
        clock.seconds += Limits().watch_progress_seconds_max
        assert await answer_of(watch) == WatchAnswer((), 1)
        assert positions(await answer_of(watch)) == [2]


async def test_watchers_of_other_runs_sleep_through_a_commit_and_cost_no_read(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    query = WatchQuery(EventScope(ProjectId("p"), RunId("mine")))
    async with watches_over(store, clock) as watches, watches.watching(CALLER, query) as watch:
        await answer_of(watch)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        watches.announce(writer.push(HUB_PROJECT, "p", "theirs", events=[event(1), event(2)]))
        feed = watches._feeds[HUB_PROJECT]
        assert feed._reading is None
        assert feed.tail.through_position == 2
        watches.announce(writer.push(HUB_PROJECT, "p", "mine", events=[event(1)]))
        assert positions(await waiting) == [3]


async def test_a_commit_that_nobody_announced_is_found_with_the_next_progress(
    store: SqlStore, writer: StoreWriter
) -> None:
    limits = Limits(watch_progress_seconds_max=0.02)
    async with watches_over(store, None, limits) as watches, watches.watching(CALLER, WatchQuery()) as watch:
        await answer_of(watch)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        writer.push(HUB_PROJECT, "p", "r", events=[event(1)])
        answer = await waiting
        while not answer.events:
            answer = await answer_of(watch)
        assert positions(answer) == [1]


async def test_a_touch_that_comes_with_the_timeout_is_not_lost() -> None:
    """Between the timeout and the watcher's turn its future is cancelled, but the touch still counts."""
    waiter = watch_feed.Waiter(EventScope(), 5, asyncio.get_running_loop().create_future())
    waiter.woken.cancel()
    waiter.touch(7)
    waiter.touch(9)
    assert (waiter.is_touched, waiter.considered_position) == (True, 7)


async def test_when_the_last_watcher_leaves_nothing_of_it_stays(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    async with watches_over(store, clock) as watches:
        async with watches.watching(CALLER, WatchQuery()) as watch:
            await answer_of(watch)
            waiting = asyncio.create_task(answer_of(watch))
            await settled()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert watches._feeds[HUB_PROJECT]._waiters == {}
        assert watches._feeds == {}


class Seen:
    """A watcher at work, slow at random, and what it got."""

    def __init__(self, query: WatchQuery, chance: random.Random) -> None:
        self.query = query
        self.chance = chance
        self.positions: list[int] = []
        self.begin = 0
        self.answers_without_events: list[int] = []

    async def watch_until(self, watches: Watches, is_over: asyncio.Event, store: SqlStore) -> None:
        async with watches.watching(CALLER, self.query) as watch:
            self.begin = watch._considered_position
            while True:
                answer = await answer_of(watch)
                self.positions += positions(answer)
                if answer.events:
                    assert answer.progress_position >= answer.events[-1].position
                else:
                    self.answers_without_events.append(answer.progress_position)
                if is_over.is_set() and answer.progress_position == head_of(store):
                    return
                for _ in range(self.chance.choice([0, 0, 1, 30])):
                    await asyncio.sleep(0)


def head_of(store: SqlStore) -> int:
    with store.reading() as transaction:
        return transaction.head_position(HUB_PROJECT)


def queries(chance: random.Random) -> list[WatchQuery]:
    scopes = [
        EventScope(),
        *(EventScope(ProjectId(p)) for p in "ab"),
        *(EventScope(ProjectId(p), RunId(r)) for p in "ab" for r in "12"),
        EventScope(ProjectId("never"), RunId("there")),
    ]
    return [
        WatchQuery(scope, event_types=types, is_from_now=chance.random() < 0.3)
        for scope in scopes
        for types in ((), ("type-1",))
    ]


@pytest.mark.parametrize("shared_read_max", [0, 16_384])
@pytest.mark.parametrize("round_number", range(4))
async def test_nobody_misses_anything_or_sees_it_twice_however_slow_and_late(
    store: SqlStore,
    writer: StoreWriter,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    *,
    shared_read_max: int,
    round_number: int,
) -> None:
    monkeypatch.setattr(watch_feed, "SHARED_READ_POSITIONS_MAX", shared_read_max)
    chance = random.Random(f"{pytestconfig.option.seed}-{round_number}")
    limits = Limits(
        watch_progress_seconds_max=chance.choice([0.005, 0.05]),
        watch_page_entries_max=chance.choice([1, 3, 1_000]),
        watch_tail_bytes_max=chance.choice([1, 3_000, 2**22]),
    )
    is_over = asyncio.Event()
    next_sequences: dict[tuple[str, str], int] = {}

    def commit() -> Changes:
        project_id, run_id = chance.choice("ab"), chance.choice("123")
        first = next_sequences.get((project_id, run_id), 1)
        count = chance.randint(1, 4)
        next_sequences[project_id, run_id] = first + count
        events = [event(n, event_type=f"type-{n % 3}") for n in range(first, first + count)]
        return writer.push(HUB_PROJECT, project_id, run_id, events=events)

    async with watches_over(store, None, limits) as watches, asyncio.TaskGroup() as tasks:
        seen = []
        for query in queries(chance):
            for _ in range(chance.randint(0, 5)):
                watches.announce(commit())
            watcher = Seen(query, random.Random(chance.random()))
            seen.append(watcher)
            tasks.create_task(watcher.watch_until(watches, is_over, store))
        for _ in range(150):
            changes = commit()
            if chance.random() < 0.9:
                watches.announce(changes)
            for _ in range(chance.choice([0, 0, 1, 5, 40])):
                await asyncio.sleep(0)
        watches.announce(commit())
        is_over.set()
    assert_complete(store, seen)


def assert_complete(store: SqlStore, seen: list[Seen]) -> None:
    with store.reading() as transaction:
        for watcher in seen:
            truth = transaction.events_after(
                HUB_PROJECT,
                watcher.query.scope,
                after_position=watcher.begin,
                event_types=watcher.query.event_types,
                bounds=PageBounds(10**6, 2**30),
            )
            assert watcher.positions == [each.position for each in truth.events], watcher.query
            progress = watcher.answers_without_events
            assert progress == sorted(progress)


async def test_the_lag_of_a_hub_project_is_that_of_its_slowest_watcher(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(1), event(2)])
    async with watches_over(store, clock) as watches:
        assert watches.lags() == {}
        async with (
            watches.watching(CALLER, WatchQuery()) as slow,
            watches.watching(CALLER, WatchQuery(is_from_now=True)) as quick,
        ):
            # Both have yet to look, and one of them has nothing to look at.
            assert watches.lags() == {HUB_PROJECT: 2}
            assert positions(await answer_of(slow)) == [1, 2]
            assert watches.lags() == {HUB_PROJECT: 0}
            await answer_of(quick)
            watches.announce(writer.push(HUB_PROJECT, "p", "r", events=[event(3)]))
            assert positions(await answer_of(quick)) == [3]
            assert watches.lags() == {HUB_PROJECT: 1}
        assert watches.lags() == {}


async def test_a_watcher_that_waits_is_not_behind_what_is_not_for_it(
    store: SqlStore, writer: StoreWriter, clock: Clock
) -> None:
    query = WatchQuery(EventScope(ProjectId("p"), RunId("mine")))
    async with watches_over(store, clock) as watches, watches.watching(CALLER, query) as watch:
        assert await answer_of(watch) == WatchAnswer((), 0)
        waiting = asyncio.create_task(answer_of(watch))
        await settled()
        for sequence in range(1, 4):
            watches.announce(writer.push(HUB_PROJECT, "p", "another", events=[event(sequence)]))
            await settled()
        assert (waiting.done(), watches.lags()) == (False, {HUB_PROJECT: 0})
        watches.announce(writer.push(HUB_PROJECT, "p", "mine", events=[event(1)]))
        assert positions(await waiting) == [4]
        assert watches.lags() == {HUB_PROJECT: 0}
