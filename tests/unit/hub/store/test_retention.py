"""What is old is found page by page, and only what is old is dropped."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.core.selection import PageBounds
from hub.core.values import HubProject, InstanceId, ProjectId, Runtime, RuntimeId
from hub.store import retention_rows
from hub.store.retention_contract import DroppedPayloads, PayloadPlace
from hub.store.sqlite.file import connect
from hub.store.store import SqlStore
from synchub.contract import SEQUENCE_MAX
from tests.unit.hub.store.test_reading_plans import ExplainingSession
from tests.unit.hub.stored_runs import WALL_NANOS, StoreWriter, event

H: Final = HubProject("h")
OLD: Final = WALL_NANOS + 1
"""Before this moment everything that ``StoreWriter`` stores was received."""
AT_ONCE: Final = PageBounds(1_000, 2**20)


class Stored:
    """A store with runs in it, and a connection of the test's own to look at rows and change them."""

    def __init__(self, store: SqlStore, path: Path) -> None:
        self.store = store
        self.writer = StoreWriter(store)
        self.sql = apsw.Connection(str(path))

    def rows(self) -> dict[int, tuple[str, int, bytes | None, int]]:
        """(project, sequence, payload, was pushed dropped) of each event of ``H``, by position."""
        sql = (
            "SELECT position, project_id, sequence, payload, was_pushed_dropped FROM event JOIN run"
            " USING (run_key) JOIN hub_project ON hub_project.hub_project_key = event.hub_project_key"
            " WHERE hub_project = 'h'"
        )
        return {row[0]: row[1:] for row in self.sql.execute(sql)}

    def walk(
        self, project_id: str | None = None, *, before: int = OLD, bounds: PageBounds = AT_ONCE
    ) -> tuple[list[list[int]], int]:
        """The pages of a whole walk, and how many events were looked at."""
        pages: list[list[int]] = []
        considered_count = 0
        place: PayloadPlace | None = PayloadPlace()
        while place is not None:
            with self.store.reading() as reading:
                found = reading.retention.old_payloads(
                    H,
                    None if project_id is None else ProjectId(project_id),
                    place=place,
                    received_before_nanos=before,
                    bounds=bounds,
                )
            pages.append(list(found.positions))
            considered_count += found.considered_count
            place = found.next_place
        return pages, considered_count

    def drop(self, positions: list[int], *, before: int = OLD) -> DroppedPayloads:
        session = self.store.writing
        transaction = session.begin()
        dropped = transaction.retention.drop_payloads(H, positions, received_before_nanos=before)
        session.commit(WALL_NANOS)
        return dropped


@pytest.fixture
def stored(store: SqlStore, tmp_path: Path) -> Iterator[Stored]:
    stored = Stored(store, tmp_path / "hub.db")
    yield stored
    stored.sql.close()


def flat(pages: list[list[int]]) -> list[int]:
    return [position for page in pages for position in page]


@pytest.mark.parametrize("considered_max", [1, 3, 50_000])
@pytest.mark.parametrize("runs_max", [2, 256])
def test_a_walk_finds_each_old_payload_once_whatever_its_pages(
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    *,
    considered_max: int,
    runs_max: int,
) -> None:
    monkeypatch.setattr(retention_rows, "CONSIDERED_EVENTS_MAX", considered_max)
    monkeypatch.setattr(retention_rows, "CONSIDERED_RUNS_MAX", runs_max)
    sequences = {(p, r): 0 for p in ("p", "q") for r in ("a", "b", "c")}
    for _ in range(40):
        project_id, run_id = rng.choice(list(sequences))
        # Gaps of all sizes: a walk goes along what is stored, not along the numbers.
        numbers = [sequences[project_id, run_id] + rng.choice([1, 2, 10**12])]
        sequences[project_id, run_id] = numbers[-1]
        payload = None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 30))
        stored.writer.push("h", project_id, run_id, events=[event(n, payload) for n in numbers])
        stored.writer.push("other", "o", "a", events=[event(sum(sequences.values()))])
    for position in range(1, 41):
        if rng.random() < 0.3:
            sql = "UPDATE event SET receive_nanos = ? WHERE position = ? AND hub_project_key = 1"
            stored.sql.execute(sql, (OLD + rng.randint(0, 9), position))
    young = {row[0] for row in stored.sql.execute(
        "SELECT position FROM event WHERE receive_nanos >= ? AND hub_project_key = 1", (OLD,)
    )}  # fmt: skip
    bounds = PageBounds(rng.randint(1, 5), rng.randint(1, 60))
    for scope in (None, "p", "q"):
        of_scope = {
            position: payload
            for position, (project, _, payload, _) in stored.rows().items()
            if scope in (None, project)
        }
        pages, considered_count = stored.walk(scope, bounds=bounds)
        with_payload = {position for position, payload in of_scope.items() if payload is not None}
        assert sorted(flat(pages)) == sorted(with_payload - young)
        assert considered_count == len(of_scope)
        assert max(map(len, pages)) <= bounds.entries_max
        for page in pages:
            assert len(page) == 1 or sum(len(of_scope[each] or b"") for each in page) <= bounds.bytes_max


