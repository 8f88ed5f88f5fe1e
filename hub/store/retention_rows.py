"""What is old within the open transaction, found and dropped, written once for every engine."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, cast

from hub.core.selection import PageBounds
from hub.core.values import HubProject, ProjectId, RunId, RuntimeId
from hub.store.retention_contract import DroppedPayloads, OldNames, OldPayloads, PayloadPlace
from hub.store.session import Session, SqlValue
from synchub.contract import SEQUENCE_MAX

CONSIDERED_EVENTS_MAX: Final = 50_000
"""Events looked at in one read; where few are old it is asked again from there."""
CONSIDERED_RUNS_MAX: Final = 256
"""Runs looked at in one read."""
CONSIDERED_NAMES_MAX: Final = 10_000
"""Resources or runtimes looked at in one read."""


class AddStoredBytes(Protocol):
    """Counts bytes that a hub project keeps."""

    def __call__(self, hub_project: HubProject, bytes_count: int) -> None:
        """Add them, or, negative, take them away."""


class SqlRetentionReads:
    """What is old in one state of the store; see ``RetentionReads``."""

    def __init__(self, session: Session, *, find_tenant: Callable[[HubProject], int | None]) -> None:
        """Read over a session whose transaction is open."""
        self._session = session
        self._find_tenant = find_tenant

    def event_count(self, hub_project: HubProject, project_id: ProjectId | None) -> int:
        """Count events."""
        tenant: dict[str, SqlValue] = {"hub_project_key": self._find_tenant(hub_project)}
        if project_id is None:
            return self._count("count_events_of_hub_project", tenant)
        return self._count("count_events_of_project", {**tenant, "project_id": project_id})

    def old_payloads(
        self,
        hub_project: HubProject,
        project_id: ProjectId | None,
        *,
        place: PayloadPlace,
        received_before_nanos: int,
        bounds: PageBounds,
    ) -> OldPayloads:
        """Find payloads, along the positions or, within a project, along its runs."""
        tenant: dict[str, SqlValue] = {"hub_project_key": self._find_tenant(hub_project)}
        if project_id is None:
            head = self.event_count(hub_project, None)
            tenant["received_before_nanos"] = received_before_nanos
            return self._old_of_tenant(tenant, place.position, head=head, bounds=bounds)
        return self._old_of_project(
            {**tenant, "project_id": project_id},
            place,
            received_before_nanos=received_before_nanos,
            bounds=bounds,
        )

    def ended_resources(self, hub_project: HubProject, *, ended_before_nanos: int, after: str) -> OldNames:
        """Find resources."""
        return self._old_names(hub_project, "resources", before_nanos=ended_before_nanos, after=after)

    def old_receipt_count(self, hub_project: HubProject, created_before_nanos: int) -> int:
        """Count receipts."""
        named: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "created_before_nanos": created_before_nanos,
        }
        return self._count("count_old_receipts", named)

    def silent_runtimes(self, hub_project: HubProject, *, heard_before_nanos: int, after: str) -> OldNames:
        """Find runtimes."""
        return self._old_names(hub_project, "runtimes", before_nanos=heard_before_nanos, after=after)

    def _old_names(self, hub_project: HubProject, kind: str, *, before_nanos: int, after: str) -> OldNames:
        """Look at so many names, and return those that are old, however many."""
        named: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "after_name": after,
            "entries_max": CONSIDERED_NAMES_MAX,
        }
        rows = cast("list[tuple[str | None]]", list(self._session.fetch(f"end_of_considered_{kind}", named)))
        through_name = rows[0][0]
        if through_name is None:
            return OldNames((), None)
        statement = "ended_resources" if kind == "resources" else "silent_runtimes"
        named = {**named, "through_name": through_name, "before_nanos": before_nanos}
        del named["entries_max"]
        found = cast("list[tuple[str]]", list(self._session.fetch(statement, named)))
        return OldNames([name for (name,) in found], through_name)

    def _old_of_tenant(
        self, tenant: dict[str, SqlValue], after: int, *, head: int, bounds: PageBounds
    ) -> OldPayloads:
        through = min(head, after + CONSIDERED_EVENTS_MAX)
        span: dict[str, SqlValue] = {"after_position": after, "through_position": through}
        rows = self._session.fetch(
            "old_payloads_between", {**tenant, **span, "entries_max": bounds.entries_max}
        )
        found = _Found(bounds)
        for position, payload_bytes in cast("Iterator[tuple[int, int]]", rows):
            if not found.take(position, payload_bytes):
                break
        if found.is_full:
            through = found.positions[-1]
        next_place = PayloadPlace(position=through) if through < head else None
        return OldPayloads(found.positions, found.payload_bytes, max(0, through - after), next_place)

    def _old_of_project(
        self,
        project: dict[str, SqlValue],
        place: PayloadPlace,
        *,
        received_before_nanos: int,
        bounds: PageBounds,
    ) -> OldPayloads:
        named = {**project, "run_id": place.run_id or "", "entries_max": CONSIDERED_RUNS_MAX}
        runs = cast("list[tuple[int, RunId]]", list(self._session.fetch("runs_to_prune", named)))
        found = _Found(bounds)
        considered_count = 0
        for run_key, run_id in runs:
            after = place.sequence if run_id == place.run_id else 0
            span: dict[str, SqlValue] = {"run_key": run_key, "after_sequence": after}
            through, event_count = self._end_of_considered(span, CONSIDERED_EVENTS_MAX - considered_count)
            if event_count == 0:
                continue
            span["through_sequence"] = through
            last_sequence = self._take_of_run(found, span, received_before_nanos=received_before_nanos)
            if found.is_full:
                span["through_sequence"] = through = last_sequence
                event_count = self._count("count_events_between", span)
            considered_count += event_count
            if found.is_full or considered_count >= CONSIDERED_EVENTS_MAX:
                next_place = PayloadPlace(run_id=run_id, sequence=through)
                return OldPayloads(found.positions, found.payload_bytes, considered_count, next_place)
        is_over = len(runs) < CONSIDERED_RUNS_MAX
        behind_last = None if is_over else PayloadPlace(run_id=runs[-1][1], sequence=SEQUENCE_MAX)
        return OldPayloads(found.positions, found.payload_bytes, considered_count, behind_last)

    def _end_of_considered(self, span: dict[str, SqlValue], entries_max: int) -> tuple[int, int]:
        """Return the last sequence of so many events, and how many there are."""
        rows = self._session.fetch("end_of_considered_events", {**span, "entries_max": entries_max})
        return cast("list[tuple[int, int]]", list(rows))[0]

    def _take_of_run(self, found: "_Found", span: dict[str, SqlValue], *, received_before_nanos: int) -> int:
        """Take payloads of a run up to the bounds; return the sequence of the last one taken."""
        last_sequence = cast("int", span["after_sequence"])
        more: dict[str, SqlValue] = {
            "received_before_nanos": received_before_nanos,
            "entries_max": found.entries_left,
        }
        rows = self._session.fetch("old_payloads_of_run", {**span, **more})
        for position, sequence, payload_bytes in cast("Iterator[tuple[int, int, int]]", rows):
            if not found.take(position, payload_bytes):
                break
            last_sequence = sequence
        return last_sequence

    def _count(self, statement: str, named: dict[str, SqlValue]) -> int:
        return next((cast("tuple[int]", row)[0] for row in self._session.fetch(statement, named)), 0)


class _Found:
    """Payloads taken up to the bounds of a page, at least one where there is one."""

    def __init__(self, bounds: PageBounds) -> None:
        self._bounds = bounds
        self.positions: list[int] = []
        self.payload_bytes = 0
        self.is_full = False

    @property
    def entries_left(self) -> int:
        """How many more may be taken."""
        return self._bounds.entries_max - len(self.positions)

    def take(self, position: int, payload_bytes: int) -> bool:
        """Take a payload; return whether it fitted."""
        if self.positions and self.payload_bytes + payload_bytes > self._bounds.bytes_max:
            self.is_full = True
            return False
        self.positions.append(position)
        self.payload_bytes += payload_bytes
        self.is_full = self.entries_left == 0
        return True


class SqlRetentionWrites:
    """What is dropped within the open transaction; see ``RetentionWrites``."""

    def __init__(
        self,
        *,
        session: Callable[[], Session],
        find_tenant: Callable[[HubProject], int | None],
        add_stored_bytes: AddStoredBytes,
        forget_resources: Callable[[], None],
    ) -> None:
        """Bind what gives the open session and a tenant's key, counts, and drops cached resources."""
        self._session = session
        self._find_tenant = find_tenant
        self._add_stored_bytes = add_stored_bytes
        self._forget_resources = forget_resources

    def drop_payloads(
        self, hub_project: HubProject, positions: Sequence[int], *, received_before_nanos: int
    ) -> DroppedPayloads:
        """Drop payloads."""
        named: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project),
            "positions": json.dumps(list(positions)),
            "received_before_nanos": received_before_nanos,
        }
        sql = self._session()
        measured = cast("list[tuple[int, int]]", list(sql.fetch("measure_payloads", named)))
        dropped = DroppedPayloads(*measured[0])
        if dropped.payload_count:
            sql.run("drop_payloads", named)
            self._add_stored_bytes(hub_project, -dropped.payload_bytes)
        return dropped

    def drop_resources(
        self, hub_project: HubProject, names: Sequence[str], *, ended_before_nanos: int
    ) -> int:
        """Drop resources, floors first."""
        sql, hub_project_key = self._session(), self._find_tenant(hub_project)
        dropped_count = 0
        for name in names:
            key = (hub_project_key, name)
            if list(sql.fetch("is_resource_ended", (*key, ended_before_nanos))):
                for statement in ("raise_floors_to_resource", "delete_tenures", "delete_resource"):
                    sql.run(statement, key)
                dropped_count += 1
        # What is cached is gone, or has other floors.
        self._forget_resources()
        return dropped_count

    def drop_receipts(self, hub_project: HubProject, *, created_before_nanos: int, entries_max: int) -> int:
        """Drop receipts."""
        return self._changed(
            "drop_receipts_made_before",
            {
                "hub_project_key": self._find_tenant(hub_project),
                "created_before_nanos": created_before_nanos,
                "entries_max": entries_max,
            },
        )

    def forget_runtimes(
        self, hub_project: HubProject, runtime_ids: Sequence[str], *, heard_before_nanos: int
    ) -> int:
        """Forget runtimes."""
        return self._changed(
            "forget_runtimes",
            {
                "hub_project_key": self._find_tenant(hub_project),
                "runtime_ids": json.dumps(list(runtime_ids)),
                "heard_before_nanos": heard_before_nanos,
            },
        )

    def recall_runtime(self, hub_project: HubProject, runtime_id: RuntimeId) -> None:
        """Show a runtime again."""
        self._session().run("recall_runtime", (self._find_tenant(hub_project), runtime_id))

    def _changed(self, statement: str, named: dict[str, SqlValue]) -> int:
        """Run a statement and return how many rows it changed."""
        sql = self._session()
        sql.run(statement, named)
        return sql.changed_count()
