"""What services may rely on when they drop what is old, the same over every engine.

Parts of ``WriteTransaction`` and ``ReadTransaction``, and what is said there holds here. The reading side
finds, page by page, so that only little is left for the writer; the writing side looks at each again, since
it may have changed in between, and what it returns is what really went.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hub.core.selection import PageBounds
from hub.core.values import HubProject, ProjectId, RunId, RuntimeId


class PayloadPlace(NamedTuple):
    """A place in the walk over events: a position, or within a project a run and sequence."""

    position: int = 0
    run_id: RunId | None = None
    sequence: int = 0


class OldPayloads(NamedTuple):
    """Events whose payloads are old, by their positions.

    ``considered_count`` events were looked at; ``next_place`` is from where to go on, None at the end.
    """

    positions: Sequence[int]
    payload_bytes: int
    considered_count: int
    next_place: PayloadPlace | None


class OldNames(NamedTuple):
    """What is old, by name; ``next_after`` is after which name to go on, None at the end."""

    names: Sequence[str]
    next_after: str | None


class DroppedPayloads(NamedTuple):
    """Payloads that went."""

    payload_count: int
    payload_bytes: int


class RetentionReads(Protocol):
    """Finds what is old."""

    def event_count(self, hub_project: HubProject, project_id: ProjectId | None) -> int:
        """Return how many events there are of a hub project, or of one of its projects."""

    def old_payloads(
        self,
        hub_project: HubProject,
        project_id: ProjectId | None,
        *,
        place: PayloadPlace,
        received_before_nanos: int,
        bounds: PageBounds,
    ) -> OldPayloads:
        """Return events after a place that were received before a moment and have their payloads.

        How many events are looked at is bounded too. It always goes on.
        """

    def ended_resources(self, hub_project: HubProject, *, ended_before_nanos: int, after: str) -> OldNames:
        """Look at some resources after one of them, and return those of which all ended before a moment."""

    def old_receipt_count(self, hub_project: HubProject, created_before_nanos: int) -> int:
        """Return how many receipts were made before a moment."""

    def silent_runtimes(self, hub_project: HubProject, *, heard_before_nanos: int, after: str) -> OldNames:
        """Look at some runtimes after one of them, and return those that were last heard before a moment."""


class RetentionWrites(Protocol):
    """Drops what is old."""

    def drop_payloads(
        self, hub_project: HubProject, positions: Sequence[int], *, received_before_nanos: int
    ) -> DroppedPayloads:
        """Drop the payloads of these events, as far as they are there and were received before a moment.

        Everything else of an event stays, so that the same event sent again is a duplicate. Its payload
        is not filled in again.
        """

    def drop_resources(
        self, hub_project: HubProject, names: Sequence[str], *, ended_before_nanos: int
    ) -> int:
        """Drop those of these resources of which everything ended before a moment, floors raised first.

        Returns: how many.
        """

    def drop_receipts(self, hub_project: HubProject, *, created_before_nanos: int, entries_max: int) -> int:
        """Drop the oldest receipts that were made before a moment; return how many, 0 where none is left."""

    def forget_runtimes(
        self, hub_project: HubProject, runtime_ids: Sequence[str], *, heard_before_nanos: int
    ) -> int:
        """Forget what was last heard of these runtimes, as far as it was before a moment; return how many.

        That an instance is the current one, or past, is kept. Who is heard again is there again.
        """

    def recall_runtime(self, hub_project: HubProject, runtime_id: RuntimeId) -> None:
        """Show a runtime again that was forgotten: it is heard."""
