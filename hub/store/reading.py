"""The reading side of the store, written once for every engine.

Statements and their filters are composed of named fragments; nothing that a caller gave is ever part of
the SQL. Nothing is cached: each transaction sees one state of the store.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

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
from hub.core.values import (
    Alert,
    AlertId,
    AlertKey,
    AlertReason,
    HubGeneration,
    HubProject,
    InstanceId,
    Project,
    ProjectId,
    Run,
    RunHead,
    RunId,
    Runtime,
    RuntimeId,
    StoredEvent,
)
from hub.store.alert_rows import samples_from_json
from hub.store.journal_reading import SqlJournalReads
from hub.store.lease_reading import SqlLeaseReads
from hub.store.retention_rows import SqlRetentionReads
from hub.store.session import Row, Session, SqlValue
from hub.store.token_rows import SqlTokenReads
from hub.store.verify_reading import SqlVerifyReads

EVENT_BYTES_BESIDE_TEXTS = 128
"""What an event takes on the wire beside its ids, type, attributes and payload, at most, in bytes."""
SCANNED_POSITIONS_MAX = 50_000
"""Positions looked at in one read; a filter that lets little through is asked again from there."""
SORTED_EVENTS_MAX = 200_000
"""Largest run whose events are sorted by position instead of searched along the positions."""
EXPORTED_RUNS_AT_ONCE = 256
"""Runs looked up at once for an export."""

_RunRow = tuple[int, str, str, str, int, bytes, int, int, int | None, int, int]
_AlertRow = tuple[str, str, str, str, str, int, int, int, str, int | None, int]
_RuntimeRow = tuple[str, str, int, int | None, int, str, int, str, str, str, int]
_EventRow = tuple[str, str, int, int, str, int | None, str | None, bool, bytes | None, bytes, int]


class SqlReadTransaction:
    """One state of the store; see ``ReadTransaction`` for the promises."""

    def __init__(self, session: Session, *, hub_generation: HubGeneration) -> None:
        """Read over a session whose transaction is open."""
        self._session = session
        self._hub_generation = hub_generation
        self.leases = SqlLeaseReads(session, find_tenant=self._tenant_key)
        """Resources and tenures."""
        self.journal = SqlJournalReads(session, find_tenant=self._tenant_key)
        """Streams, events, outbox messages and projections."""
        self.tokens = SqlTokenReads(session, find_tenant=self._tenant_key)
        """Bearer tokens."""
        self.retention = SqlRetentionReads(session, find_tenant=self._tenant_key)
        """What is old."""
        self.verification = SqlVerifyReads(session, find_tenant=self._tenant)
        """Whether runs and events are as their hashes say."""

    @property
    def hub_generation(self) -> HubGeneration:
        """The generation in force."""
        return self._hub_generation

    def head_position(self, hub_project: HubProject) -> int:
        """Return the head."""
        return self._tenant(hub_project)[1]

    def generations(self, hub_project: HubProject) -> list[GenerationStart]:
        """Return the generations."""
        rows = self._session.fetch("list_generations", {"hub_project_key": self._tenant(hub_project)[0]})
        return [
            GenerationStart(HubGeneration(hub_generation), head_position)
            for hub_generation, head_position in cast("Iterator[tuple[str, int]]", rows)
        ]

    # --- runs and projects ---

    def run(self, hub_project: HubProject, project_id: ProjectId, *, run_id: RunId) -> Run | None:
        """Return a run."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "project_id": project_id,
            "run_id": run_id,
        }
        rows = cast("Iterator[_RunRow]", self._composed(["run_columns", "run_is"], parameters))
        return next((_run_from_row(row) for row in rows), None)

    def runs(
        self, hub_project: HubProject, run_filter: RunFilter, *, after: RunPlace | None, entries_max: int
    ) -> list[Run]:
        """Return runs."""
        names = ["run_columns", "runs_of_all" if run_filter.project_id is None else "runs_of_project"]
        if run_filter.runtime_id is not None:
            names.append("runs_of_runtime")
        if run_filter.is_complete is not None:
            names.append("runs_complete" if run_filter.is_complete else "runs_incomplete")
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "project_id": run_filter.project_id,
            "runtime_id": run_filter.runtime_id,
            "after_project_id": "" if after is None else after.project_id,
            "after_run_id": "" if after is None else after.run_id,
            "entries_max": entries_max,
        }
        rows = cast("Iterator[_RunRow]", self._composed([*names, "runs_in_order"], parameters))
        return [_run_from_row(row) for row in rows]

    def projects(
        self, hub_project: HubProject, *, after: ProjectId | None, entries_max: int
    ) -> list[Project]:
        """Return projects."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "after_project_id": after or "",
            "entries_max": entries_max,
        }
        rows = cast("Iterator[tuple[str, int, int]]", self._session.fetch("list_projects", parameters))
        return [
            Project(ProjectId(project_id), bind_nanos, run_count)
            for project_id, bind_nanos, run_count in rows
        ]

    def has_project(self, hub_project: HubProject, project_id: ProjectId) -> bool:
        """Whether a project is bound to the hub project."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "project_id": project_id,
        }
        return next(self._session.fetch("has_project", parameters), None) is not None

    # --- events ---

    def events_of_run(
        self, run: Run, *, after_sequence: int, event_types: Sequence[str], bounds: PageBounds
    ) -> RunEvents:
        """Return events of a run."""
        names = ["event_columns", "events_of_run", *_types_fragment(event_types), "events_by_sequence"]
        return self._events_of_run(
            names, run, after_sequence=after_sequence, types=event_types, bounds=bounds
        )

    def newest_events_of_run(
        self, run: Run, *, after_sequence: int, event_types: Sequence[str], bounds: PageBounds
    ) -> list[StoredEvent]:
        """Return the newest events of a run, oldest first."""
        names = ["event_columns", "events_of_run", *_types_fragment(event_types), "events_newest_first"]
        found = self._events_of_run(
            names, run, after_sequence=after_sequence, types=event_types, bounds=bounds
        )
        return found.events[::-1]

    def exported_events(
        self, hub_project: HubProject, scope: EventScope, *, after: EventPlace | None, bounds: PageBounds
    ) -> ExportPage:
        """Return events of an export."""
        events: list[StoredEvent] = []
        bytes_left = bounds.bytes_max
        for run in self._runs_to_export(hub_project, scope, after=after):
            is_begun = after is not None and (run.head.project_id, run.head.run_id) == after[:2]
            page = self.events_of_run(
                run,
                after_sequence=after.sequence if after is not None and is_begun else 0,
                event_types=(),
                bounds=PageBounds(bounds.entries_max - len(events), bytes_left),
            )
            events += page.events
            bytes_left -= sum(map(event_bytes, page.events))
            if page.is_cut or len(events) >= bounds.entries_max or bytes_left <= 0:
                last = events[-1]
                return ExportPage(events, EventPlace(last.project_id, last.run_id, last.sequence))
        return ExportPage(events, None)

    def events_after(
        self,
        hub_project: HubProject,
        scope: EventScope,
        *,
        after_position: int,
        event_types: Sequence[str],
        bounds: PageBounds,
    ) -> PositionedEvents:
        """Return events in the order of positions."""
        hub_project_key, head_position = self._tenant(hub_project)
        if after_position >= head_position:
            return PositionedEvents([], head_position, head_position)
        through_position = min(head_position, after_position + SCANNED_POSITIONS_MAX)
        names = ["events_between"]
        run_key: int | None = None
        if scope.project_id is not None and scope.run_id is not None:
            run = self.run(hub_project, scope.project_id, run_id=scope.run_id)
            if run is None:
                return PositionedEvents([], head_position, head_position)
            run_key = run.head.run_key
            names.append("events_within_run")
            if _is_sorting_cheaper(run, head_position - after_position, entries_max=bounds.entries_max):
                names, through_position = ["events_of_run_between"], head_position
        elif scope.project_id is not None:
            names.append("events_within_project")
        parameters: dict[str, SqlValue] = {
            "hub_project_key": hub_project_key,
            "project_id": scope.project_id,
            "run_key": run_key,
            "after_position": after_position,
            "through_position": through_position,
            "event_types": _types_parameter(event_types),
            "entries_max": bounds.entries_max,
        }
        names += [*_types_fragment(event_types), "events_by_position"]
        rows = self._composed(["event_columns", *names], parameters)
        found = _bounded_events(rows, bounds)
        considered_position = found.events[-1].position if found.is_cut else through_position
        return PositionedEvents(found.events, considered_position, head_position)

    # --- alerts ---

    def alert(self, hub_project: HubProject, alert_id: AlertId) -> Alert | None:
        """Return an alert."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "alert_id": alert_id,
        }
        found = self._alerts(hub_project, ["alert_is"], parameters=parameters)
        return found.alerts[0] if found.alerts else None

    def alerts(
        self,
        hub_project: HubProject,
        *,
        exclude_acknowledged: bool,
        after: AlertId | None,
        entries_max: int,
    ) -> list[Alert]:
        """Return alerts."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "after_alert_id": after or "",
            "entries_max": entries_max,
        }
        names = ["alerts_after", *(["alerts_open"] if exclude_acknowledged else []), "alerts_in_order"]
        return self._alerts(hub_project, names, parameters=parameters).alerts

    def alert_changes(
        self, hub_project: HubProject, *, after_change_number: int, entries_max: int
    ) -> AlertChanges:
        """Return alerts that changed."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "after_change_number": after_change_number,
            "entries_max": entries_max,
        }
        found = self._alerts(hub_project, ["alerts_changed"], parameters=parameters)
        return found if found.alerts else AlertChanges([], after_change_number)

    # --- runtimes ---

    def runtime(self, hub_project: HubProject, runtime_id: RuntimeId) -> Runtime | None:
        """Return a runtime."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "runtime_id": runtime_id,
        }
        rows = cast("Iterator[_RuntimeRow]", self._composed(["runtime_columns", "runtime_is"], parameters))
        return next((_runtime_from_row(row) for row in rows), None)

    def runtimes(
        self, hub_project: HubProject, *, after: RuntimeId | None, entries_max: int
    ) -> list[Runtime]:
        """Return runtimes."""
        parameters: dict[str, SqlValue] = {
            "hub_project_key": self._tenant(hub_project)[0],
            "after_runtime_id": after or "",
            "entries_max": entries_max,
        }
        names = ["runtime_columns", "runtimes_in_order"]
        return [
            _runtime_from_row(row) for row in cast("Iterator[_RuntimeRow]", self._composed(names, parameters))
        ]

    # --- within ---

    def _composed(self, names: Sequence[str], parameters: Mapping[str, SqlValue]) -> Iterator[Row]:
        """Run a statement composed of these fragments."""
        sql = "\n".join(self._session.fragment(name) for name in names)
        return self._session.fetch_composed(sql, parameters)

    def _tenant(self, hub_project: HubProject) -> tuple[int, int]:
        """Return (key, head position) of a hub project; a key that nothing has where there is none."""
        rows = self._session.fetch("find_hub_project", {"hub_project": hub_project})
        return next(cast("Iterator[tuple[int, int]]", rows), (0, 0))

    def _tenant_key(self, hub_project: HubProject) -> int | None:
        return self._tenant(hub_project)[0] or None

    def _events_of_run(
        self,
        names: Sequence[str],
        run: Run,
        *,
        after_sequence: int,
        types: Sequence[str],
        bounds: PageBounds,
    ) -> RunEvents:
        parameters: dict[str, SqlValue] = {
            "run_key": run.head.run_key,
            "after_sequence": after_sequence,
            "event_types": _types_parameter(types),
            "entries_max": bounds.entries_max,
        }
        return _bounded_events(self._composed(names, parameters), bounds)

    def _runs_to_export(
        self, hub_project: HubProject, scope: EventScope, *, after: EventPlace | None
    ) -> Iterator[Run]:
        """Give the runs of a scope in order, the one that was begun first."""
        if after is not None or scope.run_id is not None:
            project_id = after.project_id if after is not None else scope.project_id
            run_id = after.run_id if after is not None else scope.run_id
            assert project_id is not None
            assert run_id is not None
            begun = self.run(hub_project, project_id, run_id=run_id)
            if begun is not None:
                yield begun
        if scope.run_id is not None:
            return
        place = None if after is None else RunPlace(after.project_id, after.run_id)
        while True:
            runs = self.runs(
                hub_project, RunFilter(scope.project_id), after=place, entries_max=EXPORTED_RUNS_AT_ONCE
            )
            yield from runs
            if len(runs) < EXPORTED_RUNS_AT_ONCE:
                return
            place = RunPlace(runs[-1].head.project_id, runs[-1].head.run_id)

    def _alerts(
        self, hub_project: HubProject, names: Sequence[str], *, parameters: Mapping[str, SqlValue]
    ) -> AlertChanges:
        rows = cast("list[_AlertRow]", list(self._composed(["alert_columns", *names], parameters)))
        return AlertChanges([_alert_from_row(hub_project, row) for row in rows], rows[-1][-1] if rows else 0)


