"""Goes through runs and their events within one read transaction, written once for every engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from hub.core.selection import PageBounds, RunPlace
from hub.core.values import HubProject, ProjectId, RunHead, RunId, RuntimeId
from hub.core.verify import (
    Finding,
    RunFold,
    Tenant,
    Unreadable,
    VerifiedEvent,
    VerifiedPage,
    VerifyPlace,
    begin_fold,
    bytes_of,
    findings_of_run,
    fold_events,
    is_to_repeat,
)
from hub.store.session import Row, Session, SqlValue
from hub.store.verify_contract import VerifyTotals

RUNS_AT_ONCE = 256
"""Runs looked up at once."""

_HeadRow = tuple[int, str, str, str, int, bytes, int, int, int | None]


@dataclass(slots=True)
class _Page:
    """What the page that is being made has so far, and how much more it may have."""

    entries_left: int
    bytes_left: int
    findings: list[Finding] = field(default_factory=list)
    event_count: int = 0
    run_count: int = 0
    stored_bytes: int = 0
    active_run_count: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it is to end here."""
        return self.entries_left <= 0 or self.bytes_left <= 0

    def done(self, next_place: VerifyPlace | None) -> VerifiedPage:
        """Return it as it is told."""
        return VerifiedPage(
            tuple(self.findings),
            self.event_count,
            self.run_count,
            self.stored_bytes,
            self.active_run_count,
            next_place,
        )


class SqlVerifyReads:
    """Verifies in one state of the store; see ``VerifyReads``."""

    def __init__(self, session: Session, *, find_tenant: Callable[[HubProject], tuple[int, int]]) -> None:
        """Read over a session whose transaction is open; ``find_tenant`` gives (key, head position)."""
        self._session = session
        self._find_tenant = find_tenant

    def totals(self, hub_project: HubProject, project_id: ProjectId | None) -> VerifyTotals:
        """Count what there is."""
        named: dict[str, SqlValue] = {
            "hub_project_key": self._find_tenant(hub_project)[0],
            "project_id": project_id,
        }
        rows = cast("list[tuple[int, int]]", list(self._session.fetch("count_to_verify", named)))
        return VerifyTotals(*rows[0])

    def page(
        self,
        hub_project: HubProject,
        project_id: ProjectId | None,
        *,
        place: VerifyPlace,
        bounds: PageBounds,
    ) -> VerifiedPage:
        """Go through a page."""
        tenant = Tenant(hub_project, *self._find_tenant(hub_project))
        page = _Page(bounds.entries_max, bounds.bytes_max)
        for fold in self._folds(tenant, project_id, place=place):
            folded = self._go_on(page, fold, tenant=tenant)
            if folded is not None:
                return page.done(VerifyPlace(place.after, folded))
            place = VerifyPlace(RunPlace(fold.began_as.project_id, fold.began_as.run_id))
            if page.is_full:
                return page.done(place)
        return page.done(None)

    def _folds(
        self, tenant: Tenant, project_id: ProjectId | None, *, place: VerifyPlace
    ) -> Iterator[RunFold]:
        """Give the runs from a place on, the one that was begun first."""
        after = place.after
        if place.fold is not None:
            yield place.fold
            after = RunPlace(place.fold.began_as.project_id, place.fold.began_as.run_id)
        while True:
            named: dict[str, SqlValue] = {
                "hub_project_key": tenant.hub_project_key,
                "project_id": project_id,
                "after_project_id": "" if after is None else after.project_id,
                "after_run_id": "" if after is None else after.run_id,
                "entries_max": RUNS_AT_ONCE,
            }
            which = "runs_to_verify" if project_id is None else "runs_of_project_to_verify"
            heads = [_head_from_row(row) for row in self._session.fetch(which, named)]
            for head in heads:
                yield begin_fold(head)
            if len(heads) < RUNS_AT_ONCE:
                return
            after = RunPlace(heads[-1].project_id, heads[-1].run_id)

    def _go_on(self, page: _Page, fold: RunFold, *, tenant: Tenant) -> RunFold | None:
        """Go on with a run; return where to go on on the next page, None where the run is done."""
        run_key = fold.began_as.run_key
        named: dict[str, SqlValue] = {
            "run_key": run_key,
            "after_sequence": fold.sequence,
            "entries_max": page.entries_left,
        }
        events: list[VerifiedEvent] = []
        is_cut = False
        try:
            for row in self._session.fetch("events_to_verify", named):
                event = VerifiedEvent._make(row)
                events.append(event)
                stored_bytes = bytes_of(event)
                page.stored_bytes += stored_bytes
                page.bytes_left -= stored_bytes
                if page.bytes_left <= 0:
                    is_cut = True
                    break
        except (UnicodeDecodeError, Unreadable) as error:
            fold = fold_events(fold, events, tenant=tenant)
            page.event_count += len(events)
            page.entries_left -= len(events) + 1
            self._end_unreadable(page, fold, tenant=tenant, error=error)
            return None
        is_cut = is_cut or len(events) >= page.entries_left
        page.entries_left -= len(events) + 1  # an empty run is work too
        page.event_count += len(events)
        fold = fold_events(fold, events, tenant=tenant)
        if is_cut:
            return fold
        head = _head_from_row(next(self._session.fetch("run_to_verify", {"run_key": run_key})))
        findings = findings_of_run(fold, head, hub_project=tenant.hub_project)
        if findings and is_to_repeat(fold, head):
            page.event_count -= fold.event_count
            return begin_fold(head, repeat_count=fold.repeat_count + 1)
        page.findings += findings
        page.run_count += 1
        page.active_run_count += not head.is_complete
        return None

    def _end_unreadable(
        self, page: _Page, fold: RunFold, *, tenant: Tenant, error: UnicodeDecodeError | Unreadable
    ) -> None:
        """Note a run of which an event cannot be read; what comes after that one is not looked at."""
        head = fold.began_as
        if isinstance(error, Unreadable):
            problem = f"it cannot be read after sequence {fold.sequence}: {error}"
        else:
            problem = f"the event after sequence {fold.sequence} has a text that is not UTF-8"
        page.findings.append(
            Finding(problem, tenant.hub_project, head.project_id, head.run_id, fold.sequence + 1)
        )
        page.run_count += 1
        page.active_run_count += not head.is_complete


def _head_from_row(row: Row) -> RunHead:
    key, project_id, run_id, home, cursor, chain_hash, highest, count, final = cast("_HeadRow", row)
    return RunHead(
        key,
        ProjectId(project_id),
        RunId(run_id),
        RuntimeId(home),
        cursor,
        chain_hash,
        highest,
        count,
        final,
    )
