"""The path of a socket that only the hub's own user reaches, for the calls that a hub makes to itself.

Belongs to the composition root (``hub.app``).
"""

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from hub.core.errors import StartRefused

SOCKET_NAME: Final = "hub.sock"
FOLDER_MODE: Final = 0o700
PATH_BYTES_MAX: Final = 100
"""What every system takes as the path of a socket."""
SHORT_BASE: Final = Path("/tmp")
"""Taken where the path of the usual temporary folder is too long."""
LEFT_OVER_MAX: Final = 1_000
"""Folders of killed hubs that one start removes."""
TRIES_MAX: Final = 3
CHANCE: Final = "x" * 8
"""As long as what a name gets that nobody can foresee."""
_NAME_DIGITS: Final = 12


@contextmanager
def private_socket(database: Path) -> Iterator[Path]:
    """Give the path of a socket in a folder of the user alone, for the length of the block.

    The folder is locked meanwhile. What hubs left that were killed is removed: by the next hub of the store,
    or of the same user.

    Raises: StartRefused where no folder can be made.
    """
    digest = hashlib.sha256(os.fsencode(database)).hexdigest()[:_NAME_DIGITS]
    prefix = f"synchub-{os.getuid()}-"
    base = _base_for(prefix + digest)
    _remove_left_over(base, prefix)
    try:
        folder, descriptor = _locked_folder(base, prefix + digest)
    except OSError as error:
        sentence = f"cannot make a temporary folder in {base}: {error.strerror}."
        raise StartRefused(sentence, "Give a folder that may be written in TMPDIR.") from error
    socket = folder / SOCKET_NAME
    try:
        socket.unlink(missing_ok=True)
        yield socket
    finally:
        with suppress(OSError):
            socket.unlink(missing_ok=True)
            folder.rmdir()
        os.close(descriptor)


def _locked_folder(base: Path, name: str) -> tuple[Path, int]:
    """Make a folder, or take it where it is this user's and nobody has it; return it and what locks it."""
    folder = base / name
    for _ in range(TRIES_MAX):
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)
        # Another hub's start may remove what was left over at just this moment: then once more.
        with suppress(FileNotFoundError):
            descriptor = _lock(folder) if _is_own(folder) else None
            if descriptor is None:
                break
            if _is_still(folder, descriptor):
                return folder, descriptor
            os.close(descriptor)
    # Somebody else has it: take one that nobody can foresee.
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    descriptor = _lock(folder)
    if descriptor is None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return folder, descriptor


def _lock(folder: Path) -> int | None:
    """Return an open folder that this process alone has locked, None where another one has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_still(folder: Path, descriptor: int) -> bool:
    """Whether what was opened is what the path leads to."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _remove_left_over(base: Path, prefix: str) -> None:
    """Remove folders of hubs of this user that were killed; whatever cannot be removed stays."""
    with suppress(OSError):
        for folder in islice(base.glob(f"{prefix}*"), LEFT_OVER_MAX):
            # Without a socket it may be that of a hub that just starts.
            if not (folder / SOCKET_NAME).exists() or not _is_own(folder):
                continue
            descriptor = _lock(folder)
            if descriptor is None:
                continue
            try:
                with suppress(OSError):
                    (folder / SOCKET_NAME).unlink(missing_ok=True)
                    folder.rmdir()
            finally:
                os.close(descriptor)


def _base_for(name: str) -> Path:
    """Return where a folder of this name goes so that the path of a socket in it is not too long.

    Raises: StartRefused.
    """
    for base in (Path(tempfile.gettempdir()), SHORT_BASE):
        longest = base / f"{name}-{CHANCE}" / SOCKET_NAME
        if len(os.fsencode(longest)) <= PATH_BYTES_MAX and base.is_dir():
            return base
    sentence = f"no temporary folder has a path short enough for a socket: {PATH_BYTES_MAX} bytes fit."
    raise StartRefused(sentence, "Give one that is there, with a shorter path, in TMPDIR.")


def _is_own(folder: Path) -> bool:
    """Whether it is a folder of this user that nobody else may enter."""
    found = folder.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    return is_folder and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == FOLDER_MODE
