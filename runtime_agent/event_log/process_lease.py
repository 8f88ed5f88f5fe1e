"""One process a data folder: an operating system lock decides, a row in the log tells who it is.

The lock is held on ``agent.lock`` for the life of the process, and goes with it however it ends. The
row (role, pid, host, boot, pid namespace, heartbeat) is what the refusal of a second process says,
and the second line of defence where somebody deletes the lock file: then both would get a lock, and
the row shows the second one that the first lives; if it takes over, the first one's next write fails.
"""

import fcntl
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from runtime_agent import limits

LOCK_FILE_NAME: Final = "agent.lock"
"""The lock's file in the data folder. It stays when the process ends; only the lock counts."""

_LOCK_TRIES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The process that may write to the log, as it wrote itself down.

    ``owner`` is random; it alone is compared in every transaction. A pid means something only
    together with host, boot and pid namespace.
    """

    owner: str
    role: str
    pid: int
    host: str
    boot_id: str
    pid_namespace: str
    heartbeat_nanos: int


def describe_this_process(role: str, *, now_nanos: int) -> LeaseRow:
    """Return the row of this process, with a fresh owner."""
    boot_id = ""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    pid_namespace = ""
    with suppress(OSError):
        pid_namespace = os.readlink("/proc/self/ns/pid")
    return LeaseRow(uuid4().hex, role, os.getpid(), socket.gethostname(), boot_id, pid_namespace, now_nanos)


def is_holder_alive(row: LeaseRow, this: LeaseRow) -> bool:
    """Say whether the process of ``row`` still lives, judged by ``this`` at its ``heartbeat_nanos``.

    A pid is judged only with equal host, boot and pid namespace; one that may not be signalled is
    alive. Without a fresh heartbeat the holder counts as gone in any case: it beats every second.
    """
    age_nanos = abs(this.heartbeat_nanos - row.heartbeat_nanos)
    is_fresh = age_nanos < limits.PROCESS_LEASE_STALE_SECONDS * limits.NANOS_PER_SECOND
    same_place = (row.host, row.boot_id, row.pid_namespace) == (this.host, this.boot_id, this.pid_namespace)
    if not same_place:
        return is_fresh
    if row.pid == this.pid:
        # This very process holds it twice, or a container's first process came again.
        return False
    return is_fresh and _does_pid_live(row.pid)


def _does_pid_live(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class ProcessLock:
    """The operating system lock on a data folder; held from ``try_acquire`` to ``release``."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def try_acquire(cls, folder: str) -> "ProcessLock | None":
        """Take the lock, or return None where another process has it. Never waits.

        A file that was deleted between opening and locking is not the folder's lock any more: the
        inode is compared, and a fresh file is tried.
        """
        path = os.path.join(folder, LOCK_FILE_NAME)
        descriptor = _try_lock(path)
        return None if descriptor is None else cls(path, descriptor)

    def restore_file(self) -> None:
        """Lock the file anew where somebody deleted or replaced it, so that the lock keeps others out."""
        if _is_same_file(self._path, self._descriptor):
            return
        descriptor = _try_lock(self._path)
        if descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _try_lock(path: str) -> int | None:
    """Return a descriptor that holds the lock on the file that lies at ``path``, or None."""
    for _ in range(_LOCK_TRIES_MAX):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_same_file(path, descriptor):
            return descriptor
        os.close(descriptor)
    return None


def _is_same_file(path: str, descriptor: int) -> bool:
    try:
        on_disk = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (on_disk.st_dev, on_disk.st_ino) == (held.st_dev, held.st_ino)
