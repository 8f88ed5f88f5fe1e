"""What is read often is found by an index, never by going through a whole table."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from hub.core.selection import EventPlace, EventScope, LeasePlace, PageBounds, RunFilter, RunPlace
from hub.core.values import AlertId, HubGeneration, HubProject, ProjectId, ResourceName, RunId, RuntimeId
from hub.store import reading
from hub.store.reading import SqlReadTransaction
from hub.store.session import Parameters, Row
from hub.store.sql_files import load_statements
from hub.store.sqlite.engine import STATEMENT_FILES, STATEMENTS_PACKAGE
from hub.store.sqlite.session import SqliteSession
from hub.store.store import SqlStore
from tests.unit.hub.stored_runs import StoreWriter, event

HUB_PROJECT = HubProject("hub-project")
PROJECT, RUN = ProjectId("p"), RunId("r")
BOUNDS = PageBounds(10, 2**20)
PLACE = EventPlace(PROJECT, RUN, 1)

Read = Callable[[SqlReadTransaction], object]


class ExplainingSession(SqliteSession):
    """Notes how SQLite goes about each statement before it runs it."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection, load_statements(STATEMENTS_PACKAGE, *STATEMENT_FILES))
        self.steps: list[str] = []

    def fetch_composed(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        plan = super().fetch_composed(f"EXPLAIN QUERY PLAN {sql}", parameters)
        self.steps += [str(row[3]) for row in plan]
        return super().fetch_composed(sql, parameters)


@pytest.fixture
def session(store: SqlStore, writer: StoreWriter, tmp_path: Path) -> Iterator[ExplainingSession]:
    writer.push(HUB_PROJECT, PROJECT, RUN, events=[event(n) for n in range(1, 9)])
    session = ExplainingSession(apsw.Connection(str(tmp_path / "hub.db")))
    yield session
    session.close()


def steps_of(session: ExplainingSession, read: Read) -> list[str]:
    read(SqlReadTransaction(session, hub_generation=HubGeneration("generation")))
    return session.steps


def after(scope: EventScope, *types: str) -> Read:
    return lambda transaction: transaction.events_after(
        HUB_PROJECT, scope, after_position=1, event_types=types, bounds=BOUNDS
    )


def runs(run_filter: RunFilter) -> Read:
    place = RunPlace(PROJECT, RUN)
    return lambda transaction: transaction.runs(HUB_PROJECT, run_filter, after=place, entries_max=10)


IN_ORDER: dict[str, Read] = {
    "watch of a hub project": after(EventScope()),
    "watch of a project": after(EventScope(PROJECT)),
    "watch of a run": after(EventScope(PROJECT, RUN)),
    "watch of types": after(EventScope(), "line"),
    "export": lambda transaction: transaction.exported_events(
        HUB_PROJECT, EventScope(), after=PLACE, bounds=BOUNDS
    ),
    "export of a project": lambda transaction: transaction.exported_events(
        HUB_PROJECT, EventScope(PROJECT), after=PLACE, bounds=BOUNDS
    ),
    "runs": runs(RunFilter()),
    "runs of a project": runs(RunFilter(PROJECT)),
    "runs of a runtime": runs(RunFilter(runtime_id=RuntimeId("t"))),
    "complete runs of a project": runs(RunFilter(PROJECT, is_complete=True)),
    "alerts": lambda transaction: transaction.alerts(
        HUB_PROJECT, exclude_acknowledged=True, after=AlertId("a"), entries_max=10
    ),
    "changes of alerts": lambda transaction: transaction.alert_changes(
        HUB_PROJECT, after_change_number=1, entries_max=10
    ),
    "an alert": lambda transaction: transaction.alert(HUB_PROJECT, AlertId("a")),
    "leases": lambda transaction: transaction.leases.tenures(
        HUB_PROJECT, live_at_nanos=1, after=LeasePlace(ResourceName("a"), False), entries_max=10
    ),
    "changes of leases": lambda transaction: transaction.leases.tenure_changes(
        HUB_PROJECT, after_change_number=1, entries_max=10
    ),
    "a resource": lambda transaction: transaction.leases.resource(HUB_PROJECT, ResourceName("a")),
    "projects": lambda transaction: transaction.projects(HUB_PROJECT, after=PROJECT, entries_max=10),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_it_is_found_by_an_index_and_comes_in_order_without_sorting(
    session: ExplainingSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reading, "SORTED_EVENTS_MAX", 0)
    steps = steps_of(session, IN_ORDER[name])
    assert steps != []
    assert [step for step in steps if step.startswith("SCAN") and "json_each" not in step] == []
    assert [step for step in steps if "TEMP B-TREE" in step] == []


def test_a_small_run_in_a_large_hub_project_is_found_by_its_key_and_sorted(
    session: ExplainingSession, writer: StoreWriter
) -> None:
    others = [event(n) for n in range(1, 100)]
    writer.push(HUB_PROJECT, PROJECT, "other", events=others)
    steps = steps_of(session, after(EventScope(PROJECT, RUN)))
    assert "SEARCH event USING INDEX sqlite_autoindex_event_1 (run_key=?)" in steps
    assert "USE TEMP B-TREE FOR ORDER BY" in steps


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        ("next_expiry", (), "tenure_by_expiry"),
        ("overdue_resources", (1, 10), "tenure_by_expiry"),
        ("purgeable_resources", (1, 10), "tenure_by_end"),
        ("tenures_to_abort", (), "tenure_to_abort"),
    ],
)
def test_what_looks_for_leases_of_all_tenants_goes_by_an_index(
    session: ExplainingSession, statement: str, parameters: Sequence[int], index: str
) -> None:
    list(session.fetch(statement, parameters))
    steps = [step for step in session.steps if step.startswith(("SCAN tenure", "SEARCH tenure"))]
    assert len(steps) == 1
    assert index in steps[0]
