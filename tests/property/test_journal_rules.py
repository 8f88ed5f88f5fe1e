"""The journal through the real service and store beside a model: whatever is called, whenever."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from hub.core.errors import Refusal
from hub.core.journal import NewProjection, ProjectionId, StreamId
from hub.core.journal_selection import OutboxFilter, Projection, StreamQuery
from hub.core.outbox import OutboxState
from tests.property.journal_comparison import (
    LIMITS,
    STREAM_NAMES,
    EventPlan,
    JournalComparison,
    MessagePlan,
    ProjectionPlan,
    facts_of,
)
from tests.property.journal_model import Refused
from tests.property.lease_comparison import hub_credential
from tests.property.lease_model import ModelClaim
from tests.unit.hub.journal_gate import EVERYTHING, JournalGate
from tests.unit.hub.journal_values import MINUTE, SECOND, TRACE
from tests.unit.hub.stored_runs import WALL_NANOS

HUBS = st.sampled_from(["h", "h", "h", "h", "other"])
STREAMS = st.sampled_from(["s", "s", "s", *STREAM_NAMES])
HOLDERS = st.sampled_from(["a", "b"])
TTLS = st.sampled_from([10 * SECOND, MINUTE, 10 * MINUTE])
CHOICES = st.integers(0, 1_000)
STALE: Final = [
    *("any", "holder", "nonce", "token", "other stream"),
    *("never leased", "expired", "released", "superseded", "fenced"),
]
"""Credentials that are not current, for all kinds of causes; see ``credential``."""
IDS = st.sampled_from(["new"] * 12 + ["used", "twice", "theirs"])
"""Where an id comes from: nobody had it, it was used here, it stands in this commit, another kind has it."""
TYPES, PAYLOADS = st.sampled_from(["a", "b"]), st.sampled_from([b"", b"payload", b"\x00\xff"])
TIMES, TRACES = st.sampled_from([None, None, -7, WALL_NANOS]), st.sampled_from(["", TRACE])
PLAIN_EVENT: Final[EventPlan] = ("new", "a", b"", None, "")
NEW_EVENTS = st.tuples(st.just("new"), TYPES, PAYLOADS, TIMES, TRACES)
EVENTS = st.tuples(IDS, TYPES, PAYLOADS, TIMES, TRACES)
NAMED = st.sampled_from(["", "own", "earlier"])
"""Which event a message names: one of its commit, one before it, or none."""
TO = st.sampled_from(["d", "d", "d", "D"])
KEYS = st.sampled_from(["", "", "k", "k", "l"])
DELAYS = st.sampled_from([None, None, None, -5, 20])
"""After how many seconds a message is available."""
PLAIN_MESSAGE: Final[MessagePlan] = ("new", "own", "d", "k", None, b"")
NEW_MESSAGES = st.tuples(st.just("new"), NAMED, TO, KEYS, DELAYS, PAYLOADS)
MESSAGES = st.tuples(IDS, NAMED, TO, KEYS, DELAYS, PAYLOADS)
PROJECTIONS = st.tuples(st.sampled_from(["own"] * 6 + ["twice", "foreign"]), PAYLOADS)
ANSWERS = st.sampled_from(["acknowledge", "return", "return", "never"])
CLAIM_IDS = st.sampled_from(["current", "current", "current", "earlier", "empty", "nobody's"])


class JournalMachine(JournalComparison):
    """Commits, retries, takeovers, claims and time, in two hub projects that use the same names."""

    @initialize()
    def somebody_watches_and_has_committed(self) -> None:
        self.watch()
        for tenant in self.tenants.values():
            first = self.made(tenant, "s", [("new", "a", b"first", None, "")])
            self.commit(tenant, first, self.holder_of(tenant, "s"))
            assert len(tenant.model.events) == 1

    # --- leases ---

    @rule(hub=HUBS, stream=STREAMS, holder=HOLDERS, ttl=TTLS)
    def somebody_acquires(self, hub: str, stream: str, holder: str, ttl: int) -> None:
        self.open(self.tenants[hub], "acquire", stream, ModelClaim(holder, self.new("nonce"), ttl))

    @rule(hub=HUBS, stream=STREAMS, holder=HOLDERS, ttl=TTLS)
    def somebody_takes_over(self, hub: str, stream: str, holder: str, ttl: int) -> None:
        self.open(self.tenants[hub], "takeover", stream, ModelClaim(holder, self.new("nonce"), ttl))

    @rule(hub=HUBS, stream=STREAMS, ttl=st.sampled_from([10 * SECOND, MINUTE]))
    def somebody_begins_maintenance(self, hub: str, stream: str, ttl: int) -> None:
        self.open(self.tenants[hub], "begin", stream, ModelClaim("operator", self.new("nonce"), ttl))

    @rule(hub=HUBS, choice=CHOICES)
    def somebody_ends_a_tenure(self, hub: str, choice: int) -> None:
        shown = self.tenants[hub].shown
        if shown:
            self.end(self.tenants[hub], shown[-1 - choice % min(3, len(shown))])

    # --- commits ---

    @rule(
        hub=HUBS,
        stream=STREAMS,
        credential=st.sampled_from(["current"] * 6 + STALE),
        off=st.sampled_from([0] * 8 + [-1, 1, 7]),
        events=st.lists(EVENTS, max_size=4),
        messages=st.lists(MESSAGES, max_size=3),
        projections=st.lists(PROJECTIONS, max_size=2),
        choice=CHOICES,
    )
    def somebody_commits(
        self,
        hub: str,
        stream: str,
        credential: str,
        off: int,
        events: Sequence[EventPlan],
        messages: Sequence[MessagePlan],
        projections: Sequence[ProjectionPlan],
        choice: int,
    ) -> None:
        tenant = self.tenants[hub]
        shown = self.credential(tenant, stream, credential, choice)
        made = self.made(
            tenant, stream, events, messages=messages, projections=projections, off=off, choice=choice
        )
        self.commit(tenant, made, shown)

    @rule(hub=HUBS, stream=STREAMS, events=st.lists(NEW_EVENTS, min_size=1, max_size=5))
    def somebody_appends_events(self, hub: str, stream: str, events: Sequence[EventPlan]) -> None:
        tenant = self.tenants[hub]
        self.commit(tenant, self.made(tenant, stream, events), self.holder_of(tenant, stream))

    @rule(hub=HUBS, stream=STREAMS, messages=st.lists(NEW_MESSAGES, min_size=1, max_size=4), choice=CHOICES)
    def somebody_leaves_messages(
        self, hub: str, stream: str, messages: Sequence[MessagePlan], choice: int
    ) -> None:
        tenant = self.tenants[hub]
        made = self.made(tenant, stream, (), messages=messages, choice=choice)
        self.commit(tenant, made, self.holder_of(tenant, stream))

    @rule(hub=HUBS, stream=STREAMS, credential=st.sampled_from(STALE), choice=CHOICES)
    def somebody_commits_with_a_credential_that_is_not_current(
        self, hub: str, stream: str, credential: str, choice: int
    ) -> None:
        tenant = self.tenants[hub]
        shown = self.credential(tenant, stream, credential, choice)
        self.commit(tenant, self.made(tenant, stream, [PLAIN_EVENT]), shown)

    @rule(hub=HUBS, place=st.integers(0, 2), choice=CHOICES)
    def somebody_commits_names_that_must_not_stand_there(self, hub: str, place: int, choice: int) -> None:
        tenant = self.tenants[hub]
        if not any(each.stream == "S" for each in tenant.model.projections.values()):
            before = self.made(
                tenant, "S", [PLAIN_EVENT], messages=[PLAIN_MESSAGE], projections=[("own", b"")]
            )
            self.commit(tenant, before, self.holder_of(tenant, "S"))
        for kind in ("event", "message", "projection"):
            for origin in ("used", "twice", "foreign", "unknown"):
                events, messages, projections = [PLAIN_EVENT] * 3, [PLAIN_MESSAGE] * 3, [("own", b"")] * 3
                if kind == "event":
                    events[place] = (origin, *PLAIN_EVENT[1:])
                elif kind == "projection":
                    projections[place] = (origin, b"")
                elif origin == "unknown":
                    messages[place] = ("new", origin, *PLAIN_MESSAGE[2:])
                else:
                    messages[place] = (origin, *PLAIN_MESSAGE[1:])
                made = self.made(
                    tenant, "s", events, messages=messages, projections=projections, choice=choice
                )
                self.commit(tenant, made, self.holder_of(tenant, "s"))
        behind = self.made(tenant, "s", [PLAIN_EVENT], off=1 if place else -1)
        self.commit(tenant, behind, self.holder_of(tenant, "s"))

    @rule(hub=HUBS, credential=st.sampled_from(["current", "any", "nonce"]), choice=CHOICES)
    def somebody_commits_the_same_again(self, hub: str, credential: str, choice: int) -> None:
        tenant = self.tenants[hub]
        tried, _ = list(tenant.model.commits.values())[choice % len(tenant.model.commits)]
        self.commit(tenant, tried, self.credential(tenant, tried.stream_id, credential, choice))

    @rule(
        hub=HUBS,
        part=st.sampled_from(["events", "messages", "projections", "reply", "revision", "stream", "hub"]),
        choice=CHOICES,
    )
    def somebody_commits_something_else_under_a_used_message_id(
        self, hub: str, part: str, choice: int
    ) -> None:
        tenant = self.tenants[hub]
        tried, _ = list(tenant.model.commits.values())[choice % len(tenant.model.commits)]
        shown = self.holder_of(tenant, tried.stream_id)
        if part == "events":
            other = self.made(tenant, tried.stream_id, [PLAIN_EVENT])
            tried = replace(tried, events=(*tried.events, *other.events))
        elif part == "messages":
            other = self.made(tenant, tried.stream_id, (), messages=[PLAIN_MESSAGE])
            tried = replace(tried, outbox_messages=(*tried.outbox_messages, *other.outbox_messages))
        elif part == "projections":
            tried = replace(tried, projections=(*tried.projections, NewProjection(ProjectionId("p"), b"")))
        elif part == "reply":
            tried = replace(tried, reply=tried.reply + b"!")
        elif part == "revision":
            tried = replace(tried, expected_revision=tried.expected_revision + 1)
        elif part == "stream":
            tried = replace(tried, stream_id=StreamId(tried.stream_id + "!"))
        else:
            # In another hub project it is a message id like any other.
            tenant = self.tenants["other" if hub == "h" else "h"]
        self.commit(tenant, tried, shown)

    @rule(hub=HUBS, stream=STREAMS)
    def two_commit_at_the_same_revision_in_one_group(self, hub: str, stream: str) -> None:
        tenant = self.tenants[hub]
        shown = self.holder_of(tenant, stream)
        both = [self.made(tenant, stream, [PLAIN_EVENT]) for _ in range(2)]
        both = [replace(each, credential=hub_credential(shown)) for each in both]
        calls = [
            self.gate.loop.create_task(self.gate.journal.commit(tenant.caller, each, bytes_count=1))
            for each in both
        ]
        self.gate.settle()
        expected, _ = tenant.model.commit(both[0], shown, self.now)
        assert calls[0].result().result.revision == expected.revision
        assert isinstance(self.asked(lambda: tenant.model.commit(both[1], shown, self.now)), Refused)
        refusal = calls[1].exception()
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "REVISION_CONFLICT"

    # --- reads with a credential ---

    @rule(hub=HUBS, stream=STREAMS, credential=st.sampled_from(["current", *STALE]), choice=CHOICES)
    def somebody_reads_with_a_credential(self, hub: str, stream: str, credential: str, choice: int) -> None:
        tenant = self.tenants[hub]
        shown = self.credential(tenant, stream, credential, choice)
        query = StreamQuery(StreamId(stream), credential=hub_credential(shown))
        stored = self.gate.stored()
        call = self.gate.journal_reads.stream_events(tenant.caller, query, bounds=EVERYTHING)
        expected = self.asked(lambda: tenant.model.current(stream, shown))
        if isinstance(expected, Refused):
            self.refused(call, expected)
        else:
            events = [tuple(each) for each in self.gate.answer(call).events]
            assert events == [tuple(each) for each in tenant.model.of_stream(stream)]
        assert self.gate.stored() == stored

    # --- outbox messages ---

    @rule(
        hub=HUBS,
        destination=TO,
        visible=st.sampled_from([SECOND, 30 * SECOND]),
        count=st.sampled_from([3, 5, 100]),
    )
    def somebody_claims(self, hub: str, destination: str, visible: int, count: int) -> None:
        self.claimed(self.tenants[hub], destination, visible=visible, count=count)

    @rule(
        hub=HUBS,
        destination=TO,
        rounds=st.integers(1, LIMITS.outbox_tries_max + 1),
        answers=st.lists(ANSWERS, max_size=4),
    )
    def a_dispatcher_claims_and_answers_again_and_again(
        self, hub: str, destination: str, rounds: int, answers: Sequence[str]
    ) -> None:
        tenant = self.tenants[hub]
        for _ in range(rounds):
            names = self.claimed(tenant, destination, visible=SECOND, count=100)
            for name, answer in zip(names, answers, strict=False):
                claim_id = tenant.model.messages[name].claim
                if answer == "acknowledge":
                    self.acknowledge(tenant, name, claim_id)
                    self.acknowledge(tenant, name, claim_id)
                elif answer == "return":
                    self.give_back(tenant, name, claim_id, 0)
            self.let_pass(SECOND)

    @rule(hub=HUBS, stream=STREAMS, messages=st.lists(NEW_MESSAGES, max_size=3))
    def messages_are_delivered(self, hub: str, stream: str, messages: Sequence[MessagePlan]) -> None:
        tenant = self.tenants[hub]
        made = self.made(tenant, stream, (), messages=[*messages, ("new", "", "D", "", None, b"")])
        self.commit(tenant, made, self.holder_of(tenant, stream))
        for name in self.claimed(tenant, "D", visible=SECOND, count=100):
            for _ in range(2):
                self.acknowledge(tenant, name, tenant.model.messages[name].claim)

    @rule(hub=HUBS, stream=STREAMS, is_returned=st.booleans(), choice=CHOICES)
    def messages_are_tried_until_they_are_dead(
        self, hub: str, stream: str, is_returned: bool, choice: int
    ) -> None:
        tenant = self.tenants[hub]
        made = self.made(tenant, stream, (), messages=[PLAIN_MESSAGE, ("new", "", "d", "", None, b"")])
        self.commit(tenant, made, self.holder_of(tenant, stream))
        for _ in range(LIMITS.outbox_tries_max + 1):
            for name in self.claimed(tenant, "d", visible=SECOND, count=100):
                if is_returned:
                    self.give_back(tenant, name, tenant.model.messages[name].claim, 0)
            self.let_pass(SECOND)
        dead = [each.outbox_id for each in tenant.model.messages.values() if each.is_dead]
        self.release(tenant, dead[choice % len(dead)])

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES, claim=CLAIM_IDS)
    def somebody_acknowledges(self, hub: str, choice: int, claim: str) -> None:
        tenant = self.tenants[hub]
        name, claim_id = self.claim(tenant, choice, claim)
        self.acknowledge(tenant, name, claim_id)

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES, claim=CLAIM_IDS, delay=st.sampled_from([0, 0, 20 * SECOND]))
    def somebody_returns(self, hub: str, choice: int, claim: str, delay: int) -> None:
        tenant = self.tenants[hub]
        name, claim_id = self.claim(tenant, choice, claim)
        self.give_back(tenant, name, claim_id, delay)

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES)
    def somebody_releases(self, hub: str, choice: int) -> None:
        tenant = self.tenants[hub]
        self.release(tenant, self.claim(tenant, choice, "nobody's")[0])

    # --- time ---

    @rule(seconds=st.sampled_from([1, 1, 5, 20, 30, 70, 700]))
    def time_passes(self, seconds: int) -> None:
        self.let_pass(seconds * SECOND)

    @precondition(lambda self: self.name_count >= self.restart_due)
    @rule(wall_step=st.sampled_from([-86_400, 0, 86_400]))
    def the_hub_restarts_with_another_wall_clock(self, wall_step: int) -> None:
        self.restart_due = self.name_count + 10
        wall_nanos = max(WALL_NANOS, self.now + wall_step * SECOND)
        self.gate.close()
        claim_numbers = self.gate.claim_numbers
        self.gate = JournalGate(Path(self.folder.name), limits=LIMITS, wall_nanos=wall_nanos)
        self.gate.claim_numbers = claim_numbers
        for tenant in self.tenants.values():
            tenant.model.advance(self.now)
        self.watch()

    # --- what holds after each of them ---

    @invariant()
    def events_and_streams_are_those_of_the_model(self) -> None:
        for tenant in self.tenants.values():
            model, caller = tenant.model, tenant.caller
            with self.gate.store.reading() as transaction:
                events = transaction.journal.events_after(
                    caller.hub_project, after_position=0, event_types=(), bounds=EVERYTHING
                )
                assert [tuple(each) for each in events.events] == [tuple(each) for each in model.events]
                assert events.head_position == len(model.events)
                streams = transaction.journal.streams(
                    caller.hub_project, prefix="", event_type=None, after=None, entries_max=100
                )
            assert [
                (each.stream_id, each.revision, each.fencing_token, each.create_nanos, each.last_commit_nanos)
                for each in streams
            ] == [
                (name, stream.revision, stream.token, stream.created, stream.last_commit)
                for name, stream in sorted(model.streams.items())
            ]
            for each in streams:
                lease = model.resource(each.stream_id).lease
                assert each.is_leased(self.now) == (lease is not None and lease.state == "LIVE")
                of_stream = model.of_stream(each.stream_id)
                assert [event.revision for event in of_stream] == list(range(1, each.revision + 1))

    @invariant()
    def messages_and_projections_are_those_of_the_model(self) -> None:
        for tenant in self.tenants.values():
            model, hub_project = tenant.model, tenant.caller.hub_project
            with self.gate.store.reading() as transaction:
                for state in (None, *OutboxState):
                    found = transaction.journal.outbox_messages(
                        hub_project,
                        OutboxFilter(None, state),
                        now_nanos=self.now,
                        after=None,
                        bounds=EVERYTHING,
                    )
                    assert found.next_place is None
                    expected = model.listed(None if state is None else str(state), self.now)
                    assert [*map(facts_of, found.messages)] == [*map(astuple, expected)]
                for name, each in model.projections.items():
                    read = transaction.journal.projection(hub_project, ProjectionId(name))
                    assert read == Projection(
                        ProjectionId(name), StreamId(each.stream), each.value, each.revision, each.time
                    )

    @invariant()
    def watchers_have_seen_every_event_once_and_in_order(self) -> None:
        self.gate.settle()
        for tenant in self.tenants.values():
            assert tenant.seen == [event.position for event in tenant.model.events]


ROWS: Final = {
    "committed",
    "recovered",
    "IDEMPOTENCY_CONFLICT message_id",
    "REVISION_CONFLICT",
    "INVALID_REQUEST events[].event_id",
    "INVALID_REQUEST outbox_messages[].outbox_id",
    "INVALID_REQUEST outbox_messages[].event_id",
    "INVALID_REQUEST projections[].projection_id",
    "IDEMPOTENCY_CONFLICT events[].event_id",
    "IDEMPOTENCY_CONFLICT outbox_messages[].outbox_id",
    "IDEMPOTENCY_CONFLICT projections[].projection_id",
    *(f"STALE_LEASE LEASE_{cause}" for cause in ("MISSING", "SUPERSEDED", "FENCED", "EXPIRED")),
    "STALE_LEASE OTHER_RESOURCE",
    "DONE",
    "ALREADY_DELIVERED",
    "CLAIM_LOST",
    "NOT_FOUND",
    "dead",
    "released from dead",
}
"""What has to come up in a run: each row of the table with each cause, each outcome of the outbox."""


@pytest.mark.timeout(3_600)
def test_whatever_is_called_the_journal_is_the_model_and_every_outcome_comes_up() -> None:
    reached: Counter[str] = Counter()

    class Machine(JournalMachine):
        def teardown(self) -> None:
            reached.update(self.reached)
            super().teardown()

    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=30))
    print(f"reached: {sorted(reached.items())}")
    assert {row for row in ROWS if not reached[row]} == set()
