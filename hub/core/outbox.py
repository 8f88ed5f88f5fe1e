"""Messages that a commit leaves to be delivered: claimed, acknowledged, returned, dead, released.

Pure decisions on (message, request, now), in hub time. A claim hides a message until its visibility time
is over; only an answer with the claim that hides it now changes anything.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from hub.core.journal import MessageId, OutboxId, StreamId


class OutboxState(StrEnum):
    """Where a message stands at a moment."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    DEAD = "DEAD"
    DELIVERED = "DELIVERED"


class OutboxOutcome(StrEnum):
    """What an answer about a claimed message changed."""

    DONE = "DONE"
    ALREADY_DELIVERED = "ALREADY_DELIVERED"
    CLAIM_LOST = "CLAIM_LOST"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message as it is stored.

    ``available_nanos`` is when it may be claimed; of a claimed one, when its claim is over. ``claim_id``
    is empty where nobody has claimed it since it was last returned; ``event_id`` and ``ordering_key`` may
    be empty; ``deliver_nanos`` is None until it is acknowledged.
    """

    outbox_id: OutboxId
    event_id: str
    destination: str
    ordering_key: str
    payload: bytes
    available_nanos: int
    create_nanos: int
    stream_id: StreamId
    message_id: MessageId
    attempt_count: int = 0
    claim_id: str = ""
    is_dead: bool = False
    deliver_nanos: int | None = None

    def state(self, now_nanos: int) -> OutboxState:
        """Return where it stands."""
        if self.deliver_nanos is not None:
            return OutboxState.DELIVERED
        if self.is_dead:
            return OutboxState.DEAD
        if self.claim_id and now_nanos < self.available_nanos:
            return OutboxState.CLAIMED
        return OutboxState.PENDING


class Answered(NamedTuple):
    """A message after an answer about it, and what that changed."""

    message: OutboxMessage
    outcome: OutboxOutcome


def decide_claim(
    message: OutboxMessage, now_nanos: int, *, claim_id: str, visible_nanos: int, tries_max: int
) -> OutboxMessage:
    """Return a message that is available as claimed, its try counted; dead where it was tried too often."""
    assert message.state(now_nanos) is OutboxState.PENDING, message.outbox_id
    assert message.available_nanos <= now_nanos, message.outbox_id
    if message.attempt_count >= tries_max:
        return replace(message, is_dead=True, claim_id="")
    return replace(
        message,
        attempt_count=message.attempt_count + 1,
        claim_id=claim_id,
        available_nanos=now_nanos + visible_nanos,
    )


def decide_acknowledge(message: OutboxMessage, now_nanos: int, *, claim_id: str) -> Answered:
    """Return a message as delivered, where this claim hides it."""
    refused = _refused(message, now_nanos, claim_id=claim_id)
    if refused is not None:
        return refused
    return Answered(replace(message, deliver_nanos=now_nanos, claim_id=""), OutboxOutcome.DONE)


def decide_return(
    message: OutboxMessage, now_nanos: int, *, claim_id: str, delay_nanos: int, tries_max: int
) -> Answered:
    """Return a message as available after a delay, or dead after its tries, where this claim hides it."""
    refused = _refused(message, now_nanos, claim_id=claim_id)
    if refused is not None:
        return refused
    returned = replace(
        message,
        claim_id="",
        available_nanos=now_nanos + delay_nanos,
        is_dead=message.attempt_count >= tries_max,
    )
    return Answered(returned, OutboxOutcome.DONE)


def decide_release(message: OutboxMessage, now_nanos: int) -> OutboxMessage:
    """Return a dead message as available now, its tries counted anew; any other as it is."""
    if message.state(now_nanos) is not OutboxState.DEAD:
        return message
    return replace(message, is_dead=False, attempt_count=0, available_nanos=now_nanos)


def _refused(message: OutboxMessage, now_nanos: int, *, claim_id: str) -> Answered | None:
    """Return what an answer gets that changes nothing, None where its claim hides the message."""
    state = message.state(now_nanos)
    if state is OutboxState.DELIVERED:
        return Answered(message, OutboxOutcome.ALREADY_DELIVERED)
    if state is not OutboxState.CLAIMED or message.claim_id != claim_id:
        return Answered(message, OutboxOutcome.CLAIM_LOST)
    return None
