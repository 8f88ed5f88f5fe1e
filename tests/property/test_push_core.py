"""Whatever is lost, repeated or restored: the push core brings every event to the hub, once, in order.

A model hub (a dict of runs) decides as the hub does: stored keys, chain hashes, go back. Streams keep
their order; what is lost is lost from some point on, on both ways. Hypothesis interleaves appends,
reads, deliveries, answers, losses, restores and the passing of time.
"""

import random
from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime_agent.core.push import PushCore
from runtime_agent.core.push_steps import (
    Acknowledge,
    Batch,
    Conflict,
    EndStream,
    Output,
    PushAnswer,
    PushBounds,
    QuarantineRun,
    ReadBatch,
    ReconcileRun,
    RescanRuns,
    ResumeProject,
    SendBatch,
)
from runtime_agent.core.reconcile import (
    Diverge,
    HubView,
    PushFrom,
    ReconciledRun,
    decide_reconciled,
)
from runtime_agent.core.values import RunKey
from synchub.contract import chain_hash_after, chain_hash_at_start

BOUNDS = PushBounds(
    in_flight_max=4,
    read_ahead_max=2,
    batch_events_max=5,
    batch_bytes_max=1_000,
    runs_tracked_max=3,
    held_projects_max=2,
    project_hold_seconds=60.0,
    answer_seconds_max=30.0,
    first_answer_seconds_max=10.0,
    retry_delay_seconds_max=60.0,
    setback_seconds_first=0.5,
    setback_seconds_max=30.0,
)
RUNS = [RunKey("p", f"r{n}") for n in range(4)] + [RunKey("q", "r0")]
HEALING_STEPS_MAX = 5_000


def chain_at(run: RunKey, contents: list[bytes], sequence: int) -> bytes:
    return chain_hash_after(chain_hash_at_start(run.project_id, run.run_id), contents[:sequence])


@dataclass
class ModelHub:
    """Runs as lists of content hashes; decides a proven batch as the rule table says."""

    runs: dict[RunKey, list[bytes]] = field(default_factory=dict)

    def push(self, batch: Batch, contents: list[bytes]) -> PushAnswer:
        stored = self.runs.setdefault(batch.run, [])
        first, cursor = batch.first_sequence, len(stored)
        accepted, duplicates = 0, 0
        conflicts: list[Conflict] = []
        if first > cursor + 1:
            return PushAnswer(batch.run, cursor, chain_at(batch.run, stored, cursor), 0, 0, (), go_back=True)
        known = stored[first - 1 : first - 1 + len(contents)]
        reused = [n for n, each in enumerate(known) if each != contents[n]]
        is_proven = not reused
        if is_proven and batch.last_sequence >= cursor:
            folded = chain_hash_after(batch.previous_chain_hash, known)
            is_proven = folded == chain_at(batch.run, stored, cursor)
        for offset, content in enumerate(contents):
            if offset in reused:
                conflicts.append(Conflict(first + offset, "SEQUENCE_REUSED"))
            elif offset < len(known):
                duplicates += 1
            elif is_proven:
                stored.append(content)
                accepted += 1
            else:
                conflicts.append(Conflict(first + offset, "HISTORY_DIVERGED"))
        cursor = len(stored)
        chain_hash = chain_at(batch.run, stored, cursor)
        return PushAnswer(batch.run, cursor, chain_hash, accepted, duplicates, tuple(conflicts))


