"""What runs in the background for as long as the hub does: begun, watched, ended in one place.

Each loop sleeps by what it is given here, so every sleep says that it lives and when it will be back. A
loop that ended by a fault, or that is late, is a problem that ``/healthz`` tells: a hub must not look well
over a dead loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog

log = structlog.get_logger(__name__)

Sleep = Callable[[float], Awaitable[None]]
"""Sleeps for so many seconds, like ``asyncio.sleep``."""
DELAY_MEASURED_SECONDS: Final = 0.25
"""How often the event loop is asked to wake somebody, to see how late it is."""


@dataclass(slots=True)
class _Loop:
    """A loop: when it was last seen, and when it said that it would be back."""

    task: asyncio.Task[None]
    seen_seconds: float
    back_seconds: float


class Loops:
    """All loops by their names. Used on the event loop only."""

    def __init__(self, *, late_seconds_max: float, monotonic_seconds: Callable[[], float]) -> None:
        """Begin with none. A loop may be so late before it is a problem."""
        self._late_seconds_max = late_seconds_max
        self._monotonic_seconds = monotonic_seconds
        self._loops: dict[str, _Loop] = {}
        self._watched: dict[str, _Loop] = {}

    def start(
        self,
        name: str,
        run: Callable[[Sleep], Coroutine[None, None, None]],
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Run a loop until ``stop``; it is given what to sleep by, and sleeps again and again."""

        async def beating_sleep(seconds: float) -> None:
            self._beat(name, back_after_seconds=seconds)
            await sleep(seconds)
            self._beat(name, back_after_seconds=0.0)

        task = asyncio.get_running_loop().create_task(run(beating_sleep), name=name)
        now_seconds = self._monotonic_seconds()
        self._loops[name] = _Loop(task, now_seconds, now_seconds)
        task.add_done_callback(_note_end)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Watch over something that somebody else began and ends, and that does not sleep by what is given
        here: that it has ended is a problem while somebody asks.
        """
        now_seconds = self._monotonic_seconds()
        self._watched[task.get_name()] = _Loop(task, now_seconds, inf)
        task.add_done_callback(_note_fault)

    async def stop(self) -> None:
        """End all loops."""
        tasks = [loop.task for loop in self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ages(self) -> dict[str, float]:
        """Return how long ago each loop was seen, in seconds."""
        now_seconds = self._monotonic_seconds()
        return {name: now_seconds - loop.seen_seconds for name, loop in self._loops.items()}

    def problems(self) -> list[str]:
        """Say which loops have ended or are late, and by how much; a sentence each, without a full stop."""
        now_seconds = self._monotonic_seconds()
        found: list[str] = []
        for name, loop in (*self._loops.items(), *self._watched.items()):
            late_seconds = now_seconds - loop.back_seconds
            if loop.task.done():
                found.append(f"{name} has ended by a fault; the log has the details")
            elif late_seconds > self._late_seconds_max:
                age_seconds = now_seconds - loop.seen_seconds
                found.append(
                    f"{name} is {late_seconds:.0f} s late, and was last seen {age_seconds:.0f} s ago"
                )
        return found

    def _beat(self, name: str, *, back_after_seconds: float) -> None:
        now_seconds = self._monotonic_seconds()
        loop = self._loops[name]
        loop.seen_seconds = now_seconds
        loop.back_seconds = now_seconds + back_after_seconds


async def measure_loop_delay(
    sleep: Sleep, *, monotonic_seconds: Callable[[], float], told: Callable[[float], None]
) -> None:
    """Tell by how much the event loop wakes a task too late, again and again until cancelled."""
    while True:
        begin_seconds = monotonic_seconds()
        await sleep(DELAY_MEASURED_SECONDS)
        told(max(0.0, monotonic_seconds() - begin_seconds - DELAY_MEASURED_SECONDS))


def _note_fault(task: asyncio.Task[None]) -> None:
    """Say so where something that may end has ended by a fault."""
    if not task.cancelled() and task.exception() is not None:
        _note_end(task)


def _note_end(task: asyncio.Task[None]) -> None:
    """Say so where something that runs for ever has ended by itself."""
    if not task.cancelled():
        log.error("background_task_died", task=task.get_name(), exc_info=task.exception())
