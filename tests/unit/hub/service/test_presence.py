"""Presence over a real store, with a clock in the hand of the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeVar

import pytest

from hub.core.clock import HubClock
from hub.core.errors import NotFound, RuntimeDuplicated
from hub.core.limits import Limits
from hub.core.presence import Heartbeat, PresenceState
from hub.core.values import AlertReason, Caller, HubProject, InstanceId, ProjectId, Role, RunId, RuntimeId
from hub.service.alert_book import AlertBook
from hub.service.instruments import NoInstruments
from hub.service.presence import Presence, RuntimeNews
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter, Writer
from hub.store.contract import Changes
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND
from tests.unit.hub.stored_runs import WALL_NANOS

Result = TypeVar("Result")

HUB_PROJECT: Final = HubProject("h")
CALLER: Final = Caller(HUB_PROJECT, None, Role.ANONYMOUS, "ipv4:127.0.0.1:1", "")
LIMITS: Final = Limits(page_entries_max=3, presence_flush_rows_max=2)
TTL_SECONDS: Final = LIMITS.presence_ttl_seconds
HEARTBEAT: Final = Heartbeat(
    runtime_id=RuntimeId("r"),
    instance_id=InstanceId("one"),
    host="host",
    pid=1,
    version="1",
    labels={"k": "v"},
    active_runs=((ProjectId("p"), RunId("r")),),
    unsynced_event_count=2,
    is_goodbye=False,
)


class RecordedEar:
    """A stream that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[InstanceId] = []

    def tell_duplicate(self, current_instance_id: InstanceId) -> None:
        self.told.append(current_instance_id)


class Losses(NoInstruments):
    """The hub projects of the runtimes that fell silent."""

    def __init__(self) -> None:
        self.hub_projects: list[HubProject] = []

    def runtime_lost(self, hub_project: HubProject) -> None:
        self.hub_projects.append(hub_project)


