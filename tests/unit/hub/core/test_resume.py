"""From where a watcher may go on, the clock, and which instance speaks for its runtime."""

import pytest

from hub.core.clock import HubClock
from hub.core.errors import GenerationChanged, InvalidRequest, PositionAhead
from hub.core.instance import InstanceStanding, decide_instance
from hub.core.resume import GenerationStart, check_resume
from hub.core.values import HubGeneration, InstanceId

GENERATIONS = [
    GenerationStart(HubGeneration("first"), 0),
    GenerationStart(HubGeneration("second"), 10),
    GenerationStart(HubGeneration("third"), 7),
]


def resume(generation: str, position: int) -> None:
    check_resume(GENERATIONS, hub_generation=generation, after_position=position, head_position=20)


@pytest.mark.parametrize(
    ("generation", "position"),
    [("third", 20), ("third", 1), ("second", 7), ("first", 7), ("", 0), ("unknown", 0)],
)
def test_a_position_that_every_later_generation_kept_holds(generation: str, position: int) -> None:
    resume(generation, position)


@pytest.mark.parametrize(
    ("generation", "position", "lowest"), [("second", 8, 7), ("first", 8, 7), ("unknown", 1, 0)]
)
def test_a_position_above_a_later_beginning_is_refused_with_the_lowest(
    generation: str, position: int, lowest: int
) -> None:
    with pytest.raises(GenerationChanged) as caught:
        resume(generation, position)
    assert (caught.value.lowest_position, caught.value.hub_generation) == (lowest, "third")


def test_a_position_needs_its_generation() -> None:
    with pytest.raises(InvalidRequest) as caught:
        resume("", 1)
    assert caught.value.violations[0].field == "hub_generation"


def test_a_position_ahead_of_the_head_is_refused() -> None:
    with pytest.raises(PositionAhead) as caught:
        resume("third", 21)
    assert (caught.value.position, caught.value.head_position) == (21, 20)


@pytest.mark.parametrize(("wall", "floor", "start"), [(100, 50, 100), (50, 100, 100)])
def test_hub_time_begins_at_the_later_of_wall_clock_and_floor(wall: int, floor: int, start: int) -> None:
    elapsed = [7]
    clock = HubClock(wall_nanos=wall, floor_nanos=floor, suspension_counting_nanos=lambda: elapsed[0])
    assert clock.now() == start
    elapsed[0] += 5
    assert clock.now() == start + 5


@pytest.mark.parametrize(
    ("current", "was_before", "standing"),
    [
        ("one", False, InstanceStanding.CURRENT),
        (None, False, InstanceStanding.NEW),
        ("two", False, InstanceStanding.NEW),
        ("two", True, InstanceStanding.PAST),
    ],
)
def test_an_instance_that_had_its_turn_never_has_it_again(
    current: str | None, was_before: bool, standing: InstanceStanding
) -> None:
    current_id = None if current is None else InstanceId(current)
    assert decide_instance(InstanceId("one"), current=current_id, was_current_before=was_before) is standing
