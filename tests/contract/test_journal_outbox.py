"""The outbox over the wire: claims that compete, orders that are kept, tries that end, answers too late."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import (
    StreamWriter,
    acknowledge,
    claim,
    claimed_ids,
    commit,
    commit_request,
    give_back,
    leased,
    new_events,
    new_message,
    outbox,
)
from tests.contract.leasing import CALL_SECONDS_MAX

PENDING: Final = messages.OUTBOX_MESSAGE_STATE_PENDING
CLAIMED: Final = messages.OUTBOX_MESSAGE_STATE_CLAIMED
DEAD: Final = messages.OUTBOX_MESSAGE_STATE_DEAD
DELIVERED: Final = messages.OUTBOX_MESSAGE_STATE_DELIVERED
DONE: Final = messages.OUTBOX_OUTCOME_DONE
ALREADY_DELIVERED: Final = messages.OUTBOX_OUTCOME_ALREADY_DELIVERED
CLAIM_LOST: Final = messages.OUTBOX_OUTCOME_CLAIM_LOST
TRIES_MAX: Final = Limits().outbox_tries_max
SHORT_SECONDS: Final = 0.05
"""A visibility time that is over soon."""


@pytest.fixture
def committed(journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str) -> "Outbox":
    return Outbox(journal_stub, lease_stub, hub_project)


class Outbox:
    """Commits messages to one stream, and looks at them."""

    def __init__(self, stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str) -> None:
        self._stub = stub
        self._hub_project = hub_project
        self._writer = StreamWriter(stub, hub_project, credential=leased(lease_stub, hub_project))

    def add(self, *outbox_messages: messages.NewOutboxMessage) -> messages.CommitResponse:
        return self._writer.append(outbox_messages=outbox_messages)

    def message(self, outbox_id: str) -> messages.OutboxMessage:
        (found,) = (each for each in outbox(self._stub, self._hub_project) if each.outbox_id == outbox_id)
        return found

    def states(self) -> "dict[str, messages.OutboxMessageState.ValueType]":
        return {each.outbox_id: each.state for each in outbox(self._stub, self._hub_project)}


def claim_when_available(
    stub: JournalServiceStub, hub_project: str, *, visible: float = 0
) -> messages.ClaimOutboxMessagesResponse:
    """Claim again and again, as a dispatcher does, until there is something."""
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while not (claimed := claim(stub, hub_project, visible=visible)).messages:
        assert time.monotonic() < deadline
    return claimed


# --- the life of a message ---


def test_a_claimed_message_is_hidden_and_then_delivered_once(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1", payload=b"\0\xff"))
    claimed = claim(journal_stub, hub_project, visible=60)
    (first,) = claimed.messages
    assert first.claim_id
    assert (first.message.outbox_id, first.message.payload) == ("o1", b"\0\xff")
    assert (first.message.state, first.message.attempt_count) == (CLAIMED, 1)
    assert first.message.available_time == claimed.claim_expire_time
    assert committed.message("o1") == first.message
    again = claim(journal_stub, hub_project)
    assert (list(again.messages), again.next_available_time) == ([], claimed.claim_expire_time)
    assert acknowledge(journal_stub, hub_project, first) == DONE
    assert acknowledge(journal_stub, hub_project, first) == ALREADY_DELIVERED
    assert (committed.states(), committed.message("o1").attempt_count) == ({"o1": DELIVERED}, 1)
    assert not claim(journal_stub, hub_project).HasField("next_available_time")


def test_a_returned_message_is_tried_again_at_once_or_after_its_delay(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"))
    (first,) = claim(journal_stub, hub_project).messages
    assert give_back(journal_stub, hub_project, first) == messages.ReturnOutboxMessageResponse(
        outcome=DONE, state=PENDING
    )
    (second,) = claim(journal_stub, hub_project).messages
    assert (second.message.attempt_count, second.claim_id != first.claim_id) == (2, True)
    assert give_back(journal_stub, hub_project, second, delay=3600).outcome == DONE
    delayed = claim(journal_stub, hub_project)
    assert list(delayed.messages) == []
    assert delayed.next_available_time == committed.message("o1").available_time
    ahead = delayed.next_available_time.ToNanoseconds() - committed.message("o1").create_time.ToNanoseconds()
    assert ahead >= 3600 * 1_000_000_000


def test_a_message_is_not_given_before_its_time(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    later, now = new_message("later"), new_message("now")
    later.available_time.FromSeconds(4_000_000_000)
    committed.add(later, now)
    claimed = claim(journal_stub, hub_project)
    assert claimed_ids(claimed) == ["now"]
    assert claim(journal_stub, hub_project).next_available_time == claimed.claim_expire_time
    assert acknowledge(journal_stub, hub_project, claimed.messages[0]) == DONE
    assert claim(journal_stub, hub_project).next_available_time.ToSeconds() == 4_000_000_000
    assert committed.states() == {"later": PENDING, "now": DELIVERED}


def test_a_claim_takes_only_what_is_of_its_destination_and_as_many_as_it_wants(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(*(new_message(f"o{n}") for n in range(5)), new_message("x", "mail%"))
    assert claimed_ids(claim(journal_stub, hub_project, max_count=2)) == ["o0", "o1"]
    assert claimed_ids(claim(journal_stub, hub_project, max_count=2)) == ["o2", "o3"]
    assert claimed_ids(claim(journal_stub, hub_project, max_count=2)) == ["o4"]
    assert claimed_ids(claim(journal_stub, hub_project, "mail%")) == ["x"]
    assert claimed_ids(claim(journal_stub, hub_project, "mai")) == []


def test_a_claim_is_bounded_in_number_and_in_bytes_and_never_empty(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(*(new_message(f"o{n:03}") for n in range(120)))
    assert len(claim(journal_stub, hub_project).messages) == 100
    assert len(claim(journal_stub, hub_project, max_count=2**31 - 1).messages) == 20
    large = 1024 * 1024
    committed.add(*(new_message(f"large{n}", "bulk", payload=bytes(large)) for n in range(3)))
    for n in range(3):
        claimed = claim(journal_stub, hub_project, "bulk")
        assert claimed_ids(claimed) == [f"large{n}"]
        assert claimed.ByteSize() < 2 * large


# --- who competes ---


def test_dispatchers_that_compete_never_both_get_a_message(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    count = 60
    committed.add(*(new_message(f"o{n:02}", ordering_key="even" if n % 2 == 0 else "") for n in range(count)))
    begin = threading.Barrier(8)

    def dispatch(_number: int) -> list[str]:
        mine: list[str] = []
        begin.wait(CALL_SECONDS_MAX)
        while True:
            claimed = claim(journal_stub, hub_project, max_count=3, visible=60)
            for each in claimed.messages:
                mine.append(each.message.outbox_id)
                assert acknowledge(journal_stub, hub_project, each) == DONE
            if not claimed.messages and not claimed.HasField("next_available_time"):
                return mine

    with ThreadPoolExecutor(8) as pool:
        got = [outbox_id for mine in pool.map(dispatch, range(8)) for outbox_id in mine]
    assert Counter(got) == Counter(f"o{n:02}" for n in range(count))
    assert set(committed.states().values()) == {DELIVERED}
    assert all(each.attempt_count == 1 for each in outbox(journal_stub, hub_project))


def test_when_the_visibility_time_is_over_another_gets_the_message_and_late_answers_change_nothing(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"))
    (paused,) = claim(journal_stub, hub_project, visible=SHORT_SECONDS).messages
    (other,) = claim_when_available(journal_stub, hub_project, visible=60).messages
    assert (other.message.attempt_count, other.message.outbox_id) == (2, "o1")
    before = committed.message("o1")
    assert acknowledge(journal_stub, hub_project, paused) == CLAIM_LOST
    late = give_back(journal_stub, hub_project, paused, delay=60)
    assert late == messages.ReturnOutboxMessageResponse(outcome=CLAIM_LOST, state=CLAIMED)
    assert committed.message("o1") == before
    assert acknowledge(journal_stub, hub_project, other) == DONE
    assert acknowledge(journal_stub, hub_project, paused) == ALREADY_DELIVERED
    assert give_back(journal_stub, hub_project, paused) == messages.ReturnOutboxMessageResponse(
        outcome=ALREADY_DELIVERED, state=DELIVERED
    )


def test_an_answer_after_the_visibility_time_changes_nothing_although_nobody_else_claimed(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"))
    (claimed,) = claim(journal_stub, hub_project, visible=SHORT_SECONDS).messages
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while committed.states()["o1"] != PENDING:
        assert time.monotonic() < deadline
    assert acknowledge(journal_stub, hub_project, claimed) == CLAIM_LOST
    assert give_back(journal_stub, hub_project, claimed, delay=60).outcome == CLAIM_LOST
    assert claimed_ids(claim(journal_stub, hub_project)) == ["o1"]


def test_an_answer_with_a_claim_that_never_was_changes_nothing(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"), new_message("o2"))
    first, second = claim(journal_stub, hub_project).messages
    before = outbox(journal_stub, hub_project)
    swapped = messages.ClaimedOutboxMessage(message=first.message, claim_id=second.claim_id)
    invented = messages.ClaimedOutboxMessage(message=first.message, claim_id="invented")
    for wrong in (swapped, invented):
        assert acknowledge(journal_stub, hub_project, wrong) == CLAIM_LOST
        assert give_back(journal_stub, hub_project, wrong).outcome == CLAIM_LOST
    assert outbox(journal_stub, hub_project) == before


# --- the order of a key ---


def test_of_an_ordering_key_only_the_first_that_is_not_delivered_is_given(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(
        new_message("a1", ordering_key="a"),
        new_message("a2", ordering_key="a"),
        new_message("b1", ordering_key="b"),
        new_message("free"),
        new_message("of another destination", "other", ordering_key="a"),
    )
    committed.add(new_message("a3", ordering_key="a"))
    first = claim(journal_stub, hub_project)
    assert claimed_ids(first) == ["a1", "b1", "free"]
    assert claimed_ids(claim(journal_stub, hub_project)) == []
    assert claimed_ids(claim(journal_stub, hub_project, "other")) == ["of another destination"]
    # A failed one holds back those behind it, and nobody else.
    assert give_back(journal_stub, hub_project, first.messages[0], delay=3600).outcome == DONE
    assert acknowledge(journal_stub, hub_project, first.messages[1]) == DONE
    committed.add(new_message("b2", ordering_key="b"), new_message("free2"))
    assert claimed_ids(claim(journal_stub, hub_project)) == ["b2", "free2"]
    states = committed.states()
    assert (states["a1"], states["a2"], states["a3"]) == (PENDING, PENDING, PENDING)


def test_messages_of_a_key_are_delivered_in_the_order_of_their_creation(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    # Those created later would be available earlier.
    made = [new_message(f"o{n}", ordering_key="k") for n in range(4)]
    for n, message in enumerate(made):
        message.available_time.FromSeconds(1_000 - n)
    committed.add(*made)
    got: list[str] = []
    for _ in made:
        (each,) = claim(journal_stub, hub_project).messages
        got.append(each.message.outbox_id)
        assert acknowledge(journal_stub, hub_project, each) == DONE
    assert got == ["o0", "o1", "o2", "o3"]


def test_a_dead_message_holds_back_those_of_its_key_until_it_is_released(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("a1", ordering_key="a"), new_message("a2", ordering_key="a"), new_message("b"))
    for _ in range(TRIES_MAX):
        for each in claim(journal_stub, hub_project).messages:
            give_back(journal_stub, hub_project, each)
    assert committed.states() == {"a1": DEAD, "a2": PENDING, "b": DEAD}
    assert claimed_ids(claim(journal_stub, hub_project)) == []
    request = messages.ReleaseOutboxMessageRequest(hub_project=hub_project, outbox_id="a1")
    journal_stub.ReleaseOutboxMessage(request)
    (released,) = claim(journal_stub, hub_project).messages
    assert released.message.outbox_id == "a1"
    assert acknowledge(journal_stub, hub_project, released) == DONE
    assert claimed_ids(claim(journal_stub, hub_project)) == ["a2"]


# --- tries ---


def test_a_message_is_dead_after_its_tries_and_tried_anew_once_released(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"))
    each = messages.ClaimedOutboxMessage()
    for attempt in range(1, TRIES_MAX + 1):
        (each,) = claim(journal_stub, hub_project).messages
        assert each.message.attempt_count == attempt
        state = DEAD if attempt == TRIES_MAX else PENDING
        assert give_back(journal_stub, hub_project, each) == messages.ReturnOutboxMessageResponse(
            outcome=DONE, state=state
        )
    assert give_back(journal_stub, hub_project, each).outcome == CLAIM_LOST
    assert acknowledge(journal_stub, hub_project, each) == CLAIM_LOST
    assert (committed.states(), committed.message("o1").attempt_count) == ({"o1": DEAD}, TRIES_MAX)
    dead = claim(journal_stub, hub_project)
    assert (list(dead.messages), dead.HasField("next_available_time")) == ([], False)

    request = messages.ReleaseOutboxMessageRequest(hub_project=hub_project, outbox_id="o1")
    released = journal_stub.ReleaseOutboxMessage(request).message
    assert (released.state, released.attempt_count) == (PENDING, 0)
    assert committed.message("o1") == released
    (anew,) = claim(journal_stub, hub_project).messages
    assert (anew.message.outbox_id, anew.message.attempt_count) == ("o1", 1)
    # What is not dead is left as it is.
    assert journal_stub.ReleaseOutboxMessage(request).message == anew.message
    assert acknowledge(journal_stub, hub_project, anew) == DONE
    assert journal_stub.ReleaseOutboxMessage(request).message == committed.message("o1")
    assert committed.states() == {"o1": DELIVERED}


def test_a_message_whose_claims_nobody_answers_is_dead_after_its_tries_too(
    journal_stub: JournalServiceStub, hub_project: str, committed: Outbox
) -> None:
    committed.add(new_message("o1"), new_message("behind", ordering_key="k"))
    seen: list[int] = []
    for _ in range(TRIES_MAX):
        for each in claim_when_available(journal_stub, hub_project, visible=0.001).messages:
            if each.message.outbox_id == "behind":
                acknowledge(journal_stub, hub_project, each)
            else:
                seen.append(each.message.attempt_count)
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while committed.states()["o1"] != DEAD:
        claimed = claim(journal_stub, hub_project, visible=0.001)
        seen += [each.message.attempt_count for each in claimed.messages if each.message.outbox_id == "o1"]
        assert time.monotonic() < deadline
    assert seen == list(range(1, TRIES_MAX + 1))
    assert committed.message("o1").attempt_count == TRIES_MAX


# --- what is not there, and what is about something else ---


@pytest.mark.parametrize("method", ["acknowledge", "return", "release"])
def test_a_message_that_never_was_is_not_found(
    journal_stub: JournalServiceStub, hub_project: str, *, committed: Outbox, method: str
) -> None:
    committed.add(new_message("o1"))
    before = outbox(journal_stub, hub_project)
    unknown = messages.ClaimedOutboxMessage(message=messages.OutboxMessage(outbox_id="o"), claim_id="c")
    calls = {
        "acknowledge": lambda: acknowledge(journal_stub, hub_project, unknown),
        "return": lambda: give_back(journal_stub, hub_project, unknown),
        "release": lambda: journal_stub.ReleaseOutboxMessage(
            messages.ReleaseOutboxMessageRequest(hub_project=hub_project, outbox_id="o")
        ),
    }
    refusal = refusal_of(calls[method])
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert refusal.metadata == {"outboxId": "o"}
    assert outbox(journal_stub, hub_project) == before


def test_a_message_may_be_about_an_event_of_an_earlier_commit(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    one, other = leased(lease_stub, hub_project), leased(lease_stub, hub_project, "other")
    commit(journal_stub, commit_request(hub_project, one, events=new_events("e", 1)))
    about = [new_message("o1", event_id="e1"), new_message("o2", event_id="e1")]
    request = commit_request(hub_project, other, message_id="m2", stream_id="other", outbox_messages=about)
    commit(journal_stub, request)
    claimed = claim(journal_stub, hub_project).messages
    assert [(each.message.event_id, each.message.stream_id) for each in claimed] == [("e1", "other")] * 2
