"""The rules of the journal in their shortest form, written from their text and not from the hub's code.

A model of one hub project beside that of its leases: it is told each call with its moment of hub time and
says what must come of it, or the reason of a refusal with its facts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hub.core.journal import Commit
from tests.property.lease_model import LeaseModel, ModelCredential, ModelTenure
from tests.property.lease_model import Refused as LeaseRefused


class Refused(Exception):
    """A call is refused; ``facts`` as on the wire."""

    def __init__(self, reason: str, **facts: str) -> None:
        super().__init__(reason)
        self.told = (reason, facts)


class ModelResult(NamedTuple):
    """What a commit became."""

    previous_revision: int
    revision: int
    time: int
    positions: tuple[int, ...]
    reply: bytes


class ModelEvent(NamedTuple):
    """An event as it must be read."""

    stream: str
    revision: int
    position: int
    event_id: str
    event_type: str
    time: int
    commit_time: int
    message_id: str
    correlation: str
    causation: str
    trace: str
    token: int
    epoch: int
    payload: bytes


@dataclass
class ModelStream:
    """How far a stream is, and who wrote it last."""

    created: int
    revision: int = 0
    token: int = 0
    last_commit: int = 0


@dataclass(frozen=True)
class ModelMessage:
    """An outbox message as it must be read; ``claim`` hides it until ``available``."""

    outbox_id: str
    event_id: str
    destination: str
    key: str
    payload: bytes
    available: int
    created: int
    stream: str
    message_id: str
    tries: int = 0
    claim: str = ""
    is_dead: bool = False
    delivered: int | None = None

    def state(self, now: int) -> str:
        if self.delivered is not None:
            return "DELIVERED"
        if self.is_dead:
            return "DEAD"
        return "CLAIMED" if self.claim and now < self.available else "PENDING"


@dataclass(frozen=True)
class ModelProjection:
    """A projection as it must be read."""

    stream: str
    value: bytes
    revision: int
    time: int


@dataclass
class JournalModel(LeaseModel):
    """All streams, messages and projections of a hub project; ``messages`` is in order of creation."""

    tries_max: int
    commits: dict[str, tuple[Commit, ModelResult]] = field(default_factory=dict)
    streams: dict[str, ModelStream] = field(default_factory=dict)
    events: list[ModelEvent] = field(default_factory=list)
    messages: dict[str, ModelMessage] = field(default_factory=dict)
    projections: dict[str, ModelProjection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        LeaseModel.__init__(self)

    # --- commits ---

    def commit(self, tried: Commit, shown: ModelCredential, now: int) -> tuple[ModelResult, bool]:
        """What it became, and whether it had happened before."""
        earlier = self.commits.get(tried.message_id)
        if earlier is not None:
            if replace(tried, credential=earlier[0].credential) != earlier[0]:
                raise Refused("IDEMPOTENCY_CONFLICT", field="message_id", id=tried.message_id)
            return earlier[1], True
        tenure = self.current(tried.stream_id, shown)
        stream = self.streams.get(tried.stream_id) or ModelStream(now)
        if stream.revision != tried.expected_revision:
            raise Refused(
                "REVISION_CONFLICT",
                expectedRevision=str(tried.expected_revision),
                actualRevision=str(stream.revision),
            )
        self._check_names(tried)
        return self._store(tried, stream, tenure, now), False

    def current(self, stream: str, shown: ModelCredential) -> ModelTenure:
        """The tenure, lease or maintenance, that a credential proves and that lives."""
        if shown.resource != stream:
            raise Refused("STALE_LEASE", cause="OTHER_RESOURCE")
        try:
            _, tenure = self._proven(shown)
        except LeaseRefused as refused:
            raise Refused("STALE_LEASE", cause=refused.told[0]) from refused
        if tenure.state == "EXPIRED":
            raise Refused("STALE_LEASE", cause="LEASE_EXPIRED")
        return tenure

    def _check_names(self, tried: Commit) -> None:
        event_ids = [each.event_id for each in tried.events]
        outbox_ids = [each.outbox_id for each in tried.outbox_messages]
        projection_ids = [each.projection_id for each in tried.projections]
        for path, ids in (
            ("events[{}].event_id", event_ids),
            ("outbox_messages[{}].outbox_id", outbox_ids),
            ("projections[{}].projection_id", projection_ids),
        ):
            for place, name in enumerate(ids):
                if name in ids[:place]:
                    raise Refused("INVALID_REQUEST", field=path.format(place), id=name)
        used_before = {each.event_id for each in self.events}
        for path, ids, used in (
            ("events[{}].event_id", event_ids, used_before),
            ("outbox_messages[{}].outbox_id", outbox_ids, set(self.messages)),
        ):
            for place, name in enumerate(ids):
                if name in used:
                    raise Refused("IDEMPOTENCY_CONFLICT", field=path.format(place), id=name)
        for place, name in enumerate(projection_ids):
            if name in self.projections and self.projections[name].stream != tried.stream_id:
                field_path = f"projections[{place}].projection_id"
                raise Refused("IDEMPOTENCY_CONFLICT", field=field_path, id=name)
        for place, message in enumerate(tried.outbox_messages):
            if message.event_id and message.event_id not in used_before.union(event_ids):
                field_path = f"outbox_messages[{place}].event_id"
                raise Refused("INVALID_REQUEST", field=field_path, id=message.event_id)

    def _store(self, tried: Commit, stream: ModelStream, tenure: ModelTenure, now: int) -> ModelResult:
        before, head = stream.revision, len(self.events)
        for event in tried.events:
            stream.revision += 1
            self.events.append(
                ModelEvent(
                    tried.stream_id,
                    stream.revision,
                    len(self.events) + 1,
                    event.event_id,
                    event.event_type,
                    now if event.event_time_nanos is None else event.event_time_nanos,
                    now,
                    tried.message_id,
                    event.correlation_id,
                    event.causation_id,
                    event.trace_id,
                    tenure.token,
                    tenure.epoch,
                    event.payload,
                )
            )
        for new in tried.outbox_messages:
            self.messages[new.outbox_id] = ModelMessage(
                new.outbox_id,
                new.event_id,
                new.destination,
                new.ordering_key,
                new.payload,
                now if new.available_nanos is None else new.available_nanos,
                now,
                tried.stream_id,
                tried.message_id,
            )
        for name, value in tried.projections:
            self.projections[name] = ModelProjection(tried.stream_id, value, stream.revision, now)
        stream.token, stream.last_commit = tenure.token, now
        self.streams[tried.stream_id] = stream
        positions = tuple(range(head + 1, len(self.events) + 1))
        result = ModelResult(before, stream.revision, now, positions, tried.reply)
        self.commits[tried.message_id] = (tried, result)
        return result

    # --- outbox messages ---

    def in_order(self, messages: Iterable[ModelMessage]) -> list[ModelMessage]:
        """By availability, then by creation."""
        created = list(self.messages)
        return sorted(messages, key=lambda each: (each.available, created.index(each.outbox_id)))

    def claimable(self, destination: str) -> list[ModelMessage]:
        """What time alone makes available: of each ordering key the first that is not delivered."""
        first: dict[str, ModelMessage] = {}
        free: list[ModelMessage] = []
        for each in self.messages.values():
            if each.destination != destination or each.delivered is not None:
                continue
            if not each.key:
                free.append(each)
            else:
                first.setdefault(each.key, each)
        return self.in_order(each for each in (*free, *first.values()) if not each.is_dead)

    def claim(self, destination: str, now: int, *, visible: int, count: int) -> list[str]:
        """Who is claimed, in order; who was tried too often dies instead. The claim's id comes later."""
        claimed: list[str] = []
        for each in self.claimable(destination):
            if each.available > now or len(claimed) == count:
                break
            if each.tries >= self.tries_max:
                self.messages[each.outbox_id] = replace(each, is_dead=True, claim="")
                continue
            claimed.append(each.outbox_id)
            self.messages[each.outbox_id] = replace(
                each, tries=each.tries + 1, available=now + visible, claim="to be told"
            )
        return claimed

    def tell_claim(self, name: str, claim_id: str) -> None:
        """Note the id that the hub chose for a claim."""
        self.messages[name] = replace(self.messages[name], claim=claim_id)

    def next_available(self, destination: str) -> int | None:
        return min((each.available for each in self.claimable(destination)), default=None)

    def acknowledge(self, name: str, claim_id: str, now: int) -> str:
        message = self._message(name)
        lost = self._lost(message, claim_id, now)
        if lost is None:
            self.messages[name] = replace(message, claim="", delivered=now)
        return lost or "DONE"

    def give_back(self, name: str, claim_id: str, now: int, *, delay: int) -> str:
        message = self._message(name)
        lost = self._lost(message, claim_id, now)
        if lost is None:
            is_dead = message.tries >= self.tries_max
            self.messages[name] = replace(message, claim="", available=now + delay, is_dead=is_dead)
        return lost or "DONE"

    def release_dead(self, name: str, now: int) -> None:
        message = self._message(name)
        if message.is_dead:
            self.messages[name] = replace(message, is_dead=False, tries=0, available=now)

    def _message(self, name: str) -> ModelMessage:
        if name not in self.messages:
            raise Refused("NOT_FOUND", outboxId=name)
        return self.messages[name]

    def _lost(self, message: ModelMessage, claim_id: str, now: int) -> str | None:
        if message.delivered is not None:
            return "ALREADY_DELIVERED"
        is_hidden_by_it = message.state(now) == "CLAIMED" and message.claim == claim_id
        return None if is_hidden_by_it else "CLAIM_LOST"

    # --- what is read ---

    def of_stream(self, stream: str) -> Sequence[ModelEvent]:
        return [event for event in self.events if event.stream == stream]

    def listed(self, state: str | None, now: int) -> list[ModelMessage]:
        """Messages in a state, in all but DELIVERED where None."""
        return self.in_order(
            each
            for each in self.messages.values()
            if (each.state(now) == state if state else each.delivered is None)
        )
