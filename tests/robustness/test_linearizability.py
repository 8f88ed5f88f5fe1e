"""The search for an order finds one exactly where trying every order finds one."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Final

from tests.robustness.linearizability import Interval, Rising, Search

CASES: Final = 1_500
CASES_LONG: Final = 40_000
OPERATIONS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Step:
    """A call on a number: it adds to it, or reads it; ``told`` is what was answered, None: nothing."""

    adds: int
    told: int | None
    interval: Interval


def random_steps(rng: random.Random) -> list[Step]:
    """Return steps that were done in some order, some of them told something else than what was."""
    steps: list[Step] = []
    number = 0
    for moment in range(rng.randint(1, OPERATIONS_MAX)):
        adds = rng.choice((0, 0, 1, 1, 2))
        is_optional = adds > 0 and rng.random() < 0.35
        # What is optional may have happened or not.
        number += adds if not is_optional or rng.random() < 0.5 else 0
        told = None if is_optional else number + rng.choice((0, 0, 0, 0, 0, 1, -1))
        first = max(0, moment - rng.randint(0, 3))
        last = moment + rng.randint(0, 3)
        steps.append(Step(adds, told, Interval(first, last, is_optional)))
    rng.shuffle(steps)
    return steps


def next_number(number: int, step: Step) -> int | None:
    after = number + step.adds
    return after if step.told in (None, after) else None


def orders(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Give every order of the required steps and some of the optional ones that their times allow."""
    required = [step for step in steps if not step.interval.is_optional]
    optional = [step for step in steps if step.interval.is_optional]
    for count in range(len(optional) + 1):
        for chosen in combinations(optional, count):
            for order in permutations([*required, *chosen]):
                latest = 0
                for step in order:
                    latest = max(latest, step.interval.first_nanos)
                    if step.interval.last_nanos < latest:
                        break
                else:
                    yield order


def is_explained_by_some_order(steps: Sequence[Step]) -> bool:
    for order in orders(steps):
        number: int | None = 0
        for step in order:
            number = None if number is None else next_number(number, step)
        if number is not None:
            return True
    return False


def test_an_order_is_found_exactly_where_there_is_one(rng: random.Random, *, long_run: bool) -> None:
    found = {True: 0, False: 0}
    for _ in range(CASES_LONG if long_run else CASES):
        steps = random_steps(rng)

        def next_states(number: int, place: int, steps: Sequence[Step] = steps) -> Sequence[int]:
            after = next_number(number, steps[place])
            return () if after is None else (after,)

        rising: Rising[int] = Rising(lambda number: number, [step.told for step in steps])
        first_tried = rng.sample(range(len(steps)), len(steps))
        search: Search[int] = Search(
            [step.interval for step in steps], next_states, first_tried.__getitem__, (rising,)
        )
        search.run(0)
        assert search.is_found == is_explained_by_some_order(steps), steps
        found[search.is_found] += 1
    assert min(found.values()) > CASES // 20
