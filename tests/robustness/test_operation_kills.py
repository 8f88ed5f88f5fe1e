"""Operations killed at any call that writes, syncs, names or removes: afterwards it is as before, or done.

And the operation again leads to what it was to lead to. (Like every SIGKILL this says nothing about the
disk's syncs.)
"""

import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.store.sql_files import load_migrations
from hub.store.sqlite import file
from hub.store.sqlite.backup import take_backup
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.verify import verify_store
from hub.store.store import SqlStore
from tests.robustness.dying_operations import OPERATIONS
from tests.unit.hub.stored_runs import WALL_NANOS, StoreWriter, event

LIMITS: Final = Limits()
CALLS: Final = ("pwrite64", "fsync", "fdatasync", "ftruncate", "link", "linkat", "unlink", "rename")
KILLS: Final = 10
"""Of each operation; with --long ten times as many."""
SECONDS_MAX: Final = 120.0
EVENT_COUNT: Final = 1_000
EVENTS: Final = "SELECT run_key, sequence, position, payload, content_hash FROM event ORDER BY 1, 2"

Rows = list[tuple[object, ...]]
Check = Callable[[Path], bool]
"""Looks at a folder, after a kill or the end; returns whether the operation was done."""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a backup of it and a store of the first schema, all with the same events."""
    folder = tmp_path_factory.mktemp("template")
    with opened_engine(folder / "store.db", limits=LIMITS) as engine:
        store = SqlStore(engine, limits=LIMITS, wall_nanos=WALL_NANOS)
        made = [event(sequence, b"x" * 200) for sequence in range(1, EVENT_COUNT + 1)]
        StoreWriter(store).push("h", "p", "r", events=made)
        store.close()
    list(take_backup(folder / "store.db", folder / "backup.db", limits=LIMITS))
    make_old_store(folder / "old.db", folder / "store.db")
    for lock in folder.glob("*.lock"):
        lock.unlink()
    return folder


def make_old_store(database: Path, source: Path) -> None:
    """Make a store of the first schema with the rows of a newer one."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(load_migrations(file.MIGRATIONS_PACKAGE)[0][1])
    connection.execute(f"PRAGMA application_id = {file.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("ATTACH ? AS source", (str(source),))
    for table in ("hub", "generation", "hub_project", "project", "run", "event"):
        columns = ", ".join(str(row[1]) for row in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}")
    connection.close()


def rows_of(database: Path, query: str) -> Rows:
    connection = apsw.Connection(str(database))
    try:
        return [tuple(row) for row in connection.execute(query)]
    finally:
        connection.close()


def generations_of(database: Path) -> list[object]:
    return [name for (name,) in rows_of(database, "SELECT hub_generation FROM generation ORDER BY ordinal")]


def assert_whole(database: Path, events: Rows) -> None:
    # First by a connection that may write: it undoes what was left half written.
    assert rows_of(database, EVENTS) == events
    steps = verify_store(database, limits=LIMITS, is_quiet=True)
    assert [finding for progress in steps for finding in progress.findings] == []


def is_served(database: Path) -> bool:
    """Whether a hub would start over a file now."""
    try:
        with opened_engine(database, limits=LIMITS):
            return True
    except StartRefused:
        return False


def checks_for(events: Rows) -> Mapping[str, Check]:
    """What has to be true after each operation was killed or done."""

    def backup(folder: Path) -> bool:
        assert_whole(folder / "store.db", events)
        assert is_served(folder / "store.db")
        if not (folder / "made.db").exists():
            return False
        assert_whole(folder / "made.db", events)
        assert not is_served(folder / "made.db")
        return True

    def restore(folder: Path) -> bool:
        assert_whole(folder / "backup.db", events)
        if not (folder / "made.db").exists():
            return False
        assert_whole(folder / "made.db", events)
        assert generations_of(folder / "made.db")[1:] == ["restored"]
        assert is_served(folder / "made.db")
        return True

    def restore_the_backup_itself(folder: Path) -> bool:
        assert_whole(folder / "backup.db", events)
        # A hub serves it exactly from when it has its new life.
        is_done = generations_of(folder / "backup.db")[1:] == ["restored"]
        assert is_served(folder / "backup.db") == is_done
        return is_done

    def restore_the_store_itself(folder: Path) -> bool:
        assert_whole(folder / "store.db", events)
        assert is_served(folder / "store.db")
        floors = rows_of(folder / "store.db", "SELECT DISTINCT token_floor > 0 FROM hub_project")
        is_done = generations_of(folder / "store.db")[1:] == ["restored"]
        assert floors == [(int(is_done),)]
        return is_done

    def migrate(folder: Path) -> bool:
        assert_whole(folder / "old.db", events)
        ((version,),) = rows_of(folder / "old.db", "PRAGMA user_version")
        return version == file.schema_version_newest()

    def create(folder: Path) -> bool:
        if not (folder / "made.db").exists() or not (folder / "made.db").stat().st_size:
            return False
        ((version,),) = rows_of(folder / "made.db", "PRAGMA user_version")
        return version == file.schema_version_newest() and len(generations_of(folder / "made.db")) == 1

    checks = (backup, restore, restore_the_backup_itself, restore_the_store_itself, migrate, create)
    return {each.__name__: each for each in checks}


def run(operation: str, folder: Path, *, trace: str, options: list[str]) -> int:
    """Run an operation under strace and return how it ended."""
    command = ["strace", "-f", "-qq", "-o", str(folder.with_name("trace")), "-e", f"trace={trace}", *options]
    command += [sys.executable, "-m", "tests.robustness.dying_operations", operation, str(folder)]
    return subprocess.run(command, check=False, timeout=SECONDS_MAX).returncode


def moments_of(operation: str, folder: Path) -> list[tuple[str, int]]:
    """Run an operation to its end, and return all calls at which it could be killed: name and number."""
    assert run(operation, folder, trace=",".join(CALLS), options=[]) == 0
    counts: Counter[str] = Counter()
    for line in folder.with_name("trace").read_text().splitlines():
        counts[line.split()[1].partition("(")[0]] += 1
    return [(name, number) for name in CALLS for number in range(1, counts[name] + 1)]


def chosen(moments: list[tuple[str, int]], rng: random.Random, *, count: int) -> list[tuple[str, int]]:
    """Choose moments: writes are many, so of half of the chosen each other call has its share."""
    writes = [moment for moment in moments if moment[0] == "pwrite64"]
    others = [moment for moment in moments if moment[0] != "pwrite64"]
    return [
        *rng.sample(others, min(len(others), count - count // 2)),
        *rng.sample(writes, min(len(writes), count // 2)),
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_dies_anywhere_has_been_done_whole_or_not_at_all(
    template: Path, tmp_path: Path, rng: random.Random, *, operation: str, long_run: bool
) -> None:
    check = checks_for(rows_of(template / "store.db", EVENTS))[operation]
    done = tmp_path / "done"
    shutil.copytree(template, done)
    moments = moments_of(operation, done)
    assert check(done)
    kills = chosen(moments, rng, count=KILLS * 10 if long_run else KILLS)
    assert len(kills) >= KILLS
    was_done: Counter[bool] = Counter()
    for name, number in kills:
        folder = tmp_path / f"{name}-{number}"
        shutil.copytree(template, folder)
        code = run(
            operation, folder, trace=name, options=["-e", f"inject={name}:signal=SIGKILL:when={number}"]
        )
        assert code != 0, (name, number)
        is_done = check(folder)
        was_done[is_done] += 1
        if not is_done:
            OPERATIONS[operation](folder)
            assert check(folder), (name, number)
        unfinished = [path.name for path in folder.iterdir() if ".part" in path.name]
        # What a kill left of a backup after all was done is a second name of it; a hub takes it away.
        assert unfinished == [] or (is_done and operation == "backup")
        shutil.rmtree(folder)
    assert was_done[False] > 0
