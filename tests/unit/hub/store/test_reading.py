"""The reading side of the store, over a real SQLite file."""

import random
from collections.abc import Sequence
from typing import Final

import pytest

from hub.core.alert import Observation
from hub.core.selection import EventPlace, EventScope, PageBounds, RunFilter, RunPlace
from hub.core.values import (
    AlertId,
    AlertKey,
    AlertReason,
    AlertSample,
    HubProject,
    InstanceId,
    ProjectId,
    Run,
    RunId,
    Runtime,
    RuntimeId,
    StoredEvent,
)
from hub.store import reading
from hub.store.reading import SqlReadTransaction, event_bytes
from hub.store.store import SqlStore
from tests.unit.hub.stored_runs import WALL_NANOS, StoreWriter, event

HUB_PROJECT: Final = HubProject("hub-project")
WIDE: Final = PageBounds(entries_max=10_000, bytes_max=2**30)


def keys(events: Sequence[StoredEvent]) -> list[tuple[str, str, int]]:
    return [(each.project_id, each.run_id, each.sequence) for each in events]


def positions(events: Sequence[StoredEvent]) -> list[int]:
    return [each.position for each in events]


def run_of(transaction: SqlReadTransaction, project_id: str, run_id: str) -> Run:
    run = transaction.run(HUB_PROJECT, ProjectId(project_id), run_id=RunId(run_id))
    assert run is not None
    return run


def watched(
    transaction: SqlReadTransaction, scope: EventScope, *, bounds: PageBounds, types: Sequence[str] = ()
) -> list[StoredEvent]:
    """All events of a scope, page by page as a watcher reads them."""
    found: list[StoredEvent] = []
    after_position = 0
    while True:
        page = transaction.events_after(
            HUB_PROJECT, scope, after_position=after_position, event_types=types, bounds=bounds
        )
        assert len(page.events) <= bounds.entries_max
        found += page.events
        if page.considered_position == page.head_position:
            return found
        assert page.considered_position > after_position
        after_position = page.considered_position


def test_an_event_is_read_as_it_was_stored(store: SqlStore, writer: StoreWriter) -> None:
    stored = event(1, b"\0\xff", event_type="step")._replace(
        event_time_nanos=-5, attributes='{"a": "é"}', is_final=True
    )
    writer.push(HUB_PROJECT, "p", "r", events=[stored])
    with store.reading() as transaction:
        found = transaction.events_of_run(
            run_of(transaction, "p", "r"), after_sequence=0, event_types=(), bounds=WIDE
        )
    assert found.events == [
        StoredEvent(
            project_id=ProjectId("p"),
            run_id=RunId("r"),
            sequence=1,
            position=1,
            event_type="step",
            event_time_nanos=-5,
            attributes='{"a": "é"}',
            is_final=True,
            payload=b"\0\xff",
            content_hash=stored.content_hash,
            receive_time_nanos=WALL_NANOS,
        )
    ]


def test_a_run_of_another_hub_project_is_as_if_it_were_not_there(
    store: SqlStore, writer: StoreWriter
) -> None:
    writer.push("somebody-else", "p", "r", events=[event(1)])
    with store.reading() as transaction:
        assert transaction.run(HUB_PROJECT, ProjectId("p"), run_id=RunId("r")) is None
        assert transaction.runs(HUB_PROJECT, RunFilter(), after=None, entries_max=10) == []
        assert transaction.projects(HUB_PROJECT, after=None, entries_max=10) == []
        assert not transaction.has_project(HUB_PROJECT, ProjectId("p"))
        assert watched(transaction, EventScope(), bounds=WIDE) == []
        assert transaction.exported_events(HUB_PROJECT, EventScope(), after=None, bounds=WIDE).events == []
        assert transaction.head_position(HUB_PROJECT) == 0


def test_a_read_transaction_sees_one_state_until_it_ends(store: SqlStore, writer: StoreWriter) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(1)])
    with store.reading() as transaction:
        assert transaction.head_position(HUB_PROJECT) == 1
        writer.push(HUB_PROJECT, "p", "r", events=[event(2)])
        assert transaction.head_position(HUB_PROJECT) == 1
    with store.reading() as transaction:
        assert transaction.head_position(HUB_PROJECT) == 2


