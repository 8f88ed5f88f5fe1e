"""The file that a new token goes to: of one user alone, and never in the place of another file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.cli.output import CommandFailed

FILE_MODE = 0o600
"""Mode of a file that holds a token."""


@contextmanager
def token_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Make the file, and give what writes the token into it, durably; without a token no file stays.

    It is made before there is a token: one that could not be kept would be lost.

    Raises: CommandFailed where something is there already, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError as error:
        hint = "It is never overwritten: give another name."
        raise CommandFailed(f"{path} is there already", hint=hint) from error
    except OSError as error:
        raise CommandFailed(f"cannot make {path}: {error.strerror}") from error
    is_written = False

    def write(token: str) -> None:
        nonlocal is_written
        with os.fdopen(os.dup(descriptor), "w", encoding="ascii") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(descriptor)
        is_written = True

    try:
        yield write
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
        if not is_written:
            path.unlink(missing_ok=True)
