"""Restores: a new life of a store, begun in one transaction, in a new file or in place.

Whoever knew the store before learns of it: positions of the lost tail do not hold any more, tokens go on
above all that could have been given, and nobody holds anything.
"""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import apsw

from hub.core.backup import BackupProgress
from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.core.restore import Restored, token_floor_of
from hub.store.session import SqlValue
from hub.store.sql_files import load_statements
from hub.store.sqlite import file
from hub.store.sqlite.backup import copy_pages, sync_file, sync_folder, unfinished, verified

_STATEMENTS: Final = load_statements("hub.store.sqlite", "operations.sql", "leases.sql", "writing.sql")


@dataclass(frozen=True, slots=True)
class Restore:
    """What the new life begins with; ``wall_nanos`` is the time of the wall clock."""

    hub_generation: str
    wall_nanos: int
    are_credentials_kept: bool = False


def restore_backup(
    backup: Path,
    database: Path,
    *,
    restore: Restore,
    limits: Limits,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Generator[BackupProgress | Restored, None, None]:
    """Make a store of a backup, in a file that must not be there yet; the last thing given is what was done.

    The file appears when all is done; where anything fails, or it is stopped, nothing is left.

    Raises: StartRefused; FileExistsError; BackupDamaged; Stopped; OSError and apsw.Error.
    """
    file.application_id_there(backup, "backup")
    _refuse_taken(database)
    if file.is_served(backup):
        sentence = f"a hub serves {backup}: it is no backup."
        raise StartRefused(sentence, "Take one: synchub backup --db FILE --to BACKUP.")
    with file.exclusive_lock(database):
        _refuse_taken(database)
        with unfinished(database) as part:
            yield from copy_pages(backup, part, limits=limits, is_stopping=is_stopping)
            connection = file.connect(part, busy_timeout_seconds=limits.busy_timeout_seconds, is_writer=True)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                schema_before = file.migrate(connection, backup)
                yield from verified(part, limits=limits, is_stopping=is_stopping)
                restored = _begin_new_life(connection, restore, schema_before=schema_before)
            finally:
                connection.close(True)
            sync_file(part)
            # Under the lock nobody of ours makes the file meanwhile; and so it never has two names.
            _refuse_taken(database)
            part.rename(database)
            sync_folder(database.parent)
    yield restored


def restore_in_place(
    database: Path,
    *,
    restore: Restore,
    limits: Limits,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Generator[BackupProgress | Restored, None, None]:
    """Begin a new life of a store that somebody restored by other means, such as a copied file.

    Raises: StartRefused; BackupDamaged; Stopped; OSError and apsw.Error.
    """
    file.application_id_there(database)
    with file.exclusive_lock(database):
        # Looked at under the lock, and before SQLite has the file open.
        is_backup = file.application_id_of(database) == file.BACKUP_APPLICATION_ID
        _put_right(database, limits=limits)
        yield from verified(database, limits=limits, is_stopping=is_stopping)
        connection = file.connect(database, busy_timeout_seconds=limits.busy_timeout_seconds, is_writer=True)
        try:
            if is_backup:
                # It is not served before the transaction below makes a store of it.
                connection.execute("PRAGMA journal_mode = WAL")
            file.refuse_other_journal_mode(connection, database)
            schema_before = file.migrate(connection, database)
            restored = _begin_new_life(connection, restore, schema_before=schema_before)
        finally:
            connection.close(True)
    yield restored


def _begin_new_life(connection: apsw.Connection, restore: Restore, *, schema_before: int) -> Restored:
    """Begin a generation, above all tokens that could have been given, in one transaction."""

    def run(statement: str, **parameters: SqlValue) -> list[tuple[SqlValue, ...]]:
        return list(connection.execute(_STATEMENTS[statement], parameters))

    with connection:  # commits, or undoes all of it
        before = cast("list[tuple[str]]", run("load_generation"))
        ((floor_nanos,),) = cast("list[tuple[int]]", run("load_time_floor"))
        now_nanos = max(floor_nanos, restore.wall_nanos)
        run("raise_time_floor", now_nanos=now_nanos)
        ((highest,),) = cast("list[tuple[int]]", run("highest_token_or_epoch"))
        token_floor = token_floor_of(highest, now_nanos=now_nanos)
        run("raise_floor_of_hub", floor=token_floor)
        run("raise_floors_of_tenants", floor=token_floor)
        run("end_all_tenures", now_nanos=now_nanos)
        ended_count = connection.changes()
        run("count_changes_of_tenures")
        run("drop_all_receipts")
        dropped_count = connection.changes()
        revoked_count = 0
        if not restore.are_credentials_kept:
            run("revoke_all_tokens", now_nanos=now_nanos)
            revoked_count = connection.changes()
        ((kept_count,),) = cast("list[tuple[int]]", run("count_live_tokens"))
        run("begin_generation", hub_generation=restore.hub_generation, start_nanos=now_nanos)
        run("begin_generation_heads")
        heads = cast("list[tuple[str, int, int]]", run("heads_of_generation"))
        connection.execute(f"PRAGMA application_id = {file.APPLICATION_ID}")
    return Restored(
        hub_generation=restore.hub_generation,
        previous_generation=before[0][0] if before else "",
        token_floor=token_floor,
        schema_before=schema_before,
        schema_after=file.schema_version_newest(),
        ended_tenure_count=ended_count,
        dropped_receipt_count=dropped_count,
        revoked_token_count=revoked_count,
        kept_token_count=kept_count,
        is_clock_behind=restore.wall_nanos < floor_nanos,
        head_positions={name: (head, journal_head) for name, head, journal_head in heads},
    )


def _put_right(database: Path, *, limits: Limits) -> None:
    """Let SQLite undo what an interrupted restore left half written; who only reads could not."""
    connection = file.connect(database, busy_timeout_seconds=limits.busy_timeout_seconds, is_writer=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    finally:
        connection.close(True)


def _refuse_taken(database: Path) -> None:
    """Return where a file and what SQLite has beside one are not there.

    Raises: FileExistsError.
    """
    for ending in ("", *file.COMPANION_ENDINGS):
        path = database.with_name(database.name + ending)
        if os.path.lexists(path):
            raise FileExistsError(f"{path} is there already")