def event_bytes(event: StoredEvent) -> int:
    """Return what an event takes on the wire, at most, in bytes."""
    project_id, run_id, _, _, event_type, _, attributes, _, payload, _, _ = event
    texts = project_id + run_id + event_type + (attributes or "")
    return EVENT_BYTES_BESIDE_TEXTS + len(texts.encode()) + len(payload or b"")


def _bounded_events(rows: Iterator[Row], bounds: PageBounds) -> RunEvents:
    """Take events up to the bounds, at least one; a row too many is left unread.

    ``is_cut`` is also said of a page that is exactly full: whether more follows is not known then.
    """
    events: list[StoredEvent] = []
    bytes_sum = 0
    for row in cast("Iterator[_EventRow]", rows):
        event = _stored_event(row)
        bytes_sum += event_bytes(event)
        if events and bytes_sum > bounds.bytes_max:
            return RunEvents(events, is_cut=True)
        events.append(event)
    return RunEvents(events, is_cut=bool(events) and len(events) >= bounds.entries_max)


# The columns stand in the order of the fields. An engine gives 1 and 0 for True and False, which are
# equal to them; millions of rows pass, so they are left as they are.
_stored_event = StoredEvent._make


def _is_sorting_cheaper(run: Run, positions: int, *, entries_max: int) -> bool:
    """Whether a run is read with less work by sorting it for each page than by searching positions.

    Sorting looks at all of the run for each page, searching once at each position.
    """
    event_count = run.head.event_count
    return event_count <= SORTED_EVENTS_MAX and event_count * event_count <= entries_max * positions


