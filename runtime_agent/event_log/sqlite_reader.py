"""Reading the local log from SQLite; the writing half is ``sqlite_log.py``.

A reader of its own is opened read-only, also beside the process that writes; the writer is a reader
too, on its own connection.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, cast

import apsw

from runtime_agent.core.errors import LogMissingError, LogStorageError
from runtime_agent.core.values import (
    HubMemory,
    LogEvent,
    LogTotals,
    RunKey,
    RunState,
    RuntimeIdentity,
    TailedEvent,
)
from runtime_agent.event_log.process_lease import LeaseRow
from runtime_agent.event_log.rows import (
    EventRow,
    RunRow,
    TailRow,
    bounded_events,
    event_bytes,
    event_from_row,
    limits_from_text,
    run_state_from_row,
)
from runtime_agent.event_log.schema import Connect, connect_with_apsw, open_for_reading
from runtime_agent.event_log.statements import statements
from synchub.contract import chain_hash_at_start

STORAGE_FAULTS: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.NoMemError,
)
"""What a disk or a file system does to a database; every other error of SQLite is a mistake of ours."""

LOG_FILE_NAME: Final = "events.sqlite3"
"""The log's file in the data folder."""

_BEFORE_ALL: Final = ("", "")


class SqliteEventLogReader:
    """The reads of ``contract.EventLogReader`` on a connection; subclassed by the writer."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        self._path = path
        self._open_connection: apsw.Connection | None = connection
        self._sql = statements()

    @classmethod
    def open(cls, folder: str, *, connect: Connect = connect_with_apsw) -> "SqliteEventLogReader":
        """Open the log of a data folder read-only.

        Raises: LogMissingError, LogForeignError, LogNewerError, LogStorageError.
        """
        path = os.path.join(folder, LOG_FILE_NAME)
        if not os.path.exists(path):
            raise LogMissingError(folder)
        try:
            return cls(path, open_for_reading(path, connect))
        except STORAGE_FAULTS as error:
            raise LogStorageError(path, str(error)) from error

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._open_connection = self._open_connection, None
        if connection is not None:
            with suppress(*STORAGE_FAULTS):  # what was committed stays; what a close tidies can wait
                connection.close()

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def _connected(self) -> apsw.Connection:
        """Return the connection; the writer opens it again after a fault."""
        if self._open_connection is None:
            raise LogStorageError(self._path, "it is closed")
        return self._open_connection

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        connection = self._connected()
        try:
            yield connection
        except STORAGE_FAULTS as error:
            raise LogStorageError(self._path, str(error)) from error

    # --- what the log is ---------------------------------------------------------------------------

    def load_identity(self) -> RuntimeIdentity | None:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            hub_project, runtime_id = cast(
                tuple[str | None, str | None], connection.execute(self._sql["load_identity"]).fetchone()
            )
        if hub_project is None or runtime_id is None:
            return None
        return RuntimeIdentity(hub_project, runtime_id)

    def load_hub_memory(self) -> HubMemory:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            generation, limits_text = cast(
                tuple[str, str | None], connection.execute(self._sql["load_hub_memory"]).fetchone()
            )
        return HubMemory(generation, limits_from_text(limits_text))

    def load_head_local_position(self) -> int:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            return cast(int, connection.execute(self._sql["load_head_local_position"]).get)

    def load_totals(self) -> LogTotals:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            runs, events, unsynced, quarantined, head, acknowledge_time = cast(
                tuple[int, int, int, int, int, int | None],
                connection.execute(self._sql["load_totals"]).fetchone(),
            )
            return LogTotals(
                runs, events, unsynced, quarantined, self._log_bytes(connection), head, acknowledge_time
            )

    def _log_bytes(self, connection: apsw.Connection) -> int:
        pages = cast(int, connection.pragma("page_count")) - cast(int, connection.pragma("freelist_count"))
        return pages * cast(int, connection.pragma("page_size"))

    def load_lease_row(self) -> LeaseRow | None:
        """Return the process that may write, None where none says so."""
        with self._reading() as connection:
            row = cast(
                tuple[str, str, int, str, str, str, int] | None,
                connection.execute(self._sql["load_owner"]).fetchone(),
            )
        return None if row is None else LeaseRow(*row)

    # --- runs --------------------------------------------------------------------------------------

    def load_run(self, run: RunKey) -> RunState | None:
        """See ``EventLogReader``."""
        found = self._run_states("load_run", (run.project_id, run.run_id))
        return found[0] if found else None

    def list_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """See ``EventLogReader``."""
        return self._run_states("list_runs", (*_key_columns(after), limit))

    def list_unsynced_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """See ``EventLogReader``."""
        return self._run_states("list_unsynced_runs", (*_key_columns(after), limit))

    def list_runs_changed_after(self, local_position: int, *, limit: int) -> tuple[RunState, ...]:
        """See ``EventLogReader``."""
        return self._run_states("list_runs_changed_after", (local_position, limit))

    def list_quarantined_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """See ``EventLogReader``."""
        return self._run_states("list_quarantined_runs", (*_key_columns(after), limit))

    def _run_states(self, name: str, bindings: tuple[str | int, ...]) -> tuple[RunState, ...]:
        with self._reading() as connection:
            rows = cast(Iterable[RunRow], connection.execute(self._sql[name], bindings))
            return tuple(run_state_from_row(row) for row in rows)

    # --- events ------------------------------------------------------------------------------------

    def read_events(
        self, run: RunKey, *, after_sequence: int, count_max: int, bytes_max: int
    ) -> tuple[LogEvent, ...]:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            cursor = connection.execute(
                self._sql["read_events"], (run.project_id, run.run_id, after_sequence, count_max)
            )
            try:
                return bounded_events(cast(Iterable[EventRow], cursor), bytes_max)
            finally:
                cursor.close()

    def read_content_hashes(self, run: RunKey, *, after_sequence: int, limit: int) -> tuple[bytes, ...]:
        """See ``EventLogReader``."""
        with self._reading() as connection:
            rows = cast(
                Iterable[tuple[bytes]],
                connection.execute(
                    self._sql["read_content_hashes"], (run.project_id, run.run_id, after_sequence, limit)
                ),
            )
            return tuple(content_hash for (content_hash,) in rows)

    def load_chain_hash(self, run: RunKey, sequence: int) -> bytes | None:
        """See ``EventLogReader``."""
        if sequence == 0:
            return chain_hash_at_start(run.project_id, run.run_id)
        with self._reading() as connection:
            return cast(
                bytes | None,
                connection.execute(self._sql["load_chain_hash"], (run.project_id, run.run_id, sequence)).get,
            )

    def tail_events(
        self, *, after_local_position: int, project_id: str, run_id: str, count_max: int, bytes_max: int
    ) -> tuple[TailedEvent, ...]:
        """See ``EventLogReader``."""
        found: list[TailedEvent] = []
        bytes_sum = 0
        with self._reading() as connection:
            cursor = connection.execute(
                self._sql["tail_events"], (after_local_position, project_id, run_id, count_max)
            )
            try:
                for row in cast(Iterable[TailRow], cursor):
                    event_row = row[:9]
                    bytes_sum += event_bytes(event_row)
                    if bytes_sum > bytes_max and found:
                        break
                    found.append(
                        TailedEvent(RunKey(row[9], row[10]), event_from_row(event_row), row[11] == 1)
                    )
            finally:
                cursor.close()
        return tuple(found)


def _key_columns(after: RunKey | None) -> tuple[str, str]:
    return _BEFORE_ALL if after is None else (after.project_id, after.run_id)
