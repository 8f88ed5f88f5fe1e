"""What callers read at once: runs, events, exports, projects.

Everything is of the caller's hub project; what belongs to another one is as if it were not there.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from hub.core.errors import NotFound
from hub.core.limits import Limits
from hub.core.selection import (
    EventPlace,
    EventScope,
    ExportPage,
    PageBounds,
    RunEvents,
    RunFilter,
    RunPlace,
)
from hub.core.values import Caller, Project, ProjectId, Run, RunId, StoredEvent
from hub.service.readers import Readers
from hub.store.contract import ReadTransaction


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events of a run; of all types where none is named."""

    project_id: ProjectId
    run_id: RunId
    after_sequence: int = 0
    event_types: Sequence[str] = ()


class Reads:
    """The use cases of reading."""

    def __init__(self, readers: Readers, *, limits: Limits) -> None:
        """Bind the readers."""
        self._readers = readers
        self._limits = limits

    async def run(self, caller: Caller, project_id: ProjectId, *, run_id: RunId) -> Run:
        """Return a run.

        Raises: NotFound.
        """
        return await self._readers.call(
            lambda transaction: _existing_run(transaction, caller, project_id=project_id, run_id=run_id)
        )

    async def runs(
        self, caller: Caller, run_filter: RunFilter, *, after: RunPlace | None, entries_max: int
    ) -> list[Run]:
        """Return a page of runs, ascending by the bytes of project id and run id."""
        return await self._readers.call(
            lambda transaction: transaction.runs(
                caller.hub_project, run_filter, after=after, entries_max=entries_max
            )
        )

    async def projects(self, caller: Caller, *, after: ProjectId | None, entries_max: int) -> list[Project]:
        """Return a page of projects, ascending by the bytes of their ids."""
        return await self._readers.call(
            lambda transaction: transaction.projects(caller.hub_project, after=after, entries_max=entries_max)
        )

    async def events(self, caller: Caller, query: EventQuery, *, entries_max: int) -> RunEvents:
        """Return a page of events of a run, ascending by sequence.

        Raises: NotFound for the run.
        """

        def read(transaction: ReadTransaction) -> RunEvents:
            # One too many, so that the last page is known as such.
            found = transaction.events_of_run(
                _existing_run(transaction, caller, project_id=query.project_id, run_id=query.run_id),
                after_sequence=query.after_sequence,
                event_types=query.event_types,
                bounds=self._bounds(entries_max + 1),
            )
            return RunEvents(found.events[:entries_max], found.is_cut)

        return await self._readers.call(read)

    async def newest_events(
        self, caller: Caller, query: EventQuery, *, entries_max: int
    ) -> list[StoredEvent]:
        """Return the newest events of a run that a page holds, oldest first.

        Raises: NotFound for the run.
        """

        def read(transaction: ReadTransaction) -> list[StoredEvent]:
            return transaction.newest_events_of_run(
                _existing_run(transaction, caller, project_id=query.project_id, run_id=query.run_id),
                after_sequence=query.after_sequence,
                event_types=query.event_types,
                bounds=self._bounds(entries_max),
            )

        return await self._readers.call(read)

    async def export(self, caller: Caller, scope: EventScope) -> AsyncGenerator[list[StoredEvent], None]:
        """Give all events of a scope, ascending by project, run and sequence, page by page.

        Each page is read when it is asked for, so a slow caller holds nothing open. What is stored
        meanwhile is given where the export has not passed its place yet.

        Raises: NotFound for a run or project that is named and not there.
        """
        place: EventPlace | None = None
        await self._readers.call(lambda transaction: _check_exists(transaction, caller, scope=scope))
        while True:
            page = await self._export_page(caller, scope, after=place)
            if page.events:
                yield page.events
            if page.next_place is None:
                return
            place = page.next_place

    async def _export_page(
        self, caller: Caller, scope: EventScope, *, after: EventPlace | None
    ) -> ExportPage:
        return await self._readers.call(
            lambda transaction: transaction.exported_events(
                caller.hub_project,
                scope,
                after=after,
                bounds=PageBounds(self._limits.watch_page_entries_max, self._limits.watch_page_bytes_max),
            )
        )

    def _bounds(self, entries_max: int) -> PageBounds:
        return PageBounds(entries_max, self._limits.page_bytes_max)


def _existing_run(
    transaction: ReadTransaction, caller: Caller, *, project_id: ProjectId, run_id: RunId
) -> Run:
    run = transaction.run(caller.hub_project, project_id, run_id=run_id)
    if run is None:
        raise NotFound("run", {"projectId": project_id, "runId": run_id})
    return run


def _check_exists(transaction: ReadTransaction, caller: Caller, *, scope: EventScope) -> None:
    if scope.project_id is None:
        return
    if scope.run_id is not None:
        _existing_run(transaction, caller, project_id=scope.project_id, run_id=scope.run_id)
    elif not transaction.has_project(caller.hub_project, scope.project_id):
        raise NotFound("project", {"projectId": scope.project_id})
