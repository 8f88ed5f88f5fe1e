"""The instance begins anew after it was refused as duplicated, later each time."""

from collections.abc import Callable
from itertools import count

from runtime_agent.core.instance import InstanceLife


def numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"i{next(numbers)}"


def life() -> InstanceLife:
    return InstanceLife(numbered(), wait_seconds_first=60.0, wait_seconds_max=3_600.0, calm_seconds=7_200.0)


def test_an_instance_that_was_not_refused_may_be_used_at_once() -> None:
    instance = life()
    assert instance.seconds_until_usable(now=0.0) == 0.0
    assert (instance.instance_id, instance.is_refused) == ("i1", False)


def test_a_refused_instance_waits_and_a_fresh_one_begins_after_it() -> None:
    instance = life()
    instance.refused("i1", now=100.0)
    assert instance.is_refused
    assert instance.seconds_until_usable(now=130.0) == 30.0
    assert instance.instance_id == "i1"
    assert instance.seconds_until_usable(now=160.0) == 0.0
    assert (instance.instance_id, instance.is_refused) == ("i2", False)


def test_a_refusal_that_is_heard_twice_or_of_an_earlier_instance_counts_once() -> None:
    instance = life()
    instance.refused("i1", now=0.0)
    instance.refused("i1", now=30.0)
    assert instance.seconds_until_usable(now=60.0) == 0.0
    instance.refused("i1", now=61.0)
    assert (instance.instance_id, instance.is_refused) == ("i2", False)


def test_the_wait_doubles_up_to_an_hour() -> None:
    instance, now = life(), 0.0
    waits: list[float] = []
    for _ in range(8):
        instance.refused(instance.instance_id, now=now)
        waits.append(instance.seconds_until_usable(now=now))
        now += waits[-1]
        assert instance.seconds_until_usable(now=now) == 0.0
    assert waits == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]


def test_the_wait_begins_small_again_after_a_long_calm() -> None:
    instance = life()
    instance.refused("i1", now=0.0)
    instance.seconds_until_usable(now=60.0)
    instance.refused("i2", now=7_201.0)
    assert instance.seconds_until_usable(now=7_201.0) == 60.0
