"""Commits through the real service and store: all or nothing, once, under a lease."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hub.core.errors import IdempotencyConflict, InvalidRequest, Refusal
from hub.core.journal import Commit, CommitResult, StreamId, stream_resource
from hub.core.lease_errors import RevisionConflict, StaleLease
from hub.core.limits import Limits
from hub.core.tenure import Claim, hash_of_nonce
from hub.service.journal import Committed
from tests.unit.hub.gate import caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import (
    MINUTE,
    SECOND,
    commit,
    credential_of,
    event,
    holder_of,
    message,
    projection,
)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[JournalGate]:
    gate = JournalGate(tmp_path)
    yield gate
    gate.close()


def full(gate: JournalGate, name: str = "m1", *, expected: int = 0) -> Commit:
    return commit(
        name,
        credential=gate.credential(),
        expected=expected,
        events=[event("e1"), event("e2", event_type="other")],
        messages=[message("o1", event="e2"), message("o2", key="k")],
        projections=[projection()],
        reply=b"reply",
    )


def test_a_commit_is_stored_whole_with_the_time_of_its_command(gate: JournalGate) -> None:
    gate.pass_time(3 * SECOND)
    committed = gate.commit(full(gate))
    now = gate.clock.now()
    assert committed == Committed(CommitResult(0, 2, now, 1, b"reply"), is_recovered=False)
    events = [(each.event_id, each.event_time_nanos, each.commit_nanos) for each in gate.events()]
    assert events == [("e1", now, now), ("e2", now, now)]
    assert [(each.outbox_id, each.available_nanos) for each in gate.messages()] == [("o1", now), ("o2", now)]
    assert gate.changes[-1].journal_head_positions == {gate.caller.hub_project: 2}


def test_a_commit_sent_again_is_recovered_and_changes_nothing(gate: JournalGate) -> None:
    tried = full(gate)
    first = gate.commit(tried)
    stored = gate.stored()
    gate.pass_time(SECOND)
    assert gate.commit(tried) == Committed(first.result, is_recovered=True)
    assert gate.stored() == stored


def test_a_commit_is_recovered_whoever_holds_the_lease_now_and_however_far_the_stream_is(
    gate: JournalGate,
) -> None:
    tried = full(gate)
    first = gate.commit(tried)
    gate.pass_time(MINUTE)
    other = gate.credential(holder="b", nonce="other")
    gate.commit(commit("m2", credential=other, expected=2, events=[event("e3")]))
    for shown in (tried.credential, other, credential_of("elsewhere", "x", nonce="none", token=77)):
        again = gate.commit(replace(tried, credential=shown))
        assert again == Committed(first.result, is_recovered=True)


def test_a_commit_is_recovered_after_a_restart(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path)
    tried = full(gate)
    first = gate.commit(tried)
    gate.close()
    gate = JournalGate(tmp_path)
    assert gate.commit(tried) == Committed(first.result, is_recovered=True)
    gate.close()


def test_two_of_the_same_in_one_group_are_one_commit(gate: JournalGate) -> None:
    tried = full(gate)
    calls = [gate.loop.create_task(gate.journal.commit(gate.caller, tried, bytes_count=1)) for _ in range(3)]
    gate.settle()
    assert [call.result().is_recovered for call in calls] == [False, True, True]
    assert len({call.result().result for call in calls}) == 1
    assert [each.revision for each in gate.events()] == [1, 2]


def test_of_several_writers_at_one_revision_one_wins_and_the_others_leave_nothing(gate: JournalGate) -> None:
    shown = gate.credential()
    calls = [
        gate.loop.create_task(
            gate.journal.commit(
                gate.caller, commit(f"m{n}", credential=shown, events=[event(f"e{n}")]), bytes_count=1
            )
        )
        for n in range(5)
    ]
    gate.settle()
    assert calls[0].result().result.revision == 1
    for call in calls[1:]:
        assert isinstance(call.exception(), RevisionConflict)
    assert [each.event_id for each in gate.events()] == ["e0"]


def test_a_commit_of_which_nobody_waits_for_the_answer_happens_all_the_same(gate: JournalGate) -> None:
    tried = full(gate)
    call = gate.loop.create_task(gate.journal.commit(gate.caller, tried, bytes_count=1))
    gate.run_without_commits()
    call.cancel()
    gate.settle()
    assert gate.commit(tried).is_recovered


def test_a_lease_waits_for_one_group_however_many_large_commits_are_queued(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path, limits=Limits(group_bytes_max=10))
    held = gate.credential("t")
    written = gate.credential()
    commits = [
        gate.loop.create_task(
            gate.journal.commit(gate.caller, commit(f"m{n}", credential=written), bytes_count=10)
        )
        for n in range(3)
    ]
    gate.run_without_commits()
    assert gate.writer.step() == 1  # the group that runs while the renewal comes
    renewal = gate.loop.create_task(gate.leases.renew(gate.caller, held, ttl_nanos=None))
    gate.run_without_commits()
    gate.writer.step()
    gate.run_without_commits()
    assert renewal.done()
    assert not all(each.done() for each in commits)
    gate.settle()
    assert all(not each.result().is_recovered for each in commits)
    gate.close()


def test_the_fencing_token_and_epoch_of_a_maintenance_are_kept_with_its_events(gate: JournalGate) -> None:
    gate.credential()
    claim = Claim(holder_of("operator"), hash_of_nonce("other"), MINUTE)
    name = stream_resource(StreamId("s"))
    gate.answer(gate.leases.begin_maintenance(gate.caller, name, claim=claim, repeat=None))
    shown = credential_of(holder="operator", nonce="other", token=2)
    gate.commit(commit(credential=shown, events=[event()]))
    assert [(each.fencing_token, each.epoch) for each in gate.events()] == [(2, 1)]


REFUSED: Sequence[tuple[str, Commit, type[Refusal], dict[str, str]]] = [
    (
        "message id used",
        commit("m1", events=[event("new")]),
        IdempotencyConflict,
        {"field": "message_id", "id": "m1"},
    ),
    (
        "stale",
        commit("new", credential=credential_of(token=9), expected=2, events=[event("new")]),
        StaleLease,
        {"resource": "s", "streamId": "s", "fencingToken": "9", "cause": "LEASE_SUPERSEDED"},
    ),
    (
        "other stream's lease",
        commit("new", stream="t", credential=credential_of("s"), events=[event("new")]),
        StaleLease,
        {"resource": "t", "streamId": "t", "fencingToken": "1", "cause": "OTHER_RESOURCE"},
    ),
    (
        "never leased",
        commit("new", stream="t", events=[event("new")]),
        StaleLease,
        {"resource": "t", "streamId": "t", "fencingToken": "1", "cause": "LEASE_MISSING"},
    ),
    (
        "wrong revision",
        commit("new", expected=1, events=[event("new")]),
        RevisionConflict,
        {"streamId": "s", "expectedRevision": "1", "actualRevision": "2"},
    ),
    (
        "event id used",
        commit("new", expected=2, events=[event("new"), event("e1")]),
        IdempotencyConflict,
        {"field": "events[1].event_id", "id": "e1"},
    ),
    (
        "event id twice",
        commit("new", expected=2, events=[event("new"), event("new")]),
        InvalidRequest,
        {"field": "events[1].event_id", "id": "new"},
    ),
    (
        "outbox id used",
        commit("new", expected=2, events=[event("new")], messages=[message("o1")]),
        IdempotencyConflict,
        {"field": "outbox_messages[0].outbox_id", "id": "o1"},
    ),
    (
        "no such event",
        commit("new", expected=2, messages=[message("new", event="nowhere")], projections=[projection()]),
        InvalidRequest,
        {"field": "outbox_messages[0].event_id", "id": "nowhere"},
    ),
    (
        "another stream's projection",
        commit("new", expected=2, events=[event("new")], projections=[projection("foreign")]),
        IdempotencyConflict,
        {"field": "projections[0].projection_id", "id": "foreign"},
    ),
]


@pytest.mark.parametrize(
    ("tried", "refusal", "facts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_refused_commit_changes_nothing(
    gate: JournalGate, tried: Commit, refusal: type[Refusal], facts: dict[str, str]
) -> None:
    gate.commit(full(gate))
    elsewhere = gate.credential("u")
    gate.commit(commit("m-u", stream="u", credential=elsewhere, projections=[projection("foreign")]))
    stored = gate.stored()
    with pytest.raises(refusal) as caught:
        gate.commit(tried)
    assert caught.value.metadata() == facts
    assert gate.stored() == stored
    assert gate.changes[-1].journal_head_positions == {}


def test_a_refused_commit_in_a_hub_project_that_is_not_there_does_not_create_it(gate: JournalGate) -> None:
    stored = gate.stored()
    call = gate.journal.commit(caller_of("nobody"), commit(events=[event()]), bytes_count=1)
    with pytest.raises(StaleLease):
        gate.answer(call)
    assert gate.stored() == stored


def test_hub_projects_share_no_id_and_no_lease(gate: JournalGate) -> None:
    tried = full(gate)
    gate.commit(tried)
    with pytest.raises(StaleLease):
        gate.answer(gate.journal.commit(caller_of("other"), tried, bytes_count=1))
    gate.caller = caller_of("other")
    gate.credential()
    assert gate.commit(tried).result.first_position == 1


def test_an_expiry_that_a_commit_was_refused_with_outlives_a_restart_with_an_earlier_clock(
    tmp_path: Path,
) -> None:
    gate = JournalGate(tmp_path)
    shown = gate.credential(ttl_nanos=MINUTE)
    start = gate.clock.now()
    gate.elapsed_nanos += MINUTE
    with pytest.raises(StaleLease) as caught:
        gate.commit(commit(credential=shown, events=[event()]))
    assert caught.value.cause == "LEASE_EXPIRED"
    gate.close()
    gate = JournalGate(tmp_path, wall_nanos=start)
    with pytest.raises(StaleLease):
        gate.commit(commit(credential=shown, events=[event()]))
    gate.close()
