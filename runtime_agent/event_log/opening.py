"""Taking a data folder: the lock, then the log, then its ownership; and giving all of it back."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from runtime_agent import limits
from runtime_agent.core.errors import AlreadyRunningError, LogError, LogOwnerLostError, LogStorageError
from runtime_agent.event_log.process_lease import LeaseRow, ProcessLock, describe_this_process
from runtime_agent.event_log.schema import Connect, connect_with_apsw
from runtime_agent.event_log.sqlite_log import SqliteEventLog
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader


@dataclass(frozen=True, slots=True)
class OwnedLog:
    """The log of a folder that this process holds."""

    folder: str
    lock: ProcessLock
    log: SqliteEventLog

    def close(self) -> None:
        """Give ownership and lock back. Idempotent."""
        try:
            # What cannot be written down any more does no harm: the lock decides.
            with suppress(LogOwnerLostError, LogStorageError, LogError):
                self.log.leave()
        finally:
            self.log.close()
            self.lock.release()


def take_folder(
    folder: str,
    *,
    role: str,
    wait_seconds: float = 0.0,
    connect: Connect = connect_with_apsw,
    log_bytes_max: int = limits.LOG_BYTES_MAX,
    wall_clock_nanos: Callable[[], int] = time.time_ns,
    monotonic_seconds: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> OwnedLog:
    """Take the folder (made where it is missing), waiting at most ``wait_seconds`` for its holder.

    Raises: AlreadyRunningError with the holder's pid; LogForeignError, LogNewerError, LogStorageError.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise LogStorageError(folder, error.strerror or str(error)) from error
    deadline = monotonic_seconds() + wait_seconds
    while True:
        taken = _try_take(
            folder, role, connect=connect, log_bytes_max=log_bytes_max, now_nanos=wall_clock_nanos()
        )
        if isinstance(taken, OwnedLog):
            return taken
        if monotonic_seconds() >= deadline:
            if taken is None:
                raise AlreadyRunningError(folder, "", 0, "")
            raise AlreadyRunningError(folder, taken.role, taken.pid, taken.host)
        sleep(limits.PROCESS_LEASE_RETRY_SECONDS)


def _try_take(
    folder: str, role: str, *, connect: Connect, log_bytes_max: int, now_nanos: int
) -> OwnedLog | LeaseRow | None:
    """Take the folder, or return the row of who holds it (None where it cannot be read)."""
    try:
        lock = ProcessLock.try_acquire(folder)
    except OSError as error:
        raise LogStorageError(folder, error.strerror or str(error)) from error
    if lock is None:
        return load_holder(folder)
    try:
        claim = describe_this_process(role, now_nanos=now_nanos)
        log = SqliteEventLog.open_owned(folder, claim, connect=connect, log_bytes_max=log_bytes_max)
    except BaseException:
        lock.release()
        raise
    if isinstance(log, LeaseRow):
        lock.release()
        return log
    return OwnedLog(folder, lock, log)


def load_holder(folder: str) -> LeaseRow | None:
    """Return who wrote itself down as holding the folder, None where nobody did or it cannot be read."""
    try:
        reader = SqliteEventLogReader.open(folder)
    except LogError:
        return None
    try:
        return reader.load_lease_row()
    except LogError:
        return None
    finally:
        reader.close()
