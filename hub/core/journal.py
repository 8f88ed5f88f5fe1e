"""Streams that many writers share under a lease: which commit is accepted, and what it becomes.

Pure decisions on (commit, what was found, now). A commit is all or nothing, happens once a message id
for ever, and is written only under a lease that is current in the same transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, NewType

from hub.core.errors import IdempotencyConflict, InvalidRequest, LimitReached, Violation
from hub.core.lease import current_tenure, refuse_expired
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseMissing,
    LeaseSuperseded,
    RevisionConflict,
    StaleLease,
)
from hub.core.tenure import Credential, Resource, Tenure
from hub.core.values import ResourceName
from synchub.contract import SEQUENCE_MAX, length_prefixed

StreamId = NewType("StreamId", str)
"""A stream within a hub project; the resource of its lease has the same name."""
MessageId = NewType("MessageId", str)
"""What makes a commit happen once."""
JournalEventId = NewType("JournalEventId", str)
"""An event of the journal, within the hub project, for ever."""
OutboxId = NewType("OutboxId", str)
"""An outbox message, within the hub project, for ever."""
ProjectionId = NewType("ProjectionId", str)
"""A projection within the hub project."""

COMMIT_HASH_VERSION: Final = 1
"""How ``commit_hash`` goes about it; stored beside each hash, so that another way can be told apart."""
OTHER_RESOURCE: Final = "OTHER_RESOURCE"
"""The cause of a StaleLease whose credential is of another resource than the stream."""


class NewEvent(NamedTuple):
    """An event to be appended; ``event_time_nanos`` is None where it is the commit's."""

    event_id: JournalEventId
    event_type: str
    payload: bytes
    event_time_nanos: int | None
    correlation_id: str
    causation_id: str
    trace_id: str


class NewOutboxMessage(NamedTuple):
    """A message to be delivered; ``event_id`` and ``ordering_key`` may be empty."""

    outbox_id: OutboxId
    event_id: str
    destination: str
    ordering_key: str
    payload: bytes
    available_nanos: int | None


class NewProjection(NamedTuple):
    """A value to be stored under a name."""

    projection_id: ProjectionId
    value: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """What is to be stored together, within its bounds."""

    message_id: MessageId
    stream_id: StreamId
    credential: Credential
    expected_revision: int
    events: Sequence[NewEvent]
    outbox_messages: Sequence[NewOutboxMessage]
    projections: Sequence[NewProjection]
    reply: bytes


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit became; positions are ``first_position`` and those after it, one an event."""

    previous_revision: int
    revision: int
    commit_nanos: int
    first_position: int
    reply: bytes

    @property
    def positions(self) -> range:
        """The positions of the events, in their order."""
        return range(self.first_position, self.first_position + self.revision - self.previous_revision)


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit that happened: what was in it, as a hash, and its result."""

    hash_version: int
    content_hash: bytes
    result: CommitResult


@dataclass(frozen=True, slots=True)
class StreamHead:
    """How far a stream is; revision 0 where it has no events."""

    stream_id: StreamId
    revision: int


@dataclass(frozen=True, slots=True)
class Found:
    """What the store has of the names in a commit.

    ``event_ids`` and ``outbox_ids`` are those of the commit that were used before; ``named_event_ids``
    those named by its outbox messages that exist; ``projection_streams`` to which streams its
    projections belong, where they are there.
    """

    resource: Resource
    stream: StreamHead
    head_position: int
    event_ids: Set[str]
    outbox_ids: Set[str]
    named_event_ids: Set[str]
    projection_streams: Mapping[str, StreamId]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A commit that is to be stored, and the tenure under which it is."""

    result: CommitResult
    tenure: Tenure


def decide_recovery(commit: Commit, stored: StoredCommit | None) -> CommitResult | None:
    """Return the stored result of a message id that was seen (rows 1 and 2), None where it is new.

    Raises: IdempotencyConflict where its content was another.
    """
    if stored is None:
        return None
    # There is one version so far; with a second one, the stored version says which to compute.
    is_same = stored.hash_version == COMMIT_HASH_VERSION and stored.content_hash == commit_hash(commit)
    if not is_same:
        raise IdempotencyConflict("message_id", commit.message_id)
    return stored.result


def decide_commit(commit: Commit, found: Found, *, now_nanos: int) -> Accepted:
    """Decide a commit whose message id is new (rows 3 to 6); the first row that holds is the outcome.

    Raises: StaleLease, RevisionConflict, InvalidRequest, IdempotencyConflict, LimitReached.
    """
    tenure = check_credential(found.resource, commit.credential, now_nanos=now_nanos)
    if found.stream.revision != commit.expected_revision:
        raise RevisionConflict(commit.stream_id, commit.expected_revision, found.stream.revision)
    _check_names(commit, found)
    event_count = len(commit.events)
    for name, last in (("revision", found.stream.revision), ("position", found.head_position)):
        if last > SEQUENCE_MAX - event_count:
            raise LimitReached(name, SEQUENCE_MAX)
    result = CommitResult(
        previous_revision=found.stream.revision,
        revision=found.stream.revision + event_count,
        commit_nanos=now_nanos,
        # One without events may come when the last position is given: no number wraps then either.
        first_position=min(found.head_position + 1, SEQUENCE_MAX),
        reply=commit.reply,
    )
    return Accepted(result, tenure)


def check_credential(resource: Resource, credential: Credential, *, now_nanos: int) -> Tenure:
    """Return the tenure, lease or maintenance, that a credential shows to be current.

    Raises: StaleLease with the cause.
    """
    if credential.resource != resource.name:
        raise StaleLease(resource.name, credential.fencing_token, OTHER_RESOURCE)
    try:
        tenure = current_tenure(resource, credential)
        refuse_expired(tenure, now_nanos)
    except (LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired) as refusal:
        raise StaleLease(resource.name, credential.fencing_token, refusal.reason) from refusal
    return tenure


def stream_resource(stream_id: StreamId) -> ResourceName:
    """Return the resource on which a stream's lease is."""
    return ResourceName(stream_id)


