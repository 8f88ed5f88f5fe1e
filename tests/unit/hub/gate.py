"""The one gate of ingest over a real store, its writer stepped by hand."""

from collections.abc import Mapping, Sequence
from itertools import count

from hub.core.clock import HubClock
from hub.core.ingest import PushBatch
from hub.core.limits import Limits
from hub.core.selection import PageBounds
from hub.core.values import (
    Alert,
    Caller,
    EventContent,
    HubProject,
    InstanceId,
    ProjectId,
    Role,
    RunId,
    RuntimeId,
    StoredEvent,
)
from hub.service.alert_book import AlertBook
from hub.service.ingest import Ingest, PushOutcome
from hub.service.instruments import NoInstruments
from hub.service.rates import ProjectGuesses
from hub.service.reconcile import Reconcile
from hub.service.writer import AsyncWriter, Command, Done, Lane, Result, Writer
from hub.store.contract import Changes
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND
from tests.unit.hub.stored_runs import WALL_NANOS


def caller_of(hub_project: str) -> Caller:
    return Caller(HubProject(hub_project), None, Role.ANONYMOUS, "ipv4:127.0.0.1:1", "")


def batch(
    *events: EventContent,
    proof: bytes | None = None,
    project_id: str = "p",
    run_id: str = "r",
    runtime_id: str = "runtime",
    instance_id: str | None = None,
    wrong_hashes: Mapping[int, bytes] | None = None,
) -> PushBatch:
    """A batch as the codec would make it, about as large."""
    contents = [(each.payload or b"", (each.attributes or "").encode()) for each in events]
    return PushBatch(
        project_id=ProjectId(project_id),
        run_id=RunId(run_id),
        runtime_id=RuntimeId(runtime_id),
        instance_id=None if instance_id is None else InstanceId(instance_id),
        previous_chain_hash=proof,
        events=events,
        wrong_hashes=wrong_hashes or {},
        bytes_count=sum(1 + len(payload) + len(attributes) for payload, attributes in contents),
    )


class Gate:
    """A writer with its alert book over a store; commands run when the test steps."""

    def __init__(self, store: SqlStore, limits: Limits | None = None) -> None:
        self.store = store
        self.limits = limits or Limits()
        self.elapsed_nanos = 0
        self.changes: list[Changes] = []
        ticks = count()
        self.clock = HubClock(
            wall_nanos=WALL_NANOS,
            floor_nanos=store.time_floor_nanos,
            suspension_counting_nanos=lambda: self.elapsed_nanos,
        )
        self.alert_book = AlertBook(limits=self.limits)
        self.writer = Writer(
            store.writing,
            clock=self.clock,
            limits=self.limits,
            hook=self.alert_book,
            instruments=NoInstruments(),
            monotonic_seconds=lambda: float(next(ticks)),
            dispatch=lambda deliver: deliver(),
            on_commit=self.changes.append,
        )
        self.async_writer = AsyncWriter(self.writer, limits=self.limits)
        guesses = ProjectGuesses(limits=self.limits, monotonic_seconds=self.elapsed_seconds)
        self.ingest = Ingest(
            self.async_writer,
            alert_book=self.alert_book,
            guesses=guesses,
            limits=self.limits,
            instruments=NoInstruments(),
            wall_nanos=lambda: WALL_NANOS,
            credential_nanos=self.clock.now,
        )
        self.reconcile = Reconcile(
            self.async_writer, alert_book=self.alert_book, guesses=guesses, limits=self.limits
        )

    def elapsed_seconds(self) -> float:
        return self.elapsed_nanos / NANOS_PER_SECOND

    def queue(self, command: Command[Result], *, lane: Lane = Lane.INGEST) -> list[Done[Result]]:
        """Queue a command; what became of it appears in the list that is returned."""
        done: list[Done[Result]] = []
        self.writer.submit(command, lane=lane, bytes_count=1, deliver=done.append)
        return done

    def run(self, command: Command[Result]) -> Result:
        """Run a command in a group of its own; raises what it was refused with."""
        done = self.queue(command)
        assert self.writer.step() == 1
        (outcome,) = done
        if outcome.error is not None:
            raise outcome.error
        assert outcome.result is not None
        return outcome.result

    def push(self, pushed: PushBatch, *, hub_project: str = "h") -> PushOutcome:
        return self.run(self.ingest.command(caller_of(hub_project), pushed))

    def events(
        self, *, hub_project: str = "h", project_id: str = "p", run_id: str = "r"
    ) -> Sequence[StoredEvent]:
        """All events of a run as they are read, none where the run is not there."""
        with self.store.reading() as reading:
            run = reading.run(HubProject(hub_project), ProjectId(project_id), run_id=RunId(run_id))
            if run is None:
                return []
            bounds = PageBounds(100_000, 1 << 30)
            return reading.events_of_run(run, after_sequence=0, event_types=(), bounds=bounds).events

    def alerts(self, hub_project: str = "h") -> list[Alert]:
        with self.store.reading() as reading:
            return reading.alerts(
                HubProject(hub_project), exclude_acknowledged=False, after=None, entries_max=1_000
            )
