"""Opening: what is ours is opened and migrated, what is not is refused and not touched."""

import os
from pathlib import Path

import apsw
import pytest

from runtime_agent.core.errors import LogForeignError, LogMissingError, LogNewerError, LogStorageError
from runtime_agent.event_log.opening import take_folder
from runtime_agent.event_log.schema import APPLICATION_ID
from runtime_agent.event_log.sqlite_reader import LOG_FILE_NAME, SqliteEventLogReader
from runtime_agent.event_log.statements import migrations, statements


def make(folder: Path) -> Path:
    take_folder(str(folder), role="test").close()
    return folder / LOG_FILE_NAME


def change(file: Path, *sql: str) -> bytes:
    connection = apsw.Connection(str(file))
    for each in sql:
        connection.execute(each)
    connection.close()
    return file.read_bytes()


def test_a_new_log_is_marked_as_ours_durable_and_private(tmp_path: Path) -> None:
    held = take_folder(str(tmp_path / "new"), role="test")
    try:
        connection = held.log._connected()
        assert connection.pragma("application_id") == APPLICATION_ID
        assert connection.pragma("user_version") == len(migrations())
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        held.log.beat(now_nanos=1)
        assert connection.pragma("synchronous") == 2
        for file in (tmp_path / "new").iterdir():
            assert file.stat().st_mode & 0o077 == 0
    finally:
        held.close()


def test_every_table_is_strict(tmp_path: Path) -> None:
    connection = apsw.Connection(str(make(tmp_path)))
    try:
        tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE type = 'table'")
        assert [name for name, strict in tables if not strict and not str(name).startswith("sqlite_")] == []
    finally:
        connection.close()


def test_every_statement_compiles(tmp_path: Path) -> None:
    connection = apsw.Connection(str(make(tmp_path)))
    try:
        assert len(statements()) > 40
        for name, sql in statements().items():
            count = len({part for part in "123456789" if f"?{part}" in sql}) + ("?10" in sql)
            assert list(connection.execute(f"EXPLAIN {sql}", (1,) * count)), name
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("PRAGMA application_id = 1", LogForeignError),
        ("PRAGMA user_version = 999", LogNewerError),
        ("CREATE TABLE extra (a INTEGER) STRICT", LogForeignError),
        ("DROP INDEX run_unsynced", LogForeignError),
    ],
)
def test_a_log_that_is_not_as_we_made_it_is_refused_and_not_touched(
    tmp_path: Path, sql: str, error: type[Exception]
) -> None:
    file = make(tmp_path)
    before = change(file, sql)
    with pytest.raises(error):
        take_folder(str(tmp_path), role="test")
    with pytest.raises(error):
        SqliteEventLogReader.open(str(tmp_path))
    assert file.read_bytes() == before


def test_somebody_elses_database_or_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / LOG_FILE_NAME
    change(file, "CREATE TABLE t (a)")
    for content in (file.read_bytes(), b"not a database, but long enough to be looked at" * 40):
        file.write_bytes(content)
        with pytest.raises(LogForeignError):
            take_folder(str(tmp_path), role="test")
        assert file.read_bytes() == content


def test_a_folder_without_a_log_has_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(LogMissingError):
        SqliteEventLogReader.open(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_is_a_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / LOG_FILE_NAME).mkdir()
    with pytest.raises((LogStorageError, LogForeignError)):
        take_folder(str(tmp_path), role="test")
    assert os.listdir(tmp_path / LOG_FILE_NAME) == []
