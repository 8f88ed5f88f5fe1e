"""What to push next, and what an answer means: the sans-I/O core of the push stream.

``PushCore`` lives as long as the agent. Its shell tells it what happened (a run was reconciled, the
log grew, a batch was read, an answer came, the stream was lost, time passed) and gets back what to
do, as values: read a batch, send it, acknowledge, quarantine a run, reconcile one, end the stream.
It never waits, never reads a clock (``now`` is seconds on any clock that only rises), and touches
neither log nor network. The same state and inputs give the same outputs.

Why it may be trusted with exactly-once: it decides nothing about that. Batches carry the chain hash
before their first event, the hub decides by stored keys, and whatever was unanswered when a stream
ended is unknown: it is reconciled and sent again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from runtime_agent.core.backoff import Backoff
from runtime_agent.core.push_steps import (
    Acknowledge,
    Batch,
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
from runtime_agent.core.values import RunKey

REASON_HISTORY_DIVERGED: Final = "HISTORY_DIVERGED"
"""Why a run is quarantined whose chain hash is not the hub's at the same sequence."""


# --- the core ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Run:
    """A run with unsynced events. ``is_gone``: answers to what is still in flight mean nothing."""

    key: RunKey
    last_sequence: int
    acknowledged_sequence: int
    read_sequence: int
    is_reading: bool = False
    is_queued: bool = False
    is_gone: bool = False


@dataclass(slots=True)
class _InFlight:
    run: _Run
    batch: Batch
    sent_at: float


