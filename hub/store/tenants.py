"""The hub projects of the open transaction: each one's key, head, and what it keeps.

The rows are written once a group, just before its COMMIT: a batch moves what is staged here.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

from hub.core.quota import Usage
from hub.core.values import HubProject
from hub.store.committed_cache import CommittedCache
from hub.store.session import Session
from hub.store.staged_changes import Staged


class Tenant(NamedTuple):
    """A hub project as the next batch needs it."""

    hub_project_key: int
    head_position: int
    stored_bytes: int
    active_run_count: int


class SqlTenants:
    """Hub projects as the open transaction sees them; created by their first write."""

    def __init__(self, *, session: Callable[[], Session], entries_max: int) -> None:
        """Bind what gives the open session; keep at most so many committed rows in memory."""
        self._session = session
        self._rows: CommittedCache[HubProject, Tenant] = CommittedCache(entries_max)
        self._moved: set[HubProject] = set()
        """Those whose rows may differ from what is stored; an undone command leaves them in here."""

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What follows the open transaction."""
        return (self._rows,)

    def find(self, hub_project: HubProject) -> Tenant | None:
        """Return a hub project, None where nothing of it is stored."""
        tenant = self._rows.get(hub_project)
        if tenant is None:
            rows = list(self._session().fetch("load_hub_project", (hub_project,)))
            if not rows:
                return None
            tenant = Tenant(*cast("tuple[int, int, int, int]", rows[0]))
            self._rows.put(hub_project, tenant)
        return tenant

    def find_key(self, hub_project: HubProject) -> int | None:
        """Return a hub project's key, None where nothing of it is stored."""
        tenant = self.find(hub_project)
        return None if tenant is None else tenant.hub_project_key

    def make(self, hub_project: HubProject) -> Tenant:
        """Return a hub project, which this creates where it is new."""
        tenant = self.find(hub_project)
        if tenant is None:
            rows = list(self._session().fetch("create_hub_project", (hub_project,)))
            (hub_project_key,) = cast("tuple[int]", rows[0])
            tenant = Tenant(hub_project_key, 0, 0, 0)
            self._rows.put(hub_project, tenant)
        return tenant

    def make_key(self, hub_project: HubProject) -> int:
        """Return the key of a hub project, which this creates where it is new."""
        return self.make(hub_project).hub_project_key

    def usage(self, hub_project: HubProject) -> Usage:
        """Return what a hub project keeps."""
        tenant = self.find(hub_project)
        return Usage(0, 0) if tenant is None else Usage(tenant.stored_bytes, tenant.active_run_count)

    def move(
        self, hub_project: HubProject, *, positions: int = 0, stored_bytes: int = 0, active_runs: int = 0
    ) -> None:
        """Count so much more, or less where it is negative."""
        if not (positions or stored_bytes or active_runs):
            return
        key, head_position, bytes_before, runs_before = self.make(hub_project)
        after = Tenant(
            key,
            head_position + positions,
            # A count that was wrong in the store must not keep anybody from making room.
            max(0, bytes_before + stored_bytes),
            max(0, runs_before + active_runs),
        )
        self._rows.put(hub_project, after)
        self._moved.add(hub_project)

    def before_commit(self) -> None:
        """Write the rows that moved."""
        for hub_project in self._moved:
            tenant = self.find(hub_project)
            if tenant is not None:
                key, *facts = tenant
                self._session().run("save_hub_project", (*facts, key))
        self._moved.clear()
