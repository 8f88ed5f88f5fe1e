"""What services may rely on of streams, commits, outbox messages and projections, over every engine.

Parts of ``WriteTransaction`` and ``ReadTransaction``, and what is said there holds here.
"""

from collections.abc import Sequence
from typing import Protocol

from hub.core.journal import (
    Accepted,
    Commit,
    Found,
    MessageId,
    OutboxId,
    ProjectionId,
    StoredCommit,
    StreamHead,
    StreamId,
)
from hub.core.journal_selection import (
    JournalEvent,
    JournalStream,
    OutboxFilter,
    OutboxMessages,
    OutboxPlace,
    PositionedJournalEvents,
    Projection,
)
from hub.core.outbox import OutboxMessage
from hub.core.resume import GenerationStart
from hub.core.selection import PageBounds
from hub.core.tenure import Resource
from hub.core.values import HubProject


class JournalWrites(Protocol):
    """What may be changed of the journal within the open transaction."""

    def commit(self, hub_project: HubProject, message_id: MessageId) -> StoredCommit | None:
        """Return a commit that happened."""

    def found(self, hub_project: HubProject, commit: Commit, *, resource: Resource) -> Found:
        """Return what is stored of the names in a commit; ``resource`` is the stream's."""

    def save_commit(
        self, hub_project: HubProject, commit: Commit, *, found: Found, accepted: Accepted
    ) -> None:
        """Store everything of a commit that was accepted on what was found."""

    def outbox_message(self, hub_project: HubProject, outbox_id: OutboxId) -> OutboxMessage | None:
        """Return a message."""

    def available_messages(
        self, hub_project: HubProject, destination: str, *, now_nanos: int, bounds: PageBounds
    ) -> list[OutboxMessage]:
        """Return messages of a destination that may be claimed, by availability and creation, at least one.

        Of those with one ordering key only the first that is not delivered may be.
        """

    def save_outbox_messages(self, hub_project: HubProject, messages: Sequence[OutboxMessage]) -> None:
        """Store where messages stand now that were claimed, answered about or released."""

    def next_available_nanos(self, hub_project: HubProject, destination: str) -> int | None:
        """Return when the next message of a destination becomes available, None where none is in sight."""


class JournalReads(Protocol):
    """One state of the journal."""

    def head_position(self, hub_project: HubProject) -> int:
        """Return the last position given in a hub project's journal, 0 where none was."""

    def generations(self, hub_project: HubProject) -> list[GenerationStart]:
        """Return all generations, oldest first, with the head of the journal when each began."""

    def stream_head(self, hub_project: HubProject, stream_id: StreamId) -> StreamHead:
        """Return how far a stream is; revision 0 where it is not there."""

    def stream_events(
        self,
        hub_project: HubProject,
        stream_id: StreamId,
        *,
        after_revision: int,
        through_revision: int,
        bounds: PageBounds,
    ) -> list[JournalEvent]:
        """Return events of a stream in a range of revisions, ascending."""

    def streams(
        self,
        hub_project: HubProject,
        *,
        prefix: str,
        event_type: str | None,
        after: StreamId | None,
        entries_max: int,
    ) -> list[JournalStream]:
        """Return streams whose ids begin with a prefix, ascending by the bytes of their ids."""

    def projection(self, hub_project: HubProject, projection_id: ProjectionId) -> Projection | None:
        """Return a projection."""

    def events_after(
        self, hub_project: HubProject, *, after_position: int, event_types: Sequence[str], bounds: PageBounds
    ) -> PositionedJournalEvents:
        """Return events after a position, ascending, of all types where none is named.

        How many positions are looked at is bounded too: the page may have no events although the head
        is not reached. It always goes on, so that asking again from ``considered_position`` ends.
        """

    def outbox_messages(
        self,
        hub_project: HubProject,
        outbox_filter: OutboxFilter,
        *,
        now_nanos: int,
        after: OutboxPlace | None,
        bounds: PageBounds,
    ) -> OutboxMessages:
        """Return messages after a place, by availability and creation, as they stand at a moment."""

    def undelivered_counts(self, counted_max: int) -> dict[str, int]:
        """Return how many messages of all hub projects are not delivered, by their phase (WAITING, BEHIND
        another of their ordering key, DEAD), each counted so far at most."""
