"""Backups: a copy of one state of a store, verified, as a single file that no hub takes for a store.

The copy is taken page by page from a read transaction, so that whoever writes goes on; until it ends the
WAL is not folded back beyond that transaction, and so grows by what is written meanwhile.

A file is written under a name that ends in ``.part`` and gets its own name once it is whole, verified and
on stable storage. What was interrupted leaves at most a ``.part``, which the next one takes away.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw
import structlog

from hub.core.backup import PART_ENDING, BackupPhase, BackupProgress, Stopped
from hub.core.errors import IdempotencyConflict, StartRefused, StorageUnavailable
from hub.core.limits import Limits
from hub.store.sqlite import file
from hub.store.sqlite.verify import verify_store

log = structlog.get_logger(__name__)

PAGES_A_STEP: Final = 1_024
"""Pages copied between two looks at whether to go on; 4 MiB."""
BYTES_BETWEEN_SYNCS: Final = 32 * 1024 * 1024
"""What is copied is synced so often: much of it at once would hold up the commits of a hub beside it."""
FINDINGS_TOLD_MAX: Final = 3
"""Findings that are told of a copy that does not verify."""

_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


class SqliteBackups:
    """Takes backups of the store of a running hub into its folder; see ``BackupMaker``."""

    def __init__(self, database: Path, folder: Path, *, limits: Limits) -> None:
        """Take away what an earlier hub left unfinished.

        Raises: StartRefused where the folder is not there.
        """
        if not folder.is_dir():
            sentence = f"the folder for backups {folder} is not there."
            raise StartRefused(sentence, "Make it, or give another --backup-folder.")
        self._database = database
        self._folder = folder
        self._limits = limits
        remove_unfinished(folder)

    def take(
        self, file_name: str, *, is_stopping: Callable[[], bool]
    ) -> Generator[BackupProgress, None, None]:
        """Take a backup; see ``BackupMaker.take``."""
        remove_unfinished(self._folder)
        try:
            yield from take_backup(
                self._database, self._folder / file_name, limits=self._limits, is_stopping=is_stopping
            )
        except FileExistsError as error:
            raise IdempotencyConflict("file_name", file_name) from error
        except BackupDamaged as error:
            log.error("backup_damaged", findings=error.findings)
            problem = f"the backup was given up, for it does not verify: {error.findings[0]}"
            raise StorageUnavailable(problem) from error
        except (OSError, apsw.Error) as error:
            log.error("backup_failed", error=type(error).__name__, detail=str(error))
            problem = "the backup cannot be written at the moment; the hub's log has the reason"
            raise StorageUnavailable(problem) from error


class BackupDamaged(Exception):
    """A copy does not verify; ``findings`` are sentences."""

    def __init__(self, findings: list[str]) -> None:
        """Keep what was found first."""
        super().__init__("; ".join(findings))
        self.findings = findings


def take_backup(
    database: Path, to: Path, *, limits: Limits, is_stopping: Callable[[], bool] = lambda: False
) -> Generator[BackupProgress, None, None]:
    """Copy a store to a file that must not be there yet, and verify it; the last progress is ``DONE``.

    Raises: FileExistsError; BackupDamaged; Stopped; OSError and apsw.Error where it cannot be written.
    """
    with unfinished(to) as part:
        yield from copy_pages(database, part, limits=limits, is_stopping=is_stopping)
        _mark_as_backup(part)
        sync_file(part)
        yield from verified(part, limits=limits, is_stopping=is_stopping)
        size_bytes = part.stat().st_size
        put_in_place(part, to)
    yield BackupProgress(BackupPhase.DONE, size_bytes, size_bytes, size_bytes)


@contextmanager
def unfinished(to: Path) -> Iterator[Path]:
    """Give an empty file beside a name that is free, which nobody else writes; it is gone after the block.

    Raises: FileExistsError where the name is taken, or somebody is writing it.
    """
    if os.path.lexists(to):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to))
    part = to.with_name(to.name + PART_ENDING)
    descriptor = _locked(part)
    try:
        _remove_companions(part)
        os.ftruncate(descriptor, 0)
        yield part
    finally:
        _remove_companions(part)
        with suppress(OSError):
            part.unlink(missing_ok=True)
        os.close(descriptor)


def copy_pages(
    database: Path, part: Path, *, limits: Limits, is_stopping: Callable[[], bool]
) -> Iterator[BackupProgress]:
    """Copy one state of a store, page by page.

    Raises: Stopped; apsw.Error; OSError.
    """
    source = file.connect_for_reading(database, busy_timeout_seconds=limits.busy_timeout_seconds)
    target = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Nothing is to be undone in a file that is thrown away where anything fails; it is synced here.
        target.execute("PRAGMA journal_mode = OFF")
        target.execute("PRAGMA synchronous = OFF")
        # With a transaction of its own the copy is of one state, and never begins anew.
        source.execute("BEGIN")
        page_bytes = int(str(source.pragma("page_size")))
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        unsynced_bytes = 0
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                if is_stopping():
                    raise Stopped
                backup.step(PAGES_A_STEP)
                unsynced_bytes += PAGES_A_STEP * page_bytes
                if unsynced_bytes >= BYTES_BETWEEN_SYNCS:
                    os.fdatasync(descriptor)
                    unsynced_bytes = 0
                done_count = (backup.page_count - backup.remaining) * page_bytes
                yield BackupProgress(BackupPhase.COPY, done_count, backup.page_count * page_bytes)
    finally:
        source.close(True)
        target.close(True)
        os.close(descriptor)


def verified(part: Path, *, limits: Limits, is_stopping: Callable[[], bool]) -> Iterator[BackupProgress]:
    """Verify a copy of which nobody else knows.

    Raises: BackupDamaged; Stopped.
    """
    findings: list[str] = []
    for progress in verify_store(part, limits=limits, is_quiet=True, is_stopping=is_stopping):
        findings += [each.sentence for each in progress.findings]
        if len(findings) >= FINDINGS_TOLD_MAX:
            break
        yield BackupProgress(BackupPhase.VERIFY, progress.event_count, progress.total_count)
    if findings:
        raise BackupDamaged(findings[:FINDINGS_TOLD_MAX])


def put_in_place(part: Path, to: Path) -> None:
    """Give a file that is whole and synced its name, durably, and never instead of another one.

    Raises: FileExistsError.
    """
    try:
        os.link(part, to)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links, and so without a way to rename that looks first.
        if os.path.lexists(to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to)) from error
        part.rename(to)
    part.unlink(missing_ok=True)
    sync_folder(to.parent)


def sync_file(path: Path) -> None:
    """Make a file durable, and let what is read next of it come from the disk itself."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Take away what was left unfinished in a folder for backups, and nobody is writing."""
    for part in folder.glob(f"*{PART_ENDING}"):
        with suppress(OSError):
            descriptor = _locked(part)
            try:
                _remove_companions(part)
                part.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
            log.info("unfinished_backup_removed", file_name=part.name)


def _mark_as_backup(part: Path) -> None:
    """Make a copy one file without a WAL, which no hub takes for its store."""
    connection = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(f"PRAGMA application_id = {file.BACKUP_APPLICATION_ID}")
    finally:
        connection.close(True)


def _locked(part: Path) -> int:
    """Open a file for writing that nobody else may read, made where it is not there, and lock it; the lock
    ends with the process.

    Raises: FileExistsError where somebody else has it, or it is another user's: in a folder of many users
    who made it first would get what is written.
    """
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, file.FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it is another user's")
            os.fchmod(descriptor, file.FILE_MODE)
            # Whoever had the lock before may have taken the file away.
            if os.path.lexists(part) and os.path.samestat(os.fstat(descriptor), os.lstat(part)):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            sentence = "it is there, and is somebody else's or being written"
            raise FileExistsError(errno.EEXIST, sentence, str(part)) from error
        os.close(descriptor)


def _remove_companions(path: Path) -> None:
    for ending in file.COMPANION_ENDINGS:
        with suppress(OSError):
            path.with_name(path.name + ending).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