def _types_fragment(event_types: Sequence[str]) -> list[str]:
    return ["events_of_types"] if event_types else []


def _types_parameter(event_types: Sequence[str]) -> str:
    return json.dumps(list(event_types), ensure_ascii=False)


def _run_from_row(row: _RunRow) -> Run:
    key, project_id, run_id, home, cursor, chain_hash, highest, count, final, first_nanos, last_nanos = row
    head = RunHead(
        run_key=key,
        project_id=ProjectId(project_id),
        run_id=RunId(run_id),
        home_runtime_id=RuntimeId(home),
        cursor=cursor,
        chain_hash=chain_hash,
        highest_sequence=highest,
        event_count=count,
        final_sequence=final,
    )
    return Run(head, first_nanos, last_nanos)


def _alert_from_row(hub_project: HubProject, row: _AlertRow) -> Alert:
    alert_id, reason, project_id, run_id, runtime_id, first, last, count, samples, acknowledged, _ = row
    key = AlertKey(hub_project, AlertReason(reason), project_id, run_id, runtime_id)
    return Alert(AlertId(alert_id), key, first, last, count, samples_from_json(samples), acknowledged)


def _runtime_from_row(row: _RuntimeRow) -> Runtime:
    runtime_id, instance_id, start, heartbeat, goodbye, host, pid, version, labels, runs, unsynced = row
    return Runtime(
        runtime_id=RuntimeId(runtime_id),
        instance_id=InstanceId(instance_id),
        instance_start_nanos=start,
        last_heartbeat_nanos=heartbeat,
        is_goodbye=bool(goodbye),
        host=host,
        pid=pid,
        version=version,
        labels=cast("dict[str, str]", json.loads(labels)),
        active_runs=tuple((ProjectId(project_id), RunId(run_id)) for project_id, run_id in json.loads(runs)),
        unsynced_event_count=unsynced,
    )