def test_runs_come_in_the_order_of_the_bytes_of_their_ids_page_by_page(
    store: SqlStore, writer: StoreWriter
) -> None:
    ids = [
        ("p", "r"),
        ("p", "r/1"),
        ("P", "z"),
        ("é", "1"),
        ("p2", "a"),
        ("p", "\U0001f600"),
        ("p", "\uffee"),
    ]
    for project_id, run_id in ids:
        writer.push(HUB_PROJECT, project_id, run_id, events=[event(1)])
    found: list[tuple[str, str]] = []
    place: RunPlace | None = None
    with store.reading() as transaction:
        while page := transaction.runs(HUB_PROJECT, RunFilter(), after=place, entries_max=2):
            found += [(run.head.project_id, run.head.run_id) for run in page]
            place = RunPlace(page[-1].head.project_id, page[-1].head.run_id)
    assert found == sorted(ids, key=lambda each: (each[0].encode(), each[1].encode()))


def test_runs_are_narrowed_by_project_runtime_and_completeness(store: SqlStore, writer: StoreWriter) -> None:
    writer.push(HUB_PROJECT, "p", "complete", events=[event(1, is_final=True)])
    writer.push(HUB_PROJECT, "p", "open", events=[event(1)], runtime_id="runtime-2")
    writer.push(HUB_PROJECT, "p", "gap", events=[event(2, is_final=True)])
    writer.push(HUB_PROJECT, "q", "other", events=[event(1)])

    def run_ids(run_filter: RunFilter) -> list[str]:
        with store.reading() as transaction:
            runs = transaction.runs(HUB_PROJECT, run_filter, after=None, entries_max=10)
        return [run.head.run_id for run in runs]

    assert run_ids(RunFilter()) == ["complete", "gap", "open", "other"]
    assert run_ids(RunFilter(ProjectId("p"))) == ["complete", "gap", "open"]
    assert run_ids(RunFilter(runtime_id=RuntimeId("runtime-2"))) == ["open"]
    assert run_ids(RunFilter(is_complete=True)) == ["complete"]
    assert run_ids(RunFilter(ProjectId("p"), RuntimeId("runtime-1"), is_complete=False)) == ["gap"]


def test_a_page_of_events_keeps_both_bounds_but_has_at_least_one_event(
    store: SqlStore, writer: StoreWriter
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(n, bytes(1_000)) for n in range(1, 6)])

    def sequences(bounds: PageBounds) -> tuple[list[int], bool]:
        with store.reading() as transaction:
            found = transaction.events_of_run(
                run_of(transaction, "p", "r"), after_sequence=1, event_types=(), bounds=bounds
            )
        return [each.sequence for each in found.events], found.is_cut

    assert sequences(PageBounds(2, 10**6)) == ([2, 3], True)
    assert sequences(PageBounds(100, 2_500)) == ([2, 3], True)
    assert sequences(PageBounds(100, 1)) == ([2], True)
    assert sequences(PageBounds(100, 10**6)) == ([2, 3, 4, 5], False)


def test_the_newest_events_come_oldest_first_and_of_the_types_asked_for(
    store: SqlStore, writer: StoreWriter
) -> None:
    types = ["out", "err", "out", "err", "out"]
    writer.push(
        HUB_PROJECT, "p", "r", events=[event(n, event_type=each) for n, each in enumerate(types, start=1)]
    )
    with store.reading() as transaction:
        run = run_of(transaction, "p", "r")
        newest = transaction.newest_events_of_run(
            run, after_sequence=0, event_types=(), bounds=PageBounds(2, 10**6)
        )
        newest_out = transaction.newest_events_of_run(
            run, after_sequence=1, event_types=["out"], bounds=PageBounds(9, 10**6)
        )
    assert [each.sequence for each in newest] == [4, 5]
    assert [each.sequence for each in newest_out] == [3, 5]


def fill_at_random(writer: StoreWriter, chance: random.Random) -> None:
    """Runs of three projects, interleaved, with gaps that close later, beside somebody else's."""
    waiting: dict[tuple[str, str], list[int]] = {
        (project, run): chance.sample(range(1, 9), 8) for project in ("a", "b", "c") for run in ("1", "2")
    }
    while any(waiting.values()):
        (project, run), sequences = chance.choice([item for item in waiting.items() if item[1]])
        taken = [sequences.pop() for _ in range(min(len(sequences), chance.randint(1, 3)))]
        events = [event(sequence, event_type=f"type-{sequence % 3}") for sequence in sorted(taken)]
        writer.push(HUB_PROJECT, project, run, events=events)
        writer.push("somebody-else", "theirs", f"run-{chance.random()}", events=[event(1)])


