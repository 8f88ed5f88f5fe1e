"""What the open transaction changed, for those who watch; undone commands leave no trace in it."""

from typing import Protocol

from hub.core.values import HubProject
from hub.store.contract import Changes


class Staged(Protocol):
    """Something in memory that follows the open transaction: its changes, the caches."""

    def set_savepoint(self) -> None:
        """Mark the point to which ``undo_to_savepoint`` returns."""

    def undo_to_savepoint(self) -> None:
        """Forget what was staged since the savepoint."""

    def commit(self) -> None:
        """Take over what is staged."""

    def rollback(self) -> None:
        """Forget what is staged."""

    def clear(self) -> None:
        """Forget everything, as after a COMMIT whose outcome is unknown."""


class StagedChanges:
    """Changes of the open transaction.

    A position that an undone command had taken is given to another event later, so it must never be
    announced: who watches would take it for seen.
    """

    def __init__(self) -> None:
        """Begin with nothing changed."""
        self._kept = Changes()
        self.of_command = Changes()
        """What changed since the last savepoint."""

    def set_savepoint(self) -> None:
        """Keep what changed so far, and begin a command."""
        kept, command = self._kept, self.of_command
        for hub_project, position in command.previous_positions.items():
            kept.previous_positions.setdefault(hub_project, position)
        kept.head_positions.update(command.head_positions)
        kept.runs |= command.runs
        kept.alerts |= command.alerts
        kept.instances.update(command.instances)
        if command.resources:
            kept.resources.update(command.resources)
            _add_counts(kept.tenures_begun, command.tenures_begun)
            _add_counts(kept.tenures_expired, command.tenures_expired)
        kept.journal_head_positions.update(command.journal_head_positions)
        kept.tokens.update(command.tokens)
        self.of_command = Changes()

    def undo_to_savepoint(self) -> None:
        """Forget what changed since the savepoint."""
        self.of_command = Changes()

    def commit(self) -> None:
        """Keep what changed last too; ``take`` gives everything."""
        self.set_savepoint()

    def rollback(self) -> None:
        """Forget everything."""
        self._kept, self.of_command = Changes(), Changes()

    def clear(self) -> None:
        """Forget everything."""
        self.rollback()

    def take(self) -> Changes:
        """Return what the committed transaction changed, and begin anew."""
        taken, self._kept = self._kept, Changes()
        return taken


def _add_counts(counts: dict[HubProject, int], more: dict[HubProject, int]) -> None:
    for hub_project, count in more.items():
        counts[hub_project] = counts.get(hub_project, 0) + count
