"""The promises of leases that have a name, each looked at by itself over the operations of one resource.

A fault here is surely one; what only the order of all operations tells is left to the search for it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from tests.robustness.lease_history import Call, Operation, Outcome
from tests.robustness.lease_model import told_now
from tests.robustness.lease_state import FOREVER
from tests.robustness.lease_times import Times

Found = Iterator[str]

OPENING: Final = frozenset({Call.ACQUIRE, Call.TAKEOVER, Call.TRANSFER, Call.BEGIN_MAINTENANCE})
UNDER_A_TOKEN: Final = frozenset(
    {
        Call.RENEW,
        Call.RELEASE,
        Call.TRANSFER,
        Call.CHECK,
        Call.RENEW_MAINTENANCE,
        Call.FINISH_MAINTENANCE,
    }
)
ENDING: Final = frozenset({Call.RELEASE, Call.TRANSFER, Call.FINISH_MAINTENANCE})
QUEUE_NANOS_MAX: Final = 100_000_000
"""Two who began to wait within this are in either order: when a call is queued is not told exactly."""


@dataclass(slots=True)
class _KnownTenure:
    """One token's time as its answers tell it."""

    token: int
    opened_by: Operation
    begin_nanos: int
    renewals: list[tuple[int, int, Operation]]
    """Hub time of each renewal, until when it lasts, and which it was; the first is the beginning."""

    @property
    def holder(self) -> tuple[str | None, str | None]:
        return self.opened_by.answer.runtime_id, self.opened_by.answer.holder_id


def check_hub_time(operations: Iterable[Operation], times: Times) -> Found:
    """Hub time never runs back, nor faster or slower than the clients' clock while the hub lives."""
    offsets: dict[int, tuple[int, int]] = {}
    for operation in operations:
        now = told_now(operation)
        if now is None:
            continue
        bounds = times.bounds(operation, operation.return_nanos)
        if not bounds.low <= now <= bounds.high:
            yield f"{name_of(operation)} at {now}, not within {bounds.low} and {bounds.high}"
        life = times.life_of(operation)
        if life is None:
            continue
        low, high = offsets.get(life, (-FOREVER, FOREVER))
        low, high = max(low, now - operation.return_nanos), min(high, now - operation.invoke_nanos)
        offsets[life] = low, high
        if low > high:
            yield f"{name_of(operation)}: a step of {low - high} ns in the hub's life {life}"
            offsets[life] = now - operation.return_nanos, now - operation.invoke_nanos


def check_tenures(operations: Sequence[Operation]) -> Found:
    """At most one tenure is valid at any moment of the hub's clock."""
    known = _known_tenures(operations)
    for earlier, later in pairwise(known):
        begin = later.begin_nanos
        for now, _, operation in earlier.renewals:
            if now > begin:
                yield f"{name_of(operation)}: {earlier.token} at {now}, after {later.token} began at {begin}"
        before = [(now, -expire) for now, expire, _ in earlier.renewals if now <= begin]
        expire = -max(before)[1] if before else 0
        if begin < expire and not _may_have_ended(earlier, later, operations):
            yield f"{earlier.token} lasts until {expire}, {later.token} began at {begin}"


def check_tokens(operations: Sequence[Operation]) -> Found:
    """Tokens and epochs only grow, as time passes for the clients and as it passes for the hub."""
    opened: dict[int, Operation] = {}
    for operation in operations:
        if not _opens(operation):
            continue
        token = operation.answer.token
        assert token is not None
        first = opened.setdefault(token, operation)
        if first is not operation and not _is_same_tenure(first, operation):
            yield f"token {token} given twice: {name_of(first)}, {name_of(operation)}"
    yield from _falling("token", ((each, each.answer.token) for each in opened.values()), is_strict=True)
    told = [each for each in operations if each.outcome == Outcome.OK and not each.answer.is_replayed]
    yield from _falling("token", ((each, each.answer.token) for each in told), is_strict=False)
    yield from _falling("epoch", ((each, each.answer.epoch) for each in told), is_strict=False)
    by_hub_time = sorted(
        (now, token) for token, each in opened.items() if (now := told_now(each)) is not None
    )
    for (before, lower), (after, token) in pairwise(by_hub_time):
        if after > before and token < lower:
            yield f"token {token} at {after}, {lower} at {before} before"


def check_old_tokens(operations: Sequence[Operation]) -> Found:
    """Nothing succeeds under a token once a higher one was given: another's tenure, or a maintenance."""
    given = _Highest(
        (each.return_nanos, each.answer.token)
        for each in operations
        if each.outcome == Outcome.OK and not each.answer.is_replayed and each.answer.token is not None
    )
    for operation in operations:
        is_success = operation.outcome == Outcome.OK and not operation.answer.is_replayed
        if operation.call not in UNDER_A_TOKEN or not is_success or operation.answer.cause:
            continue
        highest = given.before(operation.invoke_nanos)
        if highest > operation.arguments.token:
            yield f"{name_of(operation)} succeeded after {highest} was given"


