"""Alerts between commits: the first at once, what recurs once a second, nothing lost by a failure."""

import asyncio

import pytest

from hub.core.alert import Observation
from hub.core.errors import StorageUnavailable
from hub.core.limits import Limits
from hub.core.values import AlertKey, AlertReason, AlertSample, HubProject
from hub.service.alert_book import FULL_HUB_PROJECTS_MAX
from hub.store.contract import WriteTransaction
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate, batch
from tests.unit.hub.stored_runs import WALL_NANOS, event

SECOND = 1_000_000_000
OWN_ROWS = 3
ROWS_MAX = OWN_ROWS + len(AlertReason)
"""Each reason has a row kept free for what overflows."""


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store, Limits(alert_rows_max=ROWS_MAX, alert_samples_max=2))


def observation(runtime_id: str = "runtime", *, sequence: int = 1, hub_project: str = "h") -> Observation:
    key = AlertKey(HubProject(hub_project), AlertReason.SEQUENCE_REUSED, "p", "r", runtime_id)
    sample = AlertSample(sequence, sequence, b"stored", b"offered", "peer", "")
    return Observation(key, 1, (sample,))


def nothing(_transaction: WriteTransaction, _now_nanos: int) -> str:
    """A command that only gives the book a group to write with."""
    return "done"


def counts(gate: Gate, hub_project: str = "h") -> list[int]:
    return [alert.seen_count for alert in gate.alerts(hub_project)]


def test_the_first_observation_is_written_with_the_group_that_saw_it(gate: Gate) -> None:
    gate.push(batch(event(1)))
    gate.push(batch(event(1, b"other")))
    (alert,) = gate.alerts()
    assert (alert.seen_count, alert.first_seen_nanos, alert.last_seen_nanos) == (1, WALL_NANOS, WALL_NANOS)
    assert gate.changes[-1].alerts == {"h"}
    assert not gate.alert_book.has_pending


def test_what_recurs_is_written_once_a_second_with_all_that_was_counted(gate: Gate) -> None:
    for age, expected in ((0, 1), (1, 1), (SECOND - 1, 1), (SECOND, 4), (SECOND + 1, 4), (2 * SECOND, 6)):
        gate.elapsed_nanos = age
        gate.alert_book.observe(observation())
        gate.run(nothing)
        assert counts(gate) == [expected], age
    (alert,) = gate.alerts()
    assert alert.last_seen_nanos == WALL_NANOS + 2 * SECOND


def test_one_alert_that_recurs_does_not_hold_back_another(gate: Gate) -> None:
    for runtime_id in ("one", "one", "two"):
        gate.alert_book.observe(observation(runtime_id))
        gate.run(nothing)
    assert {alert.key.runtime_id: alert.seen_count for alert in gate.alerts()} == {"one": 1, "two": 1}


def test_the_first_samples_are_kept_however_they_were_counted(gate: Gate) -> None:
    for sequence in (1, 2, 3, 4):
        gate.alert_book.observe(observation(sequence=sequence))
        if sequence != 2:
            gate.run(nothing)
        gate.elapsed_nanos += SECOND
    (alert,) = gate.alerts()
    assert (alert.seen_count, [each.sequence for each in alert.samples]) == (4, [1, 2])


async def test_a_flush_writes_what_recurred_at_once(gate: Gate) -> None:
    for _ in range(2):
        gate.alert_book.observe(observation())
        gate.run(nothing)
    assert (counts(gate), gate.alert_book.has_pending) == ([1], True)
    flush = asyncio.ensure_future(gate.alert_book.flush(gate.async_writer))
    await asyncio.sleep(0)
    gate.writer.step()
    await flush
    assert (counts(gate), gate.alert_book.has_pending) == ([2], False)


async def test_a_flush_waits_for_what_the_writer_has_taken_and_not_committed_yet(gate: Gate) -> None:
    gate.alert_book.observe(observation())
    transaction = gate.store.writing.begin()
    gate.alert_book.before_commit(transaction, WALL_NANOS)
    assert not gate.alert_book.has_pending
    # A reader comes while the writer is at it.
    flush = asyncio.ensure_future(gate.alert_book.flush(gate.async_writer))
    await asyncio.sleep(0)
    assert not flush.done()
    gate.store.writing.commit(WALL_NANOS)
    gate.alert_book.after_commit()
    gate.writer.step()
    await flush
    assert counts(gate) == [1]


async def test_a_flush_of_nothing_costs_no_group(gate: Gate) -> None:
    await gate.alert_book.flush(gate.async_writer)
    assert gate.writer.step() == 0


