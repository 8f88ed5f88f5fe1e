"""Backups of a file: one state of it, verified, as one file that no hub serves; or nothing at all."""

import os
import shutil
import stat
from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from hub.core.backup import BackupPhase, BackupProgress, Stopped, file_name_fault
from hub.core.errors import IdempotencyConflict, StartRefused, StorageUnavailable
from hub.core.limits import Limits
from hub.store.sql_files import load_migrations
from hub.store.sqlite.backup import BackupDamaged, SqliteBackups, take_backup
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.file import BACKUP_APPLICATION_ID
from hub.store.store import SqlStore
from tests.contract.full_store import alter, findings_in, make_full_store, rows_of
from tests.unit.hub.stored_runs import WALL_NANOS, StoreWriter, event

LIMITS = Limits()
EVENTS = "SELECT run_key, sequence, position, payload, content_hash FROM event ORDER BY 1, 2"


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_full_store(tmp_path_factory.mktemp("full"), long_run_events=60_000)


@pytest.fixture
def database(full_store: Path, tmp_path: Path) -> Path:
    (tmp_path / "hub").mkdir()
    return Path(shutil.copy(full_store, tmp_path / "hub" / "hub.db"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


def take(database: Path, to: Path) -> list[BackupProgress]:
    return list(take_backup(database, to, limits=LIMITS))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_one_file_of_its_user_alone_with_all_that_the_store_has(
    database: Path, folder: Path
) -> None:
    progress = take(database, folder / "b.db")
    backup = folder / "b.db"
    assert names_in(folder) == ["b.db"]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert rows_of(backup, EVENTS) == rows_of(database, EVENTS)
    assert rows_of(backup, "PRAGMA journal_mode") == [("delete",)]
    assert rows_of(backup, "PRAGMA application_id") == [(BACKUP_APPLICATION_ID,)]
    assert findings_in(backup) == []
    assert names_in(folder) == ["b.db"]
    size = backup.stat().st_size
    assert progress[-1] == BackupProgress(BackupPhase.DONE, size, size, size)
    phases = [each.phase for each in progress]
    assert phases == sorted(phases, key=lambda phase: phase.value)
    assert all(each.done_count <= each.total_count for each in progress)


def test_what_is_written_meanwhile_is_not_in_the_backup_and_is_not_held_up(
    database: Path, folder: Path
) -> None:
    before = rows_of(database, EVENTS)
    with opened_engine(database, limits=LIMITS) as engine:
        store = SqlStore(engine, limits=LIMITS, wall_nanos=WALL_NANOS)
        writer = StoreWriter(store)
        steps = take_backup(database, folder / "b.db", limits=LIMITS)
        count = 0
        for progress in steps:
            if progress.phase is BackupPhase.COPY:
                count += 1
                writer.push("tenant", "new", f"run-{count}", events=[event(1, b"x" * 100_000)])
        store.close()
    assert count > 1
    assert rows_of(folder / "b.db", EVENTS) == before
    assert len(rows_of(database, EVENTS)) == len(before) + count


def test_a_backup_takes_the_place_of_no_file(database: Path, folder: Path) -> None:
    (folder / "b.db").write_text("mine")
    (folder / "link.db").symlink_to("nowhere")
    for name in ("b.db", "link.db"):
        with pytest.raises(FileExistsError):
            take(database, folder / name)
    # Nor of one that appears while it is taken.
    steps = take_backup(database, folder / "late.db", limits=LIMITS)
    next(steps)
    (folder / "late.db").write_text("mine too")
    with pytest.raises(FileExistsError):
        list(steps)
    assert names_in(folder) == ["b.db", "late.db", "link.db"]
    assert (folder / "b.db").read_text() == "mine"
    assert (folder / "late.db").read_text() == "mine too"


def test_a_copy_that_does_not_verify_is_no_backup(database: Path, folder: Path) -> None:
    alter(database, "UPDATE event SET payload = x'00' WHERE sequence = 3")
    with pytest.raises(BackupDamaged, match="event 3: its content does not have its content hash"):
        take(database, folder / "b.db")
    assert names_in(folder) == []


@pytest.mark.parametrize("steps_taken", [1, 2, 4, 6])
def test_a_backup_that_is_given_up_leaves_nothing(database: Path, folder: Path, steps_taken: int) -> None:
    steps = take_backup(database, folder / "b.db", limits=LIMITS)
    for _ in range(steps_taken):
        next(steps)
    assert names_in(folder) != []
    steps.close()
    assert names_in(folder) == []


@pytest.mark.parametrize("phase", [BackupPhase.COPY, BackupPhase.VERIFY])
def test_a_backup_ends_soon_after_nobody_wants_it_any_more(
    database: Path, folder: Path, phase: BackupPhase
) -> None:
    is_stopping = False
    steps = take_backup(database, folder / "b.db", limits=LIMITS, is_stopping=lambda: is_stopping)
    for progress in steps:
        if progress.phase is phase:
            break
    is_stopping = True
    with pytest.raises(Stopped):
        next(steps)
    assert names_in(folder) == []


def test_what_was_left_unfinished_is_taken_away_unless_somebody_writes_it(
    database: Path, folder: Path
) -> None:
    for name in ("old.db.part", "old.db.part-journal", "old.db.part-wal", "other.db.part"):
        (folder / name).write_text("left")
    (folder / "kept.db").write_text("whole")
    writing = take_backup(database, folder / "new.db", limits=LIMITS)
    next(writing)
    SqliteBackups(database, folder, limits=LIMITS)
    assert names_in(folder) == ["kept.db", "new.db.part"]
    with pytest.raises(FileExistsError):
        take(database, folder / "new.db")
    *_, last = writing
    assert last.phase is BackupPhase.DONE
    assert names_in(folder) == ["kept.db", "new.db"]


def test_an_unfinished_copy_of_the_same_name_is_begun_anew(database: Path, folder: Path) -> None:
    (folder / "b.db.part").write_bytes(database.read_bytes() * 2)
    (folder / "b.db.part-wal").write_text("left")
    take(database, folder / "b.db")
    assert findings_in(folder / "b.db") == []
    assert names_in(folder) == ["b.db"]


def test_a_hubs_backups_say_in_its_words_why_they_are_not_taken(database: Path, folder: Path) -> None:
    backups = SqliteBackups(database, folder, limits=LIMITS)

    def taking(name: str) -> Generator[BackupProgress, None, None]:
        return backups.take(name, is_stopping=lambda: False)

    list(taking("b.db"))
    with pytest.raises(IdempotencyConflict):
        list(taking("b.db"))
    alter(database, "UPDATE run SET cursor = 1 WHERE run_id = 'gap'")
    with pytest.raises(
        StorageUnavailable, match="does not verify: hub project 'tenant', project 'p', run 'gap'"
    ):
        list(taking("c.db"))
    shutil.rmtree(folder)
    with pytest.raises(StorageUnavailable, match="the hub's log has the reason"):
        list(taking("d.db"))
    with pytest.raises(StartRefused, match="is not there"):
        SqliteBackups(database, folder, limits=LIMITS)


def test_a_backup_is_not_served(database: Path, folder: Path) -> None:
    take(database, folder / "b.db")
    before = (folder / "b.db").read_bytes()
    with pytest.raises(StartRefused, match="is a backup"), opened_engine(folder / "b.db", limits=LIMITS):
        pass
    assert (folder / "b.db").read_bytes() == before


def test_a_store_of_an_older_schema_is_backed_up_as_it_is(tmp_path: Path, folder: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "old.db"))
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in load_migrations("hub.store.sqlite.migrations")[:2]:
        connection.execute(script)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute("PRAGMA application_id = 0x53594E48")
    connection.close()
    take(tmp_path / "old.db", folder / "b.db")
    assert rows_of(folder / "b.db", "PRAGMA user_version") == [(2,)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../b.db",
        "a/b.db",
        "/b.db",
        ".hidden",
        "b.db.part",
        "hub.db-wal",
        "b.lock",
        "b\0",
        "ü",
        "x" * 201,
    ],
)
def test_a_name_that_is_no_plain_file_name_is_none(name: str) -> None:
    assert file_name_fault(name) is not None