def test_a_run_that_ends_at_the_last_sequence_ends_its_walk(stored: Stored) -> None:
    stored.writer.push("h", "p", "a", events=[event(SEQUENCE_MAX)])
    stored.writer.push("h", "p", "b", events=[event(1)])
    assert flat(stored.walk("p", bounds=PageBounds(1, 1))[0]) == [1, 2]


def test_an_empty_hub_project_has_nothing_that_is_old(stored: Stored) -> None:
    assert stored.walk() == ([[]], 0)
    assert stored.walk("p") == ([[]], 0)
    assert stored.drop([1, 2]) == (0, 0)


def test_of_a_dropped_payload_everything_else_stays(stored: Stored) -> None:
    stored.writer.push("h", "p", "r", events=[event(n, b"x" * n) for n in (1, 2, 3)])
    sql = "SELECT run_key, sequence, position, event_type, attributes, content_hash, receive_nanos FROM event"
    before = list(stored.sql.execute(sql))
    (bytes_before,) = next(stored.sql.execute("SELECT stored_bytes FROM hub_project"))
    assert stored.drop([1, 3]) == (2, 4)
    assert list(stored.sql.execute(sql)) == before
    payloads = {position: row[2:] for position, row in stored.rows().items()}
    assert payloads == {1: (None, 0), 2: (b"xx", 0), 3: (None, 0)}
    assert next(stored.sql.execute("SELECT stored_bytes FROM hub_project")) == (bytes_before - 4,)
    # What is gone is gone: a second prune finds nothing.
    assert stored.drop([1, 2, 3]) == (1, 2)
    assert stored.walk() == ([[]], 3)


def test_what_is_young_or_was_pushed_without_a_payload_is_left_as_it_is(stored: Stored) -> None:
    stored.writer.push("h", "p", "r", events=[event(1), event(2, None), event(3)])
    stored.sql.execute("UPDATE event SET receive_nanos = ? WHERE sequence = 3", (OLD,))
    before = stored.rows()
    assert stored.drop([2, 3, 4]) == (0, 0)
    assert stored.rows() == before
    assert before[2][2:] == (None, 1)
    # Nor where there is something old among them.
    assert stored.drop([1, 2, 3, 4]) == (1, len(b"payload"))
    assert stored.rows() == {**before, 1: ("p", 1, None, 0)}


def test_positions_of_another_hub_project_are_not_touched(stored: Stored) -> None:
    stored.writer.push("other", "o", "r", events=[event(1), event(2)])
    stored.writer.push("h", "p", "r", events=[event(1)])
    assert stored.drop([1, 2]) == (1, len(b"payload"))
    left = list(stored.sql.execute("SELECT count(*) FROM event WHERE payload IS NOT NULL"))
    assert left == [(2,)]


def silent(store: SqlStore, before: int) -> list[str]:
    with store.reading() as reading:
        return list(reading.retention.silent_runtimes(H, heard_before_nanos=before, after="").names)


def test_of_a_forgotten_runtime_its_instances_stay(stored: Stored) -> None:
    session, runtime_id = stored.store.writing, RuntimeId("r")
    transaction = session.begin()
    for instance_id in ("one", "two"):
        transaction.begin_instance(H, runtime_id, instance_id=InstanceId(instance_id), now_nanos=5)
    heard = Runtime(runtime_id, InstanceId("two"), 5, last_heartbeat_nanos=9, host="host", labels={"a": "b"})
    transaction.save_presence(H, [heard])
    session.commit(WALL_NANOS)
    assert (silent(stored.store, 9), silent(stored.store, 10)) == ([], ["r"])
    transaction = session.begin()
    assert transaction.retention.forget_runtimes(H, ["r", "nobody"], heard_before_nanos=9) == 0
    assert transaction.retention.forget_runtimes(H, ["r", "nobody"], heard_before_nanos=10) == 1
    session.commit(WALL_NANOS)
    with stored.store.reading() as reading:
        assert reading.runtime(H, runtime_id) is None
        assert reading.runtimes(H, after=None, entries_max=9) == []
    assert silent(stored.store, 10) == []
    transaction = session.begin()
    assert transaction.current_instance(H, runtime_id) == "two"
    assert transaction.was_instance(H, runtime_id, instance_id=InstanceId("one"))
    transaction.retention.recall_runtime(H, runtime_id)
    session.commit(WALL_NANOS)
    with stored.store.reading() as reading:
        assert reading.runtime(H, runtime_id) == Runtime(runtime_id, InstanceId("two"), 5)


