"""A restored store begins a new life: no token is given again, and nobody holds anything."""

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.core.backup import BackupProgress
from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.core.restore import Restored
from hub.store.sql_files import load_migrations
from hub.store.sqlite.backup import BackupDamaged, take_backup
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.file import APPLICATION_ID, exclusive_lock, schema_version_newest
from hub.store.sqlite.restore import Restore, restore_backup, restore_in_place
from tests.contract.full_store import (
    LIVE_TENURE_COUNT,
    OTHER,
    TENANT,
    alter,
    findings_in,
    make_full_store,
    rows_of,
)

LIMITS: Final = Limits()
WALL_NANOS: Final = 2_000_000_000_000_000_000
"""Later than any clock that this store has seen."""
GENERATION: Final = "new generation"
KEPT_TABLES: Final = (
    "run",
    "event",
    "project",
    "alert",
    "runtime",
    "past_instance",
    "stream",
    "journal_commit",
    "journal_event",
    "outbox",
    "projection",
    "resource",
)
"""What a restore leaves as it is."""

Steps = Generator[BackupProgress | Restored, None, None]


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_full_store(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def full_backup(full_store: Path) -> Path:
    backup = full_store.with_name("backup.db")
    list(take_backup(full_store, backup, limits=LIMITS))
    return backup


@pytest.fixture
def database(full_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(full_store, tmp_path / "hub.db"))


@pytest.fixture
def backup(full_backup: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(full_backup, tmp_path / "backup.db"))


def restoring(
    backup: Path, to: Path, *, wall_nanos: int = WALL_NANOS, are_credentials_kept: bool = False
) -> Steps:
    plan = Restore(GENERATION, wall_nanos, are_credentials_kept)
    return restore_backup(backup, to, restore=plan, limits=LIMITS)


def restoring_in_place(database: Path, *, wall_nanos: int = WALL_NANOS) -> Steps:
    return restore_in_place(database, restore=Restore(GENERATION, wall_nanos), limits=LIMITS)


def done(steps: Steps) -> Restored:
    *_, last = steps
    assert isinstance(last, Restored)
    return last


def content_of(database: Path) -> dict[str, object]:
    return {table: rows_of(database, f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in KEPT_TABLES}


def rows_beside(database: Path, before: Path, query: str) -> list[tuple[object, ...]]:
    """Rows of a store with another one beside it."""
    connection = apsw.Connection(str(database))
    connection.execute("ATTACH ? AS before", (str(before),))
    rows = [tuple(row) for row in connection.execute(query)]
    connection.close()
    return rows


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_a_restored_store_has_all_that_was_stored_and_is_served(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    before = backup.read_bytes()
    done(restoring(backup, new))
    assert names_in(tmp_path) == {"backup.db", "new.db"}
    assert content_of(new) == content_of(backup)
    assert backup.read_bytes() == before
    assert findings_in(new) == []
    assert rows_of(new, "PRAGMA application_id") == [(APPLICATION_ID,)]
    with opened_engine(new, limits=LIMITS):
        pass


def test_it_begins_a_generation_at_the_heads_of_every_hub_project(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    ((previous,),) = rows_of(backup, "SELECT hub_generation FROM generation")
    restored = done(restoring(backup, new))
    generations = rows_of(new, "SELECT hub_generation, start_nanos FROM generation ORDER BY ordinal")
    assert [name for name, _ in generations] == [previous, GENERATION]
    assert generations[1][1] == WALL_NANOS
    heads = rows_of(
        new,
        "SELECT hub_project, generation_head.head_position, generation_head.journal_head_position"
        " FROM generation_head JOIN hub_project USING (hub_project_key) WHERE ordinal = 2 ORDER BY 1",
    )
    assert heads == [(OTHER, 4, 0), (TENANT, 12, 3)]
    assert restored.head_positions == {OTHER: (4, 0), TENANT: (12, 3)}
    assert (restored.previous_generation, restored.hub_generation) == (previous, GENERATION)


@pytest.mark.parametrize(
    ("statement", "highest"),
    [
        ("", 0),
        ("UPDATE hub SET token_floor = {}", 1),
        ("UPDATE hub_project SET token_floor = {} WHERE hub_project = 'other tenant'", 1),
        ("UPDATE hub_project SET epoch_floor = {} WHERE hub_project = 'tenant'", 1),
        ("UPDATE resource SET fencing_token = {} WHERE resource = 'held' AND hub_project_key = 1", 1),
        ("UPDATE resource SET epoch = {} WHERE resource = 'maintained'", 1),
        ("UPDATE stream SET fencing_token = {} WHERE stream_id = 's'", 1),
    ],
)
def test_tokens_and_epochs_go_on_above_all_that_could_have_been_given(
    database: Path, tmp_path: Path, *, statement: str, highest: int
) -> None:
    above = 5 * WALL_NANOS // 1_000
    if statement:
        alter(database, statement.format(above))
    list(take_backup(database, tmp_path / "b.db", limits=LIMITS))
    new = tmp_path / "new.db"
    floor = done(restoring(tmp_path / "b.db", new)).token_floor
    assert floor == (above if highest else WALL_NANOS // 1_000)
    assert rows_of(new, "SELECT token_floor FROM hub") == [(floor,)]
    assert rows_of(new, "SELECT DISTINCT token_floor, epoch_floor FROM hub_project") == [(floor, floor)]


def test_nobody_holds_anything_and_those_who_watch_leases_see_each_end(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    restored = done(restoring(backup, new))
    assert restored.ended_tenure_count == LIVE_TENURE_COUNT
    ends = rows_of(new, "SELECT DISTINCT end_state, end_nanos <= expire_nanos FROM tenure")
    assert ends == [("EXPIRED", 1)]
    above_all_before = """
        SELECT count(*) FROM tenure JOIN before.hub_project USING (hub_project_key)
        WHERE change_number > tenure_change_number
    """
    assert rows_beside(new, backup, above_all_before) == [(LIVE_TENURE_COUNT,)]
    counters = rows_of(new, "SELECT hub_project_key, tenure_change_number FROM hub_project ORDER BY 1")
    assert counters == rows_of(new, "SELECT hub_project_key, max(change_number) FROM tenure GROUP BY 1")


def test_a_lease_that_had_ended_before_stays_as_it_ended(database: Path, tmp_path: Path) -> None:
    alter(database, "UPDATE tenure SET end_state = 'RELEASED', end_nanos = 7 WHERE resource = 'maintained'")
    restored = done(restoring_in_place(database))
    assert restored.ended_tenure_count == LIVE_TENURE_COUNT - 1
    kept = rows_of(database, "SELECT end_state, end_nanos FROM tenure WHERE resource = 'maintained'")
    assert kept == [("RELEASED", 7)]


def test_receipts_are_gone_and_tokens_revoked(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    restored = done(restoring(backup, new))
    assert (restored.dropped_receipt_count, restored.revoked_token_count) == (1, 2)
    assert rows_of(new, "SELECT * FROM receipt") == []
    assert rows_of(new, "SELECT DISTINCT revoke_nanos FROM token") == [(WALL_NANOS,)]


def test_tokens_are_kept_where_that_is_asked_for(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    restored = done(restoring(backup, new, are_credentials_kept=True))
    assert (restored.revoked_token_count, restored.kept_token_count) == (0, 2)
    assert rows_of(new, "SELECT DISTINCT revoke_nanos FROM token") == [(None,)]


def test_hub_time_never_goes_back(backup: Path, tmp_path: Path) -> None:
    ((floor,),) = rows_of(backup, "SELECT time_floor_nanos FROM hub")
    restored = done(restoring(backup, tmp_path / "late.db"))
    assert not restored.is_clock_behind
    assert rows_of(tmp_path / "late.db", "SELECT time_floor_nanos FROM hub") == [(WALL_NANOS,)]
    restored = done(restoring(backup, tmp_path / "early.db", wall_nanos=1))
    assert restored.is_clock_behind
    assert rows_of(tmp_path / "early.db", "SELECT time_floor_nanos FROM hub") == [(floor,)]
    assert restored.token_floor == int(str(floor)) // 1_000


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_restore_takes_the_place_of_no_file(backup: Path, tmp_path: Path, ending: str) -> None:
    (tmp_path / f"new.db{ending}").write_text("mine")
    with pytest.raises(FileExistsError):
        done(restoring(backup, tmp_path / "new.db"))
    assert names_in(tmp_path) == {"backup.db", f"new.db{ending}"}
    assert (tmp_path / f"new.db{ending}").read_text() == "mine"


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_file_that_appears_meanwhile_is_not_taken_the_place_of(
    backup: Path, tmp_path: Path, ending: str
) -> None:
    new = tmp_path / "new.db"
    steps = restoring(backup, new)
    next(steps)
    taken = tmp_path / f"new.db{ending}"
    taken.write_text("somebody's")
    with pytest.raises(FileExistsError):
        list(steps)
    assert taken.read_text() == "somebody's"
    assert {path.name for path in tmp_path.iterdir()} == {"backup.db", taken.name, "new.db.lock"}


def test_a_backup_that_does_not_verify_is_not_restored(backup: Path, tmp_path: Path) -> None:
    alter(backup, "UPDATE event SET payload = x'00' WHERE sequence = 3")
    with pytest.raises(BackupDamaged, match="event 3"):
        done(restoring(backup, tmp_path / "new.db"))
    assert names_in(tmp_path) == {"backup.db"}


@pytest.mark.parametrize("steps_taken", [1, 2, 3, 4])
def test_a_restore_that_is_given_up_leaves_nothing(backup: Path, tmp_path: Path, steps_taken: int) -> None:
    steps = restoring(backup, tmp_path / "new.db")
    for _ in range(steps_taken):
        next(steps)
    steps.close()
    assert names_in(tmp_path) == {"backup.db"}
    done(restoring(backup, tmp_path / "new.db"))


def test_what_is_no_backup_or_is_served_is_not_restored(database: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    with exclusive_lock(database):
        for name, sentence in (
            ("none", "is not there"),
            ("text", "not a database"),
            ("hub.db", "a hub serves"),
        ):
            with pytest.raises(StartRefused, match=sentence):
                done(restoring(tmp_path / name, tmp_path / "new.db"))
        with pytest.raises(StartRefused, match="already serves"):
            done(restoring_in_place(database))
    assert names_in(tmp_path) == {"hub.db", "text"}


def test_a_backup_of_an_older_schema_is_brought_to_the_newest(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "old.db"))
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in load_migrations("hub.store.sqlite.migrations")[:2]:
        connection.execute(script)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("INSERT INTO hub VALUES (1, 5, 0)")
    connection.execute("INSERT INTO generation VALUES (1, 'old', 1)")
    connection.close()
    list(take_backup(tmp_path / "old.db", tmp_path / "b.db", limits=LIMITS))
    restored = done(restoring(tmp_path / "b.db", tmp_path / "new.db"))
    assert (restored.schema_before, restored.schema_after) == (2, schema_version_newest())
    assert findings_in(tmp_path / "new.db") == []


def test_a_file_that_was_copied_back_begins_a_new_life_in_its_place(database: Path) -> None:
    content = content_of(database)
    restored = done(restoring_in_place(database))
    assert restored.ended_tenure_count == LIVE_TENURE_COUNT
    assert content_of(database) == content
    assert rows_of(database, "SELECT hub_generation FROM generation WHERE ordinal = 2") == [(GENERATION,)]
    assert findings_in(database) == []


def test_a_backup_that_was_copied_to_its_place_is_served_once_it_was_marked(backup: Path) -> None:
    done(restoring_in_place(backup))
    with opened_engine(backup, limits=LIMITS):
        pass
    assert rows_of(backup, "SELECT count(*) FROM generation") == [(2,)]


def test_a_damaged_file_is_not_marked(database: Path) -> None:
    alter(database, "UPDATE event SET payload = x'00' WHERE sequence = 3")
    before = database.read_bytes()
    with pytest.raises(BackupDamaged):
        done(restoring_in_place(database))
    assert database.read_bytes() == before


def test_each_restore_is_a_life_of_its_own(database: Path) -> None:
    first = done(restoring_in_place(database))
    plan = Restore("yet another", WALL_NANOS)
    *_, second = restore_in_place(database, restore=plan, limits=LIMITS)
    assert isinstance(second, Restored)
    assert second.previous_generation == GENERATION
    assert second.token_floor >= first.token_floor
    assert (second.ended_tenure_count, second.revoked_token_count) == (0, 0)