def test_past_the_bound_of_rows_one_row_counts_what_is_new(gate: Gate) -> None:
    for n in range(OWN_ROWS + 4):
        gate.alert_book.observe(observation(f"runtime {n}"))
        gate.run(nothing)
        gate.elapsed_nanos += SECOND
    by_runtime = {alert.key.runtime_id: alert.seen_count for alert in gate.alerts()}
    assert by_runtime == {"runtime 0": 1, "runtime 1": 1, "runtime 2": 1, "": 4}
    # Whoever has a row goes on with it.
    gate.alert_book.observe(observation("runtime 1"))
    gate.run(nothing)
    assert sorted(counts(gate)) == [1, 1, 2, 4]


def test_past_the_bound_of_memory_observations_of_one_reason_are_counted_together(gate: Gate) -> None:
    for n in range(10 * ROWS_MAX):
        gate.alert_book.observe(observation(f"runtime {n}"))
    assert len(gate.alert_book._pending) == ROWS_MAX + 1
    gate.run(nothing)
    assert sum(counts(gate)) == 10 * ROWS_MAX
    assert len(counts(gate)) == OWN_ROWS + 1


def test_a_flood_of_one_hub_project_costs_another_none_of_its_alerts(gate: Gate) -> None:
    for n in range(10 * ROWS_MAX):
        gate.alert_book.observe(observation(f"runtime {n}"))
    for name in ("one", "two"):
        gate.alert_book.observe(observation(name, hub_project="other"))
    gate.run(nothing)
    assert {alert.key.runtime_id for alert in gate.alerts("other")} == {"one", "two"}


def test_memory_is_bounded_however_many_hub_projects_flood(gate: Gate) -> None:
    hub_projects = [f"h{n}" for n in range(2 * FULL_HUB_PROJECTS_MAX)]
    for hub_project in hub_projects:
        for n in range(2 * ROWS_MAX):
            gate.alert_book.observe(observation(f"runtime {n}", hub_project=hub_project))
    assert len(gate.alert_book._pending) <= FULL_HUB_PROJECTS_MAX * ROWS_MAX + len(hub_projects)
    gate.run(nothing)
    assert {sum(counts(gate, hub_project)) for hub_project in hub_projects} == {2 * ROWS_MAX}


async def test_no_group_writes_more_alerts_than_its_part_and_a_flush_writes_all(store: SqlStore) -> None:
    gate = Gate(store, Limits(alert_rows_at_once_max=4))
    for n in range(9):
        gate.alert_book.observe(observation(f"runtime {n}"))
    gate.alert_book.observe(observation("last", hub_project="other"))
    gate.run(nothing)
    # Hub projects have turns: who floods does not keep another's alert waiting.
    assert (len(counts(gate)), counts(gate, "other")) == (3, [1])
    flush = asyncio.ensure_future(gate.alert_book.flush(gate.async_writer))
    while not flush.done():
        await asyncio.sleep(0)
        gate.writer.step()
    assert (counts(gate), gate.alert_book.has_pending) == ([1] * 9, False)


def test_a_refused_command_does_not_undo_what_is_to_be_alerted(gate: Gate) -> None:
    def refused(_transaction: WriteTransaction, _now_nanos: int) -> None:
        gate.alert_book.observe(observation())
        raise LookupError

    with pytest.raises(LookupError):
        gate.run(refused)
    assert counts(gate) == [1]


def test_what_a_failed_group_would_have_written_is_written_by_the_next(gate: Gate) -> None:
    def broken(_transaction: WriteTransaction, _now_nanos: int) -> None:
        raise StorageUnavailable

    gate.alert_book.observe(observation(sequence=1))
    with pytest.raises(StorageUnavailable):
        gate.run(broken)
    assert counts(gate) == []
    gate.alert_book.observe(observation(sequence=2))
    gate.run(nothing)
    (alert,) = gate.alerts()
    assert (alert.seen_count, [each.sequence for each in alert.samples]) == (2, [1, 2])


def test_what_was_being_written_when_the_commit_failed_is_written_at_once_by_the_next(
    store: SqlStore,
) -> None:
    gate = Gate(store)
    gate.alert_book.observe(observation(sequence=1))
    gate.run(nothing)
    gate.alert_book.observe(observation(sequence=2))
    gate.elapsed_nanos += SECOND
    transaction = store.writing.begin()
    gate.alert_book.before_commit(transaction, gate.clock.now())
    assert not gate.alert_book.has_pending
    store.writing.rollback()
    gate.alert_book.after_failure()
    assert (counts(gate), gate.alert_book.has_pending) == ([1], True)
    # Not a second later: what was noted as written just now was not.
    gate.run(nothing)
    (alert,) = gate.alerts()
    assert (alert.seen_count, [each.sequence for each in alert.samples]) == (2, [1, 2])
