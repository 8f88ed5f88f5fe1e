"""Watchers of the journal: complete, in order, told of progress, each at its own pace."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from hub.core.errors import GenerationChanged, InvalidRequest, PositionAhead
from hub.core.journal_selection import JournalQuery
from hub.core.limits import Limits
from hub.core.tenure import Credential
from hub.service.journal_watch import JournalAnswer
from hub.store import journal_reading
from tests.unit.hub.gate import caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import MINUTE, SECOND, commit, event

Told = tuple[list[int], int]


class Author:
    """Appends to a stream under one long lease."""

    def __init__(self, gate: JournalGate, stream: str = "s") -> None:
        self.gate = gate
        self.stream = stream
        self.credential: Credential = gate.credential(stream, ttl_nanos=60 * MINUTE)
        self.revision = 0

    def append(self, *kinds: str) -> None:
        events = [
            event(f"{self.stream}{self.revision + n}", event_type=kind) for n, kind in enumerate(kinds, 1)
        ]
        name = f"{self.stream}-{self.revision}"
        self.gate.commit(
            commit(
                name,
                stream=self.stream,
                credential=self.credential,
                expected=self.revision,
                events=events,
            )
        )
        self.revision += len(kinds)


class Watcher:
    """Takes one answer after the other, unless it is paused, and may lose any wait."""

    def __init__(self, gate: JournalGate, query: JournalQuery | None = None) -> None:
        self.gate = gate
        self.answers: list[JournalAnswer] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.task = gate.start(self._watch(query or JournalQuery()))

    async def _watch(self, query: JournalQuery) -> None:
        async with self.gate.journal_watches.watching(self.gate.caller, query) as watch:
            self.hub_generation = watch.hub_generation
            while True:
                await self.may_go_on.wait()
                answer = await watch.next_answer()
                self.answers.append(answer)

    def told(self) -> list[Told]:
        """What came since the last look."""
        answers, self.answers = self.answers, []
        return [([each.position for each in answer.events], answer.progress_position) for answer in answers]

    def leave(self) -> None:
        self.task.cancel()
        self.gate.settle()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[JournalGate]:
    gate = JournalGate(tmp_path)
    yield gate
    gate.close()


def test_what_is_stored_comes_first_then_the_head_then_what_is_new(gate: JournalGate) -> None:
    author = Author(gate)
    author.append("t", "t")
    watcher = Watcher(gate)
    assert watcher.hub_generation == gate.store.hub_generation
    assert watcher.told() == [([1, 2], 2), ([], 2)]
    author.append("t")
    assert watcher.told() == [([3], 3)]
    assert [each.stream_id for each in gate.events()] == ["s"] * 3


def test_a_watch_of_nothing_yet_is_told_at_once_that_the_head_is_0(gate: JournalGate) -> None:
    watcher = Watcher(gate)
    assert watcher.told() == [([], 0)]
    Author(gate).append("t")
    assert watcher.told() == [([1], 1)]


def test_a_watch_begins_where_it_is_asked_to(gate: JournalGate) -> None:
    author = Author(gate)
    author.append("t", "t", "t")
    from_now = Watcher(gate, JournalQuery(is_from_now=True))
    resumed = Watcher(gate, JournalQuery(hub_generation=gate.store.hub_generation, after_position=2))
    at_the_head = Watcher(gate, JournalQuery(hub_generation=gate.store.hub_generation, after_position=3))
    assert (from_now.told(), at_the_head.told()) == ([([], 3)], [([], 3)])
    assert resumed.told() == [([3], 3), ([], 3)]
    author.append("t")
    assert [each.told() for each in (from_now, resumed, at_the_head)] == [[([4], 4)]] * 3


@pytest.mark.parametrize(
    ("generation", "position", "refusal"),
    [("", 1, InvalidRequest), ("unknown", 1, GenerationChanged), (None, 2, PositionAhead)],
)
def test_a_watch_does_not_begin_at_a_position_that_does_not_hold(
    gate: JournalGate, generation: str | None, position: int, refusal: type[Exception]
) -> None:
    Author(gate).append("t")
    query = JournalQuery(
        hub_generation=gate.store.hub_generation if generation is None else generation,
        after_position=position,
    )
    watcher = Watcher(gate, query)
    assert isinstance(watcher.task.exception(), refusal)
    assert gate.journal_watches.watcher_count == 0


def test_progress_comes_at_least_every_ten_seconds_with_and_without_events(gate: JournalGate) -> None:
    author = Author(gate)
    watcher = Watcher(gate, JournalQuery(event_types=("wanted",)))
    watcher.told()
    progress: list[tuple[int, int]] = []
    for second in range(60):
        author.append("other")
        gate.pass_time(SECOND)
        progress += [(second, position) for _, position in watcher.told()]
    seconds = [-1, *(second for second, _ in progress), 60]
    assert max(later - earlier for earlier, later in pairwise(seconds)) <= 10
    assert [position for second, position in progress] == [second + 1 for second, _ in progress]


def test_a_watch_of_types_is_given_these_alone_and_considers_the_others(gate: JournalGate) -> None:
    author = Author(gate)
    author.append("a", "b", "c", "a")
    watcher = Watcher(gate, JournalQuery(event_types=("a", "c")))
    assert watcher.told() == [([1, 3, 4], 4), ([], 4)]
    author.append("b", "b")
    assert watcher.told() == []
    author.append("c")
    assert watcher.told() == [([7], 7)]


def test_a_search_that_is_bounded_goes_on_by_itself(
    gate: JournalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reading, "SCANNED_POSITIONS_MAX", 2)
    Author(gate).append("a", "b", "b", "b", "b", "b", "a")
    watcher = Watcher(gate, JournalQuery(event_types=("a",)))
    for _ in range(3):
        gate.settle()  # several reads one after the other need more rounds of the loop
    assert watcher.told() == [([1], 2), ([7], 7), ([], 7)]


def test_commits_without_events_and_of_other_hub_projects_wake_nobody(gate: JournalGate) -> None:
    watcher = Watcher(gate)
    watcher.told()
    gate.commit(commit("m", credential=gate.credential()))
    gate.caller = caller_of("other")
    Author(gate).append("t")
    assert watcher.told() == []


def test_a_slow_watcher_gets_everything_page_by_page_and_holds_up_nobody(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path, limits=Limits(watch_page_entries_max=3))
    author = Author(gate)
    slow, fast = Watcher(gate), Watcher(gate)
    slow.told()
    slow.may_go_on.clear()
    for _ in range(4):
        author.append("t", "t")
    assert [positions for positions, _ in fast.told()] == [[], [1, 2], [3, 4], [5, 6], [7, 8]]
    # It waited for an answer when it was paused: that one it has.
    assert slow.told() == [([1, 2], 2)]
    slow.may_go_on.set()
    gate.settle()
    assert slow.told() == [([3, 4, 5], 5), ([6, 7, 8], 8)]
    gate.close()


def test_a_commit_that_nobody_announced_is_found_all_the_same(gate: JournalGate) -> None:
    author = Author(gate)
    watchers = [Watcher(gate), Watcher(gate)]
    for watcher in watchers:
        watcher.told()
    gate.loses_announcements = True
    author.append("t")
    gate.loses_announcements = False
    for watcher in watchers:
        assert watcher.told() == []
    gate.pass_time(10 * SECOND)
    for watcher in watchers:
        assert ([1], 1) in watcher.told()


def test_a_watch_that_is_left_is_forgotten(gate: JournalGate) -> None:
    first, second = Watcher(gate), Watcher(gate)
    assert gate.journal_watches.watcher_count == 2
    first.leave()
    assert gate.journal_watches.watcher_count == 1
    Author(gate).append("t")
    assert second.told() == [([], 0), ([1], 1)]
    second.leave()
    assert gate.journal_watches.watcher_count == 0


def test_a_watch_cut_off_at_any_moment_and_resumed_misses_nothing_and_repeats_nothing(
    tmp_path: Path, rng: random.Random
) -> None:
    gate = JournalGate(tmp_path, limits=Limits(watch_page_entries_max=4))
    authors = [Author(gate, stream) for stream in ("s", "t")]
    seen: list[int] = []
    watcher = Watcher(gate)
    steps: Sequence[Callable[[], None]] = (
        lambda: rng.choice(authors).append(*"t" * rng.randint(1, 6)),
        lambda: gate.pass_time(rng.randint(1, 9) * SECOND),
        gate.run_without_commits,
    )
    for _ in range(150):
        rng.choice(steps)()
        if rng.random() < 0.2:
            watcher.leave()
            told = watcher.told()
            seen += [position for positions, _ in told for position in positions]
            progress = max([*seen, *(position for _, position in told)], default=0)
            query = JournalQuery(hub_generation=gate.store.hub_generation, after_position=progress)
            watcher = Watcher(gate, query)
    gate.settle()
    seen += [position for positions, _ in watcher.told() for position in positions]
    assert seen == list(range(1, gate.events()[-1].position + 1))
    gate.close()


def test_a_wait_that_is_cancelled_loses_no_answer(gate: JournalGate) -> None:
    """As the edge does it: the wait for an answer is given up and begun again."""
    author = Author(gate)
    told: list[int] = []

    async def watch_impatiently() -> None:
        async with gate.journal_watches.watching(gate.caller, JournalQuery()) as watch:
            while True:
                try:
                    async with asyncio.timeout(0.3):
                        answer = await watch.next_answer()
                except TimeoutError:
                    continue
                told.extend(each.position for each in answer.events)

    task = gate.start(watch_impatiently())
    for _ in range(20):
        author.append("t")
        gate.elapsed_nanos += 300_000_000
        gate.run_without_commits()
        author.append("t")
        gate.pass_time(200_000_000)
    assert told == list(range(1, 41))
    task.cancel()
    gate.settle()


def test_a_watch_resumes_under_a_generation_that_kept_its_position(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path)
    Author(gate).append("t", "t", "t")
    first = gate.store.hub_generation
    gate.close()
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    connection.execute("INSERT INTO generation (hub_generation, start_nanos) VALUES ('second', 1)")
    connection.execute(
        "INSERT INTO generation_head (ordinal, hub_project_key, head_position, journal_head_position)"
        " SELECT 2, hub_project_key, 0, 2 FROM hub_project"
    )
    connection.close()
    gate = JournalGate(tmp_path)
    held = Watcher(gate, JournalQuery(hub_generation=first, after_position=2))
    assert (held.hub_generation, held.told()) == ("second", [([3], 3), ([], 3)])
    lost = Watcher(gate, JournalQuery(hub_generation=first, after_position=3))
    refusal = lost.task.exception()
    assert isinstance(refusal, GenerationChanged)
    assert (refusal.hub_generation, refusal.lowest_position) == ("second", 2)
    gate.close()