class PresenceOverStore:
    """A presence and what it stands on; the writer runs when the test waits for something."""

    def __init__(self, store: SqlStore, executor: ThreadPoolExecutor, limits: Limits) -> None:
        self.store = store
        self.elapsed_nanos = 0
        self.commit_count = 0
        self.losses = Losses()
        self.clock = HubClock(
            wall_nanos=WALL_NANOS,
            floor_nanos=store.time_floor_nanos,
            suspension_counting_nanos=lambda: self.elapsed_nanos,
        )
        self.alert_book = AlertBook(limits=limits)
        self.writer = Writer(
            store.writing,
            clock=self.clock,
            limits=limits,
            hook=self.alert_book,
            instruments=NoInstruments(),
            monotonic_seconds=lambda: 0.0,
            dispatch=lambda deliver: deliver(),
            on_commit=self._tell,
        )
        self.presence = Presence(
            AsyncWriter(self.writer, limits=limits),
            Readers(store, executor),
            alert_book=self.alert_book,
            limits=limits,
            now_nanos=self.clock.now,
            instruments=self.losses,
        )

    def pass_seconds(self, seconds: float) -> None:
        self.elapsed_nanos += round(seconds * NANOS_PER_SECOND)

    async def do(self, work: Awaitable[Result]) -> Result:
        """Wait for something while the writer runs."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.writer.step()
            await asyncio.wait({task}, timeout=0.001)
        return await task

    async def hear(
        self, heartbeat: Heartbeat, ear: RecordedEar, *, is_first: bool = True, caller: Caller = CALLER
    ) -> int:
        return await self.do(self.presence.hear(caller, heartbeat, ear=ear, is_first=is_first))

    async def state(self, runtime_id: str = "r") -> PresenceState:
        return (await self.do(self.presence.runtime(CALLER, RuntimeId(runtime_id)))).state

    def _tell(self, changes: Changes) -> None:
        self.commit_count += 1
        for (hub_project, runtime_id), (instance_id, start_nanos) in changes.instances.items():
            self.presence.instance_began(
                hub_project, runtime_id, instance_id=instance_id, start_nanos=start_nanos
            )


@pytest.fixture
async def over(store: SqlStore) -> AsyncIterator[PresenceOverStore]:
    with ThreadPoolExecutor(1) as executor:
        yield PresenceOverStore(store, executor, LIMITS)


def of(runtime_id: str, instance_id: str = "one") -> Heartbeat:
    return replace(HEARTBEAT, runtime_id=RuntimeId(runtime_id), instance_id=InstanceId(instance_id))


def told(news: RuntimeNews) -> list[tuple[str, PresenceState]]:
    return [(seen.runtime.runtime_id, seen.state) for seen in news.runtimes]


async def news_of(over: PresenceOverStore, watch: AsyncIterator[RuntimeNews]) -> RuntimeNews:
    async def next_news() -> RuntimeNews:
        return await anext(watch)

    return await over.do(asyncio.wait_for(next_news(), 5))


async def test_only_the_first_heartbeat_goes_through_the_writer(over: PresenceOverStore) -> None:
    ear = RecordedEar()
    await over.hear(HEARTBEAT, ear)
    commits = over.commit_count
    for _ in range(100):
        await over.presence.hear(CALLER, HEARTBEAT, ear=ear, is_first=False)
    assert over.commit_count == commits


async def test_a_second_stream_of_the_same_instance_does_not_go_through_the_writer(
    over: PresenceOverStore,
) -> None:
    await over.hear(HEARTBEAT, RecordedEar())
    await over.presence.hear(CALLER, HEARTBEAT, ear=RecordedEar(), is_first=True)


async def test_a_heartbeat_is_taken_at_hub_time(over: PresenceOverStore) -> None:
    over.pass_seconds(3)
    assert await over.hear(HEARTBEAT, RecordedEar()) == over.clock.now()


async def test_presence_is_written_together(over: PresenceOverStore) -> None:
    for runtime_id in "abcde":
        await over.hear(of(runtime_id), RecordedEar())
    commits = over.commit_count
    await over.do(over.presence.flush())
    # Two rows a command here, and the writer was free at each.
    assert over.commit_count == commits + 3
    with over.store.reading() as transaction:
        stored = transaction.runtime(HUB_PROJECT, RuntimeId("c"))
    assert stored == of("c").as_runtime(instance_start_nanos=WALL_NANOS, heard_nanos=WALL_NANOS)
    await over.presence.flush()
    assert over.commit_count == commits + 3


async def test_what_could_not_be_written_stays_to_be_written(over: PresenceOverStore) -> None:
    await over.hear(HEARTBEAT, RecordedEar())
    flushing = asyncio.ensure_future(over.presence.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    commits = over.commit_count
    await over.do(over.presence.flush())
    assert over.commit_count > commits


async def test_a_runtime_is_lost_after_the_ttl_though_nothing_runs_in_the_background(
    over: PresenceOverStore,
) -> None:
    await over.hear(HEARTBEAT, RecordedEar())
    over.pass_seconds(TTL_SECONDS - 0.001)
    assert await over.state() is PresenceState.ONLINE
    over.pass_seconds(0.001)
    assert await over.state() is PresenceState.LOST


async def test_a_break_counts_only_from_the_stream_of_the_last_heartbeat(over: PresenceOverStore) -> None:
    older, newer = RecordedEar(), RecordedEar()
    await over.hear(HEARTBEAT, older)
    await over.hear(HEARTBEAT, newer)
    over.presence.stream_broke(HUB_PROJECT, RuntimeId("r"), ear=older)
    over.pass_seconds(LIMITS.broken_stream_grace_seconds)
    assert await over.state() is PresenceState.ONLINE
    over.presence.stream_broke(HUB_PROJECT, RuntimeId("r"), ear=newer)
    assert await over.state() is PresenceState.ONLINE
    over.pass_seconds(LIMITS.broken_stream_grace_seconds)
    assert await over.state() is PresenceState.LOST


async def test_a_goodbye_counts_only_from_the_stream_of_the_last_heartbeat(over: PresenceOverStore) -> None:
    older, newer = RecordedEar(), RecordedEar()
    goodbye = replace(HEARTBEAT, is_goodbye=True)
    await over.hear(HEARTBEAT, older)
    await over.hear(HEARTBEAT, newer)
    await over.hear(goodbye, older, is_first=False)
    assert await over.state() is PresenceState.ONLINE
    await over.hear(goodbye, newer, is_first=False)
    assert await over.state() is PresenceState.OFFLINE


async def test_a_newer_instance_takes_over_and_the_older_is_told_and_refused(over: PresenceOverStore) -> None:
    older, newer = RecordedEar(), RecordedEar()
    await over.hear(of("r", "one"), older)
    await over.hear(of("r", "two"), newer)
    assert older.told == [InstanceId("two")]
    before = await over.do(over.presence.runtime(CALLER, RuntimeId("r")))
    with pytest.raises(RuntimeDuplicated):
        await over.hear(of("r", "one"), older, is_first=False)
    assert await over.do(over.presence.runtime(CALLER, RuntimeId("r"))) == before
    with over.store.reading() as transaction:
        (alert,) = transaction.alerts(HUB_PROJECT, exclude_acknowledged=False, after=None, entries_max=9)
    assert (alert.key.reason, alert.key.runtime_id) == (AlertReason.RUNTIME_DUPLICATED, "r")


async def test_two_instances_at_once_leave_one(over: PresenceOverStore) -> None:
    """Whatever the order in which the writer takes them, the last one taken is current."""
    ears = [RecordedEar() for _ in range(5)]
    outcomes = await over.do(
        asyncio.gather(
            *(
                over.presence.hear(CALLER, of("r", f"i{index}"), ear=ear, is_first=True)
                for index, ear in enumerate(ears)
            ),
            return_exceptions=True,
        )
    )
    heard = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, RuntimeDuplicated)]
    assert (heard, len(refused)) == ([4], 4)


async def test_what_was_heard_before_a_restart_is_read_back(over: PresenceOverStore, store: SqlStore) -> None:
    await over.hear(HEARTBEAT, RecordedEar())
    await over.do(over.presence.flush())
    with ThreadPoolExecutor(1) as executor:
        again = PresenceOverStore(store, executor, LIMITS)
        again.pass_seconds(TTL_SECONDS - 1)
        assert await again.state() is PresenceState.ONLINE
        again.pass_seconds(1)
        assert await again.state() is PresenceState.LOST
        commits = again.commit_count
        await again.hear(HEARTBEAT, RecordedEar())
        assert again.commit_count == commits + 1
        seen = await again.do(again.presence.runtime(CALLER, RuntimeId("r")))
        assert seen.state is PresenceState.ONLINE
        assert seen.runtime.instance_start_nanos == WALL_NANOS


async def test_a_runtime_that_was_never_heard_is_not_found(over: PresenceOverStore) -> None:
    with pytest.raises(NotFound):
        await over.state("never")


async def test_lists_are_by_id_and_by_state(over: PresenceOverStore) -> None:
    for runtime_id in "gfedcba":
        await over.hear(of(runtime_id), RecordedEar())
    await over.hear(replace(of("d"), is_goodbye=True), RecordedEar())

    async def listed(states: Sequence[PresenceState], after: str | None, entries_max: int) -> tuple[str, str]:
        page = await over.do(
            over.presence.runtimes(
                CALLER,
                states=states,
                after=None if after is None else RuntimeId(after),
                entries_max=entries_max,
            )
        )
        found = "".join(seen.runtime.runtime_id for seen in page.runtimes)
        return found, page.next_after or ""

    assert await listed([], None, 10) == ("abcdefg", "")
    assert await listed([], None, 2) == ("ab", "b")
    assert await listed([], "b", 2) == ("cd", "d")
    assert await listed([PresenceState.ONLINE], "b", 3) == ("cef", "f")
    assert await listed([PresenceState.OFFLINE], None, 3) == ("d", "")


async def test_a_watcher_hears_each_change_once_and_no_heartbeat_that_says_nothing_new(
    over: PresenceOverStore,
) -> None:
    ear = RecordedEar()
    await over.hear(of("a"), ear)
    async with aclosing(over.presence.watch(CALLER)) as watch:
        assert told(await news_of(over, watch)) == [("a", PresenceState.ONLINE)]
        assert (await news_of(over, watch)).is_snapshot_complete
        waiting = asyncio.ensure_future(anext(watch))
        for _ in range(3):
            await over.hear(of("a"), ear, is_first=False)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await over.hear(replace(of("a"), unsynced_event_count=9), ear, is_first=False)
        assert told(await over.do(waiting)) == [("a", PresenceState.ONLINE)]
        over.pass_seconds(TTL_SECONDS)
        over.presence.announce_losses()
        assert told(await news_of(over, watch)) == [("a", PresenceState.LOST)]


async def test_a_slow_watcher_gets_the_newest_state_of_each_once(over: PresenceOverStore) -> None:
    async with aclosing(over.presence.watch(CALLER)) as watch:
        assert (await news_of(over, watch)).is_snapshot_complete
        ear = RecordedEar()
        for _ in range(3):
            for runtime_id in "abcd":
                await over.hear(of(runtime_id), ear)
                await over.hear(replace(of(runtime_id), is_goodbye=True), ear)
        seen = [*told(await news_of(over, watch)), *told(await news_of(over, watch))]
        assert seen == [(runtime_id, PresenceState.OFFLINE) for runtime_id in "abcd"]


async def test_a_runtime_that_fell_silent_is_forgotten_but_not_by_watchers_and_readers(
    over: PresenceOverStore,
) -> None:
    async with aclosing(over.presence.watch(CALLER)) as watch:
        assert (await news_of(over, watch)).is_snapshot_complete
        await over.hear(of("a"), RecordedEar())
        await over.do(over.presence.flush())
        over.pass_seconds(TTL_SECONDS)
        over.presence.announce_losses()
        over.presence.announce_losses()
        assert over.presence.counts() == {}
        assert await over.state("a") is PresenceState.LOST
        # It was told nothing so far, and finds it all the same.
        assert told(await news_of(over, watch)) == [("a", PresenceState.LOST)]
        await over.hear(of("a"), RecordedEar())
        assert told(await news_of(over, watch)) == [("a", PresenceState.ONLINE)]


async def test_what_is_not_written_yet_is_not_forgotten(over: PresenceOverStore) -> None:
    await over.hear(of("a"), RecordedEar())
    over.pass_seconds(TTL_SECONDS)
    over.presence.announce_losses()
    over.presence.announce_losses()
    assert over.presence.counts()[CALLER.hub_project].by_state == {PresenceState.LOST: 1}


async def test_hub_projects_do_not_see_each_other(over: PresenceOverStore) -> None:
    other = replace(CALLER, hub_project=HubProject("other"))
    await over.hear(of("r", "one"), RecordedEar())
    await over.hear(of("r", "two"), RecordedEar(), caller=other)
    assert (await over.do(over.presence.runtime(CALLER, RuntimeId("r")))).runtime.instance_id == "one"
    assert (await over.do(over.presence.runtime(other, RuntimeId("r")))).runtime.instance_id == "two"


async def test_an_unwritable_store_does_not_stop_the_background_loop(over: PresenceOverStore) -> None:
    await over.hear(HEARTBEAT, RecordedEar())
    over.writer.stop()
    rounds: list[float] = []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await over.presence.run(sleep)
    assert rounds == [LIMITS.presence_flush_seconds] * 3


async def test_what_heartbeats_say_is_counted_by_hub_project_and_state(over: PresenceOverStore) -> None:
    await over.hear(replace(of("a"), unsynced_event_count=3), RecordedEar())
    await over.hear(replace(of("b"), unsynced_event_count=4), RecordedEar())
    over.pass_seconds(TTL_SECONDS / 2)
    await over.hear(replace(of("b"), unsynced_event_count=5), RecordedEar())
    over.presence.announce_losses()
    counts = over.presence.counts()[CALLER.hub_project]
    assert (counts.by_state, counts.unsynced_events) == ({PresenceState.ONLINE: 2}, 8)
    over.pass_seconds(TTL_SECONDS / 2)
    over.presence.announce_losses()
    counts = over.presence.counts()[CALLER.hub_project]
    assert over.losses.hub_projects == [CALLER.hub_project]
    over.presence.announce_losses()
    assert over.losses.hub_projects == [CALLER.hub_project]
    # What a lost runtime said last is no news.
    assert counts.by_state == {PresenceState.ONLINE: 1, PresenceState.LOST: 1}
    assert counts.unsynced_events == 5
