"""The journal through the real service and store beside a model: whatever is called, whenever."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hub.core.errors import Refusal
from hub.core.journal import NewProjection, OutboxId, ProjectionId, StreamId
from hub.core.journal_selection import Projection, StreamQuery
from hub.core.outbox import OutboxState
from tests.property.journal_comparison import (
    LIMITS,
    STREAM_NAMES,
    EventPlan,
    JournalComparison,
    MessagePlan,
    ProjectionPlan,
    assert_same_message,
)
from tests.property.journal_model import Refused
from tests.property.lease_comparison import hub_credential
from tests.property.lease_model import ModelClaim
from tests.property.lease_model import Refused as LeaseRefused
from tests.unit.hub.journal_gate import EVERYTHING, JournalGate
from tests.unit.hub.journal_values import MINUTE, SECOND, TRACE
from tests.unit.hub.stored_runs import WALL_NANOS

DESTINATIONS: Final = ("d", "D")

HUBS = st.sampled_from(["h", "h", "h", "h", "other"])
STREAMS = st.sampled_from([*STREAM_NAMES[:1] * 3, *STREAM_NAMES])
HOLDERS = st.sampled_from(["a", "b"])
TTLS = st.sampled_from([10 * SECOND, MINUTE, 10 * MINUTE])
CHOICES = st.integers(0, 1_000)
IDS = st.sampled_from(["new"] * 10 + ["used", "twice", "theirs"])
"""Where an id comes from: nobody had it, it was used here, it stands in this commit, another kind has it."""
CREDENTIALS = st.sampled_from(["current"] * 12 + ["any", "holder", "nonce", "token", "other stream"])
EXPECTED = st.sampled_from([0] * 12 + [-1, 1, 7])
"""How far the expected revision is from the stream's."""
PAYLOADS = st.sampled_from([b"", b"payload", b"\x00\xff"])
EVENTS = st.lists(
    st.tuples(
        IDS,
        st.sampled_from(["a", "b"]),
        PAYLOADS,
        st.sampled_from([None, None, -7, WALL_NANOS]),
        st.sampled_from(["", TRACE]),
    ),
    max_size=4,
)
MESSAGES = st.lists(
    st.tuples(
        IDS,
        st.sampled_from(["", "", "own", "own", "earlier", "unknown"]),
        st.sampled_from(DESTINATIONS[:1] * 3 + DESTINATIONS),
        st.sampled_from(["", "", "k", "k", "l"]),
        st.sampled_from([None, None, None, -5, 20]),
        PAYLOADS,
    ),
    max_size=3,
)
PROJECTIONS = st.lists(
    st.tuples(st.sampled_from(["own", "own", "own", "own", "twice", "foreign"]), PAYLOADS), max_size=2
)
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
        tenant = self.tenants[hub]
        if not tenant.shown:
            return
        shown = tenant.shown[-1 - choice % min(3, len(tenant.shown))]
        leases, caller = self.gate.leases, tenant.caller
        try:
            tenant.model.release(shown, self.now)
            self.gate.answer(leases.release(caller, hub_credential(shown), repeat=None))
        except LeaseRefused:
            try:
                tenant.model.finish(shown, self.now, delete_state=False)
            except LeaseRefused:
                return
            self.gate.answer(
                leases.finish_maintenance(caller, hub_credential(shown), is_state_deleted=False, repeat=None)
            )

    # --- commits ---

    @rule(
        hub=HUBS,
        stream=STREAMS,
        credential=CREDENTIALS,
        off=EXPECTED,
        events=EVENTS,
        messages=MESSAGES,
        projections=PROJECTIONS,
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
            other = self.made(tenant, tried.stream_id, [("new", "a", b"", None, "")])
            tried = replace(tried, events=(*tried.events, *other.events))
        elif part == "messages":
            other = self.made(tenant, tried.stream_id, (), messages=[("new", "", "d", "", None, b"")])
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
        both = [self.made(tenant, stream, [("new", "a", b"", None, "")]) for _ in range(2)]
        both = [replace(each, credential=hub_credential(shown)) for each in both]
        calls = [
            self.gate.loop.create_task(self.gate.journal.commit(tenant.caller, each, bytes_count=1))
            for each in both
        ]
        self.gate.settle()
        expected, _ = tenant.model.commit(both[0], shown, self.now)
        assert calls[0].result().result.revision == expected.revision
        with pytest.raises(Refused):
            tenant.model.commit(both[1], shown, self.now)
        refusal = calls[1].exception()
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "REVISION_CONFLICT"

    # --- reads with a credential ---

    @rule(hub=HUBS, stream=STREAMS, credential=CREDENTIALS, choice=CHOICES)
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
        destination=st.sampled_from(DESTINATIONS[:1] * 3 + DESTINATIONS),
        visible=st.sampled_from([SECOND, 30 * SECOND]),
        count=st.sampled_from([3, 5, 100]),
    )
    def somebody_claims(self, hub: str, destination: str, visible: int, count: int) -> None:
        tenant = self.tenants[hub]
        claimed = self.gate.answer(
            self.gate.journal.claim(
                tenant.caller, destination, visible_nanos=visible, entries_max=count, bytes_max=1 << 30
            )
        )
        expected = tenant.model.claim(destination, self.now, visible=visible, count=count)
        assert [each.outbox_id for each in claimed.messages] == expected
        for each in claimed.messages:
            assert each.claim_id not in {claim_id for _, claim_id in tenant.claims}
            tenant.claims.append((each.outbox_id, each.claim_id))
            tenant.model.tell_claim(each.outbox_id, each.claim_id)
        assert claimed.claim_expire_nanos == self.now + visible
        assert claimed.next_available_nanos == tenant.model.next_available(destination)

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES, claim=CLAIM_IDS)
    def somebody_acknowledges(self, hub: str, choice: int, claim: str) -> None:
        tenant = self.tenants[hub]
        name, claim_id = self.claim(tenant, choice, claim)
        self.answered(
            self.gate.journal.acknowledge(tenant.caller, OutboxId(name), claim_id=claim_id),
            lambda: tenant.model.acknowledge(name, claim_id, self.now),
        )

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES, claim=CLAIM_IDS, delay=st.sampled_from([0, 0, 20 * SECOND]))
    def somebody_returns(self, hub: str, choice: int, claim: str, delay: int) -> None:
        tenant = self.tenants[hub]
        name, claim_id = self.claim(tenant, choice, claim)
        self.answered(
            self.gate.journal.return_(tenant.caller, OutboxId(name), claim_id=claim_id, delay_nanos=delay),
            lambda: tenant.model.give_back(name, claim_id, self.now, delay=delay),
        )

    @precondition(lambda self: any(tenant.model.messages for tenant in self.tenants.values()))
    @rule(hub=HUBS, choice=CHOICES, prefers_dead=st.booleans())
    def somebody_releases(self, hub: str, choice: int, prefers_dead: bool) -> None:
        tenant = self.tenants[hub]
        name, _ = self.claim(tenant, choice, "nobody's")
        dead = [each.outbox_id for each in tenant.model.messages.values() if each.is_dead]
        if prefers_dead and dead:
            name = dead[choice % len(dead)]
        stored = self.gate.stored()
        call = self.gate.journal.release(tenant.caller, OutboxId(name))
        was_dead = name in dead
        expected = self.asked(lambda: tenant.model.release_dead(name, self.now))
        if isinstance(expected, Refused):
            self.refused(call, expected)
        else:
            assert_same_message(self.gate.answer(call).message, tenant.model.messages[name])
        if not was_dead:
            assert self.gate.stored() == stored

    # --- time ---

    @rule(seconds=st.sampled_from([1, 1, 5, 20, 30, 70, 700]))
    def time_passes(self, seconds: int) -> None:
        self.gate.pass_time(seconds * SECOND)
        for tenant in self.tenants.values():
            tenant.model.advance(self.now)

    @rule(wall_step=st.sampled_from([-86_400, 0, 86_400]))
    def the_hub_restarts_with_another_wall_clock(self, wall_step: int) -> None:
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
            view = self.gate.answer(
                self.gate.journal_reads.streams(
                    caller, prefix="", event_type=None, after=None, entries_max=100
                )
            )
            assert [
                (each.stream_id, each.revision, each.fencing_token, each.create_nanos, each.last_commit_nanos)
                for each in view.streams
            ] == [
                (name, stream.revision, stream.token, stream.created, stream.last_commit)
                for name, stream in sorted(model.streams.items())
            ]
            for each in view.streams:
                lease = model.resource(each.stream_id).lease
                assert each.is_leased(view.now_nanos) == (lease is not None and lease.state == "LIVE")
                of_stream = model.of_stream(each.stream_id)
                assert [event.revision for event in of_stream] == list(range(1, each.revision + 1))

    @invariant()
    def messages_and_projections_are_those_of_the_model(self) -> None:
        for tenant in self.tenants.values():
            self.gate.caller = tenant.caller
            for state in (None, *OutboxState):
                messages = self.gate.messages(state)
                expected = tenant.model.listed(None if state is None else str(state), self.now)
                assert len(messages) == len(expected)
                for message, modelled in zip(messages, expected, strict=True):
                    assert_same_message(message, modelled)
            for name, modelled_projection in tenant.model.projections.items():
                read = self.gate.journal_reads.projection(tenant.caller, ProjectionId(name))
                assert self.gate.answer(read) == Projection(
                    ProjectionId(name),
                    StreamId(modelled_projection.stream),
                    modelled_projection.value,
                    modelled_projection.revision,
                    modelled_projection.time,
                )

    @invariant()
    def watchers_have_seen_every_event_once_and_in_order(self) -> None:
        self.gate.settle()
        for tenant in self.tenants.values():
            assert tenant.seen == [event.position for event in tenant.model.events]


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(stateful_step_count=40)
