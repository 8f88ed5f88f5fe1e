"""What is read often is found by an index, never by going through a whole table."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from hub.core.journal import ProjectionId, StreamId
from hub.core.journal_selection import OutboxFilter, OutboxPlace
from hub.core.outbox import OutboxState
from hub.core.selection import EventPlace, EventScope, LeasePlace, PageBounds, RunFilter, RunPlace
from hub.core.values import AlertId, HubGeneration, HubProject, ProjectId, ResourceName, RunId, RuntimeId
from hub.store import reading
from hub.store.reading import SqlReadTransaction
from hub.store.session import Parameters, Row, SqlValue
from hub.store.sql_files import load_statements
from hub.store.sqlite.engine import STATEMENT_FILES, STATEMENTS_PACKAGE
from hub.store.sqlite.file import connect
from hub.store.sqlite.session import SqliteSession
from hub.store.store import SqlStore
from tests.unit.hub.journal_values import commit, message
from tests.unit.hub.journal_values import event as journal_event
from tests.unit.hub.stored_journal import store_commit
from tests.unit.hub.stored_runs import StoreWriter, event

HUB_PROJECT = HubProject("hub-project")
PROJECT, RUN = ProjectId("p"), RunId("r")
STREAM = StreamId("s")
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
    parts = [journal_event("e1"), journal_event("e2"), journal_event("e3")]
    store_commit(store, commit(events=parts, messages=[message()]), hub_project=HUB_PROJECT)
    session = ExplainingSession(connect(tmp_path / "hub.db", busy_timeout_seconds=1, is_writer=True))
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


def journal(*types: str) -> Read:
    return lambda transaction: transaction.journal.events_after(
        HUB_PROJECT, after_position=1, event_types=types, bounds=BOUNDS
    )


def streams(event_type: str | None = None, *, after: StreamId | None = None) -> Read:
    return lambda transaction: transaction.journal.streams(
        HUB_PROJECT, prefix="s", event_type=event_type, after=after, entries_max=10
    )


def outbox(outbox_filter: OutboxFilter) -> Read:
    return lambda transaction: transaction.journal.outbox_messages(
        HUB_PROJECT, outbox_filter, now_nanos=1, after=OutboxPlace(1, 1), bounds=BOUNDS
    )


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
    "events of a stream": lambda transaction: transaction.journal.stream_events(
        HUB_PROJECT, STREAM, after_revision=0, through_revision=9, bounds=BOUNDS
    ),
    "the journal": journal(),
    "types of the journal": journal("type"),
    "streams": streams(),
    "streams after one": streams(after=STREAM),
    "streams of a type": streams("type"),
    "streams of a type after one": streams("type", after=STREAM),
    "a projection": lambda transaction: transaction.journal.projection(HUB_PROJECT, ProjectionId("p")),
    "outbox messages": outbox(OutboxFilter()),
    "outbox messages of a destination": outbox(OutboxFilter("d")),
    **{f"{state} outbox messages": outbox(OutboxFilter(None, state)) for state in OutboxState},
    **{
        f"{state} outbox messages of a destination": outbox(OutboxFilter("d", state)) for state in OutboxState
    },
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


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        ("load_journal_commit", (1, "m"), "sqlite_autoindex_journal_commit_1"),
        ("load_stream", (1, "s"), "sqlite_autoindex_stream_1"),
        (
            "find_event_ids",
            (1, '["e1"]'),
            "sqlite_autoindex_journal_event_3 (hub_project_key=? AND event_id=?)",
        ),
        ("find_outbox_ids", (1, '["o1"]'), "sqlite_autoindex_outbox_1 (hub_project_key=? AND outbox_id=?)"),
        ("find_projection_streams", (1, '["p1"]'), "sqlite_autoindex_projection_1"),
        ("is_key_waited_for", (1, "d", "k"), "outbox_by_ordering_key"),
        ("let_next_of_key_wait", (1, "d", "k"), "outbox_by_ordering_key"),
        ("next_available", (1, "d"), "outbox_by_destination"),
    ],
)
def test_what_a_commit_and_a_claim_look_up_goes_by_an_index(
    session: ExplainingSession, statement: str, parameters: Sequence[int | str], index: str
) -> None:
    list(session.fetch(statement, parameters))
    assert [step for step in session.steps if index in step] != []
    assert [step for step in session.steps if step.startswith("SCAN") and "json_each" not in step] == []
    assert [step for step in session.steps if "TEMP B-TREE" in step] == []


def test_what_may_be_claimed_is_a_range_of_one_index(session: ExplainingSession) -> None:
    names = ("outbox_columns", "outbox_of_destination", "outbox_available", "outbox_in_order")
    sql = "\n".join(session.fragment(name) for name in names)
    parameters: dict[str, SqlValue] = {
        "hub_project_key": 1,
        "destination": "d",
        "now_nanos": 1,
        "entries_max": 10,
    }
    list(session.fetch_composed(sql, parameters))
    assert session.steps == [
        "SEARCH outbox USING INDEX outbox_by_destination"
        " (hub_project_key=? AND destination=? AND phase=? AND available_nanos<?)",
        "SEARCH stream USING INTEGER PRIMARY KEY (rowid=?)",
    ]
