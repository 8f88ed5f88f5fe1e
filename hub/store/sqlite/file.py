"""The database file: who may open it, whether it is ours, whether its schema is what we think.

A wrong ``--db`` is never written to: a file is looked at before SQLite opens it, and only an empty or
absent file becomes a new store.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from hub.core.errors import StartRefused, StoreInUse
from hub.store.sql_files import load_migrations
from hub.store.sqlite.session import problem_of

APPLICATION_ID = 0x53594E48
"""Marks a file as a hub's store ("SYNH"); stands in the file's header."""
BACKUP_APPLICATION_ID = 0x53594E42
"""Marks a file as the backup of one ("SYNB"), so that no hub serves it before it was restored."""
MIGRATIONS_PACKAGE = "hub.store.sqlite.migrations"
WAL_PAGES_CHECKPOINT = 4_000
"""The WAL is folded into the file after so many pages (16 MB)."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""A WAL that grew larger is cut back to this after a checkpoint."""
WRITER_CACHE_KIB = 64 * 1024
READER_CACHE_KIB = 8 * 1024

FILE_MODE = 0o600
"""Mode of a new store."""

COMPANION_ENDINGS = ("-wal", "-shm", "-journal")
"""Files that SQLite has beside a database, by the ends of their names."""

_HEADER_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_APPLICATION_ID_OFFSET = 68


@contextmanager
def exclusive_lock(database: Path) -> Iterator[None]:
    """Hold the lock that makes this process the only hub of the file, for the length of the block.

    The lock is the operating system's on a file beside the database, so it ends with the process.

    Raises: StoreInUse with the pid of the hub that has it; StartRefused.
    """
    lock_path = database.with_name(database.name + ".lock")
    if not database.parent.is_dir():
        sentence = f"the folder {database.parent} of the store is not there."
        raise StartRefused(sentence, "Make it, or give another --db.")
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        sentence = f"cannot open the lock file {lock_path}: {error.strerror}."
        raise StartRefused(sentence, "Check that the folder exists and may be written.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        sentence = f"another hub (pid {pid}) already serves {database}."
        raise StoreInUse(sentence, "Stop it first, or give this one another --db.", pid) from error
    try:
        # On a full disk the lock holds as well; only whose it is cannot be told.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def connect(database: Path, *, busy_timeout_seconds: float, is_writer: bool) -> apsw.Connection:
    """Open a connection with the pragmas that durability and speed rest on."""
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(round(busy_timeout_seconds * 1000))
    cache_kib = WRITER_CACHE_KIB if is_writer else READER_CACHE_KIB
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA foreign_keys = ON")
    # An acknowledgement survives power loss: the WAL is synced at every COMMIT.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA trusted_schema = OFF")
    # A plan never rests on the values of parameters. Without this, SQLite prepares most joins anew at each
    # run, in case other values ask for another plan; that took longer than the joins themselves.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # Only the writer checkpoints, so a reader never holds up a COMMIT.
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_CHECKPOINT if is_writer else 0}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    if not is_writer:
        connection.execute("PRAGMA query_only = ON")
    return connection


