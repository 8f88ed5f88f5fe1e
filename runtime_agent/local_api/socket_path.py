"""Where the agent's socket lies, and what gRPC is told to bind or dial.

The kernel takes at most 107 bytes as the path of a Unix socket, and gRPC reads its targets as URIs.
A path that is longer, or has characters that mean something in a URI, is reached through a
descriptor of its folder (``/proc/self/fd/N/agent.sock``), which is short and plain.
"""

import os
import re
from pathlib import Path
from typing import Final

from runtime_agent import limits
from runtime_agent.core.errors import UsageError

SOCKET_NAME: Final = "agent.sock"
"""The socket's file in the data folder."""

_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9/._-]*")
_DESCRIPTORS: Final = Path("/proc/self/fd")


class SocketPath:
    """The socket of a data folder; ``target`` is good from making this to ``close``."""

    def __init__(self, folder: str) -> None:
        """Raises: UsageError where the path is too long and there is no way around it."""
        self.path = str(Path(folder).resolve() / SOCKET_NAME)
        self._descriptor = -1
        if len(os.fsencode(self.path)) <= limits.SOCKET_PATH_BYTES_MAX and _PLAIN_PATH.fullmatch(self.path):
            self.target = f"unix:{self.path}"
            return
        if not _DESCRIPTORS.is_dir():
            raise UsageError(
                f"the path {self.path} is longer than {limits.SOCKET_PATH_BYTES_MAX} bytes or has unusual "
                "characters; give a data folder with a short and plain path"
            )
        self._descriptor = os.open(Path(self.path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.target = f"unix:{_DESCRIPTORS}/{self._descriptor}/{SOCKET_NAME}"

    def close(self) -> None:
        """Let the descriptor go. Idempotent; nothing may be dialled or bound by it any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
