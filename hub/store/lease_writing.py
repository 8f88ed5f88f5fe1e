"""The writing side of leases, written once for every engine.

Resources are cached as the open transaction sees them. Tenures are written by their command, the count
of their changes once a group: within it nobody reads that from the store.
"""

from collections.abc import Callable
from typing import cast

from hub.core.limits import Limits
from hub.core.receipt import Receipt, Repeat
from hub.core.tenure import Resource, Tenure, TenureState
from hub.core.values import HubProject, ResourceName
from hub.store.committed_cache import CommittedCache
from hub.store.contract import Changes
from hub.store.session import Session
from hub.store.staged_changes import Staged
from hub.store.tenure_rows import answer_from_json, answer_to_json, load_resource, row_from_tenure


class SqlLeaseWrites:
    """Resources, tenures and receipts within the open transaction; see ``LeaseWrites``."""

    def __init__(
        self,
        *,
        session: Callable[[], Session],
        find_tenant: Callable[[HubProject], int | None],
        make_tenant: Callable[[HubProject], int],
        changes: Callable[[], Changes],
        limits: Limits,
    ) -> None:
        """Bind what gives the open session, a tenant's key, and what the open command changed."""
        self._session = session
        self._find_tenant = find_tenant
        self._make_tenant = make_tenant
        self._changes = changes
        self._resources: CommittedCache[tuple[HubProject, ResourceName], Resource]
        self._resources = CommittedCache(limits.resources_cached_max)
        self._change_numbers: CommittedCache[int, int] = CommittedCache(limits.resources_cached_max)
        """The number of the newest change, by the tenant's key."""
        self._tenants_changed: set[int] = set()
        """Keys of tenants of which the count of changes is still to be written."""

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What follows the open transaction."""
        return (self._resources, self._change_numbers)

    def before_commit(self) -> None:
        """Write what is written once a group."""
        while self._tenants_changed:
            hub_project_key = self._tenants_changed.pop()
            change_number = self._change_numbers.get(hub_project_key)
            # None where the command was undone.
            if change_number is not None:
                self._session().run("save_change_number", (change_number, hub_project_key))

    def resource(self, hub_project: HubProject, name: ResourceName) -> Resource:
        """Return a resource."""
        resource = self._resources.get((hub_project, name))
        if resource is None:
            resource = load_resource(self._session(), self._find_tenant(hub_project), name=name)
            self._resources.put((hub_project, name), resource)
        return resource

    def save_resource(self, hub_project: HubProject, before: Resource, *, after: Resource) -> None:
        """Store what differs."""
        if before == after:
            return
        sql, hub_project_key = self._session(), self._make_tenant(hub_project)
        kept = (after.fencing_token, after.epoch, after.maintenance_token, after.past_nonce_hashes)
        if kept != (before.fencing_token, before.epoch, before.maintenance_token, before.past_nonce_hashes):
            nonces = b"".join(after.past_nonce_hashes)
            sql.run("save_resource", (hub_project_key, after.name, *kept[:3], nonces))
        for old, new in ((before.lease, after.lease), (before.maintenance, after.maintenance)):
            if new is not None and new != old:
                self._save_tenure(sql, hub_project_key, tenure=new)
        self._resources.put((hub_project, after.name), after)
        changes = self._changes()
        changes.resources[hub_project, after.name] = after
        if after.fencing_token > before.fencing_token:
            changes.tenures_begun[hub_project] = changes.tenures_begun.get(hub_project, 0) + 1
        for old, new in ((before.lease, after.lease), (before.maintenance, after.maintenance)):
            if old is not None and _has_expired(old, new):
                changes.tenures_expired[hub_project] = changes.tenures_expired.get(hub_project, 0) + 1

    def overdue_resources(self, now_nanos: int, *, entries_max: int) -> list[tuple[HubProject, ResourceName]]:
        """Return resources whose expiry is to be noted."""
        rows = self._session().fetch("overdue_resources", (now_nanos, entries_max))
        return [
            (HubProject(hub_project), ResourceName(resource))
            for hub_project, resource in cast("list[tuple[str, str]]", list(rows))
        ]

    def purge_resources(self, ended_before_nanos: int, *, entries_max: int) -> int:
        """Drop resources, floors first."""
        sql = self._session()
        rows = list(sql.fetch("purgeable_resources", (ended_before_nanos, entries_max)))
        for row in rows:
            for statement in ("raise_floors_to_resource", "delete_tenures", "delete_resource"):
                sql.run(statement, row)
        self.forget_cached()
        return len(rows)

    def forget_cached(self) -> None:
        """Drop every cached resource: some are gone, or have other floors."""
        self._resources.clear()

    def raise_floors(self, floor: int) -> None:
        """Raise the floors of all tenants."""
        self._session().run("raise_floor_of_hub", (floor,))
        self._session().run("raise_floors_of_tenants", (floor,))
        self._resources.clear()

    def receipt(self, hub_project: HubProject, caller: str, *, request_id: str) -> Receipt | None:
        """Return a stored answer."""
        hub_project_key = self._find_tenant(hub_project)
        if hub_project_key is None:
            return None
        rows = list(self._session().fetch("load_receipt", (hub_project_key, caller, request_id)))
        if not rows:
            return None
        method, parameters_hash, answer = cast("tuple[str, bytes, str]", rows[0])
        return Receipt(Repeat(request_id, method, parameters_hash), answer_from_json(answer))

    def save_receipt(
        self, hub_project: HubProject, caller: str, *, receipt: Receipt, receipts_max: int, now_nanos: int
    ) -> None:
        """Store an answer; the oldest makes room."""
        sql, hub_project_key = self._session(), self._make_tenant(hub_project)
        number = _next_number(sql, "next_receipt_number", hub_project_key=hub_project_key)
        repeat = receipt.repeat
        key = (hub_project_key, caller, repeat.request_id, number)
        answer = answer_to_json(receipt.answer)
        sql.run("save_receipt", (*key, repeat.method, repeat.parameters_hash, answer, now_nanos))
        sql.run("drop_old_receipts", (hub_project_key, number - receipts_max))

    def drop_receipt(self, hub_project: HubProject, caller: str, *, request_id: str) -> None:
        """Forget an answer."""
        self._session().run("drop_receipt", (self._make_tenant(hub_project), caller, request_id))

    def _save_tenure(self, sql: Session, hub_project_key: int, *, tenure: Tenure) -> None:
        change_number = self._next_change_number(sql, hub_project_key)
        sql.run("save_tenure", (hub_project_key, change_number, *row_from_tenure(tenure)))

    def _next_change_number(self, sql: Session, hub_project_key: int) -> int:
        number = self._change_numbers.get(hub_project_key)
        if number is None:
            rows = list(sql.fetch("load_change_number", (hub_project_key,)))
            (number,) = cast("tuple[int]", rows[0])
        self._change_numbers.put(hub_project_key, number + 1)
        self._tenants_changed.add(hub_project_key)
        return number + 1


def _has_expired(old: Tenure, new: Tenure | None) -> bool:
    """Whether it turns out now that a tenure has expired: its end is noted, or another takes its place."""
    if old.end is not None or new is None:
        return False
    if new.fencing_token == old.fencing_token:
        return new.end is not None and new.end.state is TenureState.EXPIRED
    return new.acquire_nanos >= old.expire_nanos


def _next_number(sql: Session, statement: str, *, hub_project_key: int) -> int:
    rows = list(sql.fetch(statement, (hub_project_key,)))
    return cast("tuple[int]", rows[0])[0]
