"""The embedded engine: opens sessions on one database file."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from hub.core.limits import Limits
from hub.store.health import StoreHealth
from hub.store.sql_files import load_statements
from hub.store.sqlite import file
from hub.store.sqlite.session import UNAVAILABLE, SqliteSession, unavailable

STATEMENTS_PACKAGE = "hub.store.sqlite"
STATEMENT_FILES = (
    "writing.sql",
    "reading.sql",
    "leases.sql",
    "journal.sql",
    "tokens.sql",
    "prune.sql",
    "operations.sql",
)


class SqliteEngine:
    """Sessions on a file that is locked, migrated and checked; see ``opened_engine``."""

    name = "sqlite"

    def __init__(self, database: Path, *, limits: Limits) -> None:
        """Keep where the file is; nothing is opened yet."""
        self._database = database
        self._limits = limits
        self._statements = load_statements(STATEMENTS_PACKAGE, *STATEMENT_FILES)
        self.health = StoreHealth()
        """What is wrong with the store now."""

    def open_writer(self) -> SqliteSession:
        """Open the writing connection."""
        return self._open(is_writer=True)

    def open_reader(self) -> SqliteSession:
        """Open a reading connection."""
        return self._open(is_writer=False)

    def log_bytes(self) -> int:
        """Return the size of the WAL file in bytes, 0 where there is none."""
        with suppress(OSError):
            return self._database.with_name(self._database.name + "-wal").stat().st_size
        return 0

    def _open(self, *, is_writer: bool) -> SqliteSession:
        try:
            connection: apsw.Connection = file.connect(
                self._database,
                busy_timeout_seconds=self._limits.busy_timeout_seconds,
                is_writer=is_writer,
            )
        except UNAVAILABLE as error:
            raise unavailable(
                error, self.health, during="open", is_writing=is_writer, database=str(self._database)
            ) from error
        session = SqliteSession(connection, self._statements, health=self.health, is_writer=is_writer)
        if is_writer:
            session.keep_log_within(self._limits.disk_reserve_bytes)
        return session


@contextmanager
def opened_engine(database: Path, *, limits: Limits) -> Iterator[SqliteEngine]:
    """Hold the file's lock, bring it to the newest schema, and give its engine.

    Raises: StartRefused where the file is in use, foreign, newer or changed by hand.
    """
    with file.exclusive_lock(database):
        file.prepare(database, busy_timeout_seconds=limits.busy_timeout_seconds)
        yield SqliteEngine(database, limits=limits)
