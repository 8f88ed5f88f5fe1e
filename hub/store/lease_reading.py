"""The reading side of leases, written once for every engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from hub.core.selection import LeasePlace
from hub.core.tenure import Resource, Tenure
from hub.core.values import HubProject, ResourceName
from hub.store.lease_contract import TenureChanges
from hub.store.session import Row, Session, SqlValue
from hub.store.tenure_rows import load_resource, tenure_from_row


class SqlLeaseReads:
    """One state of leases; see ``LeaseReads``."""

    def __init__(self, session: Session, *, find_tenant: Callable[[HubProject], int | None]) -> None:
        """Read over a session whose transaction is open."""
        self._session = session
        self._find_tenant = find_tenant

    def resource(self, hub_project: HubProject, name: ResourceName) -> Resource:
        """Return a resource."""
        return load_resource(self._session, self._find_tenant(hub_project), name=name)

    def tenures(
        self,
        hub_project: HubProject,
        *,
        live_at_nanos: int | None,
        after: LeasePlace | None,
        entries_max: int,
    ) -> list[Tenure]:
        """Return tenures in order."""
        names = [
            "tenures_after",
            *(["tenures_live"] if live_at_nanos is not None else []),
            "tenures_in_order",
        ]
        parameters: dict[str, SqlValue] = {
            "after_resource": "" if after is None else after.resource,
            "after_is_maintenance": 0 if after is None else int(after.is_maintenance),
            "live_at_nanos": live_at_nanos,
            "entries_max": entries_max,
        }
        return [tenure_from_row(row) for row in self._tenures(hub_project, names, parameters=parameters)]

    def change_number(self, hub_project: HubProject) -> int:
        """Return the newest change."""
        parameters = {"hub_project_key": self._find_tenant(hub_project)}
        rows = cast("list[tuple[int]]", list(self._session.fetch("load_change_number", parameters)))
        return rows[0][0] if rows else 0

    def tenure_changes(
        self, hub_project: HubProject, *, after_change_number: int, entries_max: int
    ) -> TenureChanges:
        """Return tenures that changed."""
        parameters: dict[str, SqlValue] = {
            "after_change_number": after_change_number,
            "entries_max": entries_max,
        }
        rows = self._tenures(hub_project, ["tenures_changed"], parameters=parameters)
        newest = cast("int", rows[-1][-1]) if rows else after_change_number
        return TenureChanges([tenure_from_row(row) for row in rows], newest)

    def next_expiry_nanos(self) -> int | None:
        """Return the next expiry."""
        rows = cast("list[tuple[int | None]]", list(self._session.fetch("next_expiry")))
        return rows[0][0]

    def tenures_to_abort(self) -> list[tuple[HubProject, Tenure]]:
        """Return leases to be aborted."""
        rows = list(self._session.fetch("tenures_to_abort"))
        return [(HubProject(cast("str", row[-1])), tenure_from_row(row)) for row in rows]

    def _tenures(
        self, hub_project: HubProject, names: Sequence[str], *, parameters: Mapping[str, SqlValue]
    ) -> list[Row]:
        sql = "\n".join(self._session.fragment(name) for name in ("tenure_columns", *names))
        tenant = {"hub_project_key": self._find_tenant(hub_project)}
        return list(self._session.fetch_composed(sql, {**tenant, **parameters}))

    def open_count(self, counted_max: int) -> int:
        """Return how many tenures go on, as far as was noted."""
        ((count,),) = self._session.fetch("count_open_tenures", (counted_max,))
        return cast("int", count)
