"""What the link and presence are given besides the log: clocks, chance, the program's own log."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runtime_agent.core.instance import InstanceLife


class ProgramLog(Protocol):
    """The program's own log: a constant event name and facts, never payloads or secrets."""

    def info(self, event: str, **facts: str | float) -> None:
        """Say something that an operator may want to know."""
        ...

    def warning(self, event: str, **facts: str | float) -> None:
        """Say something that an operator should know."""
        ...

    def exception(self, event: str, **facts: str | float) -> None:
        """Say that the program made a mistake, with the traceback of the current exception."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """``clock``: seconds that only rise; ``wall_clock_nanos``: since 1970; ``chance``: in [0, 1)."""

    clock: Callable[[], float]
    wall_clock_nanos: Callable[[], int]
    chance: Callable[[], float]
    program_log: ProgramLog


async def wait_for_instance(instance: InstanceLife, *, clock: Callable[[], float]) -> None:
    """Return once the instance may be used; where it was refused, it is a fresh one then."""
    seconds = instance.seconds_until_usable(now=clock())
    while seconds > 0:
        await asyncio.sleep(seconds)
        seconds = instance.seconds_until_usable(now=clock())
