"""The writing side of the journal, written once for every engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from hub.core.journal import (
    COMMIT_HASH_VERSION,
    Accepted,
    Commit,
    CommitResult,
    Found,
    MessageId,
    NewOutboxMessage,
    OutboxId,
    StoredCommit,
    StreamHead,
    StreamId,
    commit_hash,
)
from hub.core.outbox import OutboxMessage
from hub.core.quota import stored_bytes_of_commit
from hub.core.selection import PageBounds
from hub.core.tenure import Resource
from hub.core.values import HubProject
from hub.store.committed_cache import CommittedCache
from hub.store.contract import Changes
from hub.store.journal_rows import (
    Phase,
    bounded,
    ids_to_json,
    outbox_message_bytes,
    outbox_message_from_row,
    phase_of,
)
from hub.store.session import Session, SqlValue
from hub.store.staged_changes import Staged


class _Stream(NamedTuple):
    """A stream as the next commit needs it."""

    stream_key: int
    revision: int


class _Counters(NamedTuple):
    """The last position of a journal, and the last creation of a message."""

    head_position: int
    outbox_ordinal: int


_CommitRow = tuple[int, bytes, int, int, int, int, bytes]


class JournalCaches:
    """What the next commits need of the last ones, as of the open transaction; the unique keys decide."""

    def __init__(self, entries_max: int) -> None:
        """Begin empty; keep at most so many entries of each kind."""
        self.streams: CommittedCache[tuple[int, StreamId], _Stream] = CommittedCache(entries_max)
        self.counters: CommittedCache[int, _Counters] = CommittedCache(entries_max)
        self.types: CommittedCache[tuple[int, str], bool] = CommittedCache(entries_max)
        """Which streams, by their keys, are known to have events of which types."""

    @property
    def all(self) -> tuple[Staged, ...]:
        """Everything that follows the transaction."""
        return (self.streams, self.counters, self.types)


class SqlJournalWrites:
    """Streams, commits and outbox messages within the open transaction; see ``JournalWrites``."""

    def __init__(
        self,
        *,
        session: Callable[[], Session],
        find_tenant: Callable[[HubProject], int | None],
        make_tenant: Callable[[HubProject], int],
        changes: Callable[[], Changes],
        add_stored_bytes: Callable[[HubProject, int], None],
        caches: JournalCaches,
    ) -> None:
        """Bind what gives the open session, a tenant's key, and what the open command changed, and what
        counts bytes that are kept.
        """
        self._session = session
        self._find_tenant = find_tenant
        self._make_tenant = make_tenant
        self._changes = changes
        self._add_stored_bytes = add_stored_bytes
        self._caches = caches

    # --- commits ---

    def commit(self, hub_project: HubProject, message_id: MessageId) -> StoredCommit | None:
        """Return a commit."""
        parameters = (self._find_tenant(hub_project), message_id)
        rows = cast("list[_CommitRow]", list(self._session().fetch("load_journal_commit", parameters)))
        if not rows:
            return None
        hash_version, content_hash, previous, revision, commit_nanos, first_position, reply = rows[0]
        result = CommitResult(previous, revision, commit_nanos, first_position, reply)
        return StoredCommit(hash_version, content_hash, result)

    def found(self, hub_project: HubProject, commit: Commit, *, resource: Resource) -> Found:
        """Return what is stored of the names."""
        hub_project_key = self._find_tenant(hub_project)
        own_ids = {event.event_id for event in commit.events}
        named_ids = {message.event_id for message in commit.outbox_messages} - own_ids - {""}
        event_ids = self._used_ids("find_event_ids", hub_project_key, ids=[*own_ids, *named_ids])
        outbox_ids = [message.outbox_id for message in commit.outbox_messages]
        stream = self._stream(hub_project_key, commit.stream_id)
        return Found(
            resource=resource,
            stream=StreamHead(commit.stream_id, 0 if stream is None else stream.revision),
            head_position=self._counters(hub_project_key).head_position,
            event_ids=event_ids & own_ids,
            outbox_ids=self._used_ids("find_outbox_ids", hub_project_key, ids=outbox_ids),
            named_event_ids=event_ids & named_ids,
            projection_streams=self._projection_streams(hub_project_key, commit),
        )

    def save_commit(
        self, hub_project: HubProject, commit: Commit, *, found: Found, accepted: Accepted
    ) -> None:
        """Store everything of a commit; the unique keys make twice impossible."""
        sql, hub_project_key = self._session(), self._make_tenant(hub_project)
        result = accepted.result
        stream_key = self._save_stream(hub_project_key, commit, accepted=accepted)
        head_position, ordinal = self._counters(hub_project_key)
        assert head_position == found.head_position
        counters = _Counters(head_position + len(commit.events), ordinal + len(commit.outbox_messages))
        sql.run("save_journal_counters", (*counters, hub_project_key))
        self._caches.counters.put(hub_project_key, counters)
        self._add_stored_bytes(hub_project, stored_bytes_of_commit(commit))
        tenure = accepted.tenure
        sql.run(
            "store_journal_commit",
            (
                hub_project_key,
                commit.message_id,
                stream_key,
                COMMIT_HASH_VERSION,
                commit_hash(commit),
                result.previous_revision,
                result.revision,
                result.commit_nanos,
                result.first_position,
                tenure.fencing_token,
                tenure.epoch,
                result.reply,
            ),
        )
        if commit.events:
            key = (hub_project_key, stream_key, head_position)
            distance = result.previous_revision - head_position
            written_under = (result.commit_nanos, commit.message_id, tenure.fencing_token, tenure.epoch)
            sql.run_bulk("store_journal_events", (*key, distance, *written_under), rows=commit.events)
            self._add_types(hub_project_key, stream_key, commit=commit)
            self._changes().journal_head_positions[hub_project] = counters.head_position
        if commit.outbox_messages:
            messages = [
                (*message, phase)
                for message, phase in zip(
                    commit.outbox_messages,
                    self._phases(hub_project_key, commit.outbox_messages),
                    strict=True,
                )
            ]
            shared = (hub_project_key, stream_key, ordinal, result.commit_nanos, commit.message_id)
            sql.run_bulk("store_outbox_messages", shared, rows=messages)
        for projection_id, value in commit.projections:
            moment = (result.revision, result.commit_nanos)
            sql.run("save_projection", (hub_project_key, projection_id, stream_key, *moment, value))

    # --- outbox messages ---

    def outbox_message(self, hub_project: HubProject, outbox_id: OutboxId) -> OutboxMessage | None:
        """Return a message."""
        messages = self._outbox_messages(
            hub_project, ["outbox_message_is"], parameters={"outbox_id": outbox_id}
        )
        return next(iter(list(messages)), None)

    def available_messages(
        self, hub_project: HubProject, destination: str, *, now_nanos: int, bounds: PageBounds
    ) -> list[OutboxMessage]:
        """Return messages that may be claimed."""
        names = ["outbox_of_destination", "outbox_available", "outbox_in_order"]
        parameters: dict[str, SqlValue] = {
            "destination": destination,
            "now_nanos": now_nanos,
            "entries_max": bounds.entries_max,
        }
        messages = self._outbox_messages(hub_project, names, parameters=parameters)
        return bounded(messages, outbox_message_bytes, bounds=bounds)[0]

    def save_outbox_messages(self, hub_project: HubProject, messages: Sequence[OutboxMessage]) -> None:
        """Store where messages stand; who waited behind a delivered one may be claimed."""
        if not messages:
            return
        sql, hub_project_key = self._session(), self._make_tenant(hub_project)
        rows = [
            (
                phase_of(message),
                message.available_nanos,
                message.attempt_count,
                message.claim_id,
                message.deliver_nanos,
                hub_project_key,
                message.outbox_id,
            )
            for message in messages
        ]
        sql.run_many("save_outbox_message", rows)
        for message in messages:
            if message.ordering_key and phase_of(message) is Phase.DELIVERED:
                key = (hub_project_key, message.destination, message.ordering_key)
                sql.run("let_next_of_key_wait", key)

    def next_available_nanos(self, hub_project: HubProject, destination: str) -> int | None:
        """Return when the next message becomes available."""
        parameters = (self._find_tenant(hub_project), destination)
        rows = cast("list[tuple[int]]", list(self._session().fetch("next_available", parameters)))
        return rows[0][0] if rows else None

    # --- within ---

    def _counters(self, hub_project_key: int | None) -> _Counters:
        """Return the last position and the last creation of a message."""
        if hub_project_key is None:
            return _Counters(0, 0)
        counters = self._caches.counters.get(hub_project_key)
        if counters is None:
            rows = list(self._session().fetch("load_journal_counters", (hub_project_key,)))
            counters = _Counters(*cast("tuple[int, int]", rows[0]))
            self._caches.counters.put(hub_project_key, counters)
        return counters

    def _stream(self, hub_project_key: int | None, stream_id: StreamId) -> _Stream | None:
        """Return a stream, None where it is not there."""
        if hub_project_key is None:
            return None
        stream = self._caches.streams.get((hub_project_key, stream_id))
        if stream is None:
            rows = list(self._session().fetch("load_stream", (hub_project_key, stream_id)))
            if not rows:
                return None
            stream = _Stream(*cast("tuple[int, int]", rows[0]))
            self._caches.streams.put((hub_project_key, stream_id), stream)
        return stream

    def _save_stream(self, hub_project_key: int, commit: Commit, *, accepted: Accepted) -> int:
        """Store how far a stream is, and return its key."""
        sql = self._session()
        stream = self._stream(hub_project_key, commit.stream_id)
        state = (accepted.result.revision, accepted.tenure.fencing_token, accepted.result.commit_nanos)
        if stream is None:
            rows = list(sql.fetch("create_stream", (hub_project_key, commit.stream_id, *state)))
            (stream_key,) = cast("tuple[int]", rows[0])
        else:
            stream_key = stream.stream_key
            sql.run("save_stream", (*state, stream_key))
        cached = _Stream(stream_key, accepted.result.revision)
        self._caches.streams.put((hub_project_key, commit.stream_id), cached)
        return stream_key

    def _add_types(self, hub_project_key: int, stream_key: int, *, commit: Commit) -> None:
        """Note the types of events that a stream has now, where that is not known yet."""
        types = self._caches.types
        for event_type in dict.fromkeys(event.event_type for event in commit.events):
            if types.get((stream_key, event_type)) is None:
                key = (hub_project_key, event_type, commit.stream_id)
                self._session().run("add_stream_event_type", key)
                types.put((stream_key, event_type), True)

    def _used_ids(self, statement: str, hub_project_key: int | None, *, ids: Sequence[str]) -> set[str]:
        """Return those of these ids that are used."""
        if not ids:
            return set()
        rows = self._session().fetch(statement, (hub_project_key, ids_to_json(ids)))
        return {found for (found,) in cast("list[tuple[str]]", list(rows))}

    def _projection_streams(self, hub_project_key: int | None, commit: Commit) -> dict[str, StreamId]:
        """Return to which streams the projections belong that are there."""
        if not commit.projections:
            return {}
        ids = [projection.projection_id for projection in commit.projections]
        rows = self._session().fetch("find_projection_streams", (hub_project_key, ids_to_json(ids)))
        found = cast("list[tuple[str, str]]", list(rows))
        return {projection_id: StreamId(stream_id) for projection_id, stream_id in found}

    def _phases(self, hub_project_key: int, messages: Sequence[NewOutboxMessage]) -> list[Phase]:
        """Return where new messages stand: behind what is not delivered of their ordering key."""
        waited_for: set[tuple[str, str]] = set()
        phases: list[Phase] = []
        for message in messages:
            key = (message.destination, message.ordering_key)
            if not message.ordering_key:
                phases.append(Phase.WAITING)
                continue
            is_behind = key in waited_for or bool(
                list(self._session().fetch("is_key_waited_for", (hub_project_key, *key)))
            )
            waited_for.add(key)
            phases.append(Phase.BEHIND if is_behind else Phase.WAITING)
        return phases

    def _outbox_messages(
        self, hub_project: HubProject, names: Sequence[str], *, parameters: Mapping[str, SqlValue]
    ) -> Iterator[OutboxMessage]:
        session = self._session()
        sql = "\n".join(session.fragment(name) for name in ("outbox_columns", *names))
        tenant = {"hub_project_key": self._find_tenant(hub_project)}
        return map(outbox_message_from_row, session.fetch_composed(sql, {**tenant, **parameters}))
