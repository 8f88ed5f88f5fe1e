"""The journal as it is read at once: streams, events, projections, outbox messages.

Everything is of the caller's hub project. An expiry that is told here is durable before it is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hub.core.errors import InvalidRequest, NotFound, Reason, Violation
from hub.core.journal import ProjectionId, StreamId, check_credential, stream_resource
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
from hub.core.lease_errors import StaleLease
from hub.core.outbox import OutboxMessage
from hub.core.resume import check_resume
from hub.core.selection import PageBounds
from hub.core.tenure import Credential
from hub.core.values import Caller, HubGeneration
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import ReadTransaction, WriteTransaction


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

        def read(transaction: ReadTransaction) -> StreamPage | StaleLease:
            if query.credential is not None:
                name = stream_resource(query.stream_id)
                resource = transaction.leases.resource(caller.hub_project, name)
                try:
                    check_credential(resource, query.credential, now_nanos=self._now_nanos())
                except StaleLease as refusal:
                    return refusal
            return _stream_page(transaction, caller, query=query, bounds=bounds)

        while True:
            page = await self._readers.call(read)
            if isinstance(page, StreamPage):
                return page
            if query.credential is None or page.cause != Reason.LEASE_EXPIRED:
                raise page
            # An expiry is told by the writer, whose answer is durable; where the lease was renewed
            # just before, it lives, and the read goes on.
            await self._check_durably(caller, query.stream_id, credential=query.credential)

    async def streams(
        self, caller: Caller, *, prefix: str, event_type: str | None, after: StreamId | None, entries_max: int
    ) -> StreamsView:
        """Return streams whose ids begin with a prefix, after one of them; of all types where None."""
        now_nanos = self._now_nanos()

        def read(transaction: ReadTransaction) -> StreamsView:
            streams = transaction.journal.streams(
                caller.hub_project,
                prefix=prefix,
                event_type=event_type,
                after=after,
                entries_max=entries_max,
            )
            return StreamsView(streams, now_nanos)

        view = await self._readers.call(read)
        if any(_is_expiry_told(stream, now_nanos) for stream in view.streams):
            await self._writer.settle()
            # A renewal that came in time may have been under way: it is committed now, and none comes later.
            view = await self._readers.call(read)
        return view

    async def projection(self, caller: Caller, projection_id: ProjectionId) -> Projection:
        """Return a projection.

        Raises: NotFound.
        """
        projection = await self._readers.call(
            lambda transaction: transaction.journal.projection(caller.hub_project, projection_id)
        )
        if projection is None:
            raise NotFound("projection", {"projectionId": projection_id})
        return projection

    async def journal(self, caller: Caller, query: JournalQuery, *, bounds: PageBounds) -> JournalPage:
        """Return a page of the journal. It may be empty though more follows: how much is searched is bounded.

        Raises: InvalidRequest, GenerationChanged or PositionAhead where it cannot begin there.
        """

        def read(transaction: ReadTransaction) -> JournalPage:
            start = journal_start(transaction, caller, query=query)
            found = transaction.journal.events_after(
                caller.hub_project,
                after_position=start.after_position,
                event_types=query.event_types,
                bounds=bounds,
            )
            is_done = found.considered_position >= found.head_position
            return JournalPage(found.events, found.considered_position, start.hub_generation, is_done)

        return await self._readers.call(read)

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

        def read(transaction: ReadTransaction) -> OutboxPage:
            now_nanos = self._now_nanos()
            found = transaction.journal.outbox_messages(
                caller.hub_project, outbox_filter, now_nanos=now_nanos, after=after, bounds=bounds
            )
            return OutboxPage(found.messages, now_nanos, found.next_place)

        return await self._readers.call(read)

    async def _check_durably(self, caller: Caller, stream_id: StreamId, *, credential: Credential) -> None:
        def command(transaction: WriteTransaction, now_nanos: int) -> None:
            resource = transaction.leases.resource(caller.hub_project, stream_resource(stream_id))
            check_credential(resource, credential, now_nanos=now_nanos)

        await self._writer.call(command)


class JournalStart(NamedTuple):
    """Where a read of the journal begins, in one state of the store."""

    hub_generation: HubGeneration
    after_position: int
    head_position: int


def journal_start(transaction: ReadTransaction, caller: Caller, *, query: JournalQuery) -> JournalStart:
    """Find where a read of the journal begins.

    Raises: InvalidRequest, GenerationChanged or PositionAhead where it cannot begin there.
    """
    head_position = transaction.journal.head_position(caller.hub_project)
    generations = transaction.journal.generations(caller.hub_project)
    hub_generation = generations[-1].hub_generation
    if query.is_from_now:
        return JournalStart(hub_generation, head_position, head_position)
    check_resume(
        generations,
        hub_generation=query.hub_generation,
        after_position=query.after_position,
        head_position=head_position,
    )
    return JournalStart(hub_generation, query.after_position, head_position)


def _stream_page(
    transaction: ReadTransaction, caller: Caller, *, query: StreamQuery, bounds: PageBounds
) -> StreamPage:
    revision = transaction.journal.stream_head(caller.hub_project, query.stream_id).revision
    through_revision = revision if query.through_revision is None else query.through_revision
    if through_revision > revision:
        raise _beyond_stream("through_revision", query.stream_id, revision=revision)
    if query.after_revision > through_revision:
        if query.through_revision is None:
            raise _beyond_stream("after_revision", query.stream_id, revision=revision)
        description = f"is before after_revision, which is {query.after_revision}"
        facts = {"streamId": query.stream_id, "revision": str(revision)}
        raise InvalidRequest([Violation("through_revision", description)], facts)
    events = transaction.journal.stream_events(
        caller.hub_project,
        query.stream_id,
        after_revision=query.after_revision,
        through_revision=through_revision,
        bounds=bounds,
    )
    next_revision = events[-1].revision if events else through_revision
    return StreamPage(events, next_revision, through_revision, next_revision == through_revision)


def _beyond_stream(field: str, stream_id: StreamId, *, revision: int) -> InvalidRequest:
    violation = Violation(field, f"is ahead of the stream, which is at revision {revision}")
    return InvalidRequest([violation], {"streamId": stream_id, "revision": str(revision)})


def _is_expiry_told(stream: JournalStream, now_nanos: int) -> bool:
    """Whether it is told that no lease lives because of an expiry that nobody noted."""
    return stream.lease_expire_nanos is not None and not stream.is_leased(now_nanos)
