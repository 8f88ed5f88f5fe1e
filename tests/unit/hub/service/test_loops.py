"""Loops are seen to live, to be late, and to have died."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from hub.service.loops import DELAY_MEASURED_SECONDS, Loops, Sleep, measure_loop_delay

LATE_SECONDS_MAX = 15.0


class Clockwork:
    """Loops over a clock that is moved by hand; sleeps end when they are let."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.loops = Loops(late_seconds_max=LATE_SECONDS_MAX, monotonic_seconds=lambda: self.seconds)
        self.may_wake = asyncio.Event()

    async def sleep(self, _seconds: float) -> None:
        await self.may_wake.wait()
        self.may_wake.clear()

    async def wake(self) -> None:
        """End a sleep, and let the loop come to the next one."""
        self.may_wake.set()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def clockwork() -> AsyncIterator[Clockwork]:
    made = Clockwork()
    yield made
    await made.loops.stop()


async def sleeps_a_minute(sleep: Sleep) -> None:
    while True:
        await sleep(60.0)


async def test_a_loop_that_sleeps_is_not_late_before_it_said_it_would_be_back(clockwork: Clockwork) -> None:
    clockwork.loops.start("minutes", sleeps_a_minute, sleep=clockwork.sleep)
    await asyncio.sleep(0)
    clockwork.seconds += 60.0 + LATE_SECONDS_MAX
    assert clockwork.loops.problems() == []
    clockwork.seconds += 1.0
    assert clockwork.loops.problems() == ["minutes is 16 s late, and was last seen 76 s ago"]
    await clockwork.wake()
    assert clockwork.loops.problems() == []
    assert clockwork.loops.ages() == {"minutes": 0.0}


async def test_a_loop_that_hangs_in_its_work_is_late(clockwork: Clockwork) -> None:
    async def hangs(sleep: Sleep) -> None:
        await sleep(1.0)
        await asyncio.Event().wait()

    clockwork.loops.start("hanging", hangs, sleep=clockwork.sleep)
    await asyncio.sleep(0)
    clockwork.seconds += 1.0
    await clockwork.wake()
    clockwork.seconds += LATE_SECONDS_MAX + 1.0
    assert clockwork.loops.problems() == ["hanging is 16 s late, and was last seen 16 s ago"]


async def test_a_loop_that_never_began_to_sleep_is_late(clockwork: Clockwork) -> None:
    async def hangs(_sleep: Sleep) -> None:
        await asyncio.Event().wait()

    clockwork.loops.start("stuck", hangs)
    clockwork.seconds += 20.0
    assert clockwork.loops.problems() == ["stuck is 20 s late, and was last seen 20 s ago"]


@pytest.mark.parametrize("is_fault", [True, False])
async def test_a_loop_that_ended_is_a_problem_for_good(clockwork: Clockwork, is_fault: bool) -> None:
    async def ends(sleep: Sleep) -> None:
        await sleep(0.0)
        if is_fault:
            raise ValueError("a fault")

    with capture_logs() as lines:
        clockwork.loops.start("dying", ends)
        for _ in range(5):
            await asyncio.sleep(0)
    assert [(line["event"], line["task"]) for line in lines] == [("background_task_died", "dying")]
    assert clockwork.loops.problems() == ["dying has ended by a fault; the log has the details"]


async def test_what_somebody_else_runs_is_a_problem_once_it_has_ended_and_never_late(
    clockwork: Clockwork,
) -> None:
    may_end = asyncio.Event()

    async def serves() -> None:
        await may_end.wait()
        raise OSError("the port is gone")

    with capture_logs() as lines:
        task = asyncio.get_running_loop().create_task(serves(), name="http")
        clockwork.loops.watch(task)
        clockwork.seconds += 10 * LATE_SECONDS_MAX
        await clockwork.loops.stop()
        assert (task.done(), clockwork.loops.problems()) == (False, [])
        may_end.set()
        await asyncio.wait({task})
        await asyncio.sleep(0)
    assert clockwork.loops.problems() == ["http has ended by a fault; the log has the details"]
    assert [(line["event"], line["task"]) for line in lines] == [("background_task_died", "http")]


async def test_loops_that_are_stopped_are_not_told_to_have_died(clockwork: Clockwork) -> None:
    with capture_logs() as lines:
        clockwork.loops.start("minutes", sleeps_a_minute, sleep=clockwork.sleep)
        await asyncio.sleep(0)
        await clockwork.loops.stop()
    assert lines == []


async def test_the_delay_of_the_event_loop_is_how_much_later_than_asked_a_task_wakes() -> None:
    seconds = 0.0
    told: list[float] = []

    async def sleep(asked: float) -> None:
        nonlocal seconds
        if len(told) == 2:
            raise asyncio.CancelledError
        seconds += asked + (0.5 if told else 0.0)

    with pytest.raises(asyncio.CancelledError):
        await measure_loop_delay(sleep, monotonic_seconds=lambda: seconds, told=told.append)
    assert told == [pytest.approx(0.0), pytest.approx(0.5)]
    assert seconds == pytest.approx(2 * DELAY_MEASURED_SECONDS + 0.5)
