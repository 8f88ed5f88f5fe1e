"""Which states of a resource can follow an operation that ended as it did."""

from dataclasses import replace
from typing import Final

from tests.robustness.lease_history import Answer, Call, Operation, Outcome, Reason
from tests.robustness.lease_rules import Possible, possibilities
from tests.robustness.lease_state import FOREVER, Span, State, Tenure

READS: Final = frozenset({Call.CHECK, Call.STATE, Call.HUB_TIME})
"""Calls that change nothing and are not ordered with those that do by the hub."""
EXPIRED: Final = "EXPIRED"
LIVE: Final = ("LIVE", "UNCLAIMED")


def step(state: State, operation: Operation, *, bounds: Span, excuses: frozenset[str]) -> tuple[State, ...]:
    """Return every state that can follow; none where the operation cannot end so here.

    ``bounds``: what is known otherwise of the hub's time at the operation. ``excuses``: reasons of
    refusal that are explained by what one resource's state does not have, such as a queue.
    """
    now = bounds.within(state.now_low, FOREVER)
    told = told_now(operation)
    if now is not None and told is not None:
        now = now.within(told, told)
    if now is None:
        return ()
    if operation.reason in excuses:
        return (replace(state, now_low=now.low),)
    found: list[State] = []
    for possible in possibilities(state, operation, now=now):
        after = _after(state, operation, possible=possible)
        if after is not None and operation.call in READS:
            after = _as_read(state, after, operation)
        if after is not None and after not in found:
            found.append(after)
    return tuple(found)


def told_now(operation: Operation) -> int | None:
    """Return the hub's time at the operation where its answer tells it."""
    answer = operation.answer
    if operation.outcome != Outcome.OK or answer.is_replayed:
        return None
    match operation.call:
        case Call.ACQUIRE | Call.TAKEOVER | Call.RENEW | Call.TRANSFER:
            return answer.renew_nanos
        case Call.BEGIN_MAINTENANCE | Call.RENEW_MAINTENANCE:
            assert answer.expire_nanos is not None
            assert answer.ttl_nanos is not None
            return answer.expire_nanos - answer.ttl_nanos
        case Call.HUB_TIME:
            return answer.hub_nanos
        case _:
            return None


def told_span(operation: Operation) -> Span:
    """Return between which moments the hub's time was at an operation, as far as its answer tells."""
    now, answer = told_now(operation), operation.answer
    if now is not None:
        return Span(now, now)
    if operation.outcome == Outcome.UNKNOWN or answer.is_replayed or answer.expire_nanos is None:
        return Span()
    if answer.state == EXPIRED or operation.reason == Reason.EXPIRED:
        return Span(low=answer.expire_nanos)
    is_live = (
        answer.state in LIVE
        or answer.cause == ""
        or operation.reason in (Reason.HELD, Reason.UNDER_MAINTENANCE)
    )
    return Span(high=answer.expire_nanos - 1) if is_live else Span()


def _as_read(before: State, after: State, operation: Operation) -> State:
    """Return the state after a read.

    A read sees what was committed, at a time that a change under way may not have had yet. But an expiry
    that was told is for good.
    """
    answer = operation.answer
    is_expired = answer.state == EXPIRED or answer.cause == Reason.EXPIRED
    if not is_expired or after.tenure is None:
        return replace(after, now_low=before.now_low)
    return replace(after, now_low=max(before.now_low, after.tenure.expire.low))


def _after(state: State, operation: Operation, *, possible: Possible) -> State | None:
    """Return the state that follows if this possibility is what happened, None if it is not."""
    answer = operation.answer
    after = possible.state
    if operation.outcome == Outcome.UNKNOWN:
        is_effect = possible.reason == "" and after != state
        return replace(after, now_low=possible.now.low) if is_effect else None
    told = answer.cause if operation.call == Call.CHECK else operation.reason
    if possible.reason != told:
        return None
    if answer.is_renewed is not None and answer.is_renewed != possible.is_renewed:
        return None
    if operation.call == Call.STATE and (answer.token, answer.epoch) != (after.token, after.epoch):
        return None
    if after.tenure is None:
        return replace(after, now_low=possible.now.low)
    narrowed = _agreeing(after.tenure, answer)
    if narrowed is None:
        return None
    # A told expiry tells when the last renewal was: not after now.
    now = possible.now.within(narrowed.expire.low - narrowed.ttl_nanos, FOREVER)
    return None if now is None else replace(after, tenure=narrowed, now_low=now.low)


def _agreeing(tenure: Tenure, answer: Answer) -> Tenure | None:
    """Return the tenure narrowed to what an answer tells of it, None where they disagree."""
    pairs = (
        (answer.token, tenure.token),
        (answer.epoch, tenure.epoch),
        (answer.runtime_id, tenure.runtime_id),
        (answer.holder_id, tenure.holder_id),
        (answer.ttl_nanos, tenure.ttl_nanos),
        (answer.abort_reason, tenure.abort_reason),
        (answer.is_maintenance, tenure.is_maintenance),
    )
    if any(told is not None and told != known for told, known in pairs):
        return None
    acquire: Span | None = tenure.acquire
    expire: Span | None = tenure.expire
    if answer.acquire_nanos is not None and acquire is not None:
        acquire = acquire.within(answer.acquire_nanos, answer.acquire_nanos)
    if answer.expire_nanos is not None and expire is not None:
        expire = expire.within(answer.expire_nanos, answer.expire_nanos)
    if acquire is None or expire is None:
        return None
    return replace(tenure, acquire=acquire, expire=expire)