class PushMachine(RuleBasedStateMachine):
    """The core, a log, a hub, and the two directions of one stream between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.core = PushCore(BOUNDS, chance=lambda: 0.5)
        self.log: dict[RunKey, list[bytes]] = {}
        self.acknowledged: dict[RunKey, int] = {}
        self.quarantined: set[RunKey] = set()
        self.forged: set[RunKey] = set()
        self.hub = ModelHub()
        self.is_open = False
        self.reads: deque[ReadBatch] = deque()
        self.requests: deque[Batch] = deque()
        self.answers: deque[PushAnswer] = deque()
        self.reconciles: list[ReconcileRun] = []
        self.content_count = 0
        self.delay_seconds = 0.0
        self.paused_until = 0.0

    # --- the shell ---

    def perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case ReadBatch():
                    self.reads.append(output)
                case SendBatch(batch):
                    assert self.is_open
                    assert self.now >= self.paused_until, "the hub asked to wait"
                    assert batch.run.project_id not in self.core.held_projects()
                    self.requests.append(batch)
                case Acknowledge(run, sequence):
                    hub_has = self.hub.runs[run][:sequence]
                    assert hub_has == self.log[run][:sequence], "acknowledged what the hub does not have"
                    self.acknowledged[run] = max(self.acknowledged[run], sequence)
                case QuarantineRun(run=run):
                    self.quarantine(run)
                case ReconcileRun():
                    self.reconciles.append(output)
                case ResumeProject() | RescanRuns():
                    for run in self.log:
                        self.reconcile(run)
                case EndStream(detail):
                    assert detail == "the hub does not answer"
                    self.lose()

    def quarantine(self, run: RunKey) -> None:
        assert run in self.forged, "quarantined although nobody forged its history"
        self.quarantined.add(run)
        self.core.forget(run)

    def reconcile(self, run: RunKey) -> None:
        if run in self.quarantined or not self.is_open:
            return
        own, stored = self.log[run], self.hub.runs.get(run, [])
        cursor = len(stored)
        hub = ReconciledRun(run, HubView.HUB_BEHIND, cursor, chain_at(run, stored, cursor), cursor)
        own_chain_hash = chain_at(run, own, cursor) if cursor <= len(own) else None
        decision = decide_reconciled(hub, last_sequence=len(own), own_chain_hash=own_chain_hash)
        if isinstance(decision, PushFrom):
            self.acknowledged[run] = decision.sequence
            self.perform(
                self.core.track(
                    run, acknowledged_sequence=decision.sequence, last_sequence=len(own), now=self.now
                )
            )
        else:
            assert run in self.forged
            if isinstance(decision, Diverge):
                self.quarantine(run)

    def lose(self) -> None:
        self.is_open = False
        self.core.stream_lost()
        self.requests.clear()
        self.answers.clear()
        self.reconciles.clear()
        self.paused_until = 0.0

    # --- what happens ---

    @rule(run=st.sampled_from(RUNS), count=st.integers(1, 12))
    def append(self, run: RunKey, count: int) -> None:
        own = self.log.setdefault(run, [])
        self.acknowledged.setdefault(run, 0)
        for _ in range(count):
            self.content_count += 1
            own.append(sha256(b"%d" % self.content_count).digest())
        if self.is_open and run not in self.quarantined:
            outputs = self.core.log_advanced(
                run,
                acknowledged_sequence=self.acknowledged[run],
                last_sequence=len(own),
                now=self.now,
            )
            self.perform(outputs)

    @precondition(lambda self: not self.is_open)
    @rule()
    def connect(self) -> None:
        self.is_open = True
        self.perform(self.core.stream_opened(self.now))
        for run in self.log:
            self.reconcile(run)

    def read(self) -> None:
        request = self.reads.popleft()
        own = self.log[request.run]
        contents = own[request.after_sequence : request.after_sequence + request.events_max]
        batch = None
        if contents:
            last = request.after_sequence + len(contents)
            batch = Batch(
                request.run,
                request.after_sequence + 1,
                last,
                chain_at(request.run, own, request.after_sequence),
                chain_at(request.run, own, last),
                b"".join(contents),
            )
        self.perform(self.core.batch_read(request.ticket, batch, now=self.now))

    def deliver(self) -> None:
        batch = self.requests.popleft()
        contents = [batch.message[n : n + 32] for n in range(0, len(batch.message), 32)]
        self.answers.append(self.hub.push(batch, contents))

    def answer(self) -> None:
        answer = replace(self.answers.popleft(), retry_delay_seconds=self.delay_seconds)
        if self.delay_seconds > 0:
            asked = min(self.delay_seconds, BOUNDS.retry_delay_seconds_max)
            self.paused_until = max(self.paused_until, self.now + asked)
            self.delay_seconds = 0.0
        self.perform(self.core.answer_received(answer, now=self.now))

    @precondition(lambda self: self.reconciles)
    @rule()
    def reconcile_what_is_due(self) -> None:
        due = [each for each in self.reconciles if each.not_before <= self.now]
        self.reconciles = [each for each in self.reconciles if each.not_before > self.now]
        for each in due:
            self.reconcile(each.run)

    @precondition(lambda self: self.is_open)
    @rule(steps=st.integers(1, 40), order=st.permutations(["read", "deliver", "answer"]))
    def flow(self, steps: int, order: list[str]) -> None:
        """All three go on for a while, the first of the order as far as it can before the next."""
        for _ in range(steps):
            for each in order:
                if each == "read" and self.reads:
                    self.read()
                elif each == "deliver" and self.requests:
                    self.deliver()
                elif each == "answer" and self.answers:
                    self.answer()
                else:
                    continue
                break
            else:
                break

    @rule(is_lost=st.sampled_from([False, False, False, True]))
    def lose_the_stream(self, is_lost: bool) -> None:
        if is_lost:
            self.lose()

    @precondition(lambda self: not self.is_open)
    @rule(run=st.sampled_from(RUNS), keep=st.integers(0, 10))
    def restore_an_older_hub(self, run: RunKey, keep: int) -> None:
        if run in self.hub.runs:
            del self.hub.runs[run][keep:]

    @rule(run=st.sampled_from(RUNS))
    def truncate_the_hub_behind_an_open_stream(self, run: RunKey) -> None:
        """No hub should; if it does, the agent goes back, and does so without an endless loop."""
        if self.hub.runs.get(run) and run in self.log and all(each.run != run for each in self.answers):
            del self.hub.runs[run][-1:]
            self.acknowledged[run] = min(self.acknowledged[run], len(self.hub.runs[run]))

    @precondition(lambda self: self.content_count > 20)
    @rule(run=st.sampled_from(RUNS[:2]))
    def forge(self, run: RunKey) -> None:
        """Somebody else continues the run at the hub: a cloned runtime."""
        self.forged.add(run)
        self.hub.runs.setdefault(run, []).append(sha256(b"forged" + run.run_id.encode()).digest())

    @rule(project_id=st.sampled_from(["p", "q", "", "", "", ""]))
    def hold(self, project_id: str) -> None:
        self.core.hold_project(project_id, now=self.now)

    @precondition(lambda self: self.is_open)
    @rule(project_id=st.sampled_from(["p", "q"]), is_refused=st.sampled_from([False, False, True]))
    def refuse_a_project(self, project_id: str, is_refused: bool) -> None:
        """The hub ends the stream because the credential does not allow the project."""
        if is_refused:
            self.core.hold_project(project_id, now=self.now)
            self.lose()

    @rule(seconds=st.sampled_from([0.0, 0.5, 20.0, 500.0]))
    def ask_to_wait(self, seconds: float) -> None:
        """The next answer says how long to wait before the next batch."""
        self.delay_seconds = seconds

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.core.tick(self.now))

    # --- what is always true ---

    @invariant()
    def what_is_unanswered_is_bounded(self) -> None:
        assert len(self.requests) + len(self.answers) <= BOUNDS.in_flight_max

    @invariant()
    def a_run_that_nobody_forged_is_a_prefix_of_the_log_at_the_hub(self) -> None:
        for run, stored in self.hub.runs.items():
            if run not in self.forged:
                assert stored == self.log[run][: len(stored)]

    @invariant()
    def waking_is_asked_for_only_when_there_is_something_to_do(self) -> None:
        wake_time = self.core.next_wake_time()
        if wake_time is not None and wake_time <= self.now:
            assert self.core.tick(self.now), "a shell would spin"

    def teardown(self) -> None:
        """The world heals: everything that nobody forged must arrive, in bounded steps."""
        self.lose()
        for _ in range(HEALING_STEPS_MAX):
            if not self.is_open:
                self.connect()
            if self.reads:
                self.read()
            elif self.requests:
                self.deliver()
            elif self.answers:
                self.answer()
            elif self.is_drained():
                break
            else:
                self.now += 1.0
                self.perform(self.core.tick(self.now))
                self.reconcile_what_is_due()
        assert self.is_drained(), "not everything arrived in time"
        for run, own in self.log.items():
            if run not in self.forged:
                assert self.hub.runs[run] == own
                assert self.acknowledged[run] == len(own)

    def is_drained(self) -> bool:
        return all(
            self.hub.runs.get(run) == own and self.acknowledged[run] == len(own)
            for run, own in self.log.items()
            if run not in self.forged
        )


PushMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=80, deadline=None)
test_every_event_arrives_once_whatever_is_lost = PushMachine.TestCase


@pytest.mark.parametrize("seed", range(60))
def test_every_event_arrives_once_over_a_long_life(seed: int) -> None:
    """The same machine for longer than Hypothesis goes, with chances that reach the rare states."""
    chance = random.Random(seed)
    machine = PushMachine()
    for _ in range(600):
        match chance.choices(
            [
                "append",
                "connect",
                "flow",
                "lose",
                "restore",
                "truncate",
                "forge",
                "hold",
                "time",
                "wait",
                "refuse",
            ],
            weights=[8, 4, 12, 1, 1, 3, 0.3, 0.2, 4, 0.5, 0.1],
        )[0]:
            case "append":
                machine.append(chance.choice(RUNS), chance.randint(1, 12))
            case "connect" if not machine.is_open:
                machine.connect()
            case "flow" if machine.is_open:
                machine.flow(chance.randint(1, 20), chance.sample(["read", "deliver", "answer"], 3))
            case "lose":
                machine.lose()
            case "restore" if not machine.is_open:
                machine.restore_an_older_hub(chance.choice(RUNS), chance.randint(0, 10))
            case "truncate":
                machine.truncate_the_hub_behind_an_open_stream(chance.choice(RUNS))
            case "forge" if machine.content_count > 20:
                machine.forge(chance.choice(RUNS[:2]))
            case "hold":
                machine.hold(chance.choice(["p", "q"]))
            case "wait":
                machine.ask_to_wait(chance.choice([0.5, 3.0]))
            case "refuse" if machine.is_open:
                machine.refuse_a_project(chance.choice(["p", "q"]), is_refused=True)
            case "time":
                machine.pass_time(chance.choice([0.1, 1.0]))
                machine.reconcile_what_is_due()
            case _:
                pass
        machine.what_is_unanswered_is_bounded()
        machine.a_run_that_nobody_forged_is_a_prefix_of_the_log_at_the_hub()
        machine.waking_is_asked_for_only_when_there_is_something_to_do()
    machine.teardown()
