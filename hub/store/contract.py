"""What services may rely on: the store's contract, the same over every engine.

A ``WriteTransaction`` belongs to the writer, one at a time. What it returns counts what it wrote
before; nothing of it is visible to a ``ReadTransaction`` before its COMMIT, and everything is after.
Every method raises StorageUnavailable where the engine cannot do it now.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hub.core.alert import Observation
from hub.core.credential import Token
from hub.core.ingest import StoredContent
from hub.core.quota import Usage
from hub.core.resume import GenerationStart
from hub.core.selection import (
    AlertChanges,
    EventPlace,
    EventScope,
    ExportPage,
    PageBounds,
    PositionedEvents,
    RunEvents,
    RunFilter,
    RunPlace,
)
from hub.core.tenure import Resource
from hub.core.values import (
    Alert,
    AlertId,
    EventContent,
    HubGeneration,
    HubProject,
    InstanceId,
    Project,
    ProjectId,
    ResourceName,
    Run,
    RunHead,
    RunId,
    Runtime,
    RuntimeId,
    StoredEvent,
    TokenId,
)
from hub.store.journal_contract import JournalReads, JournalWrites
from hub.store.lease_contract import LeaseReads, LeaseWrites
from hub.store.retention_contract import RetentionReads, RetentionWrites
from hub.store.token_contract import TokenReads, TokenWrites
from hub.store.verify_contract import VerifyReads


@dataclass(slots=True)
class Changes:
    """What a transaction changed, for those who watch: told after its COMMIT.

    ``head_positions`` holds the new head of every hub project that got events, ``previous_positions``
    the head before; all events between the two are of ``runs``.
    ``instances`` the new instances of runtimes, each with the hub time at which it became current;
    ``resources`` those of which something changed, as they are now; ``tenures_begun`` and
    ``tenures_expired`` how many there were of a hub project, to be counted;
    ``journal_head_positions`` the new head of every hub project whose journal got events; ``tokens``
    those that were made or revoked.
    """

    head_positions: dict[HubProject, int] = field(default_factory=dict)
    previous_positions: dict[HubProject, int] = field(default_factory=dict)
    runs: set[tuple[HubProject, ProjectId, RunId]] = field(default_factory=set)
    alerts: set[HubProject] = field(default_factory=set)
    instances: dict[tuple[HubProject, RuntimeId], tuple[InstanceId, int]] = field(default_factory=dict)
    resources: dict[tuple[HubProject, ResourceName], Resource] = field(default_factory=dict)
    tenures_begun: dict[HubProject, int] = field(default_factory=dict)
    tenures_expired: dict[HubProject, int] = field(default_factory=dict)
    journal_head_positions: dict[HubProject, int] = field(default_factory=dict)
    tokens: dict[TokenId, Token] = field(default_factory=dict)


class WriteTransaction(Protocol):
    """Everything that may be changed, within the one transaction that is open."""

    @property
    def hub_generation(self) -> HubGeneration:
        """The generation in force."""

    @property
    def leases(self) -> LeaseWrites:
        """Resources, tenures and receipts."""

    @property
    def journal(self) -> JournalWrites:
        """Streams, commits, outbox messages and projections."""

    @property
    def tokens(self) -> TokenWrites:
        """Bearer tokens."""

    @property
    def retention(self) -> RetentionWrites:
        """What is dropped for its age."""

    def check_room(self) -> None:
        """Return where the store may grow: for whoever stores events or commits.

        Raises: StorageFull, for this command alone, where only the reserve of the disk is left.
        """

    # --- what a hub project keeps ---

    def usage(self, hub_project: HubProject) -> Usage:
        """Return what a hub project keeps: events, commits, and runs that are not complete are counted by
        what stores them.
        """

    def add_stored_bytes(self, hub_project: HubProject, bytes_count: int) -> None:
        """Count bytes that are kept, or, negative, that are not any more: for whoever drops payloads."""

    # --- projects ---

    def project_owner(self, project_id: ProjectId) -> HubProject | None:
        """Return the hub project that a project belongs to, None where nobody has it."""

    def bind_project(self, hub_project: HubProject, project_id: ProjectId, *, now_nanos: int) -> None:
        """Bind a project that nobody has."""

    def release_project(self, project_id: ProjectId) -> None:
        """Take back the binding of a project without runs."""

    def project(self, project_id: ProjectId) -> Project | None:
        """Return a project and its number of runs."""

    # --- runs and events ---

    def run_head(self, project_id: ProjectId, run_id: RunId) -> RunHead | None:
        """Return a run's head, None where nothing of it is stored."""

    def create_run(self, hub_project: HubProject, head: RunHead, *, receive_nanos: int) -> RunHead:
        """Store a run without events; its project must be bound. Returns the head with its key."""

    def save_run_head(self, head: RunHead, receive_nanos: int) -> None:
        """Store where a run's head is now."""

    def store_events(
        self,
        hub_project: HubProject,
        head: RunHead,
        *,
        events: Sequence[EventContent],
        receive_nanos: int,
    ) -> None:
        """Store accepted events of a run and give them the next positions.

        Raises: LimitReached where the positions of the hub project are used up.
        """

    def fill_events(self, head: RunHead, events: Sequence[EventContent]) -> None:
        """Store the content of events that were pushed as dropped."""

    def stored_contents(self, head: RunHead, sequences: Sequence[int]) -> dict[int, StoredContent]:
        """Return what is stored under these sequences."""

    def stored_hashes_after(self, head: RunHead, sequence: int) -> Iterator[tuple[int, bytes]]:
        """Give (sequence, content hash) above a sequence, ascending, as far as it is read."""

    def stored_count_after(self, head: RunHead, sequence: int) -> int:
        """Return how many events of a run are stored above a sequence."""

    # --- runtimes ---

    def current_instance(self, hub_project: HubProject, runtime_id: RuntimeId) -> InstanceId | None:
        """Return a runtime's current instance, None where the runtime was never heard."""

    def was_instance(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, instance_id: InstanceId
    ) -> bool:
        """Whether an instance was the runtime's current one before and is not any more."""

    def begin_instance(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, instance_id: InstanceId, now_nanos: int
    ) -> None:
        """Make an instance the runtime's current one; the one before never is again."""

    def save_presence(self, hub_project: HubProject, runtimes: Sequence[Runtime]) -> None:
        """Store presence as last heard; of an instance that is not current any more, nothing."""

    # --- alerts ---

    def save_observations(
        self, observations: Sequence[Observation], now_nanos: int, *, rows_max: int, samples_max: int
    ) -> None:
        """Count observations: a new alert, or one more of a known one, which is open again.

        Past ``rows_max`` alerts of a hub project, one overflow row a reason counts what is new.
        """

    def acknowledge_alert(self, hub_project: HubProject, alert_id: AlertId, *, now_nanos: int) -> bool:
        """Mark an alert as seen; return whether it was open."""


