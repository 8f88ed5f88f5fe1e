"""Who may open the database file, and that a file which is refused is not written to."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.file import APPLICATION_ID, connect
from hub.store.store import SqlStore


def open_once(database: Path) -> None:
    with opened_engine(database, limits=Limits()):
        pass


def changed_by(sql: str) -> Callable[[Path], None]:
    """Make a store, and then something that the hub would never do to it."""

    def change(database: Path) -> None:
        open_once(database)
        connection = apsw.Connection(str(database))
        connection.execute(sql)
        connection.close()

    return change


def foreign_database(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()


def text_file(database: Path) -> None:
    database.write_bytes(b"these are not the bytes of a database" * 10)


def short_file(database: Path) -> None:
    database.write_bytes(b"SQLite format 3\0")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (text_file, "not a database"),
        (short_file, "not a database"),
        (foreign_database, "not a hub's store"),
        (changed_by("PRAGMA user_version = 9999"), "has schema 9999"),
        (changed_by("CREATE TABLE mine (a)"), "not the one that its migrations make"),
        (changed_by("PRAGMA journal_mode = DELETE"), "journal mode 'delete'"),
    ],
    ids=["text", "short", "foreign", "newer", "changed", "journal mode"],
)
def test_a_file_that_is_not_ours_as_it_is_is_refused_and_not_written_to(
    tmp_path: Path, make: Callable[[Path], None], sentence: str
) -> None:
    database = tmp_path / "hub.db"
    make(database)
    before = database.read_bytes()
    with pytest.raises(StartRefused) as caught:
        open_once(database)
    assert sentence in str(caught.value)
    assert caught.value.hint
    assert database.read_bytes() == before


def test_a_second_hub_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    database = tmp_path / "hub.db"
    refused = pytest.raises(StartRefused, match=rf"pid {os.getpid()}\b")
    with opened_engine(database, limits=Limits()), refused:
        open_once(database)
    open_once(database)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    database = tmp_path / "hub.db"
    database.touch()
    open_once(database)
    connection = apsw.Connection(str(database))
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("journal_mode") == "wal"
    connection.close()


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"the folder .*none of the store is not there"):
        open_once(tmp_path / "none" / "hub.db")


def test_a_new_store_is_its_users_alone(tmp_path: Path) -> None:
    with opened_engine(tmp_path / "hub.db", limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=1)
        store.writing.begin()
        store.writing.commit(1)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    assert modes == dict.fromkeys(("hub.db", "hub.db-wal", "hub.db-shm", "hub.db.lock"), 0o600)


@pytest.mark.parametrize("is_writer", [True, False])
def test_no_plan_rests_on_the_values_of_parameters(tmp_path: Path, *, is_writer: bool) -> None:
    open_once(tmp_path / "hub.db")
    connection = connect(tmp_path / "hub.db", busy_timeout_seconds=1, is_writer=is_writer)
    is_stable = connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)
    connection.close()
    assert is_stable == 1


def test_a_lock_that_is_a_link_empties_nobodys_file(tmp_path: Path) -> None:
    somebodys = tmp_path / "somebody's"
    somebodys.write_text("kept")
    (tmp_path / "hub.db.lock").symlink_to(somebodys)
    with pytest.raises(StartRefused, match="cannot open the lock file"):
        open_once(tmp_path / "hub.db")
    assert somebodys.read_text() == "kept"
