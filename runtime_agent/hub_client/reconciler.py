"""Bringing the log and the hub to one view of runs: asks the hub, repairs, quarantines.

The decisions are in ``core/reconcile.py``; here they are carried out, page by page. A run whose
decision cannot be carried out because the connection is lost is left as it was, and comes again with
the next connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, assert_never

from runtime_agent import limits
from runtime_agent.core.errors import TakeInRefusedError
from runtime_agent.core.reconcile import (
    REASON_HISTORY_DIVERGED,
    Diverge,
    FetchMissing,
    FetchProgress,
    HoldProject,
    ProbeAbove,
    PushFrom,
    ReconcileDecision,
    ReconciledRun,
    decide_probed,
    decide_reconciled,
    equal_prefix_length,
    fold_fetched,
)
from runtime_agent.core.values import Acknowledgement, FetchedEvent, RunKey, RunState
from runtime_agent.event_log.contract import EventLog, EventLogReader, LogFront
from runtime_agent.hub_client.codec import PushSender
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import HubConnection
from runtime_agent.hub_client.surroundings import ProgramLog

REPAIR_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most payload bytes of a repair held in memory until its chain hash is proven."""

_NOTHING_TO_SEE: Final = frozenset(("NOT_FOUND", "PERMISSION_DENIED", "IDENTITY_MISMATCH"))
"""Reasons of a hub that shows the events of a run to somebody else, or to nobody."""


@dataclass(frozen=True, slots=True)
class PushRun:
    """The hub has the run up to ``acknowledged_sequence``; the log ends at ``last_sequence``."""

    run: RunKey
    acknowledged_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class HeldRun:
    """The run's project is not allowed now."""

    run: RunKey


@dataclass(frozen=True, slots=True)
class QuarantinedRun:
    """The run was quarantined."""

    run: RunKey


@dataclass(frozen=True, slots=True)
class AgainRun:
    """The run was repaired in part or not answered: ask again, after a while the more often."""

    run: RunKey


ReconcileOutcome: TypeAlias = PushRun | HeldRun | QuarantinedRun | AgainRun
"""What became of a run that was reconciled."""


class HubGenerationMoved(Exception):
    """The hub answered with another generation than the one that this connection began with."""