class WriteSession(Protocol):
    """The one writing connection. Only the writer's thread uses it, one transaction after another."""

    def begin(self) -> WriteTransaction:
        """Begin the transaction."""

    def set_savepoint(self) -> None:
        """Begin a command within the transaction."""

    def release_savepoint(self) -> None:
        """Keep what the command did."""

    def undo_to_savepoint(self) -> None:
        """Undo what the command did."""

    def commit(self, time_floor_nanos: int) -> Changes:
        """Make everything durable, with the floor of hub time, and return what changed.

        Where it raises, the outcome is unknown: nothing may be acknowledged. The connection is closed
        and every cache dropped; the next ``begin`` opens a new one.
        """

    def rollback(self) -> None:
        """Undo the transaction; never raises."""


class ReadTransaction(Protocol):
    """One state of the store, whatever is committed meanwhile. For one thread, and not for long.

    Of what belongs to another hub project everything is as if it were not there.
    """

    @property
    def hub_generation(self) -> HubGeneration:
        """The generation in force."""

    @property
    def leases(self) -> LeaseReads:
        """Resources and tenures."""

    @property
    def journal(self) -> JournalReads:
        """Streams, events, outbox messages and projections."""

    @property
    def tokens(self) -> TokenReads:
        """Bearer tokens."""

    @property
    def verification(self) -> VerifyReads:
        """Whether runs and events are as their hashes say."""

    @property
    def retention(self) -> RetentionReads:
        """What is old."""

    def head_position(self, hub_project: HubProject) -> int:
        """Return the last position given in a hub project, 0 where none was."""

    def generations(self, hub_project: HubProject) -> list[GenerationStart]:
        """Return all generations, oldest first, with the head of a hub project when each began."""

    # --- runs and projects ---

    def run(self, hub_project: HubProject, project_id: ProjectId, *, run_id: RunId) -> Run | None:
        """Return a run."""

    def runs(
        self, hub_project: HubProject, run_filter: RunFilter, *, after: RunPlace | None, entries_max: int
    ) -> list[Run]:
        """Return runs after a place, ascending by the bytes of (project id, run id)."""

    def projects(
        self, hub_project: HubProject, *, after: ProjectId | None, entries_max: int
    ) -> list[Project]:
        """Return projects bound to a hub project, ascending by the bytes of their ids."""

    def has_project(self, hub_project: HubProject, project_id: ProjectId) -> bool:
        """Whether a project is bound to a hub project."""

    # --- events ---

    def events_of_run(
        self, run: Run, *, after_sequence: int, event_types: Sequence[str], bounds: PageBounds
    ) -> RunEvents:
        """Return events of a run after a sequence, ascending; of all types where none is named."""

    def newest_events_of_run(
        self, run: Run, *, after_sequence: int, event_types: Sequence[str], bounds: PageBounds
    ) -> list[StoredEvent]:
        """Return the newest events of a run that keep the bounds, oldest first."""

    def exported_events(
        self, hub_project: HubProject, scope: EventScope, *, after: EventPlace | None, bounds: PageBounds
    ) -> ExportPage:
        """Return events after a place, ascending by project, run and sequence."""

    def events_after(
        self,
        hub_project: HubProject,
        scope: EventScope,
        *,
        after_position: int,
        event_types: Sequence[str],
        bounds: PageBounds,
    ) -> PositionedEvents:
        """Return events after a position, ascending, of all types where none is named.

        How many positions are looked at is bounded too: the page may have no events although the head
        is not reached. It always goes on, so that asking again from ``considered_position`` ends.
        """

    # --- alerts ---

    def alert(self, hub_project: HubProject, alert_id: AlertId) -> Alert | None:
        """Return an alert."""

    def alerts(
        self,
        hub_project: HubProject,
        *,
        exclude_acknowledged: bool,
        after: AlertId | None,
        entries_max: int,
    ) -> list[Alert]:
        """Return alerts, ascending by the bytes of their ids."""

    def alert_changes(
        self, hub_project: HubProject, *, after_change_number: int, entries_max: int
    ) -> AlertChanges:
        """Return alerts that changed after a change, each in its newest state, oldest change first.

        Reading on from the change number of each answer misses no alert's newest state.
        """

    # --- runtimes ---

    def runtime(self, hub_project: HubProject, runtime_id: RuntimeId) -> Runtime | None:
        """Return a runtime as last written."""

    def runtimes(
        self, hub_project: HubProject, *, after: RuntimeId | None, entries_max: int
    ) -> list[Runtime]:
        """Return runtimes as last written, ascending by the bytes of their ids."""


class ReadableStore(Protocol):
    """Where read transactions come from."""

    def reading(self) -> AbstractContextManager[ReadTransaction]:
        """Give a read transaction for the length of a block. For reader threads; keep it short.

        Raises: StorageUnavailable, also within the block.
        """
