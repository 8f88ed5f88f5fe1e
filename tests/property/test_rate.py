"""However amounts come, a bucket lets no more through than its rate, its burst and one amount."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hub.core.rate import Buckets, Rate

RATES = st.builds(Rate, st.floats(0.5, 1e6), st.floats(0.001, 100))
STEPS = st.lists(st.tuples(st.floats(0, 50), st.integers(0, 10_000)), min_size=1, max_size=60)
"""(seconds since the step before, amount)"""

TOLERANCE = 1e-6
"""Of what floating point may lose."""


def is_within(rate: Rate, taken: Sequence[tuple[float, int]]) -> bool:
    """Whether between any two moments no more was taken than may be: the amounts by their times."""
    for first, (begin, _) in enumerate(taken):
        amounts = 0.0
        for moment, amount in taken[first:]:
            allowed = rate.per_second * (moment - begin) + rate.per_second * rate.burst_seconds
            # What was taken before the last one is within; the last one may be larger than all that is left.
            if amounts > allowed * (1 + TOLERANCE) + TOLERANCE * rate.per_second:
                return False
            amounts += amount
    return True


@given(RATES, STEPS)
def test_what_is_refused_while_there_is_debt_keeps_the_rate(
    rate: Rate, steps: Sequence[tuple[float, int]]
) -> None:
    buckets: Buckets[str] = Buckets(rate, entries_max=5)
    now, taken = 0.0, []
    for seconds, amount in steps:
        now += seconds
        if buckets.take_now("h", now, amount=amount) == 0.0:
            taken.append((now, amount))
    assert is_within(rate, taken)


@given(RATES, STEPS)
def test_what_waits_as_it_is_told_keeps_the_rate_and_its_order(
    rate: Rate, steps: Sequence[tuple[float, int]]
) -> None:
    buckets: Buckets[str] = Buckets(rate, entries_max=5)
    now, taken = 0.0, []
    for seconds, amount in steps:
        now += seconds
        told = buckets.take("h", now, amount=amount)
        taken.append((now + told.wait_seconds, amount))
        assert told.clear_seconds >= told.wait_seconds
    assert is_within(rate, taken)
    moments = [moment for moment, _ in taken]
    # Those that wait do not overtake each other, but for what floating point may lose.
    assert all(later >= earlier - 1e-9 * max(1.0, later) for earlier, later in pairwise(moments))


@given(RATES, STEPS)
def test_one_stream_that_waits_until_it_is_clear_never_finds_a_debt(
    rate: Rate, steps: Sequence[tuple[float, int]]
) -> None:
    buckets: Buckets[str] = Buckets(rate, entries_max=5)
    now = 0.0
    for seconds, amount in steps:
        now += seconds
        told = buckets.take("h", now, amount=amount)
        assert told.wait_seconds <= TOLERANCE
        now += told.clear_seconds


@given(RATES, st.integers(1, 5), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=80))
def test_never_more_buckets_are_kept_than_may_be(
    rate: Rate, entries_max: int, uses: Sequence[tuple[int, int]]
) -> None:
    buckets: Buckets[int] = Buckets(rate, entries_max=entries_max)
    for moment, (key, amount) in enumerate(uses):
        buckets.take(key, float(moment), amount=amount)
        assert len(buckets) <= entries_max
