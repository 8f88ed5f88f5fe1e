"""The journal as it is read at once: streams, events, projections, outbox messages.

Everything is of the caller's hub project. An expiry that is told here is durable before it is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hub.core.journal import ProjectionId, StreamId
from hub.core.journal_selection import (
    JournalEvent,
    JournalQuery,
    JournalStream,
    OutboxFilter,
    OutboxPlace,
    Projection,
    StreamPage,
    StreamQuery,
)
from hub.core.outbox import OutboxMessage
from hub.core.selection import PageBounds
from hub.core.values import Caller, HubGeneration
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter


@dataclass(frozen=True, slots=True)
class StreamsView:
    """Streams at a moment of hub time, ascending by the bytes of their ids."""

    streams: Sequence[JournalStream]
    now_nanos: int


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Events of the journal, ascending by position; read on after ``next_position``, unless ``is_done``."""

    events: Sequence[JournalEvent]
    next_position: int
    hub_generation: HubGeneration
    is_done: bool


@dataclass(frozen=True, slots=True)
class OutboxPage:
    """Outbox messages at a moment, in order; ``next_place`` is after which to go on, None at the end."""

    messages: Sequence[OutboxMessage]
    now_nanos: int
    next_place: OutboxPlace | None


class JournalReads:
    """The use cases that read the journal."""

    def __init__(self, readers: Readers, writer: AsyncWriter, *, now_nanos: Callable[[], int]) -> None:
        """Bind the readers, and the writer for what has to be durable first; ``now_nanos`` is hub time."""
        self._readers = readers
        self._writer = writer
        self._now_nanos = now_nanos

    async def stream_events(self, caller: Caller, query: StreamQuery, *, bounds: PageBounds) -> StreamPage:
        """Return a page of a stream; one that nobody ever wrote reads as empty.

        Raises: StaleLease where a credential is given that is not current; InvalidRequest where
        ``through_revision`` is ahead of the stream or before ``after_revision``.
        """
        raise NotImplementedError

    async def streams(
        self, caller: Caller, *, prefix: str, event_type: str | None, after: StreamId | None, entries_max: int
    ) -> StreamsView:
        """Return streams whose ids begin with a prefix, after one of them; of all types where None."""
        raise NotImplementedError

    async def projection(self, caller: Caller, projection_id: ProjectionId) -> Projection:
        """Return a projection.

        Raises: NotFound.
        """
        raise NotImplementedError

    async def journal(self, caller: Caller, query: JournalQuery, *, bounds: PageBounds) -> JournalPage:
        """Return a page of the journal. It may be empty though more follows: how much is searched is bounded.

        Raises: InvalidRequest, GenerationChanged or PositionAhead where it cannot begin there.
        """
        raise NotImplementedError

    async def outbox_messages(
        self,
        caller: Caller,
        outbox_filter: OutboxFilter,
        *,
        after: OutboxPlace | None,
        bounds: PageBounds,
    ) -> OutboxPage:
        """Return outbox messages after a place, by availability and creation.

        A message that is claimed, returned or released between two pages has another place then.
        """
        raise NotImplementedError
