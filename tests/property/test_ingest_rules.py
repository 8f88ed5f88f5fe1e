"""Ingest through the real gate beside a dict: whatever is pushed, in whatever order, however often."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hub.core.limits import Limits
from hub.core.values import ConflictReason, EventContent
from hub.service.ingest import PushOutcome
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.contract import chain_hash_after, chain_hash_at_start
from tests.unit.hub.gate import Gate, batch
from tests.unit.hub.recount import assert_counted
from tests.unit.hub.stored_runs import WALL_NANOS, event

SEQUENCES_MAX = 9
RUNS = st.sampled_from(["r", "R", "r/1"])
RUNTIMES = st.sampled_from(["home", "clone"])
TENANTS = st.sampled_from(["h", "h", "h", "stranger"])
"""Who owns a project is drawn too; mostly one tenant, or hardly anything would be accepted."""
WRONG = st.one_of(st.just(frozenset[int]()), st.frozensets(st.integers(0, 3), max_size=2))
"""Which events of a batch carry a hash that their content does not have; mostly none."""


@st.composite
def made_events(draw: st.DrawFn) -> EventContent:
    """One of few events, so that the same and the conflicting come often."""
    made = event(
        draw(st.integers(1, SEQUENCES_MAX)),
        draw(st.sampled_from([b"history", b"history", b"history", b"fork"])),
        is_final=draw(st.integers(0, 11)) == 0,
    )
    if draw(st.integers(0, 5)) == 0:
        return made._replace(payload=None)
    return made._replace(attributes=draw(st.sampled_from([None, None, '{"a":"é"}'])))


class ModelRun:
    """What must be stored of one run, as a dict and the rules in their shortest form."""

    def __init__(self, run_id: str, runtime_id: str) -> None:
        self.run_id = run_id
        self.runtime_id = runtime_id
        self.events: dict[int, EventContent] = {}

    @property
    def cursor(self) -> int:
        cursor = 0
        while cursor + 1 in self.events:
            cursor += 1
        return cursor

    @property
    def is_complete(self) -> bool:
        at_cursor = self.events.get(self.cursor)
        return at_cursor is not None and at_cursor.is_final

    def chain_at(self, sequence: int) -> bytes:
        hashes = [self.events[n].content_hash for n in range(1, sequence + 1)]
        return chain_hash_after(chain_hash_at_start("p", self.run_id), hashes)

    def push(
        self, pushed: list[EventContent], proof: bytes | None, *, wrong: frozenset[int]
    ) -> tuple[int, int, list[tuple[int, ConflictReason]], bool]:
        """Return (accepted, duplicates, conflicts, go back) and keep what is accepted."""
        cursor = self.cursor
        if proof is not None and pushed[0].sequence > cursor + 1:
            return 0, 0, [], True
        diverged = proof is not None and self._is_diverged(pushed, proof, cursor=cursor, wrong=wrong)
        accepted = duplicates = 0
        conflicts: list[tuple[int, ConflictReason]] = []
        for index, each in enumerate(pushed):
            if index in wrong:
                conflicts.append((each.sequence, ConflictReason.CONTENT_HASH_MISMATCH))
                continue
            held = self.events.get(each.sequence)
            finals = [n for n, one in self.events.items() if one.is_final]
            if held is not None and held.content_hash == each.content_hash:
                duplicates += 1
                if held.payload is None:
                    self.events[each.sequence] = each
            elif held is not None:
                conflicts.append((each.sequence, ConflictReason.SEQUENCE_REUSED))
            elif diverged:
                conflicts.append((each.sequence, ConflictReason.HISTORY_DIVERGED))
            elif any(n < each.sequence for n in finals) or (
                each.is_final and any(n > each.sequence for n in self.events)
            ):
                conflicts.append((each.sequence, ConflictReason.RUN_COMPLETE))
            else:
                accepted += 1
                self.events[each.sequence] = each
        return accepted, duplicates, conflicts, False

    def _is_diverged(
        self, pushed: list[EventContent], proof: bytes, *, cursor: int, wrong: frozenset[int]
    ) -> bool:
        for index, each in enumerate(pushed):
            held = self.events.get(each.sequence)
            if index not in wrong and held is not None and held.content_hash != each.content_hash:
                return True
        if pushed[-1].sequence < cursor:
            return False
        folded = chain_hash_after(proof, [one.content_hash for one in pushed if one.sequence <= cursor])
        return folded != self.chain_at(cursor)


class IngestMachine(RuleBasedStateMachine):
    """Pushes of honest runtimes, of clones, of people without proofs, and all of them again."""

    def __init__(self) -> None:
        super().__init__()
        self.exit = ExitStack()
        folder = Path(self.exit.enter_context(TemporaryDirectory()))
        limits = Limits()
        self.database = folder / "hub.db"
        engine = self.exit.enter_context(opened_engine(self.database, limits=limits))
        self.store = SqlStore(engine, limits=limits, wall_nanos=WALL_NANOS)
        self.exit.callback(self.store.close)
        self.gate = Gate(self.store)
        self.owner: str | None = None
        self.runs: dict[str, ModelRun] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.cursors: dict[str, int] = {}
        self.sent: list[tuple[str, str, str, list[EventContent], bytes | None, frozenset[int]]] = []

    def teardown(self) -> None:
        self.exit.close()

    @rule(
        run_id=RUNS,
        runtime_id=RUNTIMES,
        tenant=TENANTS,
        pushed=st.lists(made_events(), min_size=1, max_size=6),
        wrong=WRONG,
    )
    def somebody_pushes_without_a_proof(
        self, run_id: str, runtime_id: str, tenant: str, pushed: list[EventContent], wrong: frozenset[int]
    ) -> None:
        self._push(tenant, runtime_id, run_id, pushed, None, wrong)

    @rule(
        run_id=RUNS,
        first=st.integers(1, SEQUENCES_MAX),
        size=st.integers(1, 5),
        is_fork=st.booleans(),
        wrong=WRONG,
    )
    def a_runtime_pushes_its_history_with_a_proof(
        self, run_id: str, first: int, size: int, is_fork: bool, wrong: frozenset[int]
    ) -> None:
        history = [event(n, b"fork" if is_fork and n > 3 else b"history") for n in range(1, first + size)]
        before = [each.content_hash for each in history[: first - 1]]
        proof = chain_hash_after(chain_hash_at_start("p", run_id), before)
        self._push("h", "home", run_id, history[first - 1 :], proof, wrong)

    @rule(run_id=RUNS, size=st.integers(1, 4))
    def the_home_runtime_goes_on_from_the_cursor(self, run_id: str, size: int) -> None:
        run = self.runs.get(run_id)
        cursor = 0 if run is None else run.cursor
        proof = chain_hash_at_start("p", run_id) if run is None else run.chain_at(cursor)
        runtime_id = "home" if run is None else run.runtime_id
        pushed = [event(cursor + n, b"history") for n in range(1, size + 1)]
        self._push("h", runtime_id, run_id, pushed, proof, frozenset())

    @rule(choice=st.integers(0, 10_000))
    def any_batch_comes_again(self, choice: int) -> None:
        if self.sent:
            self._push(*self.sent[choice % len(self.sent)])

    @rule()
    def the_hub_loses_its_caches(self) -> None:
        self.store.writing.close()

    @invariant()
    def what_is_stored_is_the_model(self) -> None:
        for run_id, run in self.runs.items():
            stored = self.gate.events(hub_project=str(self.owner), run_id=run_id)
            assert {each.sequence: (each.content_hash, each.payload) for each in stored} == {
                n: (each.content_hash, each.payload) for n, each in run.events.items()
            }
            for each in stored:
                # A position given is never changed, and never given twice.
                place = (run_id, each.sequence)
                assert self.positions.setdefault(place, each.position) == each.position
        assert len(set(self.positions.values())) == len(self.positions)

    @invariant()
    def what_is_kept_is_counted_as_counting_anew_would(self) -> None:
        usages = assert_counted(self.database)
        open_runs = [run for run in self.runs.values() if not run.is_complete]
        for hub_project, usage in usages.items():
            assert usage.active_run_count == (len(open_runs) if hub_project == self.owner else 0)

    def _push(
        self,
        tenant: str,
        runtime_id: str,
        run_id: str,
        pushed: list[EventContent],
        proof: bytes | None,
        wrong: frozenset[int],
    ) -> None:
        self.sent.append((tenant, runtime_id, run_id, pushed, proof, wrong))
        wrong_hashes = {index: b"wrong" for index in wrong if index < len(pushed)}
        sent = batch(*pushed, proof=proof, run_id=run_id, runtime_id=runtime_id, wrong_hashes=wrong_hashes)
        outcome = self.gate.push(sent, hub_project=tenant)
        run = self.runs.get(run_id)
        if self.owner not in (None, tenant):
            self._check_refused(outcome, ConflictReason.PROJECT_MISMATCH, size=len(pushed))
        elif run is not None and run.runtime_id != runtime_id:
            self._check_refused(outcome, ConflictReason.HOME_RUNTIME_MISMATCH, size=len(pushed))
        else:
            run = run or ModelRun(run_id, runtime_id)
            self._check_decided(outcome, run, run.push(pushed, proof, wrong=wrong))
            if outcome.decision.accepted:
                self.owner = tenant
                self.runs[run_id] = run

    def _check_refused(self, outcome: PushOutcome, reason: ConflictReason, *, size: int) -> None:
        assert [conflict.reason for conflict in outcome.decision.conflicts] == [reason] * size
        assert outcome.head is None

    def _check_decided(
        self,
        outcome: PushOutcome,
        run: ModelRun,
        expected: tuple[int, int, list[tuple[int, ConflictReason]], bool],
    ) -> None:
        decision = outcome.decision
        conflicts = [(conflict.sequence, conflict.reason) for conflict in decision.conflicts]
        assert (
            len(decision.accepted),
            decision.duplicate_count,
            conflicts,
            decision.go_back,
        ) == expected
        head = outcome.head
        assert head is not None
        assert (head.cursor, head.chain_hash) == (run.cursor, run.chain_at(run.cursor))
        assert (head.highest_sequence, head.event_count) == (max(run.events, default=0), len(run.events))
        assert head.cursor >= self.cursors.get(run.run_id, 0)
        self.cursors[run.run_id] = head.cursor


TestIngest = IngestMachine.TestCase
TestIngest.settings = settings(stateful_step_count=25, max_examples=60)
