"""Holds a recorded history of leases against what is promised, and names what must not be.

``check_history`` looks for an order of each resource's operations that the rules allow. The promises
that have a name are looked at besides, each by itself, so that a fault says what is wrong.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.robustness.lease_history import Call, History, Operation, Outcome, Reason
from tests.robustness.lease_model import READS, step, told_now
from tests.robustness.lease_promises import (
    OPENING,
    UNDER_A_TOKEN,
    check_hub_time,
    check_old_tokens,
    check_queue,
    check_tenures,
    check_tokens,
    name_of,
)
from tests.robustness.lease_requests import Merged, as_one_operation_each
from tests.robustness.lease_state import Span, State
from tests.robustness.lease_times import Times, jumps_at_starts
from tests.robustness.linearizability import STEPS_MAX, Interval, Rising, Search

GIVEN_BACK: Final = frozenset({Call.ACQUIRE, Call.TAKEOVER, Call.BEGIN_MAINTENANCE})
LEASE_REASONS: Final = frozenset(Reason)
NOT_REACHED: Final = "not reached"
"""The kind of fault by which a run says nothing of what it was to test."""
WAIT_NANOS_MIN: Final = 50_000_000
"""A call that was queued for less did not wait for anybody."""
SHOWN_MAX: Final = 12
"""Of what could not follow, how many operations a fault names."""


@dataclass(slots=True)
class Verdict:
    """What was found: faults by their kind, and how often what was reached."""

    found: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    """How many tries the search took."""

    @property
    def faults(self) -> list[str]:
        """Everything that must not be."""
        return [f"{kind}: {what}" for kind, found in self.found.items() for what in found]

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, found in self.found.items() if found}

    def add(self, kind: str, found: Iterable[str]) -> None:
        self.found.setdefault(kind, []).extend(found)


def check_history(history: History, *, must_reach: Iterable[str] = ()) -> Verdict:
    """Check everything; ``must_reach``: counts that may not be 0, else nothing was tested."""
    verdict, times = Verdict(), Times(history)
    verdict.add("hub time", check_hub_time(history.operations, times))
    for resource in sorted({operation.resource for operation in history.operations} - {""}):
        operations = [each for each in history.operations if each.resource == resource]
        merged = as_one_operation_each(operations, times)
        verdict.add("request id", merged.faults)
        verdict.counts["unknown that took effect"] += merged.done_unheard_count
        verdict.add("two tenures at once", check_tenures(merged.operations))
        verdict.add("token or epoch fell", check_tokens(merged.operations))
        verdict.add("success under an old token", check_old_tokens(merged.operations))
        verdict.add("queue", check_queue(operations))
        _check_order(operations, merged, times=times, verdict=verdict)
    _count(history, verdict.counts)
    verdict.counts["hub time ahead at a start"] = jumps_at_starts(history.operations, times)
    verdict.add(NOT_REACHED, (name for name in must_reach if not verdict.counts[name]))
    return verdict


def _check_order(raw: Sequence[Operation], merged: Merged, *, times: Times, verdict: Verdict) -> None:
    """Look for an order of one resource's operations that the rules allow."""
    resource = raw[0].resource
    timed = [
        *((each, merged.last_nanos[each.number]) for each in merged.operations if _is_told_by_rules(each)),
        *((each, times.last_nanos(each)) for each in _given_back(raw)),
    ]
    # What was sent when no hub was there, and had failed before one was, did nothing.
    timed = [(each, last) for each, last in timed if last >= each.invoke_nanos]
    operations, last_nanos = [each for each, _ in timed], [last for _, last in timed]
    bounds = [times.bounds(each, last) for each, last in timed]
    excuses = _excuses(operations, last_nanos)
    told_tokens = {each.answer.token for each in operations if _is_first_told(each)}

    def next_states(state: State, number: int) -> Sequence[State]:
        operation = operations[number]
        is_unknown = operation.outcome == Outcome.UNKNOWN
        if is_unknown and _is_surely_nothing(state, operation, told_tokens=told_tokens):
            return ()
        states = step(state, operation, bounds=bounds[number], excuses=excuses[number])
        if not is_unknown:
            return states
        # What one operation was told to have is not another's.
        return [each for each in states if each.token == state.token or each.token not in told_tokens]

    search: Search[State] = Search(
        [
            Interval(each.invoke_nanos, last, each.outcome == Outcome.UNKNOWN)
            for each, last in zip(operations, last_nanos, strict=True)
        ],
        next_states,
        lambda number: operations[number].return_nanos,
        _rising(operations, bounds),
    )
    search.run(State())
    verdict.steps += search.steps
    if search.is_found:
        _count_states([operations[number] for number, _ in search.path], search, verdict.counts)
    elif search.steps > STEPS_MAX:
        verdict.add("not decided", [f"{resource}: after {search.steps} steps"])
    else:
        verdict.add("no order explains it", [_stuck_text(resource, operations, search)])


def _is_surely_nothing(state: State, operation: Operation, *, told_tokens: Container[int | None]) -> bool:
    """Tell what needs no rules: that an operation changes nothing here, or would have another's token."""
    tenure, arguments = state.tenure, operation.arguments
    if operation.call == Call.UNDELIVERED:
        return tenure is None or tenure.nonce != arguments.nonce
    if operation.call in UNDER_A_TOKEN and (tenure is None or tenure.token != arguments.token):
        return True
    is_own = tenure is not None and tenure.is_holder(arguments)
    return operation.call in OPENING and not is_own and state.token + 1 in told_tokens