def check_queue(operations: Sequence[Operation]) -> Found:
    """Who waits is granted in order, and nobody passes but the live holder itself."""
    grants = sorted(
        (now, operation)
        for operation in operations
        if _opens(operation)
        and operation.call in (Call.ACQUIRE, Call.TAKEOVER)
        and not operation.answer.is_renewed
        and (now := told_now(operation)) is not None
    )
    nonces = Counter(each.arguments.nonce for each in operations if each.call == Call.ACQUIRE)
    holders = {each.answer.token: each.answer.holder_id for each in operations if _opens(each)}
    for place, (now, later) in enumerate(grants):
        # A second call takes the place of the first one, and says only how long itself it waited.
        if not later.answer.waited_nanos or nonces[later.arguments.nonce] > 1:
            continue
        queued = now - later.answer.waited_nanos
        for before, earlier in grants[:place]:
            token = earlier.answer.token
            began = before - earlier.answer.waited_nanos
            is_jump = queued + QUEUE_NANOS_MAX < began and nonces[earlier.arguments.nonce] == 1
            if (
                is_jump
                and token is not None
                and holders.get(token - 1) not in (None, earlier.answer.holder_id)
            ):
                yield f"{name_of(earlier)} passed {name_of(later)}, which waited since {queued}"


def name_of(operation: Operation) -> str:
    """Return an operation in a few words."""
    arguments = operation.arguments
    return f"{operation.number} {operation.call} {operation.resource} {arguments.holder_id} {arguments.token}"


# --- parts ------------------------------------------------------------------------------------------


class _Highest:
    """The highest of some numbers among those that were told before a moment."""

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(told)
        self._moments = [at for at, _ in ordered]
        self._highest = list(accumulate((number for _, number in ordered), max))

    def before(self, moment: int) -> int:
        place = bisect_left(self._moments, moment)
        return self._highest[place - 1] if place else 0


def _opens(operation: Operation) -> bool:
    """Tell whether an operation surely opened a tenure, or said again that it had."""
    is_answered = operation.outcome == Outcome.OK and not operation.answer.is_replayed
    return operation.call in OPENING and is_answered and not operation.answer.is_renewed


def _is_same_tenure(first: Operation, second: Operation) -> bool:
    """Tell whether a maintenance was begun twice, which gives the same one."""
    calls = {first.call, second.call}
    return calls == {Call.BEGIN_MAINTENANCE} and first.arguments.nonce == second.arguments.nonce


def _falling(what: str, told: Iterable[tuple[Operation, int | None]], *, is_strict: bool) -> Found:
    numbers = [(operation, number) for operation, number in told if number is not None]
    highest = _Highest((operation.return_nanos, number) for operation, number in numbers)
    for operation, number in numbers:
        before = highest.before(operation.invoke_nanos)
        if number < before or (is_strict and number == before):
            yield f"{name_of(operation)}: {what} {number}, {before} was told before"


def _known_tenures(operations: Iterable[Operation]) -> list[_KnownTenure]:
    """Return what the answers tell of each tenure, by token."""
    known: dict[int, _KnownTenure] = {}
    for operation in operations:
        now, answer = told_now(operation), operation.answer
        token = answer.token or operation.arguments.token
        if now is None or answer.expire_nanos is None or operation.call == Call.HUB_TIME:
            continue
        begin = now if answer.acquire_nanos is None else answer.acquire_nanos
        tenure = known.setdefault(token, _KnownTenure(token, operation, begin, []))
        tenure.begin_nanos = min(tenure.begin_nanos, begin)
        tenure.renewals.append((now, answer.expire_nanos, operation))
    return [known[token] for token in sorted(known)]


def _may_have_ended(earlier: _KnownTenure, later: _KnownTenure, operations: Iterable[Operation]) -> bool:
    """Tell whether the earlier tenure may have been over before its time."""
    is_of_maintenance = later.opened_by.call in (Call.BEGIN_MAINTENANCE, Call.RENEW_MAINTENANCE)
    if is_of_maintenance or later.holder == earlier.holder:
        return True
    for operation in operations:
        if operation.invoke_nanos > later.opened_by.return_nanos:
            continue
        if operation.outcome == Outcome.UNKNOWN and operation.call in OPENING:
            # It may stand between the two, or be what the hub gave back because nobody heard of it.
            return True
        is_end = operation.call in ENDING and operation.outcome != Outcome.REFUSED
        if is_end and operation.arguments.token == earlier.token:
            return True
    return False
