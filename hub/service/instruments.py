"""What services report about themselves; ``hub.http`` turns it into metrics.

A refusal that ends a call is counted where calls end, by its reason and by the limit that it names:
services report what no call ends by.
"""

from collections.abc import Mapping
from typing import Protocol

from hub.core.values import AlertReason, HubProject


class Instruments(Protocol):
    """Counters of the services. Must not block, and cost next to nothing."""

    # --- from the writer's thread alone ---

    def group_committed(self, *, commands: int, seconds: float, commit_seconds: float) -> None:
        """A group of so many commands was committed, which took so long, and its COMMIT alone so long.

        What was told of batches and commits since the last group is durable with it.
        """

    def group_failed(self) -> None:
        """A group could not be committed; nothing of it is acknowledged, nor counted."""

    def batch_ingested(
        self,
        hub_project: HubProject,
        *,
        accepted: int,
        duplicates: int,
        conflicts: Mapping[str, int],
        bytes_count: int,
    ) -> None:
        """A batch was decided and stored, within the group; conflicts are counted by their reasons."""

    def commit_stored(self, hub_project: HubProject, *, events: int, is_recovered: bool) -> None:
        """A commit to the journal was stored, or found to be stored, within the group."""

    # --- from the event loop alone ---

    def runtime_lost(self, hub_project: HubProject) -> None:
        """A runtime fell silent."""

    # --- from any thread ---

    def alert_observed(self, hub_project: HubProject, *, reason: AlertReason, count: int) -> None:
        """Something to be alerted was seen so often."""

    def rate_delayed(self, hub_project: HubProject, *, limit: str, seconds: float) -> None:
        """A stream was asked to wait so long, because its hub project is above this limit."""


class NoInstruments:
    """Instruments that nobody reads, for tests and tools."""

    def group_committed(self, *, commands: int, seconds: float, commit_seconds: float) -> None:
        """Forget it."""

    def group_failed(self) -> None:
        """Forget it."""

    def batch_ingested(
        self,
        hub_project: HubProject,
        *,
        accepted: int,
        duplicates: int,
        conflicts: Mapping[str, int],
        bytes_count: int,
    ) -> None:
        """Forget it."""

    def commit_stored(self, hub_project: HubProject, *, events: int, is_recovered: bool) -> None:
        """Forget it."""

    def runtime_lost(self, hub_project: HubProject) -> None:
        """Forget it."""

    def alert_observed(self, hub_project: HubProject, *, reason: AlertReason, count: int) -> None:
        """Forget it."""

    def rate_delayed(self, hub_project: HubProject, *, limit: str, seconds: float) -> None:
        """Forget it."""