class PushCore:
    """The state of pushing, over all runs; see the module's docstring for the order of use.

    A connection's life: ``stream_opened``, then ``track`` for what was reconciled and
    ``log_advanced`` for what grows, ``batch_read`` and ``answer_received`` as they come, ``tick``
    at ``next_wake_time``, and ``stream_lost`` at its end. Each returns what to do, in order.
    """

    def __init__(self, bounds: PushBounds, *, chance: Callable[[], float]) -> None:
        self._bounds = bounds
        self._chance = chance
        self._is_open = False
        self._had_answer = False
        self._runs: dict[RunKey, _Run] = {}
        self._turns: deque[_Run] = deque()
        self._reads: dict[int, _Run] = {}
        self._ready: deque[tuple[_Run, Batch]] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._next_ticket = 1
        self._paused_until = 0.0
        self._left_out = False
        # These outlive a stream: what keeps going wrong must not begin anew with each connection.
        self._setbacks: OrderedDict[RunKey, Backoff] = OrderedDict()
        self._held_until: OrderedDict[str, float] = OrderedDict()
        self._bytes_ceiling = bounds.batch_bytes_max

    # --- what the shell may ask ---

    @property
    def is_idle(self) -> bool:
        """True where nothing is waiting, read or in flight: the hub has all that may be pushed."""
        return not (self._runs or self._in_flight or self._left_out)

    @property
    def has_room(self) -> bool:
        """False where no more runs should be given to ``track`` for now."""
        return len(self._runs) < self._bounds.runs_tracked_max

    def is_tracked(self, run: RunKey) -> bool:
        """Whether the run is being pushed already: nothing needs to be asked about it."""
        return run in self._runs

    def is_held(self, project_id: str) -> bool:
        """Whether the runs of this project wait after a refusal; they need not be reconciled now."""
        return project_id in self._held_until

    def held_projects(self) -> Mapping[str, float]:
        """Return the projects whose runs wait after a refusal, each with until when."""
        return dict(self._held_until)

    def next_wake_time(self) -> float | None:
        """Return when ``tick`` has something to do, None for as long as nothing else happens."""
        times = list(self._held_until.values())
        if self._is_open and self._in_flight:
            times.append(self._in_flight[0].sent_at + self._answer_seconds_max())
        if self._is_open and self._ready and len(self._in_flight) < self._in_flight_max():
            times.append(self._paused_until)
        return min(times, default=None)

    # --- inputs ---

    def set_batch_limits(self, *, events_max: int, bytes_max: int) -> None:
        """Take the hub's limits of a batch, as far as they are below the own ones."""
        self._bounds = replace(
            self._bounds, batch_events_max=max(1, events_max), batch_bytes_max=max(1, bytes_max)
        )
        self._bytes_ceiling = min(self._bytes_ceiling, self._bounds.batch_bytes_max)

    def stream_opened(self, now: float) -> list[Output]:
        """A stream is open: batches may be read and sent."""
        assert not self._is_open
        self._is_open, self._had_answer, self._paused_until = True, False, 0.0
        return self._pump(now)

    def stream_lost(self) -> None:
        """The stream ended in any way: what was unanswered is unknown, and every run reconciles anew."""
        for run in self._runs.values():
            run.is_gone = True
        self._runs.clear()
        self._turns.clear()
        self._reads.clear()
        self._ready.clear()
        self._in_flight.clear()
        self._is_open = self._left_out = False

    def track(
        self, run: RunKey, *, acknowledged_sequence: int, last_sequence: int, now: float
    ) -> list[Output]:
        """The hub has the run up to ``acknowledged_sequence``, the log up to ``last_sequence``: push on.

        Also the way for a run that has new events and was in step when the stream was opened.
        Whatever was known of the run before is forgotten.
        """
        if last_sequence <= acknowledged_sequence or self.is_held(run.project_id):
            return []
        self._forget(run)
        return self._track(run, acknowledged_sequence, last=last_sequence, now=now)

    def log_advanced(
        self, run: RunKey, *, acknowledged_sequence: int, last_sequence: int, now: float
    ) -> list[Output]:
        """The log of the run has grown to ``last_sequence``.

        ``acknowledged_sequence`` is what the log knows; it counts only for a run that is not tracked.
        """
        known = self._runs.get(run)
        if known is not None:
            known.last_sequence = max(known.last_sequence, last_sequence)
            self._take_turn(known)
            return self._pump(now)
        if last_sequence <= acknowledged_sequence or self.is_held(run.project_id):
            return []
        return self._track(run, acknowledged_sequence, last=last_sequence, now=now)

    def leave_out(self) -> None:
        """There are more unsynced runs than have room: ``RescanRuns`` asks for them later."""
        self._left_out = True

    def forget(self, run: RunKey) -> None:
        """The run is no longer to be pushed: it was dropped, or quarantined elsewhere."""
        self._forget(run)
        self._setbacks.pop(run, None)

    def batch_read(self, ticket: int, batch: Batch | None, *, now: float) -> list[Output]:
        """What ``ReadBatch`` asked for was read; None where the log has no such event any more."""
        run = self._reads.pop(ticket, None)
        if run is None:  # asked for on an earlier stream
            return []
        run.is_reading = False
        if run.is_gone:
            return self._pump(now)
        if batch is None:
            self._forget(run.key)
            return self._pump(now)
        assert batch.run == run.key
        assert batch.first_sequence == run.read_sequence + 1
        run.read_sequence = batch.last_sequence
        run.last_sequence = max(run.last_sequence, batch.last_sequence)
        self._ready.append((run, batch))
        self._take_turn(run)
        return self._pump(now)

    def answer_received(self, answer: PushAnswer, *, now: float) -> list[Output]:
        """An answer came: it is the one to the oldest unanswered batch."""
        if not self._in_flight or self._in_flight[0].batch.run != answer.run:
            return [EndStream("the hub answered a batch that was not sent")]
        self._had_answer = True
        entry = self._in_flight.popleft()
        run, batch = entry.run, entry.batch
        if answer.retry_delay_seconds > 0:
            delay_seconds = min(answer.retry_delay_seconds, self._bounds.retry_delay_seconds_max)
            # An earlier answer may have asked for more.
            self._paused_until = max(self._paused_until, now + delay_seconds)
        if self._in_flight:
            # The hub takes batches one by one: the next one's time begins when it is the oldest, and
            # where the hub asked to wait it may take none meanwhile.
            self._in_flight[0].sent_at = max(now, self._paused_until)
        outputs = [] if run.is_gone else self._decide_answer(run, batch, answer=answer, now=now)
        return outputs + self._pump(now)

    def batch_refused(self, run: RunKey | None, *, reason: str, detail: str) -> list[Output]:
        """The hub ended the stream because the oldest unanswered batch breaks a rule.

        ``run`` is the one that the refusal names, None where it names none. ``stream_lost`` follows.
        """
        key = run or (self._in_flight[0].batch.run if self._in_flight else None)
        if key is None:
            return []
        first = next((each.batch for each in self._in_flight if each.batch.run == key), None)
        self._forget(key)
        return [QuarantineRun(key, reason, detail, first.first_sequence if first else 0)]

    def batch_too_large(self, run: RunKey | None, *, reason: str, detail: str) -> list[Output]:
        """The hub ended the stream because a message is too large for it. ``stream_lost`` follows.

        Batches become smaller; a single event that is too large quarantines its run.
        """
        if not self._in_flight:
            return []
        oldest = self._in_flight[0].batch
        largest = max(len(each.batch.message) for each in self._in_flight)
        is_certain = run is not None or len(self._in_flight) == 1
        if is_certain and oldest.event_count == 1:
            return self.batch_refused(run, reason=reason, detail=detail)
        self._bytes_ceiling = max(1, min(self._bytes_ceiling, largest // 2))
        return []

    def hold_project(self, project_id: str, *, now: float) -> None:
        """The credential does not allow this project: its runs wait, the others go on."""
        self._held_until[project_id] = now + self._bounds.project_hold_seconds
        self._held_until.move_to_end(project_id)
        if len(self._held_until) > self._bounds.held_projects_max:
            self._held_until.popitem(last=False)
        for key in [key for key in self._runs if key.project_id == project_id]:
            self._forget(key)

    def setback(self, run: RunKey, *, now: float) -> list[Output]:
        """Something about the run did not fit: reconcile it, later the more often it happens."""
        self._forget(run)
        backoff = self._setbacks.setdefault(
            run,
            Backoff(self._bounds.setback_seconds_first, self._bounds.setback_seconds_max, self._chance),
        )
        self._setbacks.move_to_end(run)
        if len(self._setbacks) > self._bounds.runs_tracked_max:
            self._setbacks.popitem(last=False)
        # The first time is the normal end of a race; only a repetition waits.
        wait_seconds = backoff.next_wait_seconds() if backoff.failure_count else 0.0
        backoff.failure_count = max(1, backoff.failure_count)
        return [ReconcileRun(run, now + wait_seconds)]

    def tick(self, now: float) -> list[Output]:
        """Time has passed."""
        outputs: list[Output] = []
        for project_id in [each for each, until in self._held_until.items() if until <= now]:
            del self._held_until[project_id]
            outputs.append(ResumeProject(project_id))
        if not self._is_open:
            return outputs
        if self._in_flight and now - self._in_flight[0].sent_at >= self._answer_seconds_max():
            return [*outputs, EndStream("the hub does not answer")]
        return outputs + self._pump(now)

    # --- inside ---

    def _answer_seconds_max(self) -> float:
        bounds = self._bounds
        return bounds.answer_seconds_max if self._had_answer else bounds.first_answer_seconds_max

    def _in_flight_max(self) -> int:
        """One at a time after a size refusal, so that the next one tells which batch it is about."""
        return self._bounds.in_flight_max if self._bytes_ceiling >= self._bounds.batch_bytes_max else 1

    def _decide_answer(self, run: _Run, batch: Batch, *, answer: PushAnswer, now: float) -> list[Output]:
        if answer.conflicts:
            first = answer.conflicts[0]
            return self._quarantine(
                run,
                first.reason,
                detail=f"the hub refused sequence {first.sequence}",
                sequence=first.sequence,
                answer=answer,
            )
        if answer.go_back:
            return self.setback(run.key, now=now)
        if answer.accepted_count + answer.duplicate_count != batch.event_count:
            return [EndStream("the hub's answer does not add up to the batch")]
        if answer.cursor < batch.last_sequence:
            return self.setback(run.key, now=now)
        known = self._chain_hash_of(run, batch, sequence=answer.cursor)
        if known is not None and known != answer.chain_hash:
            return self._quarantine(
                run,
                REASON_HISTORY_DIVERGED,
                detail=f"the hub's chain hash at sequence {answer.cursor} is not the log's",
                sequence=answer.cursor,
                answer=answer,
            )
        self._setbacks.pop(run.key, None)
        self._bytes_ceiling = min(self._bytes_ceiling * 2, self._bounds.batch_bytes_max)
        run.acknowledged_sequence = batch.last_sequence
        outputs: list[Output] = [Acknowledge(run.key, batch.last_sequence)]
        if answer.cursor > run.last_sequence:  # the hub has more than the log: repair
            return outputs + self.setback(run.key, now=now)
        if run.acknowledged_sequence == run.last_sequence:
            self._forget(run.key)
        return outputs

    def _chain_hash_of(self, run: _Run, batch: Batch, *, sequence: int) -> bytes | None:
        """The own chain hash at a sequence that this answer may speak of, None where it is not at hand.

        Beyond the batch it is known where a later batch in flight ends there. Elsewhere the batch
        itself was proven: all its events are duplicates with equal content.
        """
        if sequence == batch.last_sequence:
            return batch.chain_hash
        for entry in self._in_flight:
            if entry.run is run and entry.batch.last_sequence == sequence:
                return entry.batch.chain_hash
        return None

    def _quarantine(
        self, run: _Run, reason: str, *, detail: str, sequence: int, answer: PushAnswer
    ) -> list[Output]:
        self.forget(run.key)
        return [QuarantineRun(run.key, reason, detail, sequence, answer.cursor, answer.chain_hash)]

    def _track(self, key: RunKey, acknowledged: int, *, last: int, now: float) -> list[Output]:
        if not self.has_room:
            self._left_out = True
            return []
        run = _Run(key, last, acknowledged, read_sequence=acknowledged)
        self._runs[key] = run
        self._take_turn(run)
        return self._pump(now)

    def _forget(self, key: RunKey) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            run.is_gone = True

    def _take_turn(self, run: _Run) -> None:
        """Queue the run for its next batch, once, behind the others."""
        if run.is_reading or run.is_queued or run.read_sequence >= run.last_sequence:
            return
        run.is_queued = True
        self._turns.append(run)

    def _pump(self, now: float) -> list[Output]:
        """Send what is ready and read ahead, as far as the bounds allow."""
        outputs: list[Output] = []
        if not self._is_open:
            return outputs
        bounds = self._bounds
        while self._ready and len(self._in_flight) < self._in_flight_max() and now >= self._paused_until:
            run, batch = self._ready.popleft()
            if run.is_gone:
                continue
            self._in_flight.append(_InFlight(run, batch, now))
            outputs.append(SendBatch(batch))
        pipeline_max = self._in_flight_max() + bounds.read_ahead_max
        while self._turns and len(self._in_flight) + len(self._ready) + len(self._reads) < pipeline_max:
            run = self._turns.popleft()
            run.is_queued = False
            if run.is_gone:
                continue
            run.is_reading = True
            self._reads[self._next_ticket] = run
            outputs.append(
                ReadBatch(
                    self._next_ticket,
                    run.key,
                    run.read_sequence,
                    bounds.batch_events_max,
                    self._bytes_ceiling,
                )
            )
            self._next_ticket += 1
        if self._left_out and len(self._runs) <= bounds.runs_tracked_max // 2:
            self._left_out = False
            outputs.append(RescanRuns())
        return outputs
