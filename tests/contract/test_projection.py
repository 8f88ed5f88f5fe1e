"""The runner of read models: effects and checkpoint in one commit, rebuilt where that is right."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest

from runtime_agent import limits
from runtime_agent.core.errors import UsageError
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import JournalEvent, NewJournalEvent
from runtime_agent.hub_client.lease import Lease
from runtime_agent.projection import Checkpoint, ProjectionRunner
from tests.contract.conftest import settings_in
from tests.contract.holding import InBackground, until
from tests.contract.hub_in_thread import HubInThread

NEW_LIFE: Final = """
INSERT INTO generation (ordinal, hub_generation, start_nanos)
SELECT max(ordinal) + 1, 'another life', 0 FROM generation;
INSERT INTO generation_head (ordinal, hub_project_key, head_position, journal_head_position)
SELECT (SELECT max(ordinal) FROM generation), hub_project_key, head_position, journal_head_position
FROM hub_project
"""
"""What a restore writes into a store."""


class Writer:
    """Appends events named by their number, under a lease of its own."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._lease: Lease = hub.lease("s", holder_id="writer", ttl_seconds=600).acquire()
        self.count = 0

    def append(self, *event_types: str) -> None:
        first = self.count + 1
        self.count += len(event_types)
        events = [NewJournalEvent(str(first + n), kind) for n, kind in enumerate(event_types)]
        self._hub.commit(f"m{first}", "s", lease=self._lease, expected_revision=first - 1, events=events)


def reset(file: sqlite3.Connection) -> None:
    file.execute("DROP TABLE IF EXISTS seen")
    file.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY, event_type TEXT) STRICT")


def apply(file: sqlite3.Connection, event: JournalEvent) -> None:
    file.execute("INSERT INTO seen VALUES (?, ?)", (int(event.event_id), event.event_type))


