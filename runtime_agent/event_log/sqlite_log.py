"""The local log on SQLite: one writing connection, one transaction a call.

Appends, the bulk path, are in ``append_group.py``; what happens to whole runs is in
``run_changes.py``; this module holds the connection, the transaction and its failures, the owner
check, and the small writes.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import apsw

from runtime_agent import limits
from runtime_agent.core.errors import (
    HubGenerationChangedError,
    IdentityPinnedError,
    LogOutcomeUnknownError,
    LogOwnerLostError,
    LogStorageError,
)
from runtime_agent.core.values import (
    Acknowledgement,
    AppendRequest,
    FetchedEvent,
    HubLimits,
    RunKey,
    RunState,
    RuntimeIdentity,
)
from runtime_agent.event_log import run_changes
from runtime_agent.event_log.append_group import AppendGroup, RunHead
from runtime_agent.event_log.checks import DEFAULT_LIMITS
from runtime_agent.event_log.contract import AppendOutcome
from runtime_agent.event_log.process_lease import LeaseRow, is_holder_alive
from runtime_agent.event_log.rows import limits_to_text
from runtime_agent.event_log.schema import Connect, connect_with_apsw, open_for_writing
from runtime_agent.event_log.sqlite_reader import LOG_FILE_NAME, STORAGE_FAULTS, SqliteEventLogReader


class SqliteEventLog(SqliteEventLogReader):
    """The log as ``contract.EventLog`` promises it. Belongs to one thread at a time."""

    def __init__(
        self, path: str, connection: apsw.Connection, *, connect: Connect, owner: str, log_bytes_max: int
    ) -> None:
        super().__init__(path, connection)
        self._connect = connect
        self._owner = owner
        self._log_bytes_max = log_bytes_max
        self._heads: dict[RunKey, RunHead] = {}
        self._hub_limits = self.load_hub_memory().limits or DEFAULT_LIMITS

    @classmethod
    def open_owned(
        cls,
        folder: str,
        claim: LeaseRow,
        *,
        connect: Connect = connect_with_apsw,
        log_bytes_max: int = limits.LOG_BYTES_MAX,
    ) -> "SqliteEventLog | LeaseRow":
        """Open or create the log of a folder and become its owner; the caller holds the lock.

        Returns the living holder's row instead where there is one in spite of the lock.
        Raises: LogForeignError, LogNewerError, LogStorageError.
        """
        path = os.path.join(folder, LOG_FILE_NAME)
        try:
            # Made here so that nobody else can read it, whatever the folder allows.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = open_for_writing(path, connect)
        except OSError as error:
            raise LogStorageError(path, error.strerror or str(error)) from error
        except STORAGE_FAULTS as error:
            raise LogStorageError(path, str(error)) from error
        log = cls(path, connection, connect=connect, owner=claim.owner, log_bytes_max=log_bytes_max)
        try:
            holder = log._claim(claim)
        except BaseException:
            log.close()
            raise
        if holder is not None:
            log.close()
            return holder
        return log

    # --- transactions and owner --------------------------------------------------------------------

    def _connected(self) -> apsw.Connection:
        if self._open_connection is None:
            try:
                self._open_connection = open_for_writing(self._path, self._connect)
            except STORAGE_FAULTS as error:
                raise LogStorageError(self._path, str(error)) from error
        return self._open_connection

    @contextmanager
    def _writing(self, *, is_owner_checked: bool = True) -> Iterator[apsw.Connection]:
        """Run the body in one transaction; see the contract for what its failures mean."""
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            if is_owner_checked and connection.execute(self._sql["load_owner_id"]).get != self._owner:
                raise LogOwnerLostError(os.path.dirname(self._path))
            yield connection
        except STORAGE_FAULTS as error:
            self._roll_back(connection)
            raise LogStorageError(self._path, str(error)) from error
        except BaseException:
            self._roll_back(connection)
            raise
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            # Written or not: only a fresh look can tell, and what this connection cached cannot.
            self._heads.clear()
            self._close_broken()
            raise LogOutcomeUnknownError(self._path, str(error)) from error

    def _roll_back(self, connection: apsw.Connection) -> None:
        self._heads.clear()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot even roll back is of no use; closing it does.
            self._close_broken()

    def _close_broken(self) -> None:
        connection, self._open_connection = self._open_connection, None
        if connection is not None:
            with suppress(apsw.Error):  # the disk has failed already, and was told of
                connection.close(True)

    def _claim(self, claim: LeaseRow) -> LeaseRow | None:
        with self._writing(is_owner_checked=False) as connection:
            holder = self.load_lease_row()
            if holder is not None and is_holder_alive(holder, claim):
                return holder
            connection.execute(
                self._sql["claim_owner"],
                (
                    claim.owner,
                    claim.role,
                    claim.pid,
                    claim.host,
                    claim.boot_id,
                    claim.pid_namespace,
                    claim.heartbeat_nanos,
                ),
            )
        return None

    def beat(self, *, now_nanos: int) -> None:
        """Write the owner's heartbeat. It need not survive a power loss, so it costs no fsync."""
        connection = self._connected()
        connection.pragma("synchronous", "normal")
        try:
            with self._writing() as connection:
                connection.execute(self._sql["beat_owner"], (self._owner, now_nanos))
        finally:
            if self._open_connection is not None:
                self._open_connection.pragma("synchronous", "full")

    def leave(self) -> None:
        """Give the ownership back and close. Idempotent."""
        if self._open_connection is None:
            return
        try:
            with self._writing() as connection:
                connection.execute(self._sql["release_owner"], (self._owner,))
        finally:
            self.close()

    # --- appends -----------------------------------------------------------------------------------

    def append(self, requests: Sequence[AppendRequest], *, now_nanos: int) -> tuple[AppendOutcome, ...]:
        """See ``EventLog``."""
        if len(self._heads) > limits.RUN_CACHE_MAX:
            self._heads.clear()
        head_before = self.load_head_local_position()
        group: AppendGroup | None = None
        try:
            with self._writing() as connection:
                group = AppendGroup(
                    connection,
                    heads=self._heads,
                    hub_limits=self._hub_limits,
                    head_local_position=head_before,
                    log_bytes=self._log_bytes(connection),
                    log_bytes_max=self._log_bytes_max,
                )
                outcomes = tuple(group.append(request, now_nanos=now_nanos) for request in requests)
                group.write()
        except LogOutcomeUnknownError as error:
            self._settle_unknown(head_before, error)
            raise
        self._heads.update(group.heads)
        return outcomes

    def _settle_unknown(self, head_before: int, error: LogOutcomeUnknownError) -> None:
        """Look again after a failed COMMIT: what is not there was certainly not written.

        What is there may still not be on stable storage, and stays unknown.
        """
        try:
            head_now = self.load_head_local_position()
        except LogStorageError:
            return
        if head_now == head_before:
            raise LogStorageError(self._path, error.cause) from error

    # --- small writes ------------------------------------------------------------------------------

    def pin_identity(self, identity: RuntimeIdentity) -> None:
        """See ``EventLog``."""
        with self._writing() as connection:
            connection.execute(self._sql["pin_identity"], (identity.hub_project, identity.runtime_id))
            pinned = self.load_identity()
            assert pinned is not None
            folder = os.path.dirname(self._path)
            if pinned.hub_project != identity.hub_project:
                raise IdentityPinnedError(folder, "hub project", pinned.hub_project, identity.hub_project)
            if pinned.runtime_id != identity.runtime_id:
                raise IdentityPinnedError(folder, "runtime", pinned.runtime_id, identity.runtime_id)

    def save_hub_limits(self, hub_limits: HubLimits) -> None:
        """See ``EventLog``."""
        with self._writing() as connection:
            connection.execute(self._sql["save_hub_limits"], (limits_to_text(hub_limits),))
        self._hub_limits = hub_limits

    def save_hub_generation(self, hub_generation: str) -> None:
        """See ``EventLog``."""
        with self._writing() as connection:
            connection.execute(self._sql["save_hub_generation"], (hub_generation,))

    def acknowledge(
        self, acknowledgements: Sequence[Acknowledgement], *, hub_generation: str, now_nanos: int
    ) -> None:
        """See ``EventLog``."""
        with self._writing() as connection:
            stored = self.load_hub_memory().hub_generation
            if stored != hub_generation:
                raise HubGenerationChangedError(stored, hub_generation)
            for each in acknowledgements:
                self._mark(connection, "move_acknowledged", each=each, now_nanos=now_nanos)
            connection.execute(self._sql["save_acknowledge_time"], (now_nanos,))

    def reset_acknowledged(self, acknowledgements: Sequence[Acknowledgement], *, now_nanos: int) -> None:
        """See ``EventLog``."""
        with self._writing() as connection:
            for each in acknowledgements:
                run_number = self._mark(connection, "set_acknowledged", each=each, now_nanos=now_nanos)
                if run_number is not None:
                    connection.execute(self._sql["lower_marks"], (run_number, each.sequence))

    def _mark(
        self, connection: apsw.Connection, name: str, *, each: Acknowledgement, now_nanos: int
    ) -> int | None:
        """Move a run's acknowledged sequence and remember the hour; None where nothing moved."""
        row = cast(
            tuple[int, int] | None,
            connection.execute(
                self._sql[name], (each.run.project_id, each.run.run_id, each.sequence)
            ).fetchone(),
        )
        if row is None:
            return None
        run_number, sequence = row
        hour = now_nanos - now_nanos % limits.ACKNOWLEDGE_BUCKET_NANOS
        connection.execute(self._sql["save_mark"], (hour, run_number, sequence))
        return run_number

    # --- whole runs (run_changes.py) ---------------------------------------------------------------

    def take_in(
        self, run: RunKey, events: Sequence[FetchedEvent], *, chain_hash: bytes | None, now_nanos: int
    ) -> RunState:
        """See ``EventLog``."""
        with self._writing() as connection:
            run_changes.take_in(connection, run, events=events, chain_hash=chain_hash, now_nanos=now_nanos)
        return self._changed(run)

    def quarantine(
        self, run: RunKey, *, reason: str, detail: str, sequence: int, now_nanos: int
    ) -> RunState | None:
        """See ``EventLog``."""
        with self._writing() as connection:
            head = run_changes.load_head(connection, run)
            if head is None:
                return None
            connection.execute(
                self._sql["insert_quarantine"], (head.run_number, reason, detail, sequence, now_nanos)
            )
        return self._changed(run)

    def release(self, run: RunKey) -> RunState:
        """See ``EventLog``."""
        with self._writing() as connection:
            run_number = run_changes.quarantined_run_number(connection, run, state=self.load_run(run))
            connection.execute(self._sql["delete_quarantine"], (run_number,))
        return self._changed(run)

    def release_as(self, run: RunKey, as_run_id: str, *, now_nanos: int) -> int:
        """See ``EventLog``."""
        with self._writing() as connection:
            return run_changes.copy_to_new_run(
                connection,
                run,
                new_run=RunKey(run.project_id, as_run_id),
                state=self.load_run(run),
                hub_limits=self._hub_limits,
                now_nanos=now_nanos,
            )

    def drop(self, run: RunKey) -> int:
        """See ``EventLog``."""
        with self._writing() as connection:
            state = self.load_run(run)
            run_number = run_changes.quarantined_run_number(connection, run, state=state)
            for name in (
                "delete_events",
                "delete_receipts",
                "delete_marks",
                "delete_quarantine",
                "delete_run",
            ):
                connection.execute(self._sql[name], (run_number,))
        self._heads.pop(run, None)
        assert state is not None
        return state.last_sequence

    def drop_payloads(self, *, acknowledged_before_nanos: int, limit: int) -> int:
        """See ``EventLog``."""
        with self._writing() as connection:
            return run_changes.drop_payloads(
                connection, acknowledged_before_nanos=acknowledged_before_nanos, limit=limit
            )

    def _changed(self, run: RunKey) -> RunState:
        self._heads.pop(run, None)
        state = self.load_run(run)
        assert state is not None
        return state
