"""What a backup may be called, and how far one is."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

FILE_NAME_BYTES_MAX: Final = 200
"""Longest name of a backup; some more is put behind it while it is being written."""
PART_ENDING: Final = ".part"
"""Behind the name of what is not whole yet."""
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_TAKEN_ENDINGS: Final = (PART_ENDING, ".lock", "-wal", "-shm", "-journal")


class BackupPhase(Enum):
    """What is being done; ``DONE`` once the backup is whole, verified and on stable storage."""

    COPY = 1
    VERIFY = 2
    DONE = 3


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a backup is, in a unit of its phase's own: bytes copied, then events verified.

    ``total_count`` is 0 while it is not known; ``size_bytes`` is known at the end.
    """

    phase: BackupPhase
    done_count: int
    total_count: int
    size_bytes: int = 0


class Stopped(Exception):
    """Whoever wanted something long done wants it no more; nothing of it is left."""


def file_name_fault(name: str) -> str | None:
    """Say what keeps ``name`` from being the name of a backup, or None where it is one.

    Returns: a phrase that completes "<field> …".
    """
    if not _FILE_NAME.fullmatch(name):
        return "is no file name of letters, digits and . _ + @ -, the first one a letter, digit or _"
    if len(name) > FILE_NAME_BYTES_MAX:
        return f"has {len(name)} bytes; at most {FILE_NAME_BYTES_MAX} are allowed"
    if name.lower().endswith(_TAKEN_ENDINGS):
        return "ends like a file that is kept beside another"
    return None


def default_file_name(digits: str) -> str:
    """Return the name of a backup of which nobody said one, with the time when it began."""
    return f"synchub-{digits}.db"
