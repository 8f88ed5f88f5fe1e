"""What a hub project keeps is counted, and a batch for which there is no room is refused whole."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hub.core.errors import NotFound, QuotaExceeded
from hub.core.ingest import PushBatch
from hub.core.limits import Limits
from hub.core.quota import ROW_BYTES, Usage
from hub.core.values import EventContent, HubProject, ProjectId, RunId
from hub.store.contract import WriteTransaction
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate, batch, caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import commit, message
from tests.unit.hub.journal_values import event as journal_event
from tests.unit.hub.recount import assert_counted
from tests.unit.hub.stored_runs import WALL_NANOS, event

EVENT_BYTES = ROW_BYTES + len(b"payload")

MakeGate = Callable[[Limits], Gate]


@pytest.fixture
def make_gate(tmp_path: Path) -> Iterator[MakeGate]:
    with ExitStack() as stack:

        def make(limits: Limits) -> Gate:
            engine = stack.enter_context(opened_engine(tmp_path / "hub.db", limits=limits))
            store = SqlStore(engine, limits=limits, wall_nanos=WALL_NANOS)
            stack.callback(store.close)
            return Gate(store, limits)

        yield make


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "hub.db"


def usage(gate: Gate, hub_project: str = "h") -> Usage:
    return gate.run(lambda transaction, _now: transaction.usage(HubProject(hub_project)))


def count(gate: Gate, bytes_count: int) -> None:
    gate.queue(lambda transaction, _now: transaction.add_stored_bytes(HubProject("h"), bytes_count))
    assert gate.writer.step() == 1


def final(sequence: int) -> EventContent:
    return event(sequence, is_final=True)


# --- counting ---


def test_rows_payloads_and_attributes_are_counted_in_bytes(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits())
    assert usage(gate) == Usage(0, 0)
    gate.push(batch(event(1, b"12345"), event(2, b"")._replace(attributes='{"a":"é"}'), event(3, None)))
    assert usage(gate) == Usage(3 * ROW_BYTES + 5 + 10, 1)
    assert assert_counted(database) == {"h": Usage(3 * ROW_BYTES + 15, 1)}


def test_what_is_filled_in_later_is_counted_when_it_comes(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits())
    known = event(1, b"12345")
    gate.push(batch(known._replace(payload=None, attributes='{"a":"bc"}')))
    assert usage(gate) == Usage(ROW_BYTES + 10, 1)
    gate.push(batch(known))
    assert usage(gate) == Usage(ROW_BYTES + 5, 1)
    gate.push(batch(known))
    assert assert_counted(database) == {"h": Usage(ROW_BYTES + 5, 1)}


def test_a_run_counts_until_its_final_event_lies_at_its_cursor(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits())
    counts = []
    for pushed in (
        batch(final(3)),
        batch(event(1)),
        batch(event(2)),
        batch(event(2)),
        batch(final(1), run_id="q"),
    ):
        gate.push(pushed)
        counts.append(usage(gate).active_run_count)
        assert_counted(database)
    assert counts == [1, 1, 0, 0, 0]


def test_a_run_that_turns_out_not_to_be_over_counts_again(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits())
    gate.push(batch(final(1)._replace(payload=None)))
    assert usage(gate).active_run_count == 0
    # The content hash was the runtime's word; its content says that the event is not final after all.
    gate.push(batch(final(1)._replace(is_final=False)))
    assert usage(gate).active_run_count == 1
    assert_counted(database)


def test_what_was_undone_or_lost_is_not_counted(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits())
    gate.push(batch(event(1)))
    pushed = gate.ingest.command(caller_of("h"), batch(event(2), final(3)))

    def refused(transaction: WriteTransaction, now_nanos: int) -> None:
        pushed(transaction, now_nanos)
        raise NotFound("run", {})

    def broken(transaction: WriteTransaction, now_nanos: int) -> None:
        pushed(transaction, now_nanos)
        gate.store.writing.close()

    gate.queue(refused)
    gate.writer.step()
    assert usage(gate) == Usage(EVENT_BYTES, 1)
    gate.queue(broken)
    gate.writer.step()
    assert usage(gate) == Usage(EVENT_BYTES, 1)
    gate.queue(refused)
    gate.queue(pushed)
    gate.writer.step()
    assert usage(gate) == Usage(3 * EVENT_BYTES, 0)
    assert assert_counted(database) == {"h": Usage(3 * EVENT_BYTES, 0)}


def test_what_is_dropped_is_counted_out_and_never_below_nothing(make_gate: MakeGate) -> None:
    gate = make_gate(Limits())
    gate.push(batch(event(1), event(2)))
    for bytes_count, left in ((-7, 2 * EVENT_BYTES - 7), (3, 2 * EVENT_BYTES - 4), (-(10**9), 0)):
        count(gate, bytes_count)
        assert usage(gate) == Usage(left, 1)
    assert usage(gate, "other") == Usage(0, 0)


def test_the_count_outlives_the_caches(make_gate: MakeGate) -> None:
    gate = make_gate(Limits())
    gate.push(batch(event(1), event(2)))
    gate.store.writing.close()
    assert usage(gate) == Usage(2 * EVENT_BYTES, 1)
    gate.push(batch(final(3)))
    assert usage(gate) == Usage(3 * EVENT_BYTES, 0)


# --- the quota of bytes ---


def test_a_batch_for_which_there_is_no_room_is_refused_whole(make_gate: MakeGate, database: Path) -> None:
    gate = make_gate(Limits(hub_project_stored_bytes_max=3 * EVENT_BYTES))
    gate.push(batch(event(1), event(2)))
    before = usage(gate)
    for pushed in (
        batch(event(3), event(4)),
        batch(event(2), event(3), event(4)),
        batch(event(1, b"x" * 200), run_id="q"),
    ):
        with pytest.raises(QuotaExceeded) as caught:
            gate.push(pushed)
        assert caught.value.metadata() == {
            "limit": "hub_project_stored_bytes_max",
            "limitValue": str(3 * EVENT_BYTES),
        }
    assert (usage(gate), [each.sequence for each in gate.events()]) == (before, [1, 2])
    assert gate.events(run_id="q") == []
    gate.push(batch(event(3)))
    assert assert_counted(database) == {"h": Usage(3 * EVENT_BYTES, 1)}


def test_a_full_hub_project_still_answers_duplicates_and_conflicts(make_gate: MakeGate) -> None:
    gate = make_gate(Limits(hub_project_stored_bytes_max=EVENT_BYTES))
    gate.push(batch(event(1)))
    assert gate.push(batch(event(1))).decision.duplicate_count == 1
    assert len(gate.push(batch(event(1, b"another"))).decision.conflicts) == 1
    with pytest.raises(QuotaExceeded):
        gate.push(batch(event(2, b"")))


def test_what_would_be_filled_in_needs_room_too(make_gate: MakeGate) -> None:
    gate = make_gate(Limits(hub_project_stored_bytes_max=ROW_BYTES + 9))
    known = event(1, b"x" * 10)
    gate.push(batch(known._replace(payload=None)))
    with pytest.raises(QuotaExceeded):
        gate.push(batch(known))
    assert [each.payload for each in gate.events()] == [None]
    roomier = event(2, b"")._replace(payload=None)
    with pytest.raises(QuotaExceeded):
        gate.push(batch(roomier))
    assert usage(gate) == Usage(ROW_BYTES, 1)


def test_the_quota_of_one_hub_project_is_not_anothers(make_gate: MakeGate) -> None:
    gate = make_gate(Limits(hub_project_stored_bytes_max=EVENT_BYTES))
    gate.push(batch(event(1)))
    gate.push(batch(event(1), project_id="q"), hub_project="other")
    with pytest.raises(QuotaExceeded):
        gate.push(batch(event(2)))
    assert (usage(gate), usage(gate, "other")) == (Usage(EVENT_BYTES, 1), Usage(EVENT_BYTES, 1))


def test_when_there_is_room_again_it_goes_on(make_gate: MakeGate) -> None:
    gate = make_gate(Limits(hub_project_stored_bytes_max=2 * EVENT_BYTES))
    gate.push(batch(event(1), event(2)))
    with pytest.raises(QuotaExceeded):
        gate.push(batch(event(3)))
    count(gate, -EVENT_BYTES)
    assert len(gate.push(batch(event(3))).decision.accepted) == 1


# --- the quota of runs ---


@pytest.fixture
def two_runs(make_gate: MakeGate) -> Gate:
    """A hub project with as many open runs as it may have."""
    gate = make_gate(Limits(hub_project_active_runs_max=2))
    for run_id in ("a", "b"):
        gate.push(batch(event(1), run_id=run_id))
    return gate


@pytest.mark.parametrize("pushed", [batch(event(1), run_id="c"), batch(final(2), run_id="c")])
def test_one_run_more_than_may_be_open_is_refused_whole(two_runs: Gate, pushed: PushBatch) -> None:
    before = usage(two_runs)
    with pytest.raises(QuotaExceeded) as caught:
        two_runs.push(pushed)
    assert (caught.value.limit, caught.value.limit_value) == ("hub_project_active_runs_max", 2)
    assert (usage(two_runs), two_runs.events(run_id="c")) == (before, [])
    head = two_runs.run(lambda transaction, _now: [transaction.run_head(ProjectId("p"), RunId("c"))])
    assert head == [None]


def test_open_runs_go_on_and_are_completed_and_make_room(two_runs: Gate, database: Path) -> None:
    two_runs.push(batch(event(2), run_id="a"))
    two_runs.push(batch(final(2), run_id="b"))
    two_runs.push(batch(event(1), run_id="c"))
    with pytest.raises(QuotaExceeded):
        two_runs.push(batch(event(1), run_id="d"))
    assert assert_counted(database)["h"].active_run_count == 2


def test_a_run_that_comes_whole_needs_no_room_among_open_ones(two_runs: Gate) -> None:
    two_runs.push(batch(event(1), final(2), run_id="c"))
    assert (usage(two_runs).active_run_count, len(two_runs.events(run_id="c"))) == (2, 2)


def test_runs_of_other_hub_projects_do_not_count(two_runs: Gate) -> None:
    two_runs.push(batch(event(1), project_id="q"), hub_project="other")
    assert usage(two_runs, "other").active_run_count == 1


# --- the journal ---


@pytest.fixture
def make_journal(tmp_path: Path) -> Iterator[Callable[[Limits], JournalGate]]:
    with ExitStack() as stack:

        def make(limits: Limits) -> JournalGate:
            gate = JournalGate(tmp_path, limits=limits)
            stack.callback(gate.close)
            return gate

        yield make


def test_commits_count_their_events_and_messages(
    make_journal: Callable[[Limits], JournalGate], database: Path
) -> None:
    gate = make_journal(Limits())
    made = commit("m1", credential=gate.credential(), events=[journal_event("e1")], messages=[message("o1")])
    gate.commit(made)
    payloads = len(made.events[0].payload) + len(made.outbox_messages[0].payload)
    kept = {"h": Usage(2 * ROW_BYTES + payloads, 0)}
    assert assert_counted(database) == kept
    assert gate.commit(made).is_recovered
    assert assert_counted(database) == kept


def test_a_commit_for_which_there_is_no_room_is_refused_and_a_repeat_is_recovered(
    make_journal: Callable[[Limits], JournalGate], database: Path
) -> None:
    first = journal_event("e1")
    gate = make_journal(Limits(hub_project_stored_bytes_max=2 * ROW_BYTES + len(first.payload) - 1))
    credential = gate.credential()
    made = commit("m1", credential=credential, events=[first])
    gate.commit(made)
    kept = assert_counted(database)
    with pytest.raises(QuotaExceeded, match="hub_project_stored_bytes_max"):
        gate.commit(commit("m2", credential=credential, expected=1, events=[journal_event("e2")]))
    assert gate.commit(made).is_recovered
    # One that orders nothing and keeps nothing needs no room.
    gate.commit(commit("m3", credential=credential, expected=1))
    assert ([each.event_id for each in gate.events()], assert_counted(database)) == (["e1"], kept)
