"""One apsw connection as a ``Session``: the only module of the hub that speaks to SQLite."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, cast

import apsw

from hub.core.errors import StorageUnavailable
from hub.store.health import DISK_FULL, StoreHealth
from hub.store.session import DiskRoom, Parameters, Row, SqlValue

BULK_ROWS_MAX = 32
"""Rows of one bulk statement; measured here as the fastest, half again as fast as row by row."""
BULK_POSITION_INDEX = 2
"""Where among the shared values of a bulk statement stands the position before its first row."""

UNAVAILABLE = (
    apsw.FullError,
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.NoMemError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.InterruptError,
    apsw.ProtocolError,
    apsw.PermissionsError,
    apsw.TooBigError,
    apsw.ConnectionClosedError,
)
"""What SQLite raises where the disk or the file, not the statement, is at fault."""


DISK_PART_KEPT: Final = 8
"""Of a small disk, one part in so many is kept in reserve."""
FULL_DISK_BYTES: Final = 64 * 1024
"""A disk with less room is full, whatever error SQLite makes of it."""
LOG_BYTES_WORTH_FOLDING: Final = 1024 * 1024
"""A WAL that is smaller is not folded back for the sake of its room."""


def unavailable(
    error: Exception, health: StoreHealth, *, during: str, is_writing: bool, database: str
) -> StorageUnavailable:
    """Note what the engine said, for the operator, and return what a client may know."""
    health.failed(
        problem_of(error, database),
        is_writing=is_writing,
        during=during,
        error=type(error).__name__,
        detail=str(error),
    )
    return StorageUnavailable()


def problem_of(error: Exception, database: str) -> str:
    """Say in words what keeps a store from being written or read."""
    # On a full disk, syncs and the files beside the store fail with errors of other names.
    if isinstance(error, apsw.FullError) or _free_bytes(database) < FULL_DISK_BYTES:
        return DISK_FULL
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return "the store's file is damaged: restore a backup"
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return "the store's file cannot be opened or written: check its permissions and its disk"
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return "another program holds the store's file"
        case apsw.NoMemError():
            return "there is no memory left"
    return "the disk cannot be read or written"


def _free_bytes(database: str) -> int:
    """Return how much of the disk anybody may still use; where nobody can tell, as if it were much."""
    try:
        found = os.statvfs(os.path.dirname(database) or ".")
    except OSError:
        return FULL_DISK_BYTES
    return found.f_bavail * found.f_frsize


class SqliteSession:
    """One connection and its named statements; see ``Session`` for the promises."""

    def __init__(
        self,
        connection: apsw.Connection,
        statements: Mapping[str, str],
        *,
        health: StoreHealth | None = None,
        is_writer: bool = True,
    ) -> None:
        """Take over an open connection; what fails and works on it is told to ``health``."""
        self._connection = connection
        self._database = connection.filename
        self._statements = statements
        self._health = health or StoreHealth()
        self._is_writer = is_writer
        self._bulk_statements: dict[tuple[str, int], str] = {}

    def begin_writing(self) -> None:
        """Begin IMMEDIATE: a read upgraded to a write would fail at once, whatever the timeout."""
        self._execute("BEGIN IMMEDIATE", (), during="begin")

    def begin_reading(self) -> None:
        """Begin a transaction; its state is fixed by its first read."""
        self._execute("BEGIN", (), during="begin")

    def commit(self) -> None:
        """Commit; with ``synchronous=FULL`` the WAL is synced before this returns."""
        self._execute("COMMIT", (), during="commit")
        self._health.worked(is_writing=True)

    def rollback(self) -> None:
        """Roll back, where SQLite has not done so by itself."""
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def set_savepoint(self) -> None:
        """Set the savepoint."""
        self._execute("SAVEPOINT command", (), during="savepoint")

    def release_savepoint(self) -> None:
        """Release the savepoint."""
        self._execute("RELEASE command", (), during="savepoint")

    def undo_to_savepoint(self) -> None:
        """Roll back to the savepoint and release it."""
        self._execute("ROLLBACK TO command", (), during="savepoint")
        self._execute("RELEASE command", (), during="savepoint")

    def fetch(self, statement: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Run a named statement and give its rows."""
        return self.fetch_composed(self._statements[statement], parameters)

    def fetch_composed(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Run composed SQL and give its rows."""
        try:
            yield from cast("Iterator[Row]", self._connection.execute(sql, parameters))
        except UNAVAILABLE as error:
            raise self._unavailable(error, during="read") from error

    def fragment(self, name: str) -> str:
        """Return the SQL of a name."""
        return self._statements[name]

    def run(self, statement: str, parameters: Parameters = ()) -> None:
        """Run a named statement."""
        self._execute(self._statements[statement], parameters, during=statement)

    def run_many(self, statement: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run a named statement for each row."""
        try:
            self._connection.executemany(self._statements[statement], rows)
        except UNAVAILABLE as error:
            raise self._unavailable(error, during=statement) from error

    def run_bulk(
        self, statement: str, shared: Sequence[SqlValue], *, rows: Sequence[Sequence[SqlValue]]
    ) -> None:
        """Insert rows, many by one step of SQLite: it gives up Python's lock around each step."""
        position_index = BULK_POSITION_INDEX
        try:
            for first in range(0, len(rows), BULK_ROWS_MAX):
                chunk = rows[first : first + BULK_ROWS_MAX]
                before = list(shared)
                before[position_index] = cast("int", shared[position_index]) + first
                sql = self._bulk_sql(statement, len(chunk), columns=len(chunk[0]), shared=len(shared))
                self._connection.execute(sql, [*before, *chain.from_iterable(chunk)])
        except UNAVAILABLE as error:
            raise self._unavailable(error, during=statement) from error

    def _bulk_sql(self, statement: str, row_count: int, *, columns: int, shared: int) -> str:
        """Return a bulk statement for so many rows; made once for each number of rows."""
        sql = self._bulk_statements.get((statement, row_count))
        if sql is None:
            row = self._statements[f"{statement}_row"]
            texts = []
            for number in range(row_count):
                begin = shared + number * columns + 1
                own = [f"?{parameter}" for parameter in range(begin, begin + columns)]
                texts.append(row.format(*own, number=number + 1))
            sql = f"{self._statements[statement]} {', '.join(texts)}"
            self._bulk_statements[statement, row_count] = sql
        return sql

    def changed_count(self) -> int:
        """Return how many rows the last statement changed."""
        return self._connection.changes()

    def disk_room(self, reserve_bytes: int) -> DiskRoom | None:
        """Return how much room there is."""
        try:
            disk = os.statvfs(os.path.dirname(self._database) or ".")
            reserve_bytes = min(reserve_bytes, disk.f_blocks * disk.f_frsize // DISK_PART_KEPT)
            room_bytes = disk.f_bavail * disk.f_frsize
            if room_bytes < reserve_bytes:
                pages = self._connection.execute("PRAGMA freelist_count").get
                page_bytes = self._connection.execute("PRAGMA page_size").get
                room_bytes += int(str(pages)) * int(str(page_bytes))
        except (OSError, apsw.Error):
            return None
        return DiskRoom(room_bytes, reserve_bytes)

    def keep_log_within(self, reserve_bytes: int) -> None:
        """Fold the WAL back before it takes half of the reserve of a small disk; with more room, as set."""
        room = self.disk_room(reserve_bytes)
        if room is None or room.reserve_bytes >= reserve_bytes:
            return
        with suppress(apsw.Error):
            page_bytes = int(str(self._connection.pragma("page_size")))
            pages = int(str(self._connection.pragma("wal_autocheckpoint")))
            pages = min(pages, max(1, room.reserve_bytes // 2 // page_bytes))
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            self._connection.execute(f"PRAGMA journal_size_limit = {room.reserve_bytes}")

    def make_room(self) -> None:
        """Fold the WAL back and cut it off, where it is worth it and nobody reads from it."""
        with suppress(OSError, apsw.Error):
            if os.stat(f"{self._database}-wal").st_size < LOG_BYTES_WORTH_FOLDING:
                return
            timeout = int(str(self._connection.pragma("busy_timeout")))
            self._connection.set_busy_timeout(0)
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                self._connection.set_busy_timeout(timeout)

    def close(self) -> None:
        """Close; SQLite undoes an open transaction."""
        with suppress(apsw.Error):
            self._connection.close(True)

    def _unavailable(self, error: Exception, *, during: str) -> StorageUnavailable:
        return unavailable(
            error, self._health, during=during, is_writing=self._is_writer, database=self._database
        )

    def _execute(self, sql: str, parameters: Parameters, *, during: str) -> None:
        try:
            self._connection.execute(sql, parameters)
        except UNAVAILABLE as error:
            raise self._unavailable(error, during=during) from error