@pytest.mark.parametrize("way", ["heartbeat", "instance"])
def test_a_forgotten_runtime_that_is_heard_again_is_there_again(stored: Stored, way: str) -> None:
    session, runtime_id = stored.store.writing, RuntimeId("r")
    transaction = session.begin()
    transaction.begin_instance(H, runtime_id, instance_id=InstanceId("one"), now_nanos=5)
    transaction.retention.forget_runtimes(H, ["r"], heard_before_nanos=6)
    expected = Runtime(runtime_id, InstanceId("one"), 5, last_heartbeat_nanos=9)
    if way == "heartbeat":
        transaction.save_presence(H, [expected])
    else:
        transaction.begin_instance(H, runtime_id, instance_id=InstanceId("two"), now_nanos=7)
        expected = Runtime(runtime_id, InstanceId("two"), 7)
    session.commit(WALL_NANOS)
    with stored.store.reading() as reading:
        assert reading.runtimes(H, after=None, entries_max=9) == [expected]


PLANS: Final = {
    "old_payloads_between": "sqlite_autoindex_event_2 (hub_project_key=? AND position>? AND position<?)",
    "end_of_considered_events": "COVERING INDEX sqlite_autoindex_event_1 (run_key=? AND sequence>?)",
    "count_events_between": "COVERING INDEX sqlite_autoindex_event_1",
    "old_payloads_of_run": "sqlite_autoindex_event_1 (run_key=? AND sequence>? AND sequence<?)",
    "measure_payloads": "sqlite_autoindex_event_2 (hub_project_key=? AND position=?)",
    "drop_payloads": "sqlite_autoindex_event_2 (hub_project_key=? AND position=?)",
    "runs_to_prune": "run_by_hub_project",
    "count_events_of_project": "run_by_hub_project (hub_project_key=? AND project_id=?)",
    "end_of_considered_resources": "PRIMARY KEY (hub_project_key=? AND resource>?)",
    "ended_resources": "PRIMARY KEY (hub_project_key=? AND resource>? AND resource<?)",
    "is_resource_ended": "PRIMARY KEY (hub_project_key=? AND resource=?)",
    "drop_receipts_made_before": "receipt_by_number (hub_project_key=? AND receipt_number<?)",
    "end_of_considered_runtimes": "PRIMARY KEY (hub_project_key=? AND runtime_id>?)",
    "silent_runtimes": "PRIMARY KEY (hub_project_key=? AND runtime_id>? AND runtime_id<?)",
    "forget_runtimes": "PRIMARY KEY (hub_project_key=? AND runtime_id=?)",
}


@pytest.mark.parametrize("statement", PLANS)
def test_what_is_old_is_found_and_dropped_by_an_index(
    store: SqlStore, tmp_path: Path, *, statement: str
) -> None:
    session = ExplainingSession(connect(tmp_path / "hub.db", busy_timeout_seconds=1, is_writer=True))
    names = ("hub_project_key", "after_position", "through_position", "received_before_nanos", "entries_max",
             "run_key", "after_sequence", "through_sequence", "positions", "project_id", "run_id", "resource",
             "after_name", "through_name", "before_nanos", "ended_before_nanos", "created_before_nanos",
             "runtime_ids", "heard_before_nanos")  # fmt: skip
    list(
        session.fetch(
            statement, {name: "[1]" if name in ("positions", "runtime_ids") else 1 for name in names}
        )
    )
    assert [step for step in session.steps if PLANS[statement] in step] != [], session.steps
    allowed = ("json_each", "SCAN (subquery")
    scans = [step for step in session.steps if step.startswith("SCAN")]
    assert [step for step in scans if not any(each in step for each in allowed)] == []
    session.close()
