"""The one writer: groups, neighbours, priority, and a store that fails."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hub.core.errors import HubStopping, NotFound, StorageUnavailable
from hub.core.limits import Limits
from hub.core.values import HubProject, ProjectId
from hub.service.fair_queue import TURN_BYTES
from hub.service.writer import SHARED_GROUPS, Command, Lane
from hub.store.contract import Changes, WriteTransaction
from hub.store.sqlite.engine import SqliteEngine, opened_engine
from hub.store.sqlite.session import SqliteSession
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate, batch, caller_of
from tests.unit.hub.stored_runs import WALL_NANOS, event

LIMITS = Limits(group_commands_max=3)


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store, LIMITS)


def binding(project_id: str, then: Exception | None = None) -> Command[str]:
    """A command that binds a project, and may be refused after it did."""

    def command(transaction: WriteTransaction, now_nanos: int) -> str:
        transaction.bind_project(HubProject("h"), ProjectId(project_id), now_nanos=now_nanos)
        if then is not None:
            raise then
        return project_id

    return command


def bound(gate: Gate) -> list[str]:
    with gate.store.reading() as reading:
        return [each.project_id for each in reading.projects(HubProject("h"), after=None, entries_max=100)]


def test_a_group_holds_what_is_queued_up_to_the_bound(gate: Gate) -> None:
    done = [gate.queue(binding(f"p{n}")) for n in range(4)]
    assert gate.writer.step() == 3
    assert [len(each) for each in done] == [1, 1, 1, 0]
    assert (gate.writer.step(), gate.writer.step()) == (1, 0)
    assert bound(gate) == ["p0", "p1", "p2", "p3"]


def test_control_goes_before_the_journal_and_the_journal_before_ingest(gate: Gate) -> None:
    order: list[str] = []

    def named(name: str) -> Command[None]:
        return lambda _transaction, _now: order.append(name)

    gate.queue(named("ingest"), lane=Lane.INGEST)
    gate.queue(named("journal"), lane=Lane.JOURNAL)
    gate.queue(named("control"), lane=Lane.CONTROL)
    gate.writer.step()
    assert order == ["control", "journal", "ingest"]


def test_a_refused_command_is_undone_and_its_neighbours_are_kept(gate: Gate) -> None:
    refusal = NotFound("run", {"runId": "r"})
    done = [gate.queue(binding("a")), gate.queue(binding("b", refusal)), gate.queue(binding("c"))]
    gate.writer.step()
    assert [each[0].result for each in done] == ["a", None, "c"]
    assert done[1][0].error is refusal
    assert bound(gate) == ["a", "c"]
    # Nor do the caches remember what was undone.
    assert gate.run(lambda transaction, _now: [transaction.project_owner(ProjectId("b"))]) == [None]


def test_a_refused_batch_leaves_nothing_of_its_run_behind(gate: Gate) -> None:
    pushed = gate.ingest.command(caller_of("h"), batch(event(1)))

    def refused(transaction: WriteTransaction, now_nanos: int) -> None:
        pushed(transaction, now_nanos)
        raise NotFound("run", {})

    gate.queue(refused)
    gate.writer.step()
    assert gate.events() == []
    outcome = gate.push(batch(event(1)))
    assert len(outcome.decision.accepted) == 1
    assert [each.position for each in gate.events()] == [1]


def test_what_was_undone_is_not_announced(gate: Gate) -> None:
    # Who watches would skip positions that are still to be given.
    pushed = gate.ingest.command(caller_of("h"), batch(event(1), event(2), run_id="undone"))

    def refused(transaction: WriteTransaction, now_nanos: int) -> None:
        pushed(transaction, now_nanos)
        raise NotFound("run", {})

    gate.queue(gate.ingest.command(caller_of("h"), batch(event(1), run_id="kept")))
    gate.queue(refused)
    gate.queue(gate.ingest.command(caller_of("other"), batch(event(1), project_id="q")))
    gate.writer.step()
    (changes,) = gate.changes
    assert changes.head_positions == {"h": 1, "other": 1}
    assert changes.previous_positions == {"h": 0, "other": 0}
    assert changes.runs == {("h", "p", "kept"), ("other", "q", "r")}


def test_a_group_announces_from_its_first_event_to_its_last(gate: Gate) -> None:
    gate.push(batch(event(1)))
    for n in (2, 3):
        gate.queue(gate.ingest.command(caller_of("h"), batch(event(n))))
    gate.writer.step()
    assert gate.changes[-1].previous_positions == {"h": 1}
    assert gate.changes[-1].head_positions == {"h": 3}


def test_a_command_with_a_fault_is_undone_and_its_neighbours_are_kept(gate: Gate) -> None:
    fault = ZeroDivisionError()
    done = [gate.queue(binding("a")), gate.queue(binding("b", fault)), gate.queue(binding("c"))]
    gate.writer.step()
    assert [each[0].error for each in done] == [None, fault, None]
    assert bound(gate) == ["a", "c"]


def test_a_group_holds_no_more_bytes_than_the_bound_but_always_one_command(store: SqlStore) -> None:
    gate = Gate(store, Limits(group_bytes_max=10))
    for bytes_count in (11, 6, 4, 1):
        gate.writer.submit(
            binding(f"p{bytes_count}"), lane=Lane.INGEST, bytes_count=bytes_count, deliver=lambda _done: None
        )
    assert [gate.writer.step() for _ in range(4)] == [1, 2, 1, 0]


def test_control_that_came_later_goes_before_all_ingest_that_waits(gate: Gate) -> None:
    waiting = [gate.queue(binding(f"p{n}")) for n in range(4)]
    gate.writer.step()
    control = [gate.queue(binding(f"c{n}"), lane=Lane.CONTROL) for n in range(3)]
    gate.writer.step()
    assert ([len(each) for each in control], waiting[3]) == ([1, 1, 1], [])


def test_after_a_stop_nothing_new_is_taken_and_what_is_queued_is_done(gate: Gate) -> None:
    done = gate.queue(binding("a"))
    gate.writer.stop()
    with pytest.raises(HubStopping):
        gate.queue(binding("b"))
    gate.writer.run()
    assert (done[0].result, bound(gate)) == ("a", ["a"])


class FailingConnection(apsw.Connection):
    """A connection whose COMMIT fails, before or after it was carried out, while the disk is bad."""

    when: str | None = None
    error: type[Exception] = apsw.IOError
    can_roll_back = True

    def execute(self, statements: str, *rest: object, **named: object) -> apsw.Cursor:
        if statements == "COMMIT" and FailingConnection.when is not None:
            if FailingConnection.when == "after":
                super().execute("COMMIT")
            raise FailingConnection.error("disk I/O error")
        if statements == "ROLLBACK" and not FailingConnection.can_roll_back:
            raise apsw.IOError("disk I/O error")
        return super().execute(statements, *rest, **named)  # type: ignore[arg-type]


@pytest.fixture
def failing_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(apsw, "Connection", FailingConnection)
    monkeypatch.setattr(FailingConnection, "when", None)
    with opened_engine(tmp_path / "hub.db", limits=LIMITS) as engine:
        assert isinstance(engine, SqliteEngine)
        store = SqlStore(engine, limits=LIMITS, wall_nanos=WALL_NANOS)
        yield Gate(store, LIMITS)
        store.close()


@pytest.mark.parametrize(("when", "is_stored"), [("before", False), ("after", True)])
def test_a_commit_that_fails_is_unknown_to_all_and_a_repetition_settles_it(
    failing_gate: Gate, monkeypatch: pytest.MonkeyPatch, when: str, is_stored: bool
) -> None:
    gate = failing_gate
    gate.push(batch(event(1)))
    monkeypatch.setattr(FailingConnection, "when", when)
    done = [gate.queue(gate.ingest.command(caller_of("h"), batch(event(n)))) for n in (2, 3)]
    gate.writer.step()
    assert [type(each[0].error) for each in done] == [StorageUnavailable, StorageUnavailable]
    assert len(gate.changes) == 1
    monkeypatch.setattr(FailingConnection, "when", None)
    decision = gate.push(batch(event(2), event(3))).decision
    expected = (0, 2) if is_stored else (2, 0)
    assert (len(decision.accepted), decision.duplicate_count) == expected
    assert [(each.sequence, each.position) for each in gate.events()] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("error", [apsw.IOError, apsw.InternalError, RuntimeError])
def test_whatever_a_commit_fails_with_nothing_of_it_is_taken_for_stored(
    failing_gate: Gate, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    gate = failing_gate
    monkeypatch.setattr(FailingConnection, "error", error)
    monkeypatch.setattr(FailingConnection, "when", "after")
    with pytest.raises(StorageUnavailable):
        gate.push(batch(event(1)))
    monkeypatch.setattr(FailingConnection, "when", None)
    # The COMMIT was carried out after all: only a look into the file tells, no cache.
    assert gate.push(batch(event(1))).decision.duplicate_count == 1
    assert gate.push(batch(event(2))).decision.duplicate_count == 0
    assert [(each.sequence, each.position) for each in gate.events()] == [(1, 1), (2, 2)]


def test_a_transaction_that_cannot_be_undone_costs_one_more_group_and_no_more(
    failing_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = failing_gate
    monkeypatch.setattr(FailingConnection, "can_roll_back", False)

    def broken(_transaction: WriteTransaction, _now_nanos: int) -> None:
        raise StorageUnavailable

    for command in (broken, binding("a")):
        with pytest.raises(StorageUnavailable):
            gate.run(command)
    monkeypatch.setattr(FailingConnection, "can_roll_back", True)
    assert gate.run(binding("b")) == "b"
    assert bound(gate) == ["b"]


def test_a_full_disk_is_told_to_the_whole_group_and_the_next_one_that_fits_works(gate: Gate) -> None:
    gate.push(batch(event(1)))
    session = gate.store.writing._session
    assert isinstance(session, SqliteSession)
    (pages,) = next(iter(session._connection.execute("PRAGMA page_count")))
    session._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = batch(event(3, b"x" * 100_000))
    done = [gate.queue(gate.ingest.command(caller_of("h"), each)) for each in (batch(event(2)), large)]
    gate.writer.step()
    assert [type(each[0].error) for each in done] == [StorageUnavailable, StorageUnavailable]
    assert [each.sequence for each in gate.events()] == [1]
    assert len(gate.changes) == 1
    assert len(gate.push(batch(event(2))).decision.accepted) == 1
    session._connection.execute(f"PRAGMA max_page_count = {pages + 1_000}")
    assert len(gate.push(large).decision.accepted) == 1
    assert [(each.sequence, each.position) for each in gate.events()] == [(1, 1), (2, 2), (3, 3)]


def test_what_is_committed_is_answered_although_telling_of_it_fails(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_changes: Changes) -> None:
        raise RuntimeError("a watcher's fault")

    monkeypatch.setattr(gate.writer, "_on_commit", fail)
    pushed = gate.ingest.command(caller_of("h"), batch(event(1)))
    done = gate.queue(pushed)
    gate.writer.step()
    assert [(each.error, each.result is not None) for each in done] == [(None, True)]
    assert [stored.sequence for stored in gate.events()] == [1]


def test_hub_projects_have_turns_in_every_lane_and_each_keeps_its_order(store: SqlStore) -> None:
    gate = Gate(store, Limits(group_commands_max=4))
    for lane in Lane:
        order: list[str] = []
        for name in ("a0", "a1", "a2", "a3", "b0", "b1"):
            gate.writer.submit(
                lambda _transaction, _now, name=name, order=order: order.append(name),  # type: ignore[misc]
                lane=lane,
                bytes_count=TURN_BYTES,
                deliver=lambda _done: None,
                hub_project=name[0],
            )
        while gate.writer.step():
            pass
        assert order == ["a0", "b0", "a1", "b1", "a2", "a3"]


def submit_many(gate: Gate, count: int, *, hub_project: str, lane: Lane = Lane.INGEST) -> list[str]:
    """Queue so many commands of 100 bytes; what ran appears in the list that is returned."""
    ran: list[str] = []
    for _ in range(count):
        gate.writer.submit(
            lambda _transaction, _now: ran.append(hub_project),
            lane=lane,
            bytes_count=100,
            deliver=lambda _done: None,
            hub_project=hub_project,
        )
    return ran


def test_a_hub_project_has_a_part_of_a_group_and_a_smaller_one_while_others_are_about(
    store: SqlStore,
) -> None:
    gate = Gate(store, Limits(group_hub_project_bytes_max=1_000, group_shared_bytes_max=300))
    flood = submit_many(gate, 1_000, hub_project="flood")
    assert gate.writer.step() == 10
    quiet = submit_many(gate, 1, hub_project="quiet")
    assert gate.writer.step() == 3 + 1
    assert (len(flood), len(quiet)) == (13, 1)
    sizes = [gate.writer.step() for _ in range(SHARED_GROUPS)]
    assert sizes == [3] * (SHARED_GROUPS - 1) + [10]


def test_a_lease_makes_the_groups_beside_a_flood_small_too(store: SqlStore) -> None:
    gate = Gate(store, Limits(group_hub_project_bytes_max=1_000, group_shared_bytes_max=300))
    flood = submit_many(gate, 100, hub_project="flood")
    lease = submit_many(gate, 1, hub_project="flood", lane=Lane.CONTROL)
    assert gate.writer.step() == 4
    assert (len(flood), len(lease)) == (3, 1)


def test_large_commits_do_not_keep_ingest_out_of_a_group(store: SqlStore) -> None:
    gate = Gate(store, Limits(group_bytes_max=500))
    commits = submit_many(gate, 20, hub_project="a", lane=Lane.JOURNAL)
    ingest = submit_many(gate, 20, hub_project="b")
    for _ in range(3):
        gate.writer.step()
    assert len(commits) > len(ingest) >= 3
