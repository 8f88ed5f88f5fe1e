"""Who a person at a terminal is to the hub, when it is the person who holds something."""

import getpass
import os
import socket
from typing import Annotated, Final

import typer

RUNTIME_ID: Final = "operator"
"""The runtime of somebody who maintains a resource by hand."""

HolderOption = Annotated[
    str,
    typer.Option(
        "--holder", metavar="NAME", help="Who maintains it, as others shall see. Default: user@host."
    ),
]


def default_holder() -> str:
    """Return ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have them
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
