"""Outbox messages through the real service and store: one claims at a time, late answers change nothing."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from hub.core.errors import NotFound
from hub.core.journal import OutboxId
from hub.core.limits import Limits
from hub.core.outbox import OutboxOutcome, OutboxState
from hub.service.journal import CLAIM_ROUNDS_MAX, Claimed, OutboxAnswer
from tests.unit.hub.gate import caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import (
    MINUTE,
    SECOND,
    commit,
    message,
)

DONE, LOST = OutboxOutcome.DONE, OutboxOutcome.CLAIM_LOST


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[JournalGate]:
    gate = JournalGate(tmp_path)
    yield gate
    gate.close()


def put(gate: JournalGate, *names: str, key: str = "", stream: str = "s") -> None:
    """Commit messages of one destination."""
    shown = gate.credential(stream, nonce=f"nonce of {names}")
    messages = [message(name, key=key) for name in names]
    gate.commit(commit(f"m of {names}", stream=stream, credential=shown, messages=messages))


def ids(claimed: Claimed) -> list[str]:
    return [each.outbox_id for each in claimed.messages]


def acknowledge(gate: JournalGate, name: str, claim_id: str) -> OutboxAnswer:
    return gate.answer(gate.journal.acknowledge(gate.caller, OutboxId(name), claim_id=claim_id))


def give_back(gate: JournalGate, name: str, claim_id: str, delay: int = 0) -> OutboxAnswer:
    return gate.answer(
        gate.journal.return_(gate.caller, OutboxId(name), claim_id=claim_id, delay_nanos=delay)
    )


def test_each_claimed_message_has_a_claim_of_its_own_and_is_hidden_from_others(gate: JournalGate) -> None:
    put(gate, "o1", "o2", "o3")
    first = gate.claim(entries_max=2, visible_nanos=30 * SECOND)
    now = gate.clock.now()
    assert ids(first) == ["o1", "o2"]
    assert len({each.claim_id for each in first.messages}) == 2
    assert (first.now_nanos, first.claim_expire_nanos) == (now, now + 30 * SECOND)
    assert first.next_available_nanos == now
    second = gate.claim(visible_nanos=MINUTE)
    assert ids(second) == ["o3"]
    assert second.next_available_nanos == now + 30 * SECOND
    assert ids(gate.claim()) == []


def test_competing_claims_in_one_group_share_no_message(gate: JournalGate) -> None:
    put(gate, *(f"o{n}" for n in range(10)))
    calls = [
        gate.loop.create_task(
            gate.journal.claim(gate.caller, "d", visible_nanos=MINUTE, entries_max=4, bytes_max=1 << 20)
        )
        for _ in range(4)
    ]
    gate.settle()
    claimed = [ids(call.result()) for call in calls]
    assert [len(each) for each in claimed] == [4, 4, 2, 0]
    assert sorted(chain.from_iterable(claimed)) == [f"o{n}" for n in range(10)]


def test_a_message_is_claimed_again_when_its_visibility_time_is_over_and_not_before(
    gate: JournalGate,
) -> None:
    put(gate, "o1")
    gate.claim(visible_nanos=30 * SECOND)
    gate.pass_time(30 * SECOND - 1)
    assert ids(gate.claim()) == []
    gate.pass_time(1)
    again = gate.claim()
    assert ids(again) == ["o1"]
    assert again.messages[0].attempt_count == 2


def test_the_late_answer_of_a_paused_dispatcher_changes_nothing(gate: JournalGate) -> None:
    put(gate, "o1")
    paused = gate.claim(visible_nanos=30 * SECOND).messages[0]
    gate.pass_time(30 * SECOND)
    stored = gate.stored()
    for late in (acknowledge(gate, "o1", paused.claim_id), give_back(gate, "o1", paused.claim_id)):
        assert late.outcome is LOST
    assert gate.stored() == stored
    other = gate.claim().messages[0]
    stored = gate.stored()
    for late in (acknowledge(gate, "o1", paused.claim_id), give_back(gate, "o1", paused.claim_id)):
        assert late == OutboxAnswer(other, LOST, gate.clock.now())
    assert gate.stored() == stored
    assert acknowledge(gate, "o1", other.claim_id).outcome is DONE


def test_an_acknowledged_message_is_delivered_and_a_second_time_says_so(gate: JournalGate) -> None:
    put(gate, "o1")
    claim_id = gate.claim().messages[0].claim_id
    gate.pass_time(SECOND)
    first = acknowledge(gate, "o1", claim_id)
    assert (first.outcome, first.message.deliver_nanos) == (DONE, gate.clock.now())
    stored = gate.stored()
    for again in (acknowledge(gate, "o1", claim_id), give_back(gate, "o1", claim_id)):
        assert again.outcome is OutboxOutcome.ALREADY_DELIVERED
    assert gate.stored() == stored
    gate.pass_time(2 * MINUTE)
    assert ids(gate.claim()) == []
    assert [each.outbox_id for each in gate.messages(OutboxState.DELIVERED)] == ["o1"]


def test_a_returned_message_waits_for_its_delay(gate: JournalGate) -> None:
    put(gate, "o1")
    returned = give_back(gate, "o1", gate.claim().messages[0].claim_id, delay=5 * SECOND)
    assert (returned.outcome, returned.message.state(returned.now_nanos)) == (DONE, OutboxState.PENDING)
    nothing = gate.claim()
    assert (ids(nothing), nothing.next_available_nanos) == ([], gate.clock.now() + 5 * SECOND)
    gate.pass_time(5 * SECOND)
    assert ids(gate.claim()) == ["o1"]


def try_in_vain(gate: JournalGate, name: str, times: int) -> None:
    for _ in range(times):
        (claimed,) = gate.claim(visible_nanos=SECOND).messages
        give_back(gate, name, claimed.claim_id)


def test_a_message_is_dead_after_ten_tries_and_tried_anew_when_it_is_released(gate: JournalGate) -> None:
    put(gate, "o1")
    try_in_vain(gate, "o1", 9)
    (last,) = gate.claim().messages
    assert last.attempt_count == 10
    returned = give_back(gate, "o1", last.claim_id)
    assert (returned.outcome, returned.message.state(returned.now_nanos)) == (DONE, OutboxState.DEAD)
    assert gate.claim() == Claimed([], gate.clock.now(), gate.clock.now() + MINUTE, None)
    gate.pass_time(SECOND)
    released = gate.answer(gate.journal.release(gate.caller, OutboxId("o1")))
    assert released.message.state(released.now_nanos) is OutboxState.PENDING
    assert (released.message.attempt_count, released.message.available_nanos) == (0, gate.clock.now())
    try_in_vain(gate, "o1", 10)
    assert [each.outbox_id for each in gate.messages(OutboxState.DEAD)] == ["o1"]


def test_a_message_whose_last_try_was_never_answered_dies_at_the_next_claim_which_gives_others(
    gate: JournalGate,
) -> None:
    put(gate, "o1", stream="s")
    try_in_vain(gate, "o1", 9)
    gate.claim(visible_nanos=SECOND)
    gate.pass_time(SECOND)
    put(gate, "o2", stream="t")
    assert gate.messages(OutboxState.DEAD) == []
    assert ids(gate.claim(entries_max=1)) == ["o2"]
    (dead,) = gate.messages(OutboxState.DEAD)
    assert (dead.outbox_id, dead.attempt_count, dead.claim_id) == ("o1", 10, "")


def test_a_claim_looks_past_a_bounded_number_of_dead_messages_and_the_next_goes_on(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path, limits=Limits(outbox_tries_max=1))
    count = CLAIM_ROUNDS_MAX + 3
    put(gate, *(f"o{n}" for n in range(count)))
    gate.claim(visible_nanos=SECOND)
    gate.pass_time(SECOND)
    put(gate, "alive", stream="t")
    first = gate.claim(entries_max=1)
    assert (ids(first), len(gate.messages(OutboxState.DEAD))) == ([], CLAIM_ROUNDS_MAX)
    assert first.next_available_nanos is not None
    assert first.next_available_nanos <= gate.clock.now()
    assert ids(gate.claim(entries_max=1)) == ["alive"]
    gate.close()


def test_a_dead_message_holds_back_those_of_its_key_until_it_is_released_and_delivered(
    tmp_path: Path,
) -> None:
    gate = JournalGate(tmp_path, limits=Limits(outbox_tries_max=1))
    put(gate, "k1", "k2", key="k")
    put(gate, "l1", key="l", stream="t")
    first = gate.claim()
    assert ids(first) == ["k1", "l1"]
    give_back(gate, "k1", first.messages[0].claim_id)
    gate.pass_time(2 * MINUTE)
    assert [each.outbox_id for each in gate.messages(OutboxState.DEAD)] == ["k1"]
    assert ids(gate.claim()) == []
    gate.answer(gate.journal.release(gate.caller, OutboxId("k1")))
    (again,) = gate.claim().messages
    acknowledge(gate, "k1", again.claim_id)
    assert ids(gate.claim()) == ["k2"]
    gate.close()


@pytest.mark.parametrize("name", ["pending", "claimed", "delivered", "behind"])
def test_a_release_of_what_is_not_dead_changes_nothing(gate: JournalGate, name: str) -> None:
    put(gate, "claimed", "delivered", key="")
    claimed = gate.claim()
    acknowledge(gate, "delivered", claimed.messages[1].claim_id)
    put(gate, "pending", "behind", key="k")
    stored = gate.stored()
    released = gate.answer(gate.journal.release(gate.caller, OutboxId(name)))
    assert released.message.outbox_id == name
    assert gate.stored() == stored


def test_a_message_that_is_not_there_is_not_found_whoever_has_one_of_that_name(gate: JournalGate) -> None:
    put(gate, "o1")
    claim_id = gate.claim().messages[0].claim_id
    stored = gate.stored()
    gate.caller = caller_of("other")
    for call in (
        lambda: acknowledge(gate, "o1", claim_id),
        lambda: give_back(gate, "o1", claim_id),
        lambda: gate.answer(gate.journal.release(gate.caller, OutboxId("o1"))),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.metadata() == {"outboxId": "o1"}
    assert ids(gate.claim()) == []
    assert gate.stored() == stored


def test_an_ordering_key_holds_nothing_back_in_another_hub_project(gate: JournalGate) -> None:
    put(gate, "first", "behind", key="k")
    gate.caller = caller_of("other")
    put(gate, "o1", "o2", key="k")
    claimed = gate.claim()
    assert ids(claimed) == ["o1"]
    acknowledge(gate, "o1", claimed.messages[0].claim_id)
    assert ids(gate.claim()) == ["o2"]


def test_when_to_ask_again_is_told_of_the_own_hub_project(gate: JournalGate) -> None:
    put(gate, "o1")
    gate.claim()
    gate.caller = caller_of("other")
    put(gate, "o2")
    claimed = gate.claim()
    acknowledge(gate, "o2", claimed.messages[0].claim_id)
    assert gate.claim().next_available_nanos is None
