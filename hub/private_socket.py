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
_NAME_DIGITS: Final = 12


@contextmanager
def private_socket(database: Path) -> Iterator[Path]:
    """Give the path of a socket in a folder of the user alone, for the length of the block.

    One hub a store has it, which the store's lock sees to; so a hub that was killed leaves a folder that the
    next one uses.

    Raises: StartRefused where no folder can be made.
    """
    digest = hashlib.sha256(os.fsencode(database)).hexdigest()[:_NAME_DIGITS]
    folder = Path(tempfile.gettempdir()) / f"synchub-{os.getuid()}-{digest}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)
        if not _is_own(folder):
            # Somebody else was here first: take a folder that nobody can foresee.
            folder = Path(tempfile.mkdtemp(prefix="synchub-"))
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


def _is_own(folder: Path) -> bool:
    """Whether it is a folder of this user that nobody else may enter."""
    found = folder.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    return is_folder and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == FOLDER_MODE