class Reconciler:
    """Reconciles runs over one connection, under one hub generation."""

    def __init__(
        self,
        connection: HubConnection,
        *,
        sender: PushSender,
        log: LogFront,
        hub_generation: str,
        known_hub_generation: str,
        wall_clock_nanos: Callable[[], int],
        program_log: ProgramLog,
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._log = log
        self._hub_generation = hub_generation
        self._known_hub_generation = known_hub_generation
        self._wall_clock_nanos = wall_clock_nanos
        self._program_log = program_log

    async def reconcile(self, states: Sequence[RunState]) -> list[ReconcileOutcome]:
        """Reconcile at most a call's worth of runs, none of them quarantined; one outcome each.

        Acknowledged sequences are set to what the hub has, durably, before this returns.
        Raises: HubCallError, HubGenerationMoved, and what the log raises.
        """
        generation, views = await self._connection.reconcile_runs(
            self._sender, states, known_hub_generation=self._known_hub_generation
        )
        if generation != self._hub_generation:
            raise HubGenerationMoved
        decided = await asyncio.wrap_future(self._log.read(partial(_decide_all, states=states, views=views)))
        outcomes: list[ReconcileOutcome] = []
        moved: list[Acknowledgement] = []
        for state, view, decision in decided:
            outcome = await self._carry_out(state, view, decision=decision)
            outcomes.append(outcome)
            if (
                isinstance(outcome, PushRun)
                and outcome.acknowledged_sequence != state.acknowledged_sequence
                and not isinstance(decision, FetchMissing)
            ):
                moved.append(Acknowledgement(outcome.run, outcome.acknowledged_sequence))
        if moved:
            now_nanos = self._wall_clock_nanos()
            await asyncio.wrap_future(
                self._log.call(lambda log: log.reset_acknowledged(moved, now_nanos=now_nanos))
            )
        answered = {state.run for state, _, _ in decided}
        outcomes.extend(AgainRun(state.run) for state in states if state.run not in answered)
        return outcomes

    async def quarantine(
        self,
        run: RunKey,
        *,
        reason: str,
        detail: str,
        sequence: int,
        hub_cursor: int = 0,
        hub_chain_hash: bytes = b"",
    ) -> None:
        """Keep the run from syncing; what hub and log have alike is acknowledged first.

        ``hub_cursor`` and ``hub_chain_hash``: where the hub stands, 0 and empty where it did not say.
        Raises: HubCallError where a fork has to be found and the hub cannot be asked.
        """
        state = await asyncio.wrap_future(self._log.read(lambda reader: reader.load_run(run)))
        if state is None or state.quarantine is not None:
            return
        equal_through: int | None = None
        if hub_chain_hash and hub_cursor <= state.last_sequence:
            own = await asyncio.wrap_future(
                self._log.read(lambda reader: reader.load_chain_hash(run, hub_cursor))
            )
            equal_through = hub_cursor if own == hub_chain_hash else None
        if equal_through is None and reason in (REASON_HISTORY_DIVERGED, "SEQUENCE_REUSED"):
            equal_through = await self._find_fork(state)
        now_nanos = self._wall_clock_nanos()

        def write(log: EventLog) -> None:
            if equal_through is not None:
                log.reset_acknowledged([Acknowledgement(run, equal_through)], now_nanos=now_nanos)
            log.quarantine(run, reason=reason, detail=detail, sequence=sequence, now_nanos=now_nanos)

        await asyncio.wrap_future(self._log.call(write))
        self._program_log.warning(
            "run_quarantined",
            project_id=run.project_id,
            run_id=run.run_id,
            reason=reason,
            detail=detail,
            sequence=sequence,
        )

    # --- one run -----------------------------------------------------------------------------------

    async def _carry_out(
        self, state: RunState, view: ReconciledRun, *, decision: ReconcileDecision
    ) -> ReconcileOutcome:
        if isinstance(decision, ProbeAbove):
            decision = await self._probe(state, view)
        match decision:
            case PushFrom(sequence):
                return PushRun(state.run, sequence, state.last_sequence)
            case FetchMissing():
                return await self._repair(state, view)
            case Diverge():
                return await self._diverge(state.run, decision)
            case HoldProject():
                return HeldRun(state.run)
            case _:
                assert_never(decision)

    async def _diverge(self, run: RunKey, decision: Diverge) -> ReconcileOutcome:
        await self.quarantine(run, reason=decision.reason, detail=decision.detail, sequence=decision.sequence)
        return QuarantinedRun(run)

    async def _probe(self, state: RunState, view: ReconciledRun) -> PushFrom | Diverge:
        events = await self._connection.fetch_events(
            self._sender, state.run, after_sequence=state.last_sequence, limit=1
        )
        next_sequence = events[0].sequence if events else None
        return decide_probed(view, next_sequence, last_sequence=state.last_sequence)

    async def _repair(self, state: RunState, view: ReconciledRun) -> ReconcileOutcome:
        """Fetch what the log lost, prove it, and take it in.

        Proven first and taken in second: where all of it is too large to hold, the events are fetched
        twice, once only for their hashes.
        """
        held = await self._fetch_proven(state, view)
        if isinstance(held, Diverge):
            return await self._diverge(state.run, held)
        if held is not None:
            return await self._take_in(state, [held], view=view)
        after = state.last_sequence
        while after < view.cursor:
            page = await self._page(state.run, after, through_sequence=view.cursor)
            if not page:
                return AgainRun(state.run)
            outcome = await self._take_in(state, [page], view=view)
            if isinstance(outcome, AgainRun):
                return outcome
            after = page[-1].sequence
        return PushRun(state.run, view.cursor, view.cursor)

    async def _fetch_proven(
        self, state: RunState, view: ReconciledRun
    ) -> list[FetchedEvent] | Diverge | None:
        """Fetch up to the hub's cursor and fold; None where it is proven but too large to hold."""
        held: list[FetchedEvent] | None = []
        held_bytes = 0
        progress = FetchProgress(state.last_sequence, state.chain_hash)
        while progress.sequence < view.cursor:
            page = await self._page(state.run, progress.sequence, through_sequence=view.cursor)
            folded = fold_fetched(view, page, progress=progress)
            if isinstance(folded, Diverge):
                return folded
            progress = folded
            held_bytes += sum(len(event.payload or b"") + limits.EVENT_OVERHEAD_BYTES for event in page)
            if held is not None and held_bytes <= REPAIR_BYTES_MAX:
                held.extend(page)
            else:
                held = None
        return held

    async def _page(self, run: RunKey, after_sequence: int, *, through_sequence: int) -> list[FetchedEvent]:
        events = await self._connection.fetch_events(
            self._sender, run, after_sequence=after_sequence, limit=limits.REPAIR_PAGE_EVENTS
        )
        return [event for event in events if event.sequence <= through_sequence]

    async def _take_in(
        self, state: RunState, pages: Sequence[list[FetchedEvent]], *, view: ReconciledRun
    ) -> ReconcileOutcome:
        run, now_nanos, taken = state.run, self._wall_clock_nanos(), state
        for page in pages:
            is_last = bool(page) and page[-1].sequence == view.cursor
            chain_hash = view.chain_hash if is_last else None
            try:
                taken = await asyncio.wrap_future(
                    self._log.call(
                        partial(_take_in, run=run, page=page, chain_hash=chain_hash, now_nanos=now_nanos)
                    )
                )
            except TakeInRefusedError as error:
                # A program appended meanwhile: what it wrote has the hub's sequences. The next
                # reconcile sees that the two differ.
                self._program_log.info(
                    "repair_overtaken", project_id=run.project_id, run_id=run.run_id, detail=str(error)
                )
                return AgainRun(run)
        self._program_log.info(
            "run_repaired",
            project_id=run.project_id,
            run_id=run.run_id,
            after_sequence=state.last_sequence,
            through_sequence=taken.last_sequence,
        )
        if view.highest_sequence > taken.last_sequence:
            return AgainRun(run)
        return PushRun(run, view.cursor, taken.last_sequence)

    async def _find_fork(self, state: RunState) -> int | None:
        """Return up to where log and hub have the same events, looking from the first one.

        None where the hub does not let this runtime look.
        """
        equal_through = 0
        while equal_through < state.last_sequence:
            try:
                page = await self._connection.fetch_events(
                    self._sender, state.run, after_sequence=equal_through, limit=limits.REPAIR_PAGE_EVENTS
                )
            except HubCallError as error:
                if error.reason in _NOTHING_TO_SEE:
                    return None
                raise
            hubs = _leading_hashes(page, equal_through)
            after, count = equal_through, len(hubs)
            own = await asyncio.wrap_future(
                self._log.read(
                    partial(_read_hashes, run=state.run, after_sequence=after, limit=max(1, count))
                )
            )
            equal_count = equal_prefix_length(own, hubs)
            equal_through += equal_count
            if equal_count < len(own) or equal_count < count or count == 0:
                break
        return equal_through


def _take_in(
    log: EventLog, *, run: RunKey, page: list[FetchedEvent], chain_hash: bytes | None, now_nanos: int
) -> RunState:
    return log.take_in(run, page, chain_hash=chain_hash, now_nanos=now_nanos)


def _read_hashes(
    reader: EventLogReader, *, run: RunKey, after_sequence: int, limit: int
) -> tuple[bytes, ...]:
    return reader.read_content_hashes(run, after_sequence=after_sequence, limit=limit)


def _leading_hashes(events: Sequence[FetchedEvent], after_sequence: int) -> tuple[bytes, ...]:
    """Return the content hashes of the events that follow without a gap."""
    hashes: list[bytes] = []
    for expected, event in enumerate(events, after_sequence + 1):
        if event.sequence != expected:
            break
        hashes.append(event.content_hash)
    return tuple(hashes)


def _decide_all(
    reader: EventLogReader, *, states: Sequence[RunState], views: dict[RunKey, ReconciledRun]
) -> list[tuple[RunState, ReconciledRun, ReconcileDecision]]:
    """Decide for each run that the hub answered, with the log's own chain hashes."""
    decided: list[tuple[RunState, ReconciledRun, ReconcileDecision]] = []
    for state in states:
        view = views.get(state.run)
        if view is None:
            continue
        own: bytes | None = state.chain_hash
        if view.cursor < state.last_sequence:
            own = reader.load_chain_hash(state.run, view.cursor)
        decided.append(
            (
                state,
                view,
                decide_reconciled(view, last_sequence=state.last_sequence, own_chain_hash=own),
            )
        )
    return decided
