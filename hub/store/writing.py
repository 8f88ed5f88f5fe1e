"""The writing side of the store, written once for every engine.

Run heads, positions, owners of projects and instances are cached; the caches speed up, the
constraints of the schema decide.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from hub.core.alert import Observation
from hub.core.errors import LimitReached, StorageUnavailable
from hub.core.ingest import StoredContent
from hub.core.limits import Limits
from hub.core.quota import Usage, active_runs, stored_bytes_of_events
from hub.core.values import (
    AlertId,
    EventContent,
    HubGeneration,
    HubProject,
    InstanceId,
    Project,
    ProjectId,
    RunHead,
    RunId,
    Runtime,
    RuntimeId,
)
from hub.store import alert_rows
from hub.store.committed_cache import CommittedCache
from hub.store.contract import Changes
from hub.store.health import StoreHealth
from hub.store.journal_writing import JournalCaches, SqlJournalWrites
from hub.store.lease_writing import SqlLeaseWrites
from hub.store.retention_rows import SqlRetentionWrites
from hub.store.room import Room
from hub.store.session import Parameters, Row, Session
from hub.store.staged_changes import Staged, StagedChanges
from hub.store.tenants import SqlTenants
from hub.store.token_rows import SqlTokenWrites
from synchub.contract import SEQUENCE_MAX

# One encoder for all: json.dumps makes one at each call, and presence is written for thousands.
_to_json = json.JSONEncoder(ensure_ascii=False).encode


class SqlWriteSession:
    """The writing connection with its caches; see ``WriteSession`` and ``WriteTransaction``."""

    def __init__(
        self,
        open_session: Callable[[], Session],
        *,
        hub_generation: HubGeneration,
        limits: Limits,
        health: StoreHealth,
    ) -> None:
        """Keep how a connection is opened; the first ``begin`` opens it."""
        self._open_session = open_session
        self._room = Room(health, reserve_bytes=limits.disk_reserve_bytes)
        self._session: Session | None = None
        self._hub_generation = hub_generation
        self._changes = StagedChanges()
        self._heads: CommittedCache[tuple[ProjectId, RunId], RunHead]
        self._heads = CommittedCache(limits.run_heads_cached_max)
        self._owners: CommittedCache[ProjectId, HubProject] = CommittedCache(limits.run_heads_cached_max)
        self._tenants = SqlTenants(session=lambda: self._sql, entries_max=limits.run_heads_cached_max)
        self._instances: CommittedCache[tuple[HubProject, RuntimeId], InstanceId]
        self._instances = CommittedCache(limits.instances_cached_max)
        self.leases = SqlLeaseWrites(
            session=lambda: self._sql,
            find_tenant=self._tenants.find_key,
            make_tenant=self._tenants.make_key,
            changes=lambda: self._changes.of_command,
            limits=limits,
        )
        """Resources, tenures and receipts."""
        self._journal_caches = JournalCaches(limits.streams_cached_max)
        self.journal = SqlJournalWrites(
            session=lambda: self._sql,
            find_tenant=self._tenants.find_key,
            make_tenant=self._tenants.make_key,
            changes=lambda: self._changes.of_command,
            add_stored_bytes=self.add_stored_bytes,
            caches=self._journal_caches,
        )
        """Streams, commits, outbox messages and projections."""
        self.tokens = SqlTokenWrites(
            session=lambda: self._sql,
            make_tenant=self._tenants.make_key,
            changes=lambda: self._changes.of_command,
            entries_max=limits.tokens_max,
        )
        """Bearer tokens."""
        self.retention = SqlRetentionWrites(
            session=lambda: self._sql,
            find_tenant=self._tenants.find_key,
            add_stored_bytes=self.add_stored_bytes,
            forget_resources=self.leases.forget_cached,
        )
        """What is dropped for its age."""

    # --- the transaction ---

    def begin(self) -> "SqlWriteSession":
        """Begin the transaction, on a new connection where the last one was given up."""
        if self._session is None:
            self._session = self._open_session()
        try:
            self._room.look(self._session)
            self._session.begin_writing()
        except Exception:
            self._give_up()
            raise
        return self

    def set_savepoint(self) -> None:
        """Begin a command."""
        self._sql.set_savepoint()
        for staged in self._staged():
            staged.set_savepoint()

    def release_savepoint(self) -> None:
        """Keep what the command did."""
        self._sql.release_savepoint()

    def undo_to_savepoint(self) -> None:
        """Undo what the command did."""
        self._sql.undo_to_savepoint()
        for staged in self._staged():
            staged.undo_to_savepoint()

    def commit(self, time_floor_nanos: int) -> Changes:
        """Commit; caches move only now."""
        try:
            self.leases.before_commit()
            self._tenants.before_commit()
            self._sql.run("save_time_floor", (time_floor_nanos,))
            self._sql.commit()
        except Exception:
            self._give_up()
            raise
        for staged in self._staged():
            staged.commit()
        return self._changes.take()

    def rollback(self) -> None:
        """Undo the transaction and forget what was staged."""
        if self._session is not None:
            self._session.rollback()
        for staged in self._staged():
            staged.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._give_up()

    def _give_up(self) -> None:
        """Close the connection and drop every cache: what was committed is not known."""
        if self._session is not None:
            self._session.close()
            self._session = None
        for staged in self._staged():
            staged.clear()

    @property
    def _sql(self) -> Session:
        if self._session is None:
            raise StorageUnavailable
        return self._session

    def _staged(self) -> tuple[Staged, ...]:
        """Return everything that follows the transaction."""
        caches = (self._heads, self._owners, self._instances)
        return (
            self._changes,
            *caches,
            *self._tenants.staged,
            *self.leases.staged,
            *self._journal_caches.all,
            *self.tokens.staged,
        )

    def _first(self, statement: str, parameters: Parameters) -> Row | None:
        """Return the first row of a statement, None where it has none."""
        return next(iter(list(self._sql.fetch(statement, parameters))), None)

    @property
    def hub_generation(self) -> HubGeneration:
        """The generation in force."""
        return self._hub_generation

    # --- tenants and projects ---

    def usage(self, hub_project: HubProject) -> Usage:
        """Return what a hub project keeps."""
        return self._tenants.usage(hub_project)

    def add_stored_bytes(self, hub_project: HubProject, bytes_count: int) -> None:
        """Count bytes that are kept, or not any more."""
        self._tenants.move(hub_project, stored_bytes=bytes_count)

    def check_room(self) -> None:
        """Refuse what makes the store grow, where only the reserve of the disk is left."""
        fault = self._room.fault()
        if fault is not None:
            raise fault

    def project_owner(self, project_id: ProjectId) -> HubProject | None:
        """Return the hub project that a project belongs to."""
        owner = self._owners.get(project_id)
        if owner is None:
            row = self._first("load_project_owner", (project_id,))
            if row is None:
                return None
            owner = HubProject(str(row[0]))
            self._owners.put(project_id, owner)
        return owner

    def bind_project(self, hub_project: HubProject, project_id: ProjectId, *, now_nanos: int) -> None:
        """Bind a project."""
        hub_project_key = self._tenants.make_key(hub_project)
        self._sql.run("bind_project", (project_id, hub_project_key, now_nanos))
        self._owners.put(project_id, hub_project)

    def release_project(self, project_id: ProjectId) -> None:
        """Release a project."""
        self._sql.run("release_project", (project_id,))
        self._owners.clear()

    def project(self, project_id: ProjectId) -> Project | None:
        """Return a project."""
        row = cast("tuple[str, int, int] | None", self._first("load_project", (project_id,)))
        return None if row is None else Project(ProjectId(row[0]), row[1], row[2])

    # --- runs and events ---

    def run_head(self, project_id: ProjectId, run_id: RunId) -> RunHead | None:
        """Return a run's head."""
        head = self._heads.get((project_id, run_id))
        if head is None:
            row = self._first("load_run_head", (project_id, run_id))
            if row is None:
                return None
            run_key, home, cursor, chain_hash, highest, count, final = cast(
                "tuple[int, str, int, bytes, int, int, int | None]", row
            )
            home_runtime_id = RuntimeId(home)
            head = RunHead(
                run_key, project_id, run_id, home_runtime_id, cursor, chain_hash, highest, count, final
            )
            self._heads.put((project_id, run_id), head)
        return head

    def create_run(self, hub_project: HubProject, head: RunHead, *, receive_nanos: int) -> RunHead:
        """Store a new run."""
        hub_project_key = self._tenants.make_key(hub_project)
        row = self._first(
            "create_run",
            (
                hub_project_key,
                head.project_id,
                head.run_id,
                head.home_runtime_id,
                head.cursor,
                head.chain_hash,
                head.highest_sequence,
                head.event_count,
                head.final_sequence,
                receive_nanos,
            ),
        )
        (run_key,) = cast("tuple[int]", row)
        stored = replace(head, run_key=run_key)
        self._heads.put((head.project_id, head.run_id), stored)
        self._tenants.move(hub_project, active_runs=active_runs(stored))
        return stored

    def save_run_head(self, head: RunHead, receive_nanos: int) -> None:
        """Store a run's head."""
        before, hub_project = self.run_head(head.project_id, head.run_id), self.project_owner(head.project_id)
        assert hub_project is not None, head
        self._tenants.move(hub_project, active_runs=active_runs(head) - active_runs(before))
        self._sql.run(
            "save_run_head",
            (
                head.cursor,
                head.chain_hash,
                head.highest_sequence,
                head.event_count,
                head.final_sequence,
                receive_nanos,
                head.run_key,
            ),
        )
        self._heads.put((head.project_id, head.run_id), head)

    def store_events(
        self,
        hub_project: HubProject,
        head: RunHead,
        *,
        events: Sequence[EventContent],
        receive_nanos: int,
    ) -> None:
        """Store events at the next positions."""
        hub_project_key, head_position, *_ = self._tenants.make(hub_project)
        new_head_position = head_position + len(events)
        if new_head_position > SEQUENCE_MAX:
            raise LimitReached("position", SEQUENCE_MAX)
        shared = (head.run_key, hub_project_key, head_position, receive_nanos)
        self._sql.run_bulk("store_events", shared, rows=events)
        self._tenants.move(hub_project, positions=len(events), stored_bytes=stored_bytes_of_events(events))
        changes = self._changes.of_command
        changes.previous_positions.setdefault(hub_project, head_position)
        changes.head_positions[hub_project] = new_head_position
        changes.runs.add((hub_project, head.project_id, head.run_id))

    def fill_events(self, head: RunHead, events: Sequence[EventContent]) -> None:
        """Fill in contents; what was kept of them before, their attributes, may differ."""
        hub_project = self.project_owner(head.project_id)
        assert hub_project is not None, head
        added_bytes = stored_bytes_of_events(events)
        for event in events:
            row = self._first("load_stored_bytes", (head.run_key, event.sequence))
            added_bytes -= cast("tuple[int]", row)[0]
        self._tenants.move(hub_project, stored_bytes=added_bytes)
        rows = [
            (
                event.event_type,
                event.event_time_nanos,
                event.attributes,
                event.is_final,
                event.payload,
                head.run_key,
                event.sequence,
            )
            for event in events
        ]
        self._sql.run_many("fill_event", rows)

    def stored_contents(self, head: RunHead, sequences: Sequence[int]) -> dict[int, StoredContent]:
        """Return what is stored, by one look-up where the sequences are a range."""
        first, last = min(sequences), max(sequences)
        if last - first < 2 * len(sequences):
            rows = list(self._sql.fetch("load_contents_between", (head.run_key, first, last)))
        else:
            rows = []
            for sequence in sequences:
                rows.extend(self._sql.fetch("load_content", (head.run_key, sequence)))
        contents = cast("list[tuple[int, bytes, int]]", rows)
        return {
            sequence: StoredContent(content_hash, bool(was_pushed_dropped))
            for sequence, content_hash, was_pushed_dropped in contents
        }

    def stored_hashes_after(self, head: RunHead, sequence: int) -> Iterator[tuple[int, bytes]]:
        """Give content hashes."""
        rows = self._sql.fetch("load_hashes_after", (head.run_key, sequence))
        return cast("Iterator[tuple[int, bytes]]", rows)

    def stored_count_after(self, head: RunHead, sequence: int) -> int:
        """Count events."""
        row = cast("tuple[int]", self._first("count_events_after", (head.run_key, sequence)))
        return row[0]

    # --- runtimes ---

    def current_instance(self, hub_project: HubProject, runtime_id: RuntimeId) -> InstanceId | None:
        """Return the current instance."""
        instance_id = self._instances.get((hub_project, runtime_id))
        if instance_id is None:
            tenant_key = self._tenants.find_key(hub_project)
            row = None if tenant_key is None else self._first("load_instance", (tenant_key, runtime_id))
            if row is None:
                return None
            instance_id = InstanceId(str(row[0]))
            self._instances.put((hub_project, runtime_id), instance_id)
        return instance_id

    def was_instance(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, instance_id: InstanceId
    ) -> bool:
        """Whether it is a past instance."""
        tenant_key = self._tenants.find_key(hub_project)
        if tenant_key is None:
            return False
        return self._first("was_instance", (tenant_key, runtime_id, instance_id)) is not None

    def begin_instance(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, instance_id: InstanceId, now_nanos: int
    ) -> None:
        """Make an instance current."""
        hub_project_key = self._tenants.make_key(hub_project)
        before = self.current_instance(hub_project, runtime_id)
        if before is not None:
            self._sql.run("end_instance", (hub_project_key, runtime_id, before, now_nanos))
        self._sql.run("begin_instance", (hub_project_key, runtime_id, instance_id, now_nanos))
        self._instances.put((hub_project, runtime_id), instance_id)
        self._changes.of_command.instances[hub_project, runtime_id] = (instance_id, now_nanos)

    def save_presence(self, hub_project: HubProject, runtimes: Sequence[Runtime]) -> None:
        """Store presence."""
        hub_project_key = self._tenants.make_key(hub_project)
        rows = [
            (
                runtime.last_heartbeat_nanos,
                runtime.is_goodbye,
                runtime.host,
                runtime.pid,
                runtime.version,
                _to_json(runtime.labels),
                _to_json(runtime.active_runs),
                runtime.unsynced_event_count,
                hub_project_key,
                runtime.runtime_id,
                runtime.instance_id,
            )
            for runtime in runtimes
        ]
        self._sql.run_many("save_presence", rows)

    # --- alerts ---

    def save_observations(
        self, observations: Sequence[Observation], now_nanos: int, *, rows_max: int, samples_max: int
    ) -> None:
        """Count observations."""
        keyed = [(self._tenants.make_key(each.key.hub_project), each) for each in observations]
        alert_rows.save_observations(
            self._sql, keyed, now_nanos=now_nanos, rows_max=rows_max, samples_max=samples_max
        )
        self._changes.of_command.alerts.update(each.key.hub_project for each in observations)

    def acknowledge_alert(self, hub_project: HubProject, alert_id: AlertId, *, now_nanos: int) -> bool:
        """Mark an alert as seen."""
        tenant_key = self._tenants.find_key(hub_project)
        if tenant_key is None:
            return False
        was_open = alert_rows.acknowledge_alert(self._sql, tenant_key, alert_id=alert_id, now_nanos=now_nanos)
        if was_open:
            self._changes.of_command.alerts.add(hub_project)
        return was_open
