"""Before when something must have happened to be old."""

import pytest

from hub.core.presence import PresenceBounds
from hub.core.retention import PruneMoments, decide_moments

BOUNDS = PresenceBounds(ttl_nanos=30, broken_stream_grace_nanos=5, hub_start_nanos=1_000)


def test_receipt_is_by_the_wall_clock_and_the_rest_by_hub_time() -> None:
    moments = decide_moments(100, wall_nanos=5_000, now_nanos=9_000, bounds=BOUNDS)
    assert moments == PruneMoments(received_nanos=4_900, ended_nanos=8_900, heard_nanos=8_900)


def test_who_may_be_alive_is_never_old() -> None:
    moments = decide_moments(1, wall_nanos=5_000, now_nanos=9_000, bounds=BOUNDS)
    assert moments == PruneMoments(received_nanos=4_999, ended_nanos=8_999, heard_nanos=8_970)


@pytest.mark.parametrize(("now_nanos", "heard_nanos"), [(1_029, 0), (1_030, 930)])
def test_until_one_ttl_after_a_start_nobody_is_silent(now_nanos: int, heard_nanos: int) -> None:
    moments = decide_moments(100, wall_nanos=5_000, now_nanos=now_nanos, bounds=BOUNDS)
    assert moments.heard_nanos == heard_nanos


@pytest.mark.parametrize(("wall_nanos", "now_nanos"), [(10**18, 5_000), (5_000, 10**18)])
def test_a_clock_that_jumped_ahead_makes_no_event_old(wall_nanos: int, now_nanos: int) -> None:
    moments = decide_moments(100, wall_nanos=wall_nanos, now_nanos=now_nanos, bounds=BOUNDS)
    assert moments.received_nanos == 4_900


def test_nothing_is_so_old_that_no_store_can_hold_its_moment() -> None:
    ten_thousand_years = 315_576_000_000 * 10**9
    moments = decide_moments(ten_thousand_years, wall_nanos=5_000, now_nanos=9_000, bounds=BOUNDS)
    assert moments == PruneMoments(received_nanos=0, ended_nanos=0, heard_nanos=0)
