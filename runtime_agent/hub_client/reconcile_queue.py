"""Which runs are to be reconciled when, one call's worth after the other, and what follows for the core.

A run is *suspended* while it waits for a reconcile or a quarantine: it is not pushed meanwhile, and
how far its log grew is remembered.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import assert_never

from runtime_agent.core.push import PushCore
from runtime_agent.core.push_steps import Output
from runtime_agent.core.values import RunKey, RunState
from runtime_agent.event_log.contract import LogFront
from runtime_agent.hub_client.log_reads import list_runs, list_unsynced, load_runs
from runtime_agent.hub_client.reconciler import (
    AgainRun,
    HeldRun,
    PushRun,
    QuarantinedRun,
    ReconcileOutcome,
    Reconciler,
)
from synchub.contract import RECONCILE_RUNS_MAX


class ReconcileQueue:
    """The reconciling of one session; ``perform`` takes what the core asks for."""

    def __init__(
        self,
        reconciler: Reconciler,
        *,
        core: PushCore,
        log: LogFront,
        hub_generation: str,
        runs_max: int,
        clock: Callable[[], float],
        perform: Callable[[Iterable[Output]], None],
        on_scanned: Callable[[], None],
    ) -> None:
        """``runs_max``: of one call, as the hub says it. ``on_scanned``: after the first scan."""
        self._reconciler = reconciler
        self._core = core
        self._log = log
        self._hub_generation = hub_generation
        self._runs_max = max(1, min(RECONCILE_RUNS_MAX, runs_max))
        self._clock = clock
        self._perform = perform
        self._on_scanned = on_scanned
        self.is_scanned = asyncio.Event()
        """Set once the first runs were reconciled: before, nothing new is pushed."""
        self._is_scan_wanted = True
        self._is_busy = False
        self._due: set[RunKey] = set()
        # By run, the last sequence heard of meanwhile.
        self._suspended: dict[RunKey, int] = {}
        self._not_before: dict[RunKey, float] = {}
        self._wanted = asyncio.Event()
        self._wanted.set()

    # --- what is asked for -------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be reconciled now; runs that have to wait do not count."""
        return not (self._is_busy or self._is_scan_wanted or self._due)

    def want_scan(self) -> None:
        """Reconcile the unsynced runs that are not being pushed. Never waits."""
        self._is_scan_wanted = True
        self._wanted.set()

    def want(self, run: RunKey, *, not_before: float) -> None:
        """Reconcile a run, not before that time. Never waits."""
        self.suspend(run)
        self._not_before[run] = not_before

    def suspend(self, run: RunKey) -> None:
        """Push nothing of the run until it is reconciled or resumed."""
        self._suspended.setdefault(run, 0)

    def resume(self, run: RunKey) -> None:
        """Forget that the run is suspended."""
        self._suspended.pop(run, None)
        self._not_before.pop(run, None)

    def run_grew(self, run: RunKey, last_sequence: int) -> bool:
        """Say whether the run is suspended, and remember how far its log reaches."""
        heard_sequence = self._suspended.get(run)
        if heard_sequence is None:
            return False
        self._suspended[run] = max(heard_sequence, last_sequence)
        return True

    def next_wake_time(self) -> float | None:
        """Return when ``tick`` has something to do."""
        return min(self._not_before.values(), default=None)

    def tick(self, now: float) -> None:
        """Time has passed: reconcile the runs that had to wait until now."""
        for run in [run for run, not_before in self._not_before.items() if not_before <= now]:
            del self._not_before[run]
            self._due.add(run)
            self._wanted.set()

    # --- reconciling -------------------------------------------------------------------------------

    async def reconcile_all(self) -> None:
        """Reconcile every run with a hub generation that is new to the log; then remember it.

        Nothing is pushed meanwhile: until the generation is stored nothing could be acknowledged.
        """
        after: RunKey | None = None
        while True:
            cursor = after
            states = await asyncio.wrap_future(
                self._log.read(partial(list_runs, after=cursor, limit=self._runs_max))
            )
            await self._reconciler.reconcile([state for state in states if state.quarantine is None])
            if len(states) < self._runs_max:
                break
            after = states[-1].run
        generation = self._hub_generation
        await asyncio.wrap_future(self._log.call(lambda log: log.save_hub_generation(generation)))

    async def run(self) -> None:
        """Reconcile what is asked for until cancelled, first the unsynced runs. Raises as ``Reconciler``."""
        is_first = True
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._is_busy = True
            if self._is_scan_wanted:
                self._is_scan_wanted = False
                await self._scan_unsynced(is_first=is_first)
                is_first = False
            while self._due:
                due = [self._due.pop() for _ in range(min(len(self._due), self._runs_max))]
                states = await asyncio.wrap_future(self._log.read(partial(load_runs, runs=due)))
                missing = set(due) - {state.run for state in states}
                for run in missing:
                    self._suspended.pop(run, None)
                await self._reconcile(states)
            self._is_busy = False

    async def _scan_unsynced(self, *, is_first: bool) -> None:
        """Reconcile the runs with unacknowledged events that are not being pushed already.

        The first scan asks once even if there is none: that makes the instance the current one.
        """
        after: RunKey | None = None
        is_asked = not is_first
        while True:
            cursor = after
            states = await asyncio.wrap_future(
                self._log.read(partial(list_unsynced, after=cursor, limit=self._runs_max))
            )
            wanted = [state for state in states if self._is_reconcile_wanted(state)]
            if wanted or not is_asked:
                await self._reconcile(wanted)
                is_asked = True
            if len(states) < self._runs_max:
                break
            if not self._core.has_room:
                # The rest comes when the core asks for it.
                self._core.leave_out()
                break
            after = states[-1].run
        if is_first:
            self.is_scanned.set()
            self._on_scanned()

    def _is_reconcile_wanted(self, state: RunState) -> bool:
        return not (
            state.quarantine is not None
            or state.run in self._suspended
            or self._core.is_tracked(state.run)
            or self._core.is_held(state.run.project_id)
        )

    async def _reconcile(self, states: Sequence[RunState]) -> None:
        for state in states:
            self._suspended.setdefault(state.run, 0)
        by_run = {state.run: state for state in states}
        ready = [state for state in states if state.quarantine is None]
        for outcome in await self._reconciler.reconcile(ready):
            heard = self._suspended.pop(outcome.run, 0)
            by_run.pop(outcome.run, None)
            self._apply(outcome, heard)
        for run in by_run:
            self._suspended.pop(run, None)

    def _apply(self, outcome: ReconcileOutcome, heard_sequence: int) -> None:
        now = self._clock()
        match outcome:
            case PushRun(run, acknowledged_sequence, last_sequence):
                self._perform(
                    self._core.track(
                        run,
                        acknowledged_sequence=acknowledged_sequence,
                        last_sequence=max(last_sequence, heard_sequence),
                        now=now,
                    )
                )
            case HeldRun(run):
                if not self._core.is_held(run.project_id):
                    self._core.hold_project(run.project_id, now=now)
                    self._perform([])  # what to wait for has changed
            case AgainRun(run):
                self._perform(self._core.setback(run, now=now))
            case QuarantinedRun(run):
                self._core.forget(run)
            case _:
                assert_never(outcome)