def _rising(operations: Sequence[Operation], bounds: Sequence[Span]) -> list[Rising[State]]:
    """Return what only grows: tokens, epochs, how many of the tokens were leases', and hub time."""
    tokens: list[int | None] = []
    epochs: list[int | None] = []
    leases: list[int | None] = []
    for operation in operations:
        token, epoch = operation.answer.token, operation.answer.epoch
        # Before an operation that opens a lease the numbers are lower by its own.
        own = _is_first_told(operation)
        tokens.append(None if token is None else token - own)
        epochs.append(epoch)
        leases.append(None if token is None or epoch is None else token - epoch - own)
    nows = [
        None if each.call in READS else told_now(each) or bound.high
        for each, bound in zip(operations, bounds, strict=True)
    ]
    return [
        Rising(lambda state: state.token, tokens),
        Rising(lambda state: state.epoch, epochs),
        Rising(lambda state: state.token - state.epoch, leases),
        Rising(lambda state: state.now_low, nows),
    ]


def _is_told_by_rules(operation: Operation) -> bool:
    """Tell whether the rules of a resource say anything of an operation that ended so."""
    if operation.outcome == Outcome.UNKNOWN:
        return operation.call not in READS
    return operation.outcome == Outcome.OK or operation.reason in LEASE_REASONS


def _is_first_told(operation: Operation) -> bool:
    """Tell whether an operation surely gave the token that it tells, so that no other one did."""
    is_opening = operation.call in (Call.ACQUIRE, Call.TAKEOVER, Call.TRANSFER)
    return is_opening and operation.outcome == Outcome.OK and not operation.answer.is_renewed


def _given_back(operations: Iterable[Operation]) -> list[Operation]:
    """Return, for each call whose answer was lost, that its grant may be given back, as undelivered."""
    return [
        replace(each, call=Call.UNDELIVERED)
        for each in operations
        if each.outcome == Outcome.UNKNOWN and each.call in GIVEN_BACK
    ]


def _excuses(operations: Sequence[Operation], last_nanos: Sequence[int]) -> list[frozenset[str]]:
    """Tell which refusals come of the queue, which the state of a resource does not have."""
    waits = [
        (each, last)
        for each, last in zip(operations, last_nanos, strict=True)
        if each.call == Call.ACQUIRE and each.arguments.wait_nanos
    ]
    found: list[frozenset[str]] = []
    for operation in operations:
        meanwhile = [
            other
            for other, last in waits
            if other is not operation
            and other.invoke_nanos <= operation.return_nanos
            and last >= operation.invoke_nanos
        ]
        excuses: set[str] = set()
        if operation.outcome == Outcome.REFUSED and operation.answer.expire_nanos is None and meanwhile:
            excuses.add(Reason.HELD)
        nonce = operation.arguments.nonce
        if operation.arguments.wait_nanos and any(other.arguments.nonce == nonce for other in meanwhile):
            excuses.add(Reason.SUPERSEDED)
        found.append(frozenset(excuses))
    return found


def _stuck_text(resource: str, operations: Sequence[Operation], search: Search[State]) -> str:
    """Say how far an order goes, and what cannot follow."""
    state = search.path[-1][1] if search.path else State()
    last = [name_of(operations[number]) for number, _ in search.path[-3:]]
    stuck = [operations[number] for number in search.stuck if not search.intervals[number].is_optional]
    shown = "; ".join(f"{name_of(each)} {each.reason} {each.answer}" for each in stuck[:SHOWN_MAX])
    return f"{resource}: {len(search.path)} operations until {last}, then {state}; none can follow of {shown}"


# --- what was reached -------------------------------------------------------------------------------


def _count(history: History, counts: Counter[str]) -> None:
    for operation in history.operations:
        counts["operations"] += 1
        counts["unknown"] += operation.outcome == Outcome.UNKNOWN
        if operation.outcome == Outcome.OK:
            counts[f"{operation.call} ok"] += 1
            counts["replayed"] += operation.answer.is_replayed
            is_wait = operation.arguments.wait_nanos > 0 and not operation.answer.is_renewed
            counts["waits granted"] += is_wait and operation.answer.waited_nanos > WAIT_NANOS_MIN
            counts["renewed by acquire"] += operation.answer.is_renewed is True
            counts["abort seen by a renewal"] += operation.call == Call.RENEW and bool(
                operation.answer.abort_reason
            )
        if operation.outcome == Outcome.REFUSED:
            counts[operation.reason] += 1
            counts[f"{operation.call} {operation.reason}"] += 1
        if operation.answer.cause:
            counts[f"{operation.call} {operation.answer.cause}"] += 1
    for fault in history.faults:
        counts[f"hub {fault.happening}"] += 1


def _count_states(operations: Sequence[Operation], search: Search[State], counts: Counter[str]) -> None:
    """Count what only the order found tells."""
    before = State()
    for operation, (_, after) in zip(operations, search.path, strict=True):
        old = before.tenure
        is_opened = after.token > before.token
        if is_opened and old is not None and not old.has_ended:
            is_other = old.holder_id != operation.arguments.holder_id
            is_after_expiry = operation.call in (Call.ACQUIRE, Call.TAKEOVER) and is_other
            counts["taken after expiry"] += is_after_expiry
            counts["superseded by itself"] += operation.call == Call.ACQUIRE and not is_other
            counts["ended by a maintenance"] += operation.call == Call.BEGIN_MAINTENANCE
        if (
            old is not None
            and operation.reason == Reason.SUPERSEDED
            and old.token == operation.arguments.token
        ):
            counts["refused for its nonce"] += 1
        counts["unknown that took effect"] += operation.outcome == Outcome.UNKNOWN
        if old is not None and not old.nonce and after.tenure is not None and after.tenure.nonce:
            counts["transfer claimed"] += after.token == before.token
        before = after
