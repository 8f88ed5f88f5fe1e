"""Looks for an order of operations that explains all of their answers: Wing and Gong, with Lowe's memory.

An operation takes effect at one moment between its send and its answer. One whose answer is unknown may
have taken effect at any moment from its send until ``last_nanos``, or never.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Generic, TypeVar

State = TypeVar("State")
STEPS_MAX: Final = 300_000
"""After so many tries it is not decided, which is a fault too: the history was made too hard to check."""
UNBOUNDED: Final = 2**80


@dataclass(frozen=True, slots=True)
class Interval:
    """When an operation may have taken effect, and whether it must have."""

    first_nanos: int
    last_nanos: int
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Rising(Generic[State]):
    """A number of the state that never falls, and what operations were told of it at the most."""

    of_state: Callable[[State], int]
    told: Sequence[int | None]
    """By operation; None where it tells nothing."""


@dataclass(slots=True)
class Search(Generic[State]):
    """One search; ``path`` is what it found, or the longest beginning that it could explain."""

    intervals: Sequence[Interval]
    next_states: Callable[[State, int], Sequence[State]]
    """What may follow when the operation of this number takes effect now."""
    order: Callable[[int], int]
    """Which operations to try first."""
    rising: Sequence[Rising[State]] = ()
    """So that a way on which something required can never follow is not gone to its end."""
    path: list[tuple[int, State]] = field(default_factory=list)
    is_found: bool = False
    steps: int = 0
    stuck: tuple[int, ...] = ()
    """Operations that could not follow the longest beginning, though one of them must."""
    _required: list[int] = field(default_factory=list)
    _optional: list[int] = field(default_factory=list)
    _optional_ends: list[int] = field(default_factory=list)
    """For each place among the optional ones: the latest end of all up to it."""
    _required_bits: int = 0
    _lowest: list[list[int]] = field(default_factory=list)
    """For each rising number: the least that is told by the required operations from a place on."""

    def run(self, start: State) -> None:
        """Search; ``is_found`` tells the result, ``steps`` beyond ``STEPS_MAX`` that there is none."""
        numbers = sorted(range(len(self.intervals)), key=lambda number: self.intervals[number].first_nanos)
        self._required = [number for number in numbers if not self.intervals[number].is_optional]
        self._optional = [number for number in numbers if self.intervals[number].is_optional]
        ends = (self.intervals[number].last_nanos for number in self._optional)
        self._optional_ends = list(accumulate(ends, max))
        self._required_bits = sum(1 << number for number in self._required)
        self._lowest = [self._lowest_from_each_place(rising) for rising in self.rising]
        path: list[tuple[int, State]] = []
        seen: dict[tuple[int, State], list[int]] = {}
        node = _Node(start, done=0, first_open=0, latest_first=0, done_count=0)
        self.is_found = not self._required
        branches = [] if self.is_found else [self._branches(node)]
        while branches:
            if node_after := next(branches[-1], None):
                number, after = node_after
                self.steps += 1
                # Who is here with fewer of the optional ones spent can do all that this one can.
                spent = seen.setdefault((after.done & self._required_bits, after.state), [])
                if any(other & ~after.done == 0 for other in spent):
                    continue
                spent.append(after.done)
                path.append((number, after.state))
                if len(path) > len(self.path):
                    self.path, self.stuck = list(path), tuple(self._candidates(after))
                if after.done_count == len(self._required):
                    self.is_found, self.path = True, path
                    return
                branches.append(self._branches(after))
                if self.steps > STEPS_MAX:
                    return
            else:
                branches.pop()
                if path:
                    path.pop()

    def _branches(self, node: "_Node[State]") -> Iterator[tuple[int, "_Node[State]"]]:
        """Give each operation that can come next, with what follows it."""
        for number in self._candidates(node):
            states = self.next_states(node.state, number)
            for state in states:
                after = self._after(node, number, state=state)
                if not self._is_too_far(after):
                    yield number, after
            # What explains itself here and changes nothing may as well come here: nothing else is tried.
            if list(states) == [node.state] and self._hinders_nothing(node, number):
                return

    def _candidates(self, node: "_Node[State]") -> list[int]:
        """Return what may come next: nothing that was answered before it was sent is left out."""
        found: list[int] = []
        first_end: int | None = None
        for place in range(node.first_open, len(self._required)):
            number = self._required[place]
            interval = self.intervals[number]
            if first_end is not None and interval.first_nanos > first_end:
                break
            if not node.done >> number & 1:
                found.append(number)
                first_end = interval.last_nanos if first_end is None else min(first_end, interval.last_nanos)
        found.sort(key=self.order)
        # Before this place all are over already.
        place = bisect_left(self._optional_ends, node.latest_first)
        for number in self._optional[place:]:
            interval = self.intervals[number]
            if first_end is not None and interval.first_nanos > first_end:
                break
            if not node.done >> number & 1 and interval.last_nanos >= node.latest_first:
                found.append(number)
        return found

    def _lowest_from_each_place(self, rising: Rising[State]) -> list[int]:
        told = (rising.told[number] for number in reversed(self._required))
        numbers = [UNBOUNDED if number is None else number for number in told]
        return [UNBOUNDED, *accumulate(numbers, min)][::-1]

    def _is_too_far(self, node: "_Node[State]") -> bool:
        """Tell whether something required was told less than what is reached already."""
        for rising, lowest in zip(self.rising, self._lowest, strict=True):
            reached, place = rising.of_state(node.state), node.first_open
            while lowest[place] < reached:
                number = self._required[place]
                told = rising.told[number]
                if told is not None and told < reached and not node.done >> number & 1:
                    return True
                place += 1
        return False

    def _hinders_nothing(self, node: "_Node[State]", number: int) -> bool:
        """Tell whether what can come before this operation could come after it just as well."""
        interval = self.intervals[number]
        return not interval.is_optional and not any(
            node.latest_first <= self.intervals[other].last_nanos < interval.first_nanos
            for other in self._optional
            if not node.done >> other & 1
        )

    def _after(self, node: "_Node[State]", number: int, *, state: State) -> "_Node[State]":
        done = node.done | 1 << number
        first_open = node.first_open
        while first_open < len(self._required) and done >> self._required[first_open] & 1:
            first_open += 1
        interval = self.intervals[number]
        latest_first = max(node.latest_first, interval.first_nanos)
        return _Node(state, done, first_open, latest_first, node.done_count + (not interval.is_optional))


@dataclass(frozen=True, slots=True)
class _Node(Generic[State]):
    """How far a search is: what took effect, as bits, and the state after it."""

    state: State
    done: int
    first_open: int
    """Of the required operations, in the order of their sends, the first that has not taken effect."""
    latest_first: int
    """The latest send of what took effect: nothing that was over before may come after it."""
    done_count: int
