"""Where the credential of a maintenance lies between ``begin`` and ``finish``: a file of one user.

Its nonce is a secret: it is never printed, and never an argument, which other users could see. The file
is there before the hub is asked, so that an answer that gets lost loses nothing.
"""

import hashlib
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Final

from hub.cli.output import CommandFailed
from synchub.v1.lease_service_pb2 import LeaseCredential

NONCE_BYTES: Final = 24
"""Randomness of a nonce."""
_NAME_CHARACTERS_MAX: Final = 40


def new_nonce() -> str:
    """Return a new secret."""
    return secrets.token_urlsafe(NONCE_BYTES)


def default_path(hub_generation: str, *, hub_project: str, resource: str) -> Path:
    """Return where the credential lies if nobody says where: in the user's folder for state.

    The name stands for one life of one hub's store, so that neither two hubs nor the time before a
    restore are mixed up.
    """
    folder = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    key = "\0".join((hub_generation, hub_project, resource))
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", resource)[:_NAME_CHARACTERS_MAX]
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return folder / "synchub" / "maintenance" / f"{readable}-{digest}.json"


def read(path: Path) -> LeaseCredential | None:
    """Return the credential that a file holds; None where there is no file. Raises: CommandFailed."""
    try:
        loaded = json.loads(path.read_bytes())
        return LeaseCredential(**loaded)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        # Not with what is wrong in it: that may be the secret.
        raise CommandFailed(f"{path} is not the credential of a maintenance") from error


def write(path: Path, credential: LeaseCredential) -> None:
    """Put a credential into a file that nobody but its user can read. Raises: CommandFailed."""
    fields = {field.name: value for field, value in credential.ListFields()}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It is made with 0600 under another name, and the rename makes it appear whole.
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(fields, file, ensure_ascii=False)
                file.write("\n")
            Path(part).replace(path)
        except OSError:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a credential that opens nothing any more. Raises: CommandFailed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot remove {path}: {error.strerror}") from error
