"""What services report about themselves; ``hub.http`` turns it into metrics."""

from typing import Protocol


class Instruments(Protocol):
    """Counters and gauges of the services. Called from the writer's thread too; must not block."""

    def group_committed(self, *, commands: int, seconds: float) -> None:
        """A group of so many commands was committed, which took so long."""

    def group_failed(self) -> None:
        """A group could not be committed; nothing of it is acknowledged."""

    def batch_ingested(self, *, accepted: int, duplicates: int, conflicts: dict[str, int]) -> None:
        """A batch was decided and stored; conflicts are counted by their reasons."""


class NoInstruments:
    """Instruments that nobody reads, for tests and tools."""

    def group_committed(self, *, commands: int, seconds: float) -> None:
        """Forget it."""

    def group_failed(self) -> None:
        """Forget it."""

    def batch_ingested(self, *, accepted: int, duplicates: int, conflicts: dict[str, int]) -> None:
        """Forget it."""
