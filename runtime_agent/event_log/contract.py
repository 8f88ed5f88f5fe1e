"""What the local log promises to the rest of the agent.

A log is synchronous and belongs to one thread at a time (``log_thread.py`` owns that thread).
``now_nanos`` is always the wall clock, given by the caller. Every method that writes is one
transaction: when it returns, its effect is on stable storage; when it raises, nothing changed,
with one exception: ``LogOutcomeUnknownError`` says that a COMMIT failed and nobody knows.

Every method may raise ``LogStorageError`` (disk full, I/O error: it goes on by itself when there is
room), every writing one ``LogOwnerLostError`` (another process took over: stop).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeAlias, TypeVar

from runtime_agent.core.errors import AppendError
from runtime_agent.core.values import (
    Acknowledgement,
    Appended,
    AppendRequest,
    FetchedEvent,
    HubLimits,
    HubMemory,
    LogEvent,
    LogTotals,
    RunKey,
    RunState,
    RuntimeIdentity,
    TailedEvent,
)

T = TypeVar("T")

AppendOutcome: TypeAlias = Appended | AppendError
"""What became of one request of a group: its sequences, or why nothing of it was written."""


class EventLogReader(Protocol):
    """Reads of the log; each call sees one committed state."""

    def load_identity(self) -> RuntimeIdentity | None:
        """Return whose log it is, None before the first start."""
        ...

    def load_hub_memory(self) -> HubMemory:
        """Return the hub generation that the log was reconciled with, and the last known limits."""
        ...

    def load_head_local_position(self) -> int:
        """Return the highest local position ever given; 0 for none."""
        ...

    def load_totals(self) -> LogTotals:
        """Return the sums over all runs. Costs a pass over the runs, not over the events."""
        ...

    def load_run(self, run: RunKey) -> RunState | None:
        """Return where the run stands, None where the log does not have it."""
        ...

    def list_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """Return at most ``limit`` runs after ``after`` (None: from the first), ascending by key."""
        ...

    def list_unsynced_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """Return runs with events that no hub acknowledged, ascending by key, quarantined ones too.

        Costs nothing for runs that are in step.
        """
        ...

    def list_runs_changed_after(self, local_position: int, *, limit: int) -> tuple[RunState, ...]:
        """Return runs with an event after the local position, ascending by ``last_local_position``.

        The way to learn what a push loop has to look at: ask again after the last one returned.
        """
        ...

    def list_quarantined_runs(self, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
        """Return quarantined runs after ``after``, ascending by key."""
        ...

    def read_events(
        self, run: RunKey, *, after_sequence: int, count_max: int, bytes_max: int
    ) -> tuple[LogEvent, ...]:
        """Return events of the run after a sequence, ascending, without a gap.

        At most ``count_max``, and at most ``bytes_max`` of payload, type and attributes with
        ``EVENT_OVERHEAD_BYTES`` (limits.py) added for each event, so that a batch made of them fits
        a message; but always one event where there is one.
        """
        ...

    def read_content_hashes(self, run: RunKey, *, after_sequence: int, limit: int) -> tuple[bytes, ...]:
        """Return the content hashes of the next events after a sequence, without reading payloads."""
        ...

    def load_chain_hash(self, run: RunKey, sequence: int) -> bytes | None:
        """Return the chain hash of the run at ``sequence`` (0 too); None beyond its last event."""
        ...

    def tail_events(
        self, *, after_local_position: int, project_id: str, run_id: str, count_max: int, bytes_max: int
    ) -> tuple[TailedEvent, ...]:
        """Return events over all runs after a local position, ascending by it.

        Only of ``project_id`` and ``run_id`` where these are not empty. Bounded as ``read_events``.
        Local positions rise strictly in the order of appends and are never given twice, not even
        after events were deleted; gaps carry no meaning.
        """
        ...


class EventLog(EventLogReader, Protocol):
    """The log with everything that changes it."""

    def append(self, requests: Sequence[AppendRequest], *, now_nanos: int) -> tuple[AppendOutcome, ...]:
        """Append all requests in one transaction; one outcome each, in their order.

        A refused request changes nothing and does not disturb its neighbours. Sequences go on
        from the run's last without a gap. Quarantined runs take appends like others.
        """
        ...

    def pin_identity(self, identity: RuntimeIdentity) -> None:
        """Say whose log it is. Idempotent; ``IdentityPinnedError`` where it is somebody else's."""
        ...

    def save_hub_limits(self, limits: HubLimits) -> None:
        """Remember the hub's limits: later appends are refused where the hub would refuse them."""
        ...

    def save_hub_generation(self, hub_generation: str) -> None:
        """Remember that all runs were reconciled with this generation.

        Order of use under a new generation: reconcile every run and ``reset_acknowledged`` what
        the hub does not have any more; save the generation last, so that a crash in between
        begins again.
        """
        ...

    def acknowledge(
        self, acknowledgements: Sequence[Acknowledgement], *, hub_generation: str, now_nanos: int
    ) -> None:
        """Mark the runs up to these sequences as held by the hub; never moves one backwards.

        Runs that the log no longer has are passed over; a sequence beyond the run's last counts as
        the last. Raises ``HubGenerationChangedError`` where the stored generation is another one.
        """
        ...

    def reset_acknowledged(self, acknowledgements: Sequence[Acknowledgement], *, now_nanos: int) -> None:
        """Set the acknowledged sequences exactly, also backwards: the hub told what it really has.

        The caller has compared chain hashes: the hub's events up to there equal the log's.
        """
        ...

    def take_in(
        self, run: RunKey, events: Sequence[FetchedEvent], *, chain_hash: bytes | None, now_nanos: int
    ) -> RunState:
        """Append events that the hub has and this log lost, as they are; they count as acknowledged.

        Refused with ``TakeInRefusedError`` unless they follow the run's last sequence without a
        gap, each has the content hash that it says (where its payload is there), none follows a
        final one, and the chain at the last of them is ``chain_hash`` (None: not compared).
        They get local positions of their own, as a tail has not seen them.
        """
        ...

    def quarantine(
        self, run: RunKey, *, reason: str, detail: str, sequence: int, now_nanos: int
    ) -> RunState | None:
        """Keep the run from syncing until a person decides; the first reason stays.

        The acknowledged sequence is what ``release_as`` copies after: where the caller knows up to
        where hub and log are equal, it moves it there first. Returns None for an unknown run.
        """
        ...

    def release(self, run: RunKey) -> RunState:
        """End the quarantine. Raises ``RunUnknownError`` or ``RunNotQuarantinedError``."""
        ...

    def release_as(self, run: RunKey, as_run_id: str, *, now_nanos: int) -> int:
        """Copy what the hub does not have to a new run of the project; return how many events.

        The new run begins with an event of type ``forked`` (attributes ``run_id`` and ``sequence``:
        the run, and the last sequence that was not copied; empty payload); the events after that
        sequence follow unchanged from 2: type, time, attributes, payload, final. The old run
        stays quarantined, so that it can be looked at and dropped; a second call copies only
        what was appended since. Raises ``RunExistsError``, ``NothingToCopyError`` and as ``release``.
        """
        ...

    def drop(self, run: RunKey) -> int:
        """Delete a quarantined run with all that belongs to it; return how many events it had."""
        ...

    def drop_payloads(self, *, acknowledged_before_nanos: int, limit: int) -> int:
        """Drop payloads of events that were acknowledged before a moment; return how many.

        At most ``limit`` events a call; 0 says that there is nothing left to do. Keys and hashes
        stay for good.
        """
        ...


class LogFront(Protocol):
    """The log as the event loop and plain threads call it: at once, with a future for the result.

    On an event loop: ``await asyncio.wrap_future(front.append(request))``.
    """

    def append(self, request: AppendRequest) -> "Future[Appended]":
        """Append in the next group; the future has the sequences once they are on stable storage.

        Its error is an ``AppendError`` (refused) or a ``LogError``. Cancelling does not take it back.
        """
        ...

    def call(self, function: Callable[[EventLog], T]) -> "Future[T]":
        """Run a write on the log's thread, in the order of the queue; one call of the contract."""
        ...

    def read(self, function: Callable[[EventLogReader], T]) -> "Future[T]":
        """Run a read on the reading thread; it sees everything that was answered before."""
        ...

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each group of appends; on the log's thread, not waiting."""
        ...

    def remove_append_listener(self, listener: Callable[[], None]) -> None:
        """Undo ``add_append_listener``. Idempotent."""
        ...
