"""The checker of journals itself: what is good passes, and each kind of bad history is seen."""

from collections.abc import Callable
from copy import deepcopy
from typing import Final

import pytest

from synchub.v1 import journal_service_pb2 as messages
from tests.robustness.journal_checker import (
    Acknowledgement,
    Attempt,
    Delivery,
    History,
    Outcome,
    Stored,
    check_journal,
    folded,
    projection_of,
)

DELIVERED: Final = messages.OUTBOX_MESSAGE_STATE_DELIVERED
PENDING: Final = messages.OUTBOX_MESSAGE_STATE_PENDING


def attempt(name: str, revision: int, *, outcome: Outcome = Outcome.COMMITTED) -> Attempt:
    """A commit of two events at a revision, with a message of one ordering key about the first."""
    events = [messages.NewJournalEvent(event_id=f"{name}{n}", payload=b"x") for n in (1, 2)]
    outbox_message = messages.NewOutboxMessage(
        outbox_id=f"{name}-o", event_id=f"{name}1", destination="d", ordering_key="k", payload=b"y"
    )
    request = messages.CommitRequest(
        message_id=name,
        stream_id="s",
        expected_revision=revision,
        events=events,
        outbox_messages=[outbox_message],
        reply=b"r",
    )
    result = messages.CommitResponse(
        previous_revision=revision,
        revision=revision + 2,
        positions=[revision + 1, revision + 2],
        reply=b"r",
    )
    return Attempt(request, outcome, result if outcome is Outcome.COMMITTED else None)


def stored_of(*attempts: Attempt) -> Stored:
    """A hub that has all of these, in this order, every message delivered."""
    events: list[messages.JournalEvent] = []
    outbox_messages: list[messages.OutboxMessage] = []
    for each in attempts:
        request = each.request
        for event in request.events:
            place = len(events) + 1
            events.append(
                messages.JournalEvent(
                    stream_id="s",
                    revision=place,
                    position=place,
                    event_id=event.event_id,
                    payload=event.payload,
                    message_id=request.message_id,
                    fencing_token=1,
                )
            )
        outbox_messages += [
            messages.OutboxMessage(
                outbox_id=message.outbox_id,
                event_id=message.event_id,
                destination=message.destination,
                ordering_key=message.ordering_key,
                payload=message.payload,
                message_id=request.message_id,
                state=DELIVERED,
            )
            for message in request.outbox_messages
        ]
    projection = messages.Projection(revision=len(events), value=folded(b"", events))
    return Stored(events, {"s": len(events)}, outbox_messages, {projection_of("s"): projection})


class Whole:
    """A good history of three commits, of which the second is unknown and is there, the third refused."""

    def __init__(self) -> None:
        attempts = [
            attempt("a", 0),
            attempt("b", 2, outcome=Outcome.UNKNOWN),
            attempt("c", 4, outcome=Outcome.REFUSED),
        ]
        deliveries = [Delivery("a-o", b"y", 1.0, 2.0), Delivery("b-o", b"y", 4.0, 5.0)]
        acknowledgements = [Acknowledgement("a-o", 3.0), Acknowledgement("b-o", 6.0)]
        self.history = History(attempts, deliveries, acknowledgements)
        self.stored = deepcopy(stored_of(*attempts[:2]))

    def kinds(self) -> set[str]:
        return {fault.split(":")[0] for fault in check_journal(self.history, self.stored)}


def test_a_good_history_has_no_faults() -> None:
    assert check_journal(Whole().history, Whole().stored) == []


def test_what_is_unknown_may_be_missing_as_a_whole() -> None:
    whole = Whole()
    whole.stored = stored_of(whole.history.attempts[0])
    whole.history.deliveries.pop()
    whole.history.acknowledgements.pop()
    assert whole.kinds() == set()


def _lost(whole: Whole) -> None:
    whole.stored = stored_of(whole.history.attempts[1])


def _store_what_was_refused(whole: Whole) -> None:
    whole.stored = stored_of(*whole.history.attempts)


def _leave_half(whole: Whole) -> None:
    stored = whole.stored
    whole.stored = Stored(stored.events[:3], {"s": 3}, stored.outbox_messages, stored.projections)


def _deliver_twice(whole: Whole) -> None:
    whole.history.acknowledgements.append(Acknowledgement("b-o", 6.5))


def _event(whole: Whole, number: int) -> messages.JournalEvent:
    return whole.stored.events[number]


FAULTS: Final[dict[str, tuple[Callable[[Whole], object], set[str]]]] = {
    "a commit that was answered is gone": (_lost, {"lost", "half or changed", "delivery changed"}),
    "a refused one is there": (_store_what_was_refused, {"refused and stored", "message lost"}),
    "one that nobody made": (lambda whole: whole.history.attempts.pop(1), {"unexpected"}),
    "half of the events": (_leave_half, {"half or changed", "projection"}),
    "another payload": (
        lambda whole: _event(whole, 2).MergeFrom(messages.JournalEvent(payload=b"z")),
        {"half or changed", "projection"},
    ),
    "a hole in the revisions": (
        lambda whole: _event(whole, 3).MergeFrom(messages.JournalEvent(revision=5)),
        {"revisions", "half or changed"},
    ),
    "a hole in the positions": (
        lambda whole: _event(whole, 3).MergeFrom(messages.JournalEvent(position=5)),
        {"positions"},
    ),
    "a token that falls": (
        lambda whole: _event(whole, 0).MergeFrom(messages.JournalEvent(fencing_token=2)),
        {"tokens"},
    ),
    "a message without its commit's mark": (
        lambda whole: whole.stored.outbox_messages[0].MergeFrom(messages.OutboxMessage(message_id="b")),
        {"half or changed"},
    ),
    "a projection left behind": (
        lambda whole: whole.stored.projections[projection_of("s")].MergeFrom(messages.Projection(revision=2)),
        {"projection"},
    ),
    "another answer": (
        lambda whole: whole.history.attempts[0].result.MergeFrom(messages.CommitResponse(revision=9)),  # type: ignore[union-attr]
        {"answered otherwise"},
    ),
    "a message that waits for ever": (
        lambda whole: whole.stored.outbox_messages[0].MergeFrom(messages.OutboxMessage(state=PENDING)),
        {"not delivered"},
    ),
    "a message that nobody got": (lambda whole: whole.history.deliveries.pop(), {"message lost"}),
    "a message changed on its way": (
        lambda whole: whole.history.deliveries.append(Delivery("a-o", b"z", 1.0, 2.0)),
        {"delivery changed"},
    ),
    "delivered twice": (_deliver_twice, {"acknowledged twice"}),
    "given again": (
        lambda whole: whole.history.deliveries.append(Delivery("a-o", b"y", 7.0, 8.0)),
        {"given after it was delivered"},
    ),
    "the second before the first": (
        lambda whole: whole.history.deliveries.insert(0, Delivery("b-o", b"y", 0.5, 0.7)),
        {"out of order"},
    ),
}


@pytest.mark.parametrize(("spoil", "kinds"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_seen(spoil: Callable[[Whole], object], kinds: set[str]) -> None:
    whole = Whole()
    spoil(whole)
    assert whole.kinds() == kinds
