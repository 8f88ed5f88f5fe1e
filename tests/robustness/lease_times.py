"""What a history tells of time: the lives of the hub, and between which moments of hub time a call was.

Hub time is one clock for all resources and never runs back. So what one answer tells of it bounds all
calls that came wholly before or after.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from tests.robustness.lease_history import Fault, Happening, History, Operation, Outcome
from tests.robustness.lease_model import told_now, told_span
from tests.robustness.lease_state import FOREVER, Span

JUMP_NANOS_MIN: Final = 400_000_000


@dataclass(frozen=True, slots=True)
class Life:
    """One start of the hub, as moments of the clients' clock."""

    starting_nanos: int
    """It was not alive before."""
    started_nanos: int
    """It took calls from here on at the latest."""
    ended_nanos: int
    """It was dead here."""


class Times:
    """Bounds of hub time, and of when what was not answered may have taken effect."""

    def __init__(self, history: History) -> None:
        self.lives = _lives(history.faults)
        self._starts = [life.starting_nanos for life in self.lives]
        told = [(operation, told_span(operation)) for operation in history.operations]
        by_return = sorted((operation.return_nanos, span.low) for operation, span in told)
        self._returns = [at for at, _ in by_return]
        self._lows = list(accumulate((low for _, low in by_return), max))
        by_invoke = sorted(((operation.invoke_nanos, span.high) for operation, span in told), reverse=True)
        self._invokes = [at for at, _ in reversed(by_invoke)]
        self._highs = list(reversed(list(accumulate((high for _, high in by_invoke), min))))

        self._ahead = self._hub_ahead(history.operations)

    def last_nanos(self, operation: Operation) -> int:
        """Return until when an operation may have taken effect.

        A hub that was killed does nothing any more, and a call that had failed does not reach the next.
        """
        if operation.outcome != Outcome.UNKNOWN:
            return operation.return_nanos
        # The last life that began before the call had failed.
        place = bisect_right(self._starts, operation.return_nanos) - 1
        return self.lives[max(0, place)].ended_nanos

    def bounds(self, operation: Operation, last_nanos: int) -> Span:
        """Return between which moments of hub time an operation was, from what others were told.

        ``last_nanos``: until when it may have taken effect.
        """
        before = bisect_left(self._returns, operation.invoke_nanos)
        after = bisect_right(self._invokes, last_nanos)
        low = self._lows[before - 1] if before else 0
        high = self._highs[after] if after < len(self._highs) else FOREVER
        life = self._life_within(operation.invoke_nanos, last_nanos)
        if life in self._ahead:
            low = max(low, operation.invoke_nanos + self._ahead[life].low)
            high = min(high, last_nanos + self._ahead[life].high)
        # Where they contradict each other, hub time ran back, which is a fault of its own.
        return Span(low, max(low, high))

    def life_of(self, operation: Operation) -> int | None:
        """Return the number of the life that answered an operation, None where it is not certain."""
        return self._life_within(operation.invoke_nanos, operation.return_nanos)

    def _life_within(self, first_nanos: int, last_nanos: int) -> int | None:
        for number, life in enumerate(self.lives):
            if life.started_nanos <= first_nanos and last_nanos <= life.ended_nanos:
                return number
        return None

    def _hub_ahead(self, operations: Iterable[Operation]) -> dict[int, Span]:
        """Return, by life, how far hub time is ahead of the clients' clock, as the answers enclose it.

        Both clocks go on alike while a hub lives; where the answers contradict that, it is not used.
        """
        ahead: dict[int, Span | None] = {}
        for operation in operations:
            now, life = told_now(operation), self.life_of(operation)
            if now is None or life is None:
                continue
            known = ahead.get(life, Span(-FOREVER))
            ahead[life] = known and known.within(now - operation.return_nanos, now - operation.invoke_nanos)
        return {life: span for life, span in ahead.items() if span is not None}


def jumps_at_starts(operations: Iterable[Operation], times: Times) -> int:
    """Return how often hub time was well ahead of where it had been when a hub was started again."""
    ahead: dict[int, int] = {}
    for operation in operations:
        now, life = told_now(operation), times.life_of(operation)
        if now is not None and life is not None:
            ahead[life] = max(ahead.get(life, -FOREVER), now - operation.return_nanos)
    offsets = [ahead[life] for life in sorted(ahead)]
    return sum(after > before + JUMP_NANOS_MIN for before, after in pairwise(offsets))


def _lives(faults: Sequence[Fault]) -> list[Life]:
    """Return the lives in their order; a history that begins with a running hub has one more before."""
    lives: list[Life] = []
    starting_nanos = started_nanos = 0
    is_alive = True
    for fault in faults:
        if fault.happening == Happening.STARTING:
            starting_nanos, started_nanos, is_alive = fault.at_nanos, FOREVER, True
        elif fault.happening == Happening.STARTED:
            started_nanos = fault.at_nanos
        elif fault.happening == Happening.ENDED and is_alive:
            lives.append(Life(starting_nanos, started_nanos, fault.at_nanos))
            is_alive = False
    return [*lives, Life(starting_nanos, started_nanos, FOREVER)] if is_alive else lives
