"""The real journal and its model side by side: each call is made to both, and compared."""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from hub.core.errors import Refusal
from hub.core.journal import (
    Commit,
    JournalEventId,
    MessageId,
    NewEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxId,
    ProjectionId,
    StreamId,
    stream_resource,
)
from hub.core.journal_selection import JournalQuery
from hub.core.limits import Limits
from hub.core.outbox import OutboxMessage
from hub.core.values import Caller
from hub.service.journal import OutboxAnswer
from tests.property.journal_model import JournalModel, Refused
from tests.property.lease_comparison import asked, hub_claim, hub_credential
from tests.property.lease_model import ModelClaim, ModelCredential
from tests.property.lease_model import Refused as LeaseRefused
from tests.unit.hub.gate import caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import MINUTE, SECOND

LIMITS: Final = Limits(outbox_tries_max=2, watch_page_entries_max=3, lease_retention_days=10_000)
STREAM_NAMES: Final = ("s", "S", "s%")

MEMORY: Final = Path("/dev/shm")
"""Where files are not synced to a disk: nothing here is about the loss of power."""

EventPlan = tuple[str, str, bytes, int | None, str]
"""Where the id comes from, type, payload, time, trace."""
MessagePlan = tuple[str, str, str, str, int | None, bytes]
"""Where the id comes from, which event it names, destination, key, seconds until available, payload."""
ProjectionPlan = tuple[str, bytes]
"""Where the id comes from, value."""
Result = TypeVar("Result")


class Tenant:
    """A hub project: its model, and what was shown and claimed in it so far."""

    def __init__(self, name: str) -> None:
        self.caller: Caller = caller_of(name)
        self.model = JournalModel(tries_max=LIMITS.outbox_tries_max)
        self.shown: list[ModelCredential] = []
        self.claims: list[tuple[str, str]] = []
        self.seen: list[int] = []


