"""What becomes of an outbox message: each call in each state, and times at their edges."""

from dataclasses import replace

import pytest

from hub.core.journal import MessageId, OutboxId, StreamId
from hub.core.outbox import (
    Answered,
    OutboxMessage,
    OutboxOutcome,
    OutboxState,
    decide_acknowledge,
    decide_claim,
    decide_release,
    decide_return,
)

NOW, VISIBLE, TRIES = 1_000, 30, 10
OVER = NOW + VISIBLE

PENDING = OutboxMessage(OutboxId("o"), "e", "d", "k", b"payload", NOW, NOW - 5, StreamId("s"), MessageId("m"))


def claimed(message: OutboxMessage = PENDING, now: int = NOW, claim_id: str = "c") -> OutboxMessage:
    return decide_claim(message, now, claim_id=claim_id, visible_nanos=VISIBLE, tries_max=TRIES)


CLAIMED = claimed()
DEAD = replace(PENDING, attempt_count=TRIES, is_dead=True)
DELIVERED = replace(CLAIMED, claim_id="", deliver_nanos=NOW + 1)


def returned(message: OutboxMessage, now: int, claim_id: str = "c", delay: int = 0) -> Answered:
    return decide_return(message, now, claim_id=claim_id, delay_nanos=delay, tries_max=TRIES)


def test_a_claim_hides_a_message_and_counts_a_try() -> None:
    assert replace(PENDING, attempt_count=1, claim_id="c", available_nanos=OVER) == CLAIMED


@pytest.mark.parametrize(
    ("message", "now", "state"),
    [
        (PENDING, NOW - 1, OutboxState.PENDING),
        (PENDING, NOW, OutboxState.PENDING),
        (CLAIMED, OVER - 1, OutboxState.CLAIMED),
        (CLAIMED, OVER, OutboxState.PENDING),
        (DEAD, NOW, OutboxState.DEAD),
        (DELIVERED, NOW, OutboxState.DELIVERED),
        (DELIVERED, OVER, OutboxState.DELIVERED),
    ],
)
def test_where_a_message_stands(message: OutboxMessage, now: int, state: OutboxState) -> None:
    assert message.state(now) is state


def test_a_claim_that_is_over_makes_room_for_the_next_one() -> None:
    again = claimed(CLAIMED, OVER, "c2")
    assert (again.claim_id, again.attempt_count, again.available_nanos) == ("c2", 2, OVER + VISIBLE)


def test_the_last_try_is_given_and_the_one_after_it_is_death() -> None:
    last = claimed(replace(PENDING, attempt_count=TRIES - 1))
    assert (last.attempt_count, last.is_dead) == (TRIES, False)
    dead = claimed(last, OVER)
    assert dead == replace(last, is_dead=True, claim_id="")


@pytest.mark.parametrize(
    ("message", "now"),
    [(PENDING, NOW - 1), (CLAIMED, NOW), (DEAD, NOW), (DELIVERED, NOW)],
    ids=["delayed", "claimed", "dead", "delivered"],
)
def test_what_is_not_available_is_never_asked_for(message: OutboxMessage, now: int) -> None:
    with pytest.raises(AssertionError):
        claimed(message, now)


def test_an_acknowledged_message_is_delivered() -> None:
    answered = decide_acknowledge(CLAIMED, NOW + 1, claim_id="c")
    assert answered == Answered(DELIVERED, OutboxOutcome.DONE)


def test_a_second_acknowledge_says_so_whatever_its_claim() -> None:
    for claim_id in ("c", "another"):
        answered = decide_acknowledge(DELIVERED, OVER, claim_id=claim_id)
        assert answered == Answered(DELIVERED, OutboxOutcome.ALREADY_DELIVERED)
        assert returned(DELIVERED, OVER, claim_id) == Answered(DELIVERED, OutboxOutcome.ALREADY_DELIVERED)


@pytest.mark.parametrize(
    ("message", "now", "claim_id"),
    [
        (CLAIMED, OVER, "c"),
        (CLAIMED, OVER - 1, "another"),
        (CLAIMED, OVER - 1, ""),
        (claimed(CLAIMED, OVER, "c2"), OVER, "c"),
        (PENDING, NOW, ""),
        (PENDING, NOW, "c"),
        (DEAD, NOW, "c"),
        (DEAD, NOW, ""),
    ],
    ids=["over", "wrong", "empty", "taken by another", "none", "returned", "dead", "dead and empty"],
)
def test_an_answer_without_the_claim_that_hides_a_message_changes_nothing(
    message: OutboxMessage, now: int, claim_id: str
) -> None:
    lost = Answered(message, OutboxOutcome.CLAIM_LOST)
    assert decide_acknowledge(message, now, claim_id=claim_id) == lost
    assert returned(message, now, claim_id, delay=5) == lost


def test_a_returned_message_waits_for_its_delay_and_keeps_its_tries() -> None:
    answered = returned(CLAIMED, NOW + 1, delay=70)
    expected = replace(CLAIMED, claim_id="", available_nanos=NOW + 71)
    assert answered == Answered(expected, OutboxOutcome.DONE)
    assert expected.state(NOW + 1) is OutboxState.PENDING


def test_a_message_returned_after_its_last_try_is_dead() -> None:
    last = claimed(replace(PENDING, attempt_count=TRIES - 1))
    message, outcome = returned(last, NOW)
    assert (message.state(NOW), outcome) == (OutboxState.DEAD, OutboxOutcome.DONE)
    assert returned(claimed(replace(PENDING, attempt_count=TRIES - 2)), NOW).message.is_dead is False


def test_a_released_message_is_available_now_with_its_tries_anew() -> None:
    assert decide_release(DEAD, OVER) == replace(DEAD, is_dead=False, attempt_count=0, available_nanos=OVER)


@pytest.mark.parametrize("message", [PENDING, CLAIMED, DELIVERED], ids=["pending", "claimed", "delivered"])
def test_a_release_leaves_what_is_not_dead_as_it_is(message: OutboxMessage) -> None:
    assert decide_release(message, NOW) == message
