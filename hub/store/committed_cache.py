"""A cache whose entries move only with the transaction that wrote them.

What a transaction reads and writes is staged; COMMIT takes it over, a rollback forgets it, and undoing
to a savepoint forgets what was staged since. Bounded: the entry used longest ago makes room.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class CommittedCache(Generic[Key, Value]):
    """Entries as of the last COMMIT, with those of the open transaction staged above them."""

    def __init__(self, entries_max: int) -> None:
        """Begin empty; keep at most so many committed entries."""
        self._entries_max = entries_max
        self._committed: OrderedDict[Key, Value] = OrderedDict()
        self._staged: dict[Key, Value] = {}
        self._undo: list[tuple[Key, Value | None]] | None = None

    def __len__(self) -> int:
        return len(self._committed)

    def get(self, key: Key) -> Value | None:
        """Return the entry as the open transaction sees it, None where it is not cached."""
        staged = self._staged.get(key)
        if staged is not None:
            return staged
        committed = self._committed.get(key)
        if committed is not None:
            self._committed.move_to_end(key)
        return committed

    def put(self, key: Key, value: Value) -> None:
        """Stage an entry that the open transaction read or wrote."""
        if self._undo is not None:
            self._undo.append((key, self._staged.get(key)))
        self._staged[key] = value

    def set_savepoint(self) -> None:
        """Mark the point to which ``undo_to_savepoint`` returns."""
        self._undo = []

    def undo_to_savepoint(self) -> None:
        """Forget what was staged since the savepoint."""
        for key, before in reversed(self._undo or []):
            if before is None:
                self._staged.pop(key, None)
            else:
                self._staged[key] = before
        self._undo = None

    def commit(self) -> None:
        """Take over what is staged."""
        for key, value in self._staged.items():
            self._committed[key] = value
            self._committed.move_to_end(key)
        self._staged.clear()
        self._undo = None
        while len(self._committed) > self._entries_max:
            self._committed.popitem(last=False)

    def rollback(self) -> None:
        """Forget what is staged."""
        self._staged.clear()
        self._undo = None

    def clear(self) -> None:
        """Forget everything, as after a COMMIT whose outcome is unknown.

        Within a command, what is staged after this is still forgotten where the command is undone.
        """
        is_within_command = self._undo is not None
        self.rollback()
        self._committed.clear()
        if is_within_command:
            self._undo = []
