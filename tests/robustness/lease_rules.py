"""What each call may come to on one resource: the rules of leases, written a second time for the tests.

Nothing of the hub is used here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.robustness.lease_history import Answer, Arguments, Call, Operation, Reason
from tests.robustness.lease_state import NONCES_REMEMBERED, Span, State, Tenure, assume_expired, assume_live

SECOND: Final = 1_000_000_000
TTL_MIN: Final = 1 * SECOND
TTL_MAX: Final = 3600 * SECOND
LEASE_TTL_DEFAULT: Final = 10 * SECOND
MAINTENANCE_TTL_DEFAULT: Final = 30 * SECOND
EXTERNAL: Final = "EXTERNAL"


@dataclass(frozen=True, slots=True)
class Possible:
    """What an operation may come to: with an empty reason it is done."""

    reason: str
    state: State
    now: Span
    is_renewed: bool = False


def possibilities(state: State, operation: Operation, *, now: Span) -> Iterator[Possible]:
    arguments = operation.arguments
    match operation.call:
        case Call.ACQUIRE:
            yield from _acquire(state, arguments, now=now)
        case Call.TAKEOVER:
            yield from _takeover(state, arguments, now=now)
        case Call.RENEW:
            yield from _renew(state, arguments, now=now, of_maintenance=False)
        case Call.RENEW_MAINTENANCE:
            yield from _renew(state, arguments, now=now, of_maintenance=True)
        case Call.RELEASE:
            yield from _give_back(state, arguments, now=now, of_maintenance=False)
        case Call.FINISH_MAINTENANCE:
            yield from _give_back(state, arguments, now=now, of_maintenance=True)
        case Call.TRANSFER:
            yield from _transfer(state, arguments, now=now)
        case Call.ABORT:
            yield from _abort(state, arguments, now=now)
        case Call.CHECK:
            yield from _check(state, arguments, now=now)
        case Call.BEGIN_MAINTENANCE:
            yield from _begin_maintenance(state, arguments, now=now)
        case Call.STATE:
            yield from _read(state, operation.answer, now=now)
        case Call.UNDELIVERED:
            yield from _undelivered(state, arguments, now=now)
        case Call.HUB_TIME:
            yield Possible("", state, now)


def _acquire(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    if arguments.nonce in state.ended_nonces:
        yield Possible(Reason.SUPERSEDED, state, now)
    live = assume_live(state, now)
    if live is not None:
        yield from _acquire_live(live[0], arguments, now=live[1])
    for free, when in _not_live(state, now):
        yield _opened(free, arguments, now=when)


def _acquire_live(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure = state.tenure
    assert tenure is not None
    if tenure.is_maintenance:
        yield Possible(Reason.UNDER_MAINTENANCE, state, now)
    elif not tenure.is_holder(arguments):
        yield Possible(Reason.HELD, state, now)
    elif tenure.nonce == arguments.nonce or (not tenure.nonce and arguments.nonce not in state.ended_nonces):
        # Its own again, or the first claim of what was handed to it.
        renewed = _renewed(state, granted_ttl(arguments.ttl_nanos, otherwise=LEASE_TTL_DEFAULT), now=now)
        assert renewed.tenure is not None
        claimed = replace(renewed, tenure=replace(renewed.tenure, nonce=arguments.nonce))
        yield Possible("", claimed, now, is_renewed=True)
    else:
        yield _opened(state, arguments, now=now)


def _takeover(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure = state.tenure
    if arguments.nonce in state.ended_nonces:
        yield Possible(Reason.SUPERSEDED, state, now)
    if tenure is None or tenure.has_ended:
        yield Possible(Reason.MISSING, state, now)
        return
    live, expired = assume_live(state, now), assume_expired(state, now)
    if live is not None:
        yield Possible(Reason.UNDER_MAINTENANCE if tenure.is_maintenance else Reason.HELD, *live)
    if expired is not None and tenure.is_maintenance:
        yield Possible(Reason.MISSING, *expired)
    elif expired is not None:
        yield _opened(expired[0], arguments, now=expired[1])


def _renew(state: State, arguments: Arguments, *, now: Span, of_maintenance: bool) -> Iterator[Possible]:
    for reason, known, when in _credential(state, arguments, now=now, of_maintenance=of_maintenance):
        tenure = known.tenure
        if reason or tenure is None:
            yield Possible(reason, known, when)
        else:
            ttl_nanos = granted_ttl(arguments.ttl_nanos, otherwise=tenure.ttl_nanos)
            yield Possible("", _renewed(known, ttl_nanos, now=when), when)


def _give_back(state: State, arguments: Arguments, *, now: Span, of_maintenance: bool) -> Iterator[Possible]:
    for reason, known, when in _credential(state, arguments, now=now, of_maintenance=of_maintenance):
        # What expired and nobody took is given back too.
        if reason in ("", Reason.EXPIRED):
            yield Possible("", _ended(known), when)
        else:
            yield Possible(reason, known, when)


def _transfer(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    live = assume_live(state, now)
    is_maintained = state.tenure is not None and state.tenure.is_maintenance
    if live is not None and is_maintained and arguments.token >= state.fence:
        yield Possible(Reason.UNDER_MAINTENANCE, *live)
    for reason, known, when in _credential(state, arguments, now=now, of_maintenance=False):
        tenure = known.tenure
        if reason or tenure is None:
            yield Possible(reason, known, when)
            continue
        ttl_nanos = granted_ttl(arguments.ttl_nanos, otherwise=tenure.ttl_nanos)
        next_one = Arguments(arguments.next_runtime_id, arguments.next_holder_id, ttl_nanos=ttl_nanos)
        yield _opened(known, next_one, now=when)


def _abort(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure, token = state.tenure, arguments.token
    if 0 < token < state.fence:
        yield Possible(Reason.FENCED, state, now)
    elif tenure is None or tenure.has_ended:
        yield Possible(Reason.MISSING, state, now)
    elif token not in (0, tenure.token):
        yield Possible(Reason.SUPERSEDED, state, now)
    else:
        live, expired = assume_live(state, now), assume_expired(state, now)
        if expired is not None:
            # A maintenance has no flag; the rules do not say which of the two it is then.
            yield Possible(Reason.MISSING if tenure.is_maintenance else Reason.EXPIRED, *expired)
        if live is not None and tenure.is_maintenance:
            yield Possible(Reason.UNDER_MAINTENANCE, *live)
        elif live is not None and live[0].tenure is not None:
            is_kept = tenure.abort_reason == EXTERNAL
            reason = EXTERNAL if is_kept else arguments.abort_reason
            yield Possible("", replace(live[0], tenure=replace(live[0].tenure, abort_reason=reason)), live[1])


def _check(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure, token = state.tenure, arguments.token
    if token < state.fence:
        yield Possible(Reason.FENCED, state, now)
    elif tenure is None or tenure.has_ended:
        yield Possible(Reason.MISSING, state, now)
    elif token != tenure.token or not tenure.nonce or arguments.nonce not in ("", tenure.nonce):
        yield Possible(Reason.SUPERSEDED, state, now)
    else:
        live, expired = assume_live(state, now), assume_expired(state, now)
        if live is not None:
            yield Possible("", *live)
        if expired is not None:
            yield Possible(Reason.EXPIRED, *expired)


def _begin_maintenance(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure = state.tenure
    ttl_nanos = granted_ttl(arguments.ttl_nanos, otherwise=MAINTENANCE_TTL_DEFAULT)
    begun = replace(arguments, ttl_nanos=ttl_nanos)
    if tenure is None or tenure.has_ended or not tenure.is_maintenance:
        # Whether a lease still lives or not: it ends here.
        yield _opened(state, begun, now=now, is_maintenance=True)
        return
    live, expired = assume_live(state, now), assume_expired(state, now)
    if live is not None and tenure.is_holder(arguments) and tenure.nonce == arguments.nonce:
        yield Possible("", _renewed(live[0], ttl_nanos, now=live[1]), live[1])
    elif live is not None:
        yield Possible(Reason.UNDER_MAINTENANCE, *live)
    if expired is not None:
        yield _opened(expired[0], begun, now=expired[1], is_maintenance=True)


def _read(state: State, answer: Answer, *, now: Span) -> Iterator[Possible]:
    tenure = state.tenure
    live, expired = assume_live(state, now), assume_expired(state, now)
    if tenure is None:
        told, found = "", (state, now)
    elif tenure.has_ended:
        told, found = "RELEASED", (state, now)
    elif answer.state == "EXPIRED" and expired is not None:
        told, found = "EXPIRED", expired
    elif live is not None:
        told, found = "LIVE" if tenure.nonce else "UNCLAIMED", live
    else:
        return
    if answer.state in (None, told):
        yield Possible("", *found)


def _undelivered(state: State, arguments: Arguments, *, now: Span) -> Iterator[Possible]:
    tenure = state.tenure
    if tenure is not None and tenure.is_holder(arguments) and tenure.nonce == arguments.nonce:
        yield Possible("", _ended(state), now)


def granted_ttl(wanted_nanos: int, *, otherwise: int) -> int:
    """Return how long a renewal lasts when so much was wanted."""
    return min(max(wanted_nanos or otherwise, TTL_MIN), TTL_MAX)


def _credential(
    state: State, arguments: Arguments, *, now: Span, of_maintenance: bool
) -> Iterator[tuple[str, State, Span]]:
    """Tell how a credential may stand: the reason why it does not count, empty where it does."""
    tenure = state.tenure
    if arguments.token < state.fence:
        yield Reason.FENCED, state, now
    elif tenure is None or tenure.has_ended:
        yield Reason.MISSING, state, now
    elif not tenure.is_credential(arguments):
        yield Reason.SUPERSEDED, state, now
    elif of_maintenance and not tenure.is_maintenance:
        yield Reason.MISSING, state, now
    else:
        live, expired = assume_live(state, now), assume_expired(state, now)
        is_lease_call = tenure.is_maintenance and not of_maintenance
        if live is not None:
            yield (Reason.UNDER_MAINTENANCE if is_lease_call else "", *live)
        if expired is not None:
            yield (Reason.MISSING if is_lease_call else Reason.EXPIRED, *expired)


def _not_live(state: State, now: Span) -> Iterator[tuple[State, Span]]:
    """Tell how nobody may hold the resource now."""
    if state.tenure is None or state.tenure.has_ended:
        yield state, now
        return
    expired = assume_expired(state, now)
    if expired is not None:
        yield expired


def _opened(state: State, arguments: Arguments, *, now: Span, is_maintenance: bool = False) -> Possible:
    """Return the state with a new tenure of the caller's; the one before it is over.

    A nonce opens one tenure: with that of one that is over nothing is opened.
    """
    nonces = _remembered(state)
    if arguments.nonce in nonces:
        return Possible(Reason.SUPERSEDED, state, now)
    ttl_nanos = granted_ttl(arguments.ttl_nanos, otherwise=LEASE_TTL_DEFAULT)
    token, epoch = state.token + 1, state.epoch + is_maintenance
    tenure = Tenure(
        token=token,
        epoch=epoch,
        runtime_id=arguments.runtime_id,
        holder_id=arguments.holder_id,
        nonce=arguments.nonce,
        ttl_nanos=ttl_nanos,
        acquire=now,
        expire=Span(now.low + ttl_nanos, now.high + ttl_nanos),
        is_maintenance=is_maintenance,
    )
    fence = token if is_maintenance else state.fence
    return Possible(
        "", replace(state, token=token, epoch=epoch, fence=fence, tenure=tenure, ended_nonces=nonces), now
    )


def _renewed(state: State, ttl_nanos: int, *, now: Span) -> State:
    assert state.tenure is not None
    expire = Span(now.low + ttl_nanos, now.high + ttl_nanos)
    return replace(state, tenure=replace(state.tenure, ttl_nanos=ttl_nanos, expire=expire))


def _ended(state: State) -> State:
    assert state.tenure is not None
    return replace(state, tenure=replace(state.tenure, has_ended=True), ended_nonces=_remembered(state))


def _remembered(state: State) -> tuple[str, ...]:
    """Return the nonces that open nothing any more, with the last tenure's."""
    if state.tenure is None or not state.tenure.nonce or state.tenure.nonce in state.ended_nonces:
        return state.ended_nonces
    return (*state.ended_nonces, state.tenure.nonce)[-NONCES_REMEMBERED:]
