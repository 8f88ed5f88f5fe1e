"""Token buckets: what may come, what waits, what is forgotten."""

import pytest

from hub.core.rate import FORGOTTEN_AT_ONCE, Buckets, Charge, Rate, charge

RATE = Rate(per_second=10, burst_seconds=2)
"""A bucket of 20."""


def test_a_full_bucket_gives_its_burst_at_once() -> None:
    assert charge(0.0, 100.0, amount=20, rate=RATE) == Charge(0.0, 0.0, 102.0)


def test_what_is_more_than_the_burst_comes_and_the_next_waits_for_the_debt() -> None:
    first = charge(100.0, 100.0, amount=50, rate=RATE)
    assert first == Charge(wait_seconds=0.0, clear_seconds=3.0, full_at_seconds=105.0)
    second = charge(first.full_at_seconds, 101.0, amount=10, rate=RATE)
    assert second == Charge(wait_seconds=2.0, clear_seconds=3.0, full_at_seconds=106.0)


def test_a_bucket_fills_with_time_up_to_its_burst() -> None:
    empty = charge(0.0, 0.0, amount=20, rate=RATE).full_at_seconds
    assert charge(empty, 1.0, amount=10, rate=RATE).clear_seconds == 0.0
    assert charge(empty, 1.0, amount=11, rate=RATE).clear_seconds == pytest.approx(0.1)
    assert charge(empty, 1_000.0, amount=21, rate=RATE).clear_seconds == pytest.approx(0.1)


def test_each_key_has_a_bucket_of_its_own() -> None:
    buckets: Buckets[str] = Buckets(RATE, entries_max=10)
    buckets.take("a", 0.0, amount=100)
    assert (buckets.wait_seconds("a", 0.0), buckets.wait_seconds("b", 0.0)) == (8.0, 0.0)


def test_what_may_not_come_now_is_not_counted() -> None:
    buckets: Buckets[str] = Buckets(RATE, entries_max=10)
    assert buckets.take_now("a", 0.0, amount=30) == 0.0
    assert [buckets.take_now("a", 0.0, amount=1_000) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert buckets.take_now("a", 1.0, amount=1) == 0.0


def test_what_is_given_back_may_come_again() -> None:
    buckets: Buckets[str] = Buckets(RATE, entries_max=10)
    buckets.take("a", 0.0, amount=20)
    buckets.take("a", 0.0, amount=30)
    buckets.give_back("a", 30)
    buckets.give_back("unknown", 5)
    assert buckets.take("a", 0.0, amount=0) == Charge(0.0, 0.0, 2.0)


def test_buckets_that_are_full_again_are_forgotten() -> None:
    buckets: Buckets[int] = Buckets(RATE, entries_max=1_000)
    for key in range(100):
        buckets.take(key, 0.0, amount=10)
    assert len(buckets) == 100
    for round_ in range(100 // FORGOTTEN_AT_ONCE):
        buckets.take(-1, 2.0 + round_ / 1_000, amount=1)
    assert len(buckets) == 1


def test_more_buckets_than_are_kept_make_room_from_the_one_used_longest_ago() -> None:
    buckets: Buckets[int] = Buckets(RATE, entries_max=3)
    for key in range(3):
        buckets.take(key, 0.0, amount=100)
    buckets.take(0, 0.0, amount=1)
    buckets.take(3, 0.0, amount=100)
    assert len(buckets) == 3
    assert [buckets.wait_seconds(key, 0.0) > 0 for key in range(4)] == [True, False, True, True]


def test_one_bucket_is_kept_at_least_as_long_as_it_is_used() -> None:
    buckets: Buckets[int] = Buckets(RATE, entries_max=1)
    for key in range(5):
        assert buckets.take_now(key, 0.0, amount=30) == 0.0
        assert buckets.take_now(key, 0.0, amount=1) == 1.0
        assert len(buckets) == 1