def numbers(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as file:
        return [row[0] for row in file.execute("SELECT number FROM seen ORDER BY number")]


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
def writer(hub: HubClient) -> Writer:
    return Writer(hub)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "model.db"


def runner_of(
    hub: HubClient,
    database: Path,
    *,
    name: str = "seen",
    reset: Callable[[sqlite3.Connection], None] = reset,
    apply: Callable[[sqlite3.Connection, JournalEvent], None] = apply,
    event_types: tuple[str, ...] = (),
    version: int = 1,
) -> ProjectionRunner:
    return ProjectionRunner(
        hub, database, name=name, reset=reset, apply=apply, event_types=event_types, version=version
    )


# --- taking in ---


def test_what_is_stored_is_taken_in_and_the_next_run_goes_on(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    writer.append("noted", "noted")
    runner_of(hub, database).catch_up()
    assert numbers(database) == [1, 2]
    writer.append("noted")
    # Whatever was taken in before would break the primary key if it came again.
    runner = runner_of(hub, database)
    runner.catch_up()
    assert numbers(database) == [1, 2, 3]
    place = runner.checkpoint()
    assert place is not None
    assert (place.hub_project, place.position, place.version) == (hub.hub_project, 3, 1)


def test_a_runner_takes_in_what_comes_until_it_is_stopped(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    runner = runner_of(hub, database)
    running = InBackground(runner.run)
    until(lambda: runner.checkpoint() is not None)
    writer.append("noted")
    until(lambda: numbers(database) == [1])
    runner.stop()
    running.result()
    writer.append("noted")
    runner.run()
    assert numbers(database) == [1]


def test_only_events_of_some_types_are_taken_in_and_the_others_passed_over(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    writer.append("noted", "rare", "noted")
    runner = runner_of(hub, database, event_types=("rare",))
    runner.catch_up()
    assert numbers(database) == [2]
    place = runner.checkpoint()
    assert place is not None
    assert place.position == 3


def test_before_it_ran_there_is_no_checkpoint_and_no_file(hub: HubClient, database: Path) -> None:
    assert runner_of(hub, database).checkpoint() is None
    assert not database.exists()
    sqlite3.connect(database).close()
    assert runner_of(hub, database).checkpoint() is None


def test_two_models_of_a_file_do_not_disturb_each_other(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    def reset_count(file: sqlite3.Connection) -> None:
        file.execute("DROP TABLE IF EXISTS event_count")
        file.execute("CREATE TABLE event_count (value INTEGER) STRICT")
        file.execute("INSERT INTO event_count VALUES (0)")

    def count(file: sqlite3.Connection, _: JournalEvent) -> None:
        file.execute("UPDATE event_count SET value = value + 1")

    writer.append("noted", "noted")
    runner_of(hub, database).catch_up()
    runner_of(hub, database, name="count", reset=reset_count, apply=count).catch_up()
    assert numbers(database) == [1, 2]
    with closing(sqlite3.connect(database)) as file:
        assert file.execute("SELECT value FROM event_count").fetchall() == [(2,)]


# --- one commit ---


def test_what_apply_raises_ends_the_run_and_nothing_of_the_update_is_kept(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    runner_of(hub, database).catch_up()
    before = runner_of(hub, database).checkpoint()
    writer.append("noted", "noted")

    def fail_at_the_second(file: sqlite3.Connection, event: JournalEvent) -> None:
        apply(file, event)
        if event.event_id == "2":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runner_of(hub, database, apply=fail_at_the_second).run()
    assert (numbers(database), runner_of(hub, database).checkpoint()) == ([], before)
    runner_of(hub, database).catch_up()
    assert numbers(database) == [1, 2]


@pytest.mark.parametrize(
    "end",
    [
        lambda file: file.commit(),
        lambda file: file.rollback(),
        lambda file: file.execute("COMMIT"),
        lambda file: file.executescript("CREATE TABLE other (value) STRICT"),
    ],
)
def test_apply_may_not_end_the_transaction(
    hub: HubClient, database: Path, writer: Writer, *, end: Callable[[sqlite3.Connection], object]
) -> None:
    writer.append("noted")

    def apply_and_end(file: sqlite3.Connection, event: JournalEvent) -> None:
        apply(file, event)
        end(file)

    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        runner_of(hub, database, apply=apply_and_end).run()
    assert numbers(database) == []


def test_apply_may_use_savepoints(hub: HubClient, database: Path, writer: Writer) -> None:
    writer.append("noted")

    def apply_in_a_savepoint(file: sqlite3.Connection, event: JournalEvent) -> None:
        file.execute("SAVEPOINT tried")
        apply(file, event)
        file.execute("ROLLBACK TO tried")
        apply(file, event)
        file.execute("RELEASE tried")

    runner_of(hub, database, apply=apply_in_a_savepoint).catch_up()
    assert numbers(database) == [1]


def test_a_lock_of_another_program_is_waited_for(
    hub: HubClient, database: Path, writer: Writer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROJECTION_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(limits, "PROJECTION_RETRY_SECONDS", 0.02)
    runner_of(hub, database).catch_up()
    writer.append("noted")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        catching_up = InBackground(runner_of(hub, database).catch_up)
        time.sleep(0.2)
        assert not catching_up.is_over
        other.execute("COMMIT")
        catching_up.result()
    assert numbers(database) == [1]


def test_a_runner_that_waits_for_a_lock_can_be_stopped(
    hub: HubClient, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROJECTION_BUSY_SECONDS", 0.0)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        runner = runner_of(hub, database)
        running = InBackground(runner.run)
        runner.stop()
        running.result()


# --- beginning anew ---


@pytest.mark.parametrize("change", [{"version": 2}, {"event_types": ("noted",)}])
def test_another_definition_begins_anew(
    hub: HubClient, database: Path, writer: Writer, *, change: dict[str, object]
) -> None:
    writer.append("noted", "noted")

    def apply_otherwise(file: sqlite3.Connection, event: JournalEvent) -> None:
        file.execute("INSERT INTO seen VALUES (?, ?)", (-int(event.event_id), event.event_type))

    runner_of(hub, database).catch_up()
    runner_of(hub, database, apply=apply_otherwise, **change).catch_up()  # type: ignore[arg-type]
    assert numbers(database) == [-2, -1]


def test_a_model_of_another_hub_project_is_left_alone(
    hub: HubClient, database: Path, writer: Writer, *, grpc_addr: str
) -> None:
    writer.append("noted")
    runner_of(hub, database).catch_up()
    with HubClient.connect(grpc_addr, hub_project="another") as other, pytest.raises(UsageError):
        runner_of(other, database, version=2).run()
    assert numbers(database) == [1]


def test_a_second_runner_goes_on_from_where_the_first_has_brought_the_model(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    runners = [runner_of(hub, database) for _ in range(2)]
    running = [InBackground(runner.run) for runner in runners]
    for _ in range(50):
        writer.append("noted", "noted")
    until(lambda: database.exists() and runners[0].checkpoint() is not None)
    until(lambda: numbers(database) == list(range(1, 101)))
    for runner, each in zip(runners, running, strict=True):
        runner.stop()
        each.result()


def test_a_runner_whose_model_was_begun_anew_by_a_newer_one_stops(
    hub: HubClient, database: Path, writer: Writer
) -> None:
    older = runner_of(hub, database)
    running = InBackground(older.run)
    until(lambda: older.checkpoint() is not None)
    runner_of(hub, database, version=2).catch_up()
    writer.append("noted")
    with pytest.raises(UsageError):
        running.result()
    runner_of(hub, database, version=2).catch_up()
    assert numbers(database) == [1]


def test_after_a_restore_to_before_the_checkpoint_the_model_is_rebuilt(
    tmp_path: Path, hub_project: str, database: Path
) -> None:
    settings = settings_in(tmp_path)
    with HubInThread(settings) as first, HubClient.connect(first.address, hub_project=hub_project) as hub:
        writer = Writer(hub)
        writer.append("noted", "noted")
    kept = (tmp_path / "hub.db").read_bytes()
    with HubInThread(settings) as second, HubClient.connect(second.address, hub_project=hub_project) as hub:
        credential = hub.lease("s", holder_id="writer").acquire().credential
        hub.commit("lost", "s", lease=credential, expected_revision=2, events=[NewJournalEvent("3", "lost")])
        runner_of(hub, database).catch_up()
        assert numbers(database) == [1, 2, 3]
        before = runner_of(hub, database).checkpoint()
    restore(tmp_path, kept)
    with HubInThread(settings) as third, HubClient.connect(third.address, hub_project=hub_project) as hub:
        credential = hub.lease("s", holder_id="writer").acquire().credential
        # Other events get the positions of those that were lost, and more.
        others = [NewJournalEvent(str(n), "other") for n in (4, 5)]
        hub.commit("others", "s", lease=credential, expected_revision=2, events=others)
        runner = runner_of(hub, database)
        runner.catch_up()
        rebuilt = tmp_path / "rebuilt.db"
        runner_of(hub, rebuilt).catch_up()
        assert numbers(database) == numbers(rebuilt) == [1, 2, 4, 5]
        assert before is not None
        assert runner.checkpoint() == Checkpoint(hub_project, (), 1, "another life", 4) != before


def test_after_a_restore_that_lost_nothing_that_was_read_the_model_goes_on(
    tmp_path: Path, hub_project: str, database: Path
) -> None:
    settings = settings_in(tmp_path)
    with HubInThread(settings) as first, HubClient.connect(first.address, hub_project=hub_project) as hub:
        Writer(hub).append("noted", "noted")
        runner_of(hub, database).catch_up()
    restore(tmp_path, (tmp_path / "hub.db").read_bytes())

    def never(_: sqlite3.Connection) -> None:
        raise AssertionError("begun anew")

    with HubInThread(settings) as second, HubClient.connect(second.address, hub_project=hub_project) as hub:
        credential = hub.lease("s", holder_id="writer").acquire().credential
        hub.commit("m3", "s", lease=credential, expected_revision=2, events=[NewJournalEvent("3", "noted")])
        runner = runner_of(hub, database, reset=never)
        runner.catch_up()
        assert numbers(database) == [1, 2, 3]
        place = runner.checkpoint()
        assert place is not None
        assert (place.hub_generation, place.position) == ("another life", 3)


def test_a_hub_behind_the_checkpoint_in_the_same_life_is_told_and_nothing_is_thrown_away(
    tmp_path: Path, hub_project: str, database: Path
) -> None:
    settings = settings_in(tmp_path)
    with HubInThread(settings):
        pass
    kept = (tmp_path / "hub.db").read_bytes()
    with HubInThread(settings) as first, HubClient.connect(first.address, hub_project=hub_project) as hub:
        Writer(hub).append("noted")
        runner_of(hub, database).catch_up()
    (tmp_path / "hub.db").write_bytes(kept)
    with HubInThread(settings) as second, HubClient.connect(second.address, hub_project=hub_project) as hub:
        with pytest.raises(HubCallError) as caught:
            runner_of(hub, database).run()
        assert caught.value.reason == "POSITION_AHEAD"
    assert numbers(database) == [1]


def restore(folder: Path, kept: bytes) -> None:
    """Put a copy of the store back, as the beginning of another life of it."""
    for path in folder.glob("hub.db*"):
        path.unlink()
    (folder / "hub.db").write_bytes(kept)
    with closing(apsw.Connection(str(folder / "hub.db"))) as file:
        file.execute(NEW_LIFE)
