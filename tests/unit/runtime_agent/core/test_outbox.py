"""How a dispatcher paces itself: delays of what failed, sizes of claims, waits between them."""

import pytest

from runtime_agent.core.outbox import ClaimPace, poll_seconds, retry_delay_seconds
from synchub.contract import NANOS_PER_SECOND


def ceiling(attempt_count: int) -> float:
    """The longest delay after a try, where chance gives almost 1."""
    return retry_delay_seconds(attempt_count, first_seconds=1.0, last_seconds=300.0, chance=lambda: 1.0)


def test_the_ceiling_of_the_delay_doubles_with_each_try_up_to_its_bound() -> None:
    assert [ceiling(n) for n in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert ceiling(2**31) == 300
    assert ceiling(0) == 1


@pytest.mark.parametrize(("share", "seconds"), [(0.0, 0.0), (0.25, 1.0), (0.5, 2.0)])
def test_the_delay_is_drawn_evenly_below_its_ceiling(share: float, seconds: float) -> None:
    drawn = retry_delay_seconds(3, first_seconds=1.0, last_seconds=300.0, chance=lambda: share)
    assert drawn == seconds


def test_claims_begin_with_one_message_and_double_while_they_are_handed_out_fast() -> None:
    pace = ClaimPace(30.0, count_max=6)
    counts = [pace.count]
    for round_number in range(4):
        pace.claimed(now=100.0 * round_number)
        pace.handed_out_all(now=100.0 * round_number + 3.0)
        counts.append(pace.count)
    assert counts == [1, 2, 4, 6, 6]


@pytest.mark.parametrize(("spent_seconds", "count"), [(3.0, 8), (3.1, 4), (7.5, 4), (7.6, 2), (29.0, 2)])
def test_claims_shrink_where_handing_out_takes_a_quarter_of_their_time(
    spent_seconds: float, count: int
) -> None:
    pace = ClaimPace(30.0, count_max=8, count=4)
    pace.claimed(now=0.0)
    pace.handed_out_all(now=spent_seconds)
    assert pace.count == count


def test_a_claim_never_shrinks_below_one_message() -> None:
    pace = ClaimPace(30.0, count_max=8)
    pace.claimed(now=0.0)
    pace.handed_out_all(now=20.0)
    assert pace.count == 1


def test_a_message_with_half_its_time_gone_is_not_handed_out_and_claims_begin_small_again() -> None:
    pace = ClaimPace(30.0, count_max=8, count=8)
    assert pace.is_fresh(15.0)
    assert pace.count == 8
    assert not pace.is_fresh(14.9)
    assert pace.count == 1


@pytest.mark.parametrize(
    ("next_available_nanos", "seconds"),
    [
        (None, 1.0),
        (5 * NANOS_PER_SECOND + NANOS_PER_SECOND // 4, 0.25),
        (6 * NANOS_PER_SECOND, 1.0),
        (60 * NANOS_PER_SECOND, 1.0),
        (5 * NANOS_PER_SECOND, 0.0),
        (0, 0.0),
    ],
)
def test_the_next_claim_waits_for_the_next_message_but_never_long(
    next_available_nanos: int | None, seconds: float
) -> None:
    waited = poll_seconds(
        now_nanos=5 * NANOS_PER_SECOND, next_available_nanos=next_available_nanos, seconds_max=1.0
    )
    assert waited == seconds