def is_served(database: Path) -> bool:
    """Whether a hub has the file's lock now; nothing is made or changed."""
    try:
        descriptor = os.open(database.with_name(database.name + ".lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def connect_for_reading(database: Path, *, busy_timeout_seconds: float) -> apsw.Connection:
    """Open a connection that leaves the file as it is, also when it is the last one that closes."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(round(busy_timeout_seconds * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    return connection


def prepare(database: Path, *, busy_timeout_seconds: float) -> int:
    """Make the file a store of the newest schema: create it, or migrate and check what is there.

    Call with ``exclusive_lock`` held. Each migration is one transaction. Returns the schema that it had, 0
    for a new one.

    Raises: StartRefused where the file is not a hub's, is newer than this program, is not in WAL mode,
    or has another schema than its migrations make.
    """
    application_id = application_id_of(database)
    if application_id == BACKUP_APPLICATION_ID:
        sentence = f"{database} is a backup of a hub's store."
        raise StartRefused(sentence, "Make a store of it: synchub restore BACKUP --db NEW.")
    try:
        connection = connect(database, busy_timeout_seconds=busy_timeout_seconds, is_writer=True)
        try:
            # Also one that somebody began to make and did not come far with.
            if application_id is None or _is_empty(connection):
                # The WAL gets the mode of the file. Payloads are nobody's but the hub's user's.
                database.chmod(FILE_MODE)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("PRAGMA journal_mode = WAL")
            refuse_other_journal_mode(connection, database)
            return migrate(connection, database)
        finally:
            connection.close(True)
    except apsw.Error as error:
        sentence = f"cannot open the store {database}: {problem_of(error, str(database))} ({error})."
        raise StartRefused(sentence, "Check the disk, the file's permissions and free space.") from error


def schema_after(migration_count: int) -> list[tuple[str, str, str]]:
    """Return (type, name, SQL) of all that the first so many migrations make, sorted."""
    connection = apsw.Connection(":memory:")
    try:
        for _, script in load_migrations(MIGRATIONS_PACKAGE)[:migration_count]:
            connection.execute(script)
        return _schema_of(connection)
    finally:
        connection.close(True)


def application_id_of(database: Path) -> int | None:
    """Return what marks a file as a store or as a backup of one, None where it is absent or empty.

    Not for a file that this process has open: closing a second descriptor gives up SQLite's locks.

    Raises: StartRefused where it is somebody else's.
    """
    hint = "Give the path of a hub's store; a new one is made only in a file that is not there."
    try:
        with database.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartRefused(f"cannot read {database}: {error.strerror}.", hint) from error
    if not header:
        return None
    if not header.startswith(_HEADER_MAGIC) or len(header) < _HEADER_BYTES:
        raise StartRefused(f"{database} is not a database of SQLite.", hint)
    (application_id,) = struct.unpack_from(">I", header, _APPLICATION_ID_OFFSET)
    if application_id not in (APPLICATION_ID, BACKUP_APPLICATION_ID):
        raise StartRefused(f"{database} is a database, but not a hub's store.", hint)
    return int(application_id)


def application_id_there(database: Path, what: str = "store") -> int:
    """Return what marks a file, which has to be there, as a store or as a backup of one.

    Raises: StartRefused, also where it is absent or empty; ``what`` names it.
    """
    application_id = application_id_of(database)
    if application_id is None:
        why = "is empty" if database.exists() else "is not there"
        raise StartRefused(f"the {what} {database} {why}.", f"Give the path of a hub's {what}.")
    return application_id


def refuse_other_journal_mode(connection: apsw.Connection, database: Path) -> None:
    """Return where a store has the journal mode that durability rests on.

    Raises: StartRefused.
    """
    mode = connection.pragma("journal_mode")
    if mode != "wal":
        sentence = f"the store {database} is in journal mode {mode!r}, not 'wal'."
        raise StartRefused(sentence, "Somebody changed it: run PRAGMA journal_mode = WAL on it.")


def schema_version_newest() -> int:
    """Return the newest schema that this program knows."""
    return len(load_migrations(MIGRATIONS_PACKAGE))


def schema_version_of(connection: apsw.Connection, database: Path) -> tuple[int, int]:
    """Return which schema a store has, and the newest that this program knows.

    Raises: StartRefused where it is newer than that.
    """
    newest = schema_version_newest()
    version = int(str(connection.pragma("user_version")))
    if version > newest:
        sentence = f"the store {database} has schema {version}; this program knows {newest}."
        raise StartRefused(sentence, "Start a newer version of the hub.")
    return version, newest


def is_schema_as_migrated(connection: apsw.Connection, version: int) -> bool:
    """Whether a store has what its migrations make, and nothing else."""
    return _schema_of(connection) == schema_after(version)


def migrate(connection: apsw.Connection, database: Path) -> int:
    """Apply the migrations that are missing, after the schema that is there was checked; return which it was.

    Raises: StartRefused where it is newer than this program, or not the one that its migrations make.
    """
    version, _ = schema_version_of(connection, database)
    if not is_schema_as_migrated(connection, version):
        sentence = f"the schema of {database} is not the one that its migrations make."
        raise StartRefused(sentence, "Somebody changed it by hand: undo that, or restore a backup.")
    for number, script in load_migrations(MIGRATIONS_PACKAGE)[version:]:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(script)
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    return version


def _is_empty(connection: apsw.Connection) -> bool:
    return int(str(connection.pragma("user_version"))) == 0 and not _schema_of(connection)


def _schema_of(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    )
    return sorted((str(kind), str(name), str(sql)) for kind, name, sql in rows)
