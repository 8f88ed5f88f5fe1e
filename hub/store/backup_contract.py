"""What services may rely on when they take backups, the same over every engine."""

from collections.abc import Callable, Generator
from typing import Protocol

from hub.core.backup import BackupProgress


class BackupMaker(Protocol):
    """Takes backups of the whole store."""

    def take(
        self, file_name: str, *, is_stopping: Callable[[], bool]
    ) -> Generator[BackupProgress, None, None]:
        """Take a backup while the hub goes on; each step takes a moment, for a thread of its own.

        The last step says ``DONE``: the file is whole, verified and on stable storage. Closing the
        iterator before leaves nothing. ``is_stopping`` is asked now and then; where it says so, or
        anything fails, nothing is left either.

        Raises: IdempotencyConflict where the name is taken; StorageUnavailable; Stopped.
        """
