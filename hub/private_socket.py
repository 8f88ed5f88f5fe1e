"""The path of a socket that only the hub's own user reaches, for the calls that a hub makes to itself.

Belongs to the composition root (``hub.app``).
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hub.core.errors import StartRefused

SOCKET_NAME: Final = "hub.sock"
FOLDER_MODE: Final = 0o700
PATH_BYTES_MAX: Final = 100
"""What every system takes as the path of a socket."""
SHORT_BASE: Final = Path("/tmp")
"""Taken where the path of the usual temporary folder is too long."""
_NAME_DIGITS: Final = 12


@contextmanager
def private_socket(database: Path) -> Iterator[Path]:
    """Give the path of a socket in a folder of the user alone, for the length of the block.

    One hub a store has it, which the store's lock sees to; so a hub that was killed leaves a folder that the
    next one uses.

    Raises: StartRefused where no folder can be made, or its path is too long.
    """
    digest = hashlib.sha256(os.fsencode(database)).hexdigest()[:_NAME_DIGITS]
    name = f"synchub-{os.getuid()}-{digest}"
    base = _base_for(name)
    folder = base / name
    try:
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)
        if not _is_own(folder):
            # Somebody else was here first: take a folder that nobody can foresee.
            folder = Path(tempfile.mkdtemp(prefix="synchub-", dir=base))
    except OSError as error:
        sentence = f"cannot make a temporary folder {folder}: {error.strerror}."
        raise StartRefused(sentence, "Give a folder that may be written in TMPDIR.") from error
    socket = folder / SOCKET_NAME
    try:
        socket.unlink(missing_ok=True)
        yield socket
    finally:
        with suppress(OSError):
            socket.unlink(missing_ok=True)
            folder.rmdir()


def _base_for(name: str) -> Path:
    """Return where a folder of this name goes so that the path of a socket in it is not too long.

    Raises: StartRefused.
    """
    for base in (Path(tempfile.gettempdir()), SHORT_BASE):
        if len(os.fsencode(base / name / SOCKET_NAME)) <= PATH_BYTES_MAX and base.is_dir():
            return base
    sentence = f"no temporary folder has a path short enough for a socket: {PATH_BYTES_MAX} bytes fit."
    raise StartRefused(sentence, "Give one that is there, with a shorter path, in TMPDIR.")


def _is_own(folder: Path) -> bool:
    """Whether it is a folder of this user that nobody else may enter."""
    found = folder.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    return is_folder and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == FOLDER_MODE
