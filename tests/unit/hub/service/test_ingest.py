"""Ingest over a real store: what binds, what is told, what is alerted."""

import pytest

from hub.core.errors import RuntimeDuplicated
from hub.core.values import AlertReason, ConflictReason, HubProject, InstanceId, RuntimeId
from hub.store.store import SqlStore
from synchub.contract import chain_hash_at_start
from tests.unit.hub.gate import Gate, batch
from tests.unit.hub.stored_runs import event


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store)


def test_a_stranger_is_told_nothing_and_it_is_the_same_whether_the_run_exists(gate: Gate) -> None:
    gate.push(batch(event(1)))
    there = gate.push(batch(event(1)), hub_project="stranger")
    nowhere = gate.push(batch(event(1), run_id="none"), hub_project="stranger")
    assert there == nowhere
    assert there.head is None
    assert gate.events(hub_project="stranger") == []


def test_a_mismatch_is_alerted_to_both_and_the_owner_learns_nothing_of_the_caller(gate: Gate) -> None:
    gate.push(batch(event(1)))
    gate.push(batch(event(1), event(2), runtime_id="spy"), hub_project="stranger")
    (theirs,), (owners,) = gate.alerts("stranger"), gate.alerts("h")
    assert (theirs.key.reason, theirs.key.runtime_id, theirs.seen_count) == (
        AlertReason.PROJECT_MISMATCH,
        "spy",
        2,
    )
    assert (owners.key.run_id, owners.key.runtime_id, owners.samples) == ("", "", ())
    assert (owners.key.project_id, owners.seen_count) == ("p", 2)


def test_only_an_accepted_event_binds(gate: Gate) -> None:
    wrong = batch(event(1), wrong_hashes={0: b"\1" * 32})
    assert gate.push(wrong, hub_project="first").decision.accepted == ()
    assert gate.push(batch(event(2), proof=b"\7" * 32), hub_project="first").decision.go_back
    assert len(gate.push(batch(event(1)), hub_project="second").decision.accepted) == 1


def test_a_run_belongs_to_the_runtime_whose_event_was_accepted_first(gate: Gate) -> None:
    gate.push(batch(event(1)))
    outcome = gate.push(batch(event(1)), hub_project="h")
    assert outcome.decision.duplicate_count == 1
    outcome = gate.push(batch(event(1), runtime_id="other"))
    assert [each.reason for each in outcome.decision.conflicts] == [ConflictReason.HOME_RUNTIME_MISMATCH]
    assert outcome.head is None


def test_a_dropped_payload_is_alerted_with_its_range_and_filled_in_at_its_position(gate: Gate) -> None:
    dropped = [event(n)._replace(payload=None) for n in (1, 2)]
    gate.push(batch(*dropped))
    (alert,) = gate.alerts()
    assert alert.key.reason is AlertReason.HISTORY_LOST
    assert [(each.sequence, each.last_sequence) for each in alert.samples] == [(1, 2)]
    gate.push(batch(event(3)))
    gate.push(batch(event(1), event(2), proof=chain_hash_at_start("p", "r")))
    assert [(each.position, each.payload) for each in gate.events()] == [
        (1, b"payload"),
        (2, b"payload"),
        (3, b"payload"),
    ]


def test_positions_of_hub_projects_are_independent(gate: Gate) -> None:
    for hub_project in ("a", "b", "a"):
        for n in (1, 2):
            gate.push(batch(event(n), project_id=hub_project, run_id="r"), hub_project=hub_project)
    for hub_project in ("a", "b"):
        held = gate.events(hub_project=hub_project, project_id=hub_project)
        assert [each.position for each in held] == [1, 2]


def test_an_idle_run_is_remembered_without_its_cached_head(gate: Gate) -> None:
    gate.push(batch(event(1)))
    gate.store.writing.close()
    outcome = gate.push(batch(event(1), event(2)))
    assert (outcome.decision.duplicate_count, len(outcome.decision.accepted)) == (1, 1)


def test_an_instance_with_a_successor_is_refused_alerted_and_stores_nothing(gate: Gate) -> None:
    for instance_id in ("one", "two"):
        gate.run(
            lambda transaction, now, each=instance_id: [  # type: ignore[misc]
                transaction.begin_instance(
                    HubProject("h"), RuntimeId("runtime"), instance_id=InstanceId(each), now_nanos=now
                )
            ]
        )
    with pytest.raises(RuntimeDuplicated):
        gate.push(batch(event(1), instance_id="one"))
    assert gate.events() == []
    assert [alert.key.reason for alert in gate.alerts()] == [AlertReason.RUNTIME_DUPLICATED]
    assert len(gate.push(batch(event(1), instance_id="two")).decision.accepted) == 1