def commit_hash(commit: Commit) -> bytes:
    """Return the hash that tells whether two commits of one message id are the same.

    SHA-256 over all parts but the credential, each prefixed by its length as 4 bytes big-endian; each
    list is preceded by its count, so that nothing can pass from one list to the next.
    """
    return sha256(b"".join(map(length_prefixed, _parts(commit)))).digest()


def _parts(commit: Commit) -> Iterator[bytes]:
    yield commit.stream_id.encode()
    yield _number(commit.expected_revision)
    yield _number(len(commit.events))
    for event in commit.events:
        yield event.event_id.encode()
        yield event.event_type.encode()
        yield event.payload
        yield b"" if event.event_time_nanos is None else _number(event.event_time_nanos)
        yield event.correlation_id.encode()
        yield event.causation_id.encode()
        yield event.trace_id.encode()
    yield _number(len(commit.outbox_messages))
    for message in commit.outbox_messages:
        yield message.outbox_id.encode()
        yield message.event_id.encode()
        yield message.destination.encode()
        yield message.ordering_key.encode()
        yield message.payload
        yield b"" if message.available_nanos is None else _number(message.available_nanos)
    yield _number(len(commit.projections))
    for projection in commit.projections:
        yield projection.projection_id.encode()
        yield projection.value
    yield commit.reply


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _check_names(commit: Commit, found: Found) -> None:
    """Check row 5: every name is new, or belongs where it is used.

    Raises: InvalidRequest, IdempotencyConflict; both name field and id.
    """
    lists: tuple[tuple[str, Sequence[str]], ...] = (
        ("events[{}].event_id", [event.event_id for event in commit.events]),
        ("outbox_messages[{}].outbox_id", [message.outbox_id for message in commit.outbox_messages]),
        ("projections[{}].projection_id", [each.projection_id for each in commit.projections]),
    )
    for field, ids in lists:
        index = _second_time(ids)
        if index is not None:
            raise _invalid(field.format(index), ids[index], description="stands twice in this commit")
    for (field, ids), used in zip(lists[:2], (found.event_ids, found.outbox_ids), strict=True):
        for index, each in enumerate(ids):
            if each in used:
                raise IdempotencyConflict(field.format(index), each)
    for index, projection in enumerate(commit.projections):
        owner = found.projection_streams.get(projection.projection_id, commit.stream_id)
        if owner != commit.stream_id:
            raise IdempotencyConflict(f"projections[{index}].projection_id", projection.projection_id)
    known = {*found.named_event_ids, *(event.event_id for event in commit.events), ""}
    for index, message in enumerate(commit.outbox_messages):
        if message.event_id not in known:
            field = f"outbox_messages[{index}].event_id"
            raise _invalid(field, message.event_id, description="names an event that does not exist")


def _second_time(ids: Iterable[str]) -> int | None:
    """Return where an id stands that stood before, None where all differ."""
    seen: set[str] = set()
    for index, each in enumerate(ids):
        if each in seen:
            return index
        seen.add(each)
    return None


def _invalid(field: str, name: str, *, description: str) -> InvalidRequest:
    return InvalidRequest([Violation(field, description)], {"field": field, "id": name})
