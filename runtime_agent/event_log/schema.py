"""The schema of the local log: opening, recognising and migrating a file.

A file that is not ours, or newer than this program, is refused before anything is written to it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import apsw

from runtime_agent import limits
from runtime_agent.core.errors import LogForeignError, LogNewerError
from runtime_agent.event_log.statements import migrations

Connect: TypeAlias = Callable[[str, int], apsw.Connection]
"""Makes a connection from a path and ``apsw.SQLITE_OPEN_…`` flags; tests give their own."""

APPLICATION_ID: Final = 0x53796E41
"""Marks the file as a log of the runtime agent ("SynA")."""

WAL_AUTOCHECKPOINT_PAGES: Final = 4_000
"""The writer checkpoints after so many pages of 4 KiB."""
WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
"""A larger WAL file is cut after a checkpoint."""


def connect_with_apsw(path: str, flags: int) -> apsw.Connection:
    """Open a connection with the apsw driver; the default factory."""
    return apsw.Connection(path, flags=flags)


def open_for_writing(path: str, connect: Connect) -> apsw.Connection:
    """Open or create the log, migrate it, and check that it is as this program makes it.

    Raises: LogForeignError, LogNewerError; apsw.Error where the disk fails.
    """
    connection = connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        connection.set_busy_timeout(limits.DATABASE_BUSY_TIMEOUT_MS)
        version = _check_ours(connection, path)
        if connection.pragma("journal_mode", "wal") != "wal":
            raise LogForeignError(path, "cannot use a write-ahead log on this file system")
        connection.pragma("synchronous", "full")
        connection.pragma("wal_autocheckpoint", WAL_AUTOCHECKPOINT_PAGES)
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
        _migrate(connection, version)
        _check_schema(connection, path)
    except apsw.NotADBError as error:
        connection.close()
        raise LogForeignError(path, "is not a SQLite database") from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: str, connect: Connect) -> apsw.Connection:
    """Open an existing log read-only, also beside a process that writes.

    Raises: LogForeignError, LogNewerError; apsw.Error where it cannot be opened.
    """
    connection = connect(path, apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(limits.DATABASE_BUSY_TIMEOUT_MS)
        if _check_ours(connection, path) != len(migrations()):
            raise LogForeignError(path, "has an older schema; start the agent once to migrate it")
        _check_schema(connection, path)
    except apsw.NotADBError as error:
        connection.close()
        raise LogForeignError(path, "is not a SQLite database") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_ours(connection: apsw.Connection, path: str) -> int:
    """Return the schema version (0: empty file), or refuse a foreign or newer file."""
    application_id = connection.pragma("application_id")
    version = connection.pragma("user_version")
    table_count = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application_id == 0 and version == 0 and table_count == 0:
        return 0
    if application_id != APPLICATION_ID:
        raise LogForeignError(path, "is not a log of the runtime agent")
    assert isinstance(version, int)
    if version > len(migrations()):
        raise LogNewerError(path, version, len(migrations()))
    return version


def _migrate(connection: apsw.Connection, version: int) -> None:
    """Run the migrations after ``version``, each in a transaction of its own."""
    for number, script in enumerate(migrations()[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated while this one waited for the lock.
            if connection.pragma("user_version") < number:
                connection.execute(script)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", number)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _check_schema(connection: apsw.Connection, path: str) -> None:
    """Compare what is in the file with what the migrations make: a hand-made change is refused."""
    fresh = apsw.Connection(":memory:")
    try:
        for script in migrations():
            fresh.execute(script)
        expected, found = _described(fresh), _described(connection)
    finally:
        fresh.close()
    if expected != found:
        names = sorted({name for name, _ in expected ^ found})
        raise LogForeignError(path, f"does not have this agent's schema (differs in {', '.join(names)})")


def _described(connection: apsw.Connection) -> set[tuple[str, str]]:
    return {
        (str(name), str(sql))
        for name, sql in connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"
        )
    }