@pytest.mark.parametrize("name", ["b", "hub.db", "synchub-20261130T112914Z.db", "a-b_c+d@e.1", "x" * 200])
def test_a_plain_file_name_is_one(name: str) -> None:
    assert file_name_fault(name) is None


def test_a_part_that_is_a_link_is_not_followed(database: Path, folder: Path) -> None:
    victim = folder.parent / "victim"
    victim.write_text("mine")
    os.symlink(victim, folder / "b.db.part")
    with pytest.raises(OSError, match=r"symbolic links|b\.db\.part"):
        take(database, folder / "b.db")
    assert victim.read_text() == "mine"


def test_what_was_left_for_all_to_read_is_written_for_its_user_alone(database: Path, folder: Path) -> None:
    part = folder / "b.db.part"
    part.touch()
    part.chmod(0o666)
    steps = take_backup(database, folder / "b.db", limits=LIMITS)
    next(steps)
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    list(steps)
    assert stat.S_IMODE((folder / "b.db").stat().st_mode) == 0o600


def test_nothing_is_written_into_another_users_file(
    database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = folder / "b.db.part"
    part.touch()
    owner = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileExistsError):
        take(database, folder / "b.db")
    assert names_in(folder) == ["b.db.part"]
    assert part.read_bytes() == b""