@pytest.mark.parametrize("sorted_events_max", [0, 200_000])
@pytest.mark.parametrize("scanned_max", [1, 7, 50_000])
def test_every_scope_is_read_in_order_of_positions_without_a_miss_or_a_repeat(
    store: SqlStore,
    writer: StoreWriter,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    *,
    scanned_max: int,
    sorted_events_max: int,
) -> None:
    monkeypatch.setattr(reading, "SCANNED_POSITIONS_MAX", scanned_max)
    monkeypatch.setattr(reading, "SORTED_EVENTS_MAX", sorted_events_max)
    fill_at_random(writer, random.Random(pytestconfig.option.seed))
    with store.reading() as transaction:
        all_events = watched(transaction, EventScope(), bounds=WIDE)
        assert positions(all_events) == list(range(1, 49))
        for entries_max in (1, 5, 1_000):
            bounds = PageBounds(entries_max, 2**20)
            assert watched(transaction, EventScope(), bounds=bounds) == all_events
            for project in ("a", "b", "c", "none"):
                of_project = [each for each in all_events if each.project_id == project]
                scope = EventScope(ProjectId(project))
                assert watched(transaction, scope, bounds=bounds) == of_project
                for run in ("1", "2", "none"):
                    of_run = [each for each in of_project if each.run_id == run]
                    scope = EventScope(ProjectId(project), RunId(run))
                    assert watched(transaction, scope, bounds=bounds) == of_run
                    of_types = [each for each in of_run if each.event_type in ("type-0", "type-2")]
                    types = ["type-2", "type-0"]
                    assert watched(transaction, scope, bounds=bounds, types=types) == of_types


def test_a_page_cut_by_bytes_says_that_it_is_considered_up_to_its_last_event(
    store: SqlStore, writer: StoreWriter
) -> None:
    writer.push(HUB_PROJECT, "p", "r", events=[event(n, bytes(1_000)) for n in range(1, 4)])
    with store.reading() as transaction:
        page = transaction.events_after(
            HUB_PROJECT, EventScope(), after_position=0, event_types=(), bounds=PageBounds(10, 1_500)
        )
    assert (positions(page.events), page.considered_position, page.head_position) == ([1], 1, 3)


@pytest.mark.parametrize("entries_max", [1, 3, 8, 1_000])
def test_an_export_goes_by_project_run_and_sequence_over_all_its_pages(
    store: SqlStore,
    writer: StoreWriter,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    *,
    entries_max: int,
) -> None:
    monkeypatch.setattr(reading, "EXPORTED_RUNS_AT_ONCE", 2)
    fill_at_random(writer, random.Random(pytestconfig.option.seed))

    def exported(scope: EventScope) -> list[tuple[str, str, int]]:
        found: list[StoredEvent] = []
        place: EventPlace | None = None
        with store.reading() as transaction:
            while True:
                bounds = PageBounds(entries_max, 2**20)
                page = transaction.exported_events(HUB_PROJECT, scope, after=place, bounds=bounds)
                found += page.events
                if page.next_place is None:
                    return keys(found)
                assert page.events
                place = page.next_place

    everything = [(p, r, n) for p in "abc" for r in "12" for n in range(1, 9)]
    assert exported(EventScope()) == everything
    assert exported(EventScope(ProjectId("b"))) == [key for key in everything if key[0] == "b"]
    assert exported(EventScope(ProjectId("b"), RunId("2"))) == [("b", "2", n) for n in range(1, 9)]


def test_what_an_event_takes_is_never_told_too_small() -> None:
    longest = "é" * 128
    stored = StoredEvent(
        ProjectId(longest),
        RunId(longest),
        2**63 - 1,
        2**63 - 1,
        "t" * 128,
        1,
        None,
        True,
        b"x" * 9,
        b"h" * 32,
        2,
    )
    assert event_bytes(stored) == 256 + 256 + 128 + 9 + reading.EVENT_BYTES_BESIDE_TEXTS


def test_projects_are_listed_with_their_number_of_runs(store: SqlStore, writer: StoreWriter) -> None:
    for project_id, run_id in (("b", "1"), ("b", "2"), ("a", "1")):
        writer.push(HUB_PROJECT, project_id, run_id, events=[event(1)])
    with store.reading() as transaction:
        projects = transaction.projects(HUB_PROJECT, after=None, entries_max=10)
        assert [(each.project_id, each.run_count) for each in projects] == [("a", 1), ("b", 2)]
        assert transaction.projects(HUB_PROJECT, after=ProjectId("a"), entries_max=10) == projects[1:]
        assert transaction.has_project(HUB_PROJECT, ProjectId("a"))