class JournalComparison(RuleBasedStateMachine):
    """What both are asked, and what has to be the same; the rules are those of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.gate = JournalGate(Path(self.folder.name), limits=LIMITS)
        self.restart_due = 0
        self.tenants = {name: Tenant(name) for name in ("h", "other")}
        self.name_count = 0
        self.reached: Counter[str] = Counter()
        """Which outcomes there were, of all kinds of calls."""

    def teardown(self) -> None:
        self.gate.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.gate.clock.now()

    def new(self, kind: str) -> str:
        """A name that nobody had."""
        self.name_count += 1
        return f"{kind}-{self.name_count}"

    def watch(self) -> None:
        """Watch both hub projects, each from where it was left."""
        for tenant in self.tenants.values():
            self.gate.start(self._watch(tenant))

    async def _watch(self, tenant: Tenant) -> None:
        query = JournalQuery(
            hub_generation=self.gate.store.hub_generation,
            after_position=tenant.seen[-1] if tenant.seen else 0,
        )
        async with self.gate.journal_watches.watching(tenant.caller, query) as watch:
            while True:
                answer = await watch.next_answer()
                tenant.seen.extend(event.position for event in answer.events)

    def open(self, tenant: Tenant, method: str, stream: str, claim: ModelClaim) -> None:
        """Open a tenure in both, or see it refused by both."""
        model, leases, caller = tenant.model, self.gate.leases, tenant.caller
        name = stream_resource(StreamId(stream))
        if method == "acquire":
            call = leases.acquire(caller, name, claim=hub_claim(claim), repeat=None, wait_nanos=0)
        elif method == "takeover":
            call = leases.takeover(caller, name, claim=hub_claim(claim), repeat=None)
        else:
            call = leases.begin_maintenance(caller, name, claim=hub_claim(claim), repeat=None)
        expected = asked(lambda: getattr(model, method)(stream, claim, self.now))
        if isinstance(expected, LeaseRefused):
            with pytest.raises(Refusal) as caught:
                self.gate.answer(call)
            assert caught.value.reason == expected.told[0]
            return
        assert expected is not None
        assert self.gate.answer(call).tenure.fencing_token == expected.token
        tenant.shown.append(ModelCredential(stream, claim.holder, expected.token, claim.nonce))

    def holder_of(self, tenant: Tenant, stream: str) -> ModelCredential:
        """The credential of who may write a stream now; where nobody may, of who acquires it for that."""
        live = tenant.model.resource(stream).live
        if live is None:
            self.open(tenant, "acquire", stream, ModelClaim("a", self.new("nonce"), MINUTE))
            live = tenant.model.resource(stream).live
        assert live is not None
        assert live.nonce is not None
        return ModelCredential(stream, live.holder, live.token, live.nonce)

    def credential(self, tenant: Tenant, stream: str, kind: str, choice: int) -> ModelCredential:
        """A credential that is current, or is not any more, or never was."""
        shown = self.holder_of(tenant, stream)
        if kind == "any" and tenant.shown:
            return tenant.shown[choice % len(tenant.shown)]
        if kind == "other stream":
            others = [name for name in STREAM_NAMES if name != stream]
            return self.holder_of(tenant, others[choice % len(others)])
        if kind == "never leased":
            return replace(shown, resource=self.new("never"))
        if kind == "holder":
            return replace(shown, holder=f"not {shown.holder}")
        if kind == "nonce":
            return replace(shown, nonce="nobody's")
        if kind == "token":
            return replace(shown, token=shown.token + 1 if choice % 2 else max(1, shown.token - 1))
        if kind == "expired":
            self.let_pass(11 * MINUTE)
        elif kind == "released":
            self.end(tenant, shown)
        elif kind == "superseded":
            self.open(tenant, "acquire", stream, ModelClaim(shown.holder, self.new("nonce"), MINUTE))
        elif kind == "fenced":
            live = tenant.model.resource(stream).live
            if live is not None and live.is_maintenance:
                self.end(tenant, shown)
                shown = self.holder_of(tenant, stream)
            self.open(tenant, "begin", stream, ModelClaim("operator", self.new("nonce"), MINUTE))
        return shown

    def end(self, tenant: Tenant, shown: ModelCredential) -> None:
        """Release a lease or finish a maintenance in both, where the model allows it."""
        leases, caller = self.gate.leases, tenant.caller
        try:
            tenant.model.release(shown, self.now)
        except LeaseRefused:
            try:
                tenant.model.finish(shown, self.now, delete_state=False)
            except LeaseRefused:
                return
            self.gate.answer(
                leases.finish_maintenance(caller, hub_credential(shown), is_state_deleted=False, repeat=None)
            )
        else:
            self.gate.answer(leases.release(caller, hub_credential(shown), repeat=None))

    def let_pass(self, nanos: int) -> None:
        """Let time pass for both."""
        self.gate.pass_time(nanos)
        for tenant in self.tenants.values():
            tenant.model.advance(self.now)

    def made(
        self,
        tenant: Tenant,
        stream: str,
        events: Sequence[EventPlan],
        *,
        messages: Sequence[MessagePlan] = (),
        projections: Sequence[ProjectionPlan] = (),
        off: int = 0,
        choice: int = 0,
    ) -> Commit:
        """A commit with its ids chosen: new ones, or ones that somebody used."""
        model = tenant.model
        used_events = [event.event_id for event in model.events]
        used_messages = list(model.messages)
        event_ids: list[str] = []
        for kind, *_ in events:
            event_ids.append(self.identifier(kind, "e", event_ids, used_events, used_messages, choice))
        outbox_ids: list[str] = []
        for kind, *_ in messages:
            outbox_ids.append(self.identifier(kind, "o", outbox_ids, used_messages, used_events, choice))
        named = {
            "": "",
            "own": event_ids[choice % len(event_ids)] if event_ids else "",
            "earlier": used_events[choice % len(used_events)] if used_events else "",
            "unknown": self.new("unknown"),
        }
        others = [name for name, each in model.projections.items() if each.stream != stream]
        projection_ids: list[str] = []
        for kind, _ in projections:
            name = f"p{len(projection_ids)} of {stream}"
            if kind == "twice" and projection_ids:
                name = projection_ids[0]
            elif kind == "foreign" and others:
                name = others[choice % len(others)]
            projection_ids.append(name)
        revision = model.streams[stream].revision if stream in model.streams else 0
        return Commit(
            message_id=MessageId(self.new("m")),
            stream_id=StreamId(stream),
            credential=hub_credential(ModelCredential(stream, "nobody", 1, "")),
            expected_revision=max(0, revision + off),
            events=[
                NewEvent(JournalEventId(name), event_type, payload, time, "correlation", "causation", trace)
                for name, (_, event_type, payload, time, trace) in zip(event_ids, events, strict=True)
            ],
            outbox_messages=[
                NewOutboxMessage(
                    OutboxId(name),
                    named[event],
                    destination,
                    key,
                    payload,
                    None if available is None else self.now + available * SECOND,
                )
                for name, (_, event, destination, key, available, payload) in zip(
                    outbox_ids, messages, strict=True
                )
            ],
            projections=[
                NewProjection(ProjectionId(name), value)
                for name, (_, value) in zip(projection_ids, projections, strict=True)
            ],
            reply=f"reply {choice}".encode(),
        )

    def identifier(
        self,
        kind: str,
        prefix: str,
        before: Sequence[str],
        used: Sequence[str],
        of_others: Sequence[str],
        choice: int,
    ) -> str:
        if kind == "twice" and before:
            return before[choice % len(before)]
        if kind == "used" and used:
            return used[choice % len(used)]
        if kind == "theirs" and of_others and (taken := of_others[choice % len(of_others)]) not in before:
            return taken
        return self.new(prefix)

    def claim(self, tenant: Tenant, choice: int, kind: str) -> tuple[str, str]:
        """A message and a claim of it: the one that hides it, an earlier one, or none."""
        names = list(tenant.model.messages) or ["o-nobody's"]
        hidden = [name for name in names if name in tenant.model.messages and self.is_claimed(tenant, name)]
        if kind == "current" and hidden:
            name = hidden[choice % len(hidden)]
            return name, tenant.model.messages[name].claim
        if kind == "earlier" and tenant.claims:
            return tenant.claims[choice % len(tenant.claims)]
        name = names[choice % len(names)]
        return name, "" if kind == "empty" else "nobody's"

    def is_claimed(self, tenant: Tenant, name: str) -> bool:
        return tenant.model.messages[name].state(self.now) == "CLAIMED"

    def commit(self, tenant: Tenant, tried: Commit, shown: ModelCredential) -> None:
        """Commit in both; after a refusal and after a recovery nothing has changed."""
        tried = replace(tried, credential=hub_credential(shown))
        stored = self.gate.stored()
        call = self.gate.journal.commit(tenant.caller, tried, bytes_count=1)
        expected = self.asked(lambda: tenant.model.commit(tried, shown, self.now))
        if isinstance(expected, Refused):
            self.refused(call, expected)
            assert self.gate.stored() == stored
            return
        committed = self.gate.answer(call)
        result, is_recovered = expected
        self.reached["recovered" if is_recovered else "committed"] += 1
        assert committed.is_recovered == is_recovered
        assert (
            committed.result.previous_revision,
            committed.result.revision,
            committed.result.commit_nanos,
            tuple(committed.result.positions),
            committed.result.reply,
        ) == result
        if is_recovered:
            assert self.gate.stored() == stored

    def claimed(self, tenant: Tenant, destination: str, *, visible: int, count: int) -> list[str]:
        """Claim in both, and return what was claimed."""
        dead_before = sum(each.is_dead for each in tenant.model.messages.values())
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
        self.reached["dead"] += sum(each.is_dead for each in tenant.model.messages.values()) - dead_before
        return expected

    def acknowledge(self, tenant: Tenant, name: str, claim_id: str) -> None:
        self.answered(
            self.gate.journal.acknowledge(tenant.caller, OutboxId(name), claim_id=claim_id),
            lambda: tenant.model.acknowledge(name, claim_id, self.now),
        )

    def give_back(self, tenant: Tenant, name: str, claim_id: str, delay: int) -> None:
        self.answered(
            self.gate.journal.return_(tenant.caller, OutboxId(name), claim_id=claim_id, delay_nanos=delay),
            lambda: tenant.model.give_back(name, claim_id, self.now, delay=delay),
        )

    def release(self, tenant: Tenant, name: str) -> None:
        """Release in both; unless it was dead nothing has changed."""
        stored = self.gate.stored()
        was_dead = name in tenant.model.messages and tenant.model.messages[name].is_dead
        self.reached["released from dead"] += was_dead
        call = self.gate.journal.release(tenant.caller, OutboxId(name))
        expected = self.asked(lambda: tenant.model.release_dead(name, self.now))
        if isinstance(expected, Refused):
            self.refused(call, expected)
        else:
            assert facts_of(self.gate.answer(call).message) == astuple(tenant.model.messages[name])
        if not was_dead:
            assert self.gate.stored() == stored

    def answered(self, call: Coroutine[None, None, OutboxAnswer], ask_model: Callable[[], str]) -> None:
        """Answer about a message in both; unless it was done nothing has changed."""
        stored = self.gate.stored()
        expected = self.asked(ask_model)
        if isinstance(expected, Refused):
            self.refused(call, expected)
        else:
            assert str(self.gate.answer(call).outcome) == expected
        if expected != "DONE":
            assert self.gate.stored() == stored

    def asked(self, ask_model: Callable[[], Result]) -> Result | Refused:
        """What the model says, its refusal as a value; every outcome is counted."""
        try:
            outcome = ask_model()
        except Refused as refused:
            reason, facts = refused.told
            place = "".join(each for each in facts.get("field", "") if not each.isdigit())
            self.reached[" ".join(filter(None, (reason, facts.get("cause", ""), place)))] += 1
            return refused
        self.reached[outcome if isinstance(outcome, str) else "done"] += 1
        return outcome

    def refused(self, call: Coroutine[None, None, object], expected: Refused) -> None:
        with pytest.raises(Refusal) as caught:
            self.gate.answer(call)
        reason, facts = expected.told
        assert caught.value.reason == reason
        assert facts.items() <= caught.value.metadata().items()


def facts_of(message: OutboxMessage) -> tuple[object, ...]:
    """A message as the model has it."""
    return (
        message.outbox_id,
        message.event_id,
        message.destination,
        message.ordering_key,
        message.payload,
        message.available_nanos,
        message.create_nanos,
        message.stream_id,
        message.message_id,
        message.attempt_count,
        message.claim_id,
        message.is_dead,
        message.deliver_nanos,
    )
