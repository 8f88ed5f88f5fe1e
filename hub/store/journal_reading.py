"""The reading side of the journal, written once for every engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Final, cast

from hub.core.journal import ProjectionId, StreamHead, StreamId
from hub.core.journal_selection import (
    JournalEvent,
    JournalStream,
    OutboxFilter,
    OutboxMessages,
    OutboxPlace,
    PositionedJournalEvents,
    Projection,
    end_of_prefix,
)
from hub.core.outbox import OutboxState
from hub.core.resume import GenerationStart
from hub.core.selection import PageBounds
from hub.core.values import HubGeneration, HubProject
from hub.store.journal_rows import (
    Phase,
    bounded,
    ids_to_json,
    journal_event_bytes,
    journal_event_from_row,
    outbox_message_from_row,
    outbox_row_bytes,
    place_from_row,
)
from hub.store.session import Row, Session, SqlValue

SCANNED_POSITIONS_MAX: Final = 50_000
"""Positions looked at in one read; a filter that lets little through is asked again from there."""
FIRST_PLACE: Final = OutboxPlace(-(2**63), 0)
"""A place before every message."""

_PHASES: Final[Mapping[OutboxState | None, Sequence[Phase]]] = {
    None: (Phase.WAITING, Phase.BEHIND, Phase.DEAD),
    OutboxState.PENDING: (Phase.WAITING, Phase.BEHIND),
    OutboxState.CLAIMED: (Phase.WAITING,),
    OutboxState.DEAD: (Phase.DEAD,),
    OutboxState.DELIVERED: (Phase.DELIVERED,),
}
"""In which phases messages of a state are."""
_CLAIM_FRAGMENTS: Final[Mapping[OutboxState | None, Sequence[str]]] = {
    OutboxState.PENDING: ("outbox_unclaimed",),
    OutboxState.CLAIMED: ("outbox_claimed",),
}
"""What narrows the phases to a state."""

_StreamRow = tuple[str, int, int, int, int, int | None]
_ProjectionRow = tuple[str, str, bytes, int, int]


class SqlJournalReads:
    """One state of the journal; see ``JournalReads``."""

    def __init__(self, session: Session, *, find_tenant: Callable[[HubProject], int | None]) -> None:
        """Read over a session whose transaction is open."""
        self._session = session
        self._find_tenant = find_tenant

    def head_position(self, hub_project: HubProject) -> int:
        """Return the head."""
        return self._head_position(self._find_tenant(hub_project))

    def generations(self, hub_project: HubProject) -> list[GenerationStart]:
        """Return the generations."""
        parameters = {"hub_project_key": self._find_tenant(hub_project)}
        rows = self._session.fetch("list_journal_generations", parameters)
        return [
            GenerationStart(HubGeneration(hub_generation), head_position)
            for hub_generation, head_position in cast("Iterator[tuple[str, int]]", rows)
        ]

    # --- streams and projections ---

    def stream_head(self, hub_project: HubProject, stream_id: StreamId) -> StreamHead:
        """Return how far a stream is."""
        return StreamHead(stream_id, self._stream(hub_project, stream_id)[1])

    def stream_events(
        self,
        hub_project: HubProject,
        stream_id: StreamId,
        *,
        after_revision: int,
        through_revision: int,
        bounds: PageBounds,
    ) -> list[JournalEvent]:
        """Return events of a stream."""
        parameters: dict[str, SqlValue] = {
            "stream_key": self._stream(hub_project, stream_id)[0],
            "after_revision": after_revision,
            "through_revision": through_revision,
            "entries_max": bounds.entries_max,
        }
        events = self._events(["journal_events_of_stream"], parameters)
        return bounded(events, journal_event_bytes, bounds=bounds)[0]

    def streams(
        self,
        hub_project: HubProject,
        *,
        prefix: str,
        event_type: str | None,
        after: StreamId | None,
        entries_max: int,
    ) -> list[JournalStream]:
        """Return streams in a range of ids."""
        is_begun = after is not None and after >= prefix
        end_id = end_of_prefix(prefix)
        names = [
            "stream_columns",
            "streams_of_all" if event_type is None else "streams_of_type",
            "streams_after" if is_begun else "streams_from",
            *(["streams_before"] if end_id is not None else []),
            "streams_in_order",
        ]
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "event_type": event_type,
            "lowest_id": after if is_begun else prefix,
            "end_id": end_id,
            "entries_max": entries_max,
        }
        rows = cast("Iterator[_StreamRow]", self._composed(names, parameters))
        return [
            JournalStream(StreamId(stream_id), revision, token, create_nanos, last_nanos, expire_nanos)
            for stream_id, revision, token, create_nanos, last_nanos, expire_nanos in rows
        ]

    def projection(self, hub_project: HubProject, projection_id: ProjectionId) -> Projection | None:
        """Return a projection."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "projection_id": projection_id,
        }
        rows = cast("list[_ProjectionRow]", list(self._composed(["load_projection"], parameters)))
        if not rows:
            return None
        _, stream_id, value, revision, commit_nanos = rows[0]
        return Projection(projection_id, StreamId(stream_id), value, revision, commit_nanos)

    # --- the journal ---

    def events_after(
        self, hub_project: HubProject, *, after_position: int, event_types: Sequence[str], bounds: PageBounds
    ) -> PositionedJournalEvents:
        """Return events in the order of positions."""
        hub_project_key = self._find_tenant(hub_project)
        head_position = self._head_position(hub_project_key)
        if after_position >= head_position:
            return PositionedJournalEvents([], head_position, head_position)
        through_position = min(head_position, after_position + SCANNED_POSITIONS_MAX)
        parameters: dict[str, SqlValue] = {
            "hub_project_key": hub_project_key,
            "after_position": after_position,
            "through_position": through_position,
            "event_types": ids_to_json(event_types),
            "entries_max": bounds.entries_max + 1,
        }
        types = ["journal_events_of_types"] if event_types else []
        names = ["journal_events_between", *types, "journal_events_by_position"]
        events, is_cut = bounded(self._events(names, parameters), journal_event_bytes, bounds=bounds)
        considered_position = events[-1].position if is_cut else through_position
        return PositionedJournalEvents(events, considered_position, head_position)

    # --- outbox messages ---

    def outbox_messages(
        self,
        hub_project: HubProject,
        outbox_filter: OutboxFilter,
        *,
        now_nanos: int,
        after: OutboxPlace | None,
        bounds: PageBounds,
    ) -> OutboxMessages:
        """Return messages, merged from the phases in which they may be."""
        place = FIRST_PLACE if after is None else after
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "destination": outbox_filter.destination,
            "now_nanos": now_nanos,
            "after_nanos": place.available_nanos,
            "after_ordinal": place.ordinal,
            "entries_max": bounds.entries_max + 1,
        }
        names = [
            "outbox_columns",
            *(["outbox_of_destination"] if outbox_filter.destination is not None else []),
            "outbox_in_phase",
            *_CLAIM_FRAGMENTS.get(outbox_filter.state, ()),
            "outbox_in_order",
        ]
        rows = merge(
            *(
                self._composed(names, {**parameters, "phase": phase})
                for phase in _PHASES[outbox_filter.state]
            ),
            key=place_from_row,
        )
        kept, is_cut = bounded(rows, outbox_row_bytes, bounds=bounds)
        next_place = place_from_row(kept[-1]) if is_cut else None
        return OutboxMessages([outbox_message_from_row(row) for row in kept], next_place)

    def undelivered_counts(self, counted_max: int) -> dict[str, int]:
        """Return how many messages are not delivered, by phase."""
        counts: dict[str, int] = {}
        for phase in _PHASES[None]:
            ((count,),) = self._session.fetch("count_outbox_messages", (phase, counted_max))
            counts[phase] = cast("int", count)
        return counts

    # --- within ---

    def _head_position(self, hub_project_key: int | None) -> int:
        rows = list(self._session.fetch("load_journal_counters", {"hub_project_key": hub_project_key}))
        return cast("tuple[int, int]", rows[0])[0] if rows else 0

    def _stream(self, hub_project: HubProject, stream_id: StreamId) -> tuple[int | None, int]:
        """Return (key, revision) of a stream; (None, 0) where it is not there."""
        parameters = {"hub_project_key": self._find_tenant(hub_project), "stream_id": stream_id}
        rows = list(self._composed(["load_stream"], parameters))
        return cast("tuple[int, int]", rows[0]) if rows else (None, 0)

    def _events(self, names: Sequence[str], parameters: Mapping[str, SqlValue]) -> Iterator[JournalEvent]:
        return map(journal_event_from_row, self._composed(["journal_event_columns", *names], parameters))

    def _composed(self, names: Sequence[str], parameters: Mapping[str, SqlValue]) -> Iterator[Row]:
        """Run a statement composed of these fragments."""
        sql = "\n".join(self._session.fragment(name) for name in names)
        return self._session.fetch_composed(sql, parameters)