def observe(store: SqlStore, *observations: Observation) -> None:
    transaction = store.writing.begin()
    transaction.save_observations(observations, WALL_NANOS, rows_max=100, samples_max=16)
    store.writing.commit(WALL_NANOS)


def test_alerts_are_read_as_they_were_written_and_by_their_changes(store: SqlStore) -> None:
    first = AlertKey(HUB_PROJECT, AlertReason.SEQUENCE_REUSED, "p", "r", "runtime")
    second = AlertKey(HUB_PROJECT, AlertReason.HISTORY_LOST, "p", "r", "runtime")
    sample = AlertSample(3, 4, b"s" * 32, b"o" * 32, "ipv4:127.0.0.1:9", "")
    observe(store, Observation(first, 2, (sample,)), Observation(second, 1, ()))
    with store.reading() as transaction:
        changes = transaction.alert_changes(HUB_PROJECT, after_change_number=0, entries_max=10)
        assert [(each.key, each.seen_count, each.samples) for each in changes.alerts] == [
            (first, 2, (sample,)),
            (second, 1, ()),
        ]
        listed = transaction.alerts(HUB_PROJECT, exclude_acknowledged=False, after=None, entries_max=10)
        assert listed == sorted(changes.alerts, key=lambda alert: alert.alert_id)
        assert transaction.alert(HUB_PROJECT, changes.alerts[0].alert_id) == changes.alerts[0]
        assert transaction.alert(HubProject("other"), changes.alerts[0].alert_id) is None
    observe(store, Observation(first, 1, ()))
    with store.reading() as transaction:
        later = transaction.alert_changes(
            HUB_PROJECT, after_change_number=changes.change_number, entries_max=10
        )
        assert [(each.key, each.seen_count) for each in later.alerts] == [(first, 3)]
        none = transaction.alert_changes(HUB_PROJECT, after_change_number=later.change_number, entries_max=10)
        assert (none.alerts, none.change_number) == ([], later.change_number)


def test_an_acknowledged_alert_may_be_left_out(store: SqlStore) -> None:
    observe(store, Observation(AlertKey(HUB_PROJECT, AlertReason.HISTORY_LOST, "p", "r", "t"), 1, ()))
    with store.reading() as transaction:
        (alert,) = transaction.alerts(HUB_PROJECT, exclude_acknowledged=True, after=None, entries_max=10)
    assert store.writing.begin().acknowledge_alert(HUB_PROJECT, AlertId(alert.alert_id), now_nanos=5)
    store.writing.commit(WALL_NANOS)
    with store.reading() as transaction:
        assert transaction.alerts(HUB_PROJECT, exclude_acknowledged=True, after=None, entries_max=10) == []
        (seen,) = transaction.alerts(HUB_PROJECT, exclude_acknowledged=False, after=None, entries_max=10)
    assert seen.acknowledge_nanos == 5


def test_runtimes_are_read_as_they_were_last_written(store: SqlStore) -> None:
    runtime_id, instance_id = RuntimeId("runtime"), InstanceId("instance")
    heard = Runtime(
        runtime_id=runtime_id,
        instance_id=instance_id,
        instance_start_nanos=7,
        last_heartbeat_nanos=8,
        is_goodbye=True,
        host="höst",
        pid=9,
        version="1",
        labels={"k": "v"},
        active_runs=((ProjectId("p"), RunId("r")),),
        unsynced_event_count=10,
    )
    transaction = store.writing.begin()
    transaction.begin_instance(HUB_PROJECT, runtime_id, instance_id=instance_id, now_nanos=7)
    transaction.save_presence(HUB_PROJECT, [heard])
    store.writing.commit(WALL_NANOS)
    with store.reading() as reader:
        assert reader.runtime(HUB_PROJECT, runtime_id) == heard
        assert reader.runtime(HubProject("another"), runtime_id) is None
        assert reader.runtimes(HUB_PROJECT, after=None, entries_max=10) == [heard]
        assert reader.runtimes(HUB_PROJECT, after=runtime_id, entries_max=10) == []
        assert reader.runtimes(HubProject("another"), after=None, entries_max=10) == []


def test_the_generation_in_force_is_the_last_one_listed(store: SqlStore) -> None:
    with store.reading() as transaction:
        (generation,) = transaction.generations(HUB_PROJECT)
        assert (generation.hub_generation, generation.head_position) == (transaction.hub_generation, 0)
