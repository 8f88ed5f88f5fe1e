"""Is the hub well, and may it be given work: asked of itself, by real calls.

Well is a hub whose loops are in time and that answers: a call through gRPC, its writer, a reader. Ready is
one that also stores: a full disk is no reason to end a hub that serves reads and goes on by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from hub.core.errors import Refusal
from hub.core.limits import Limits

CLOCKS_APART_SECONDS_MAX: Final = 60.0
"""Hub time and the wall clock may differ by so much before it is a warning."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What is asked. The first three return once the hub has done it, and raise a Refusal where it does not.

    ``loop_problems`` names the loops that have ended or are late; ``store_fault`` says why the store cannot
    be written or read now, None where it can.
    """

    call_grpc: Callable[[], Awaitable[None]]
    run_through_writer: Callable[[], Awaitable[None]]
    read: Callable[[], Awaitable[None]]
    loop_problems: Callable[[], list[str]]
    store_fault: Callable[[], str | None]
    disk_free_bytes: Callable[[], int | None]
    hub_time_ahead_seconds: Callable[[], float]
    is_stopping: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found: why the hub is not well, why it is not ready besides, and what to look at."""

    problems: tuple[str, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Whether the hub works."""
        return not self.problems

    @property
    def is_ready(self) -> bool:
        """Whether it works, stores, and takes new streams."""
        return not self.problems and not self.obstacles


class Health:
    """Looks at the hub when it is asked; who asks within a moment is told the same."""

    def __init__(self, probes: Probes, *, limits: Limits, monotonic_seconds: Callable[[], float]) -> None:
        """Bind what is asked."""
        self._probes = probes
        self._limits = limits
        self._monotonic_seconds = monotonic_seconds
        self._looking: asyncio.Task[Findings] | None = None
        self._end_seconds = 0.0
        self._last: Findings | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the hub stops; no look is needed for that."""
        return self._probes.is_stopping()

    @property
    def last(self) -> Findings | None:
        """What was found last, None before the first look."""
        return self._last

    async def findings(self) -> Findings:
        """Return how the hub is; at most a moment old."""
        if self._looking is None:
            cached_seconds = self._limits.probe_cached_seconds
            if self._last is not None and self._monotonic_seconds() < self._end_seconds + cached_seconds:
                return self._last
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> Findings:
        try:
            found = await self._found()
        finally:
            self._looking = None
        self._last, self._end_seconds = found, self._monotonic_seconds()
        return found

    async def _found(self) -> Findings:
        probes = self._probes
        calls = await asyncio.gather(
            self._problem_of(probes.call_grpc, "gRPC"),
            self._problem_of(probes.run_through_writer, "the writer"),
            self._problem_of(probes.read, "reading"),
        )
        late = [problem for problem, _ in calls if problem is not None]
        refused = [obstacle for _, obstacle in calls if obstacle is not None]
        fault = probes.store_fault()
        obstacles = refused if fault is None else [fault]
        if self.is_stopping:
            obstacles = ["the hub is stopping", *obstacles]
        return Findings(
            problems=(*probes.loop_problems(), *late),
            obstacles=tuple(dict.fromkeys(obstacles)),
            warnings=tuple(self._warnings()),
        )

    async def _problem_of(
        self, ask: Callable[[], Awaitable[None]], name: str
    ) -> tuple[str | None, str | None]:
        """Return (why it does not work, why it works and refuses), None each where that is not so."""
        seconds_max = self._limits.probe_seconds_max
        try:
            async with asyncio.timeout(seconds_max):
                await ask()
        except TimeoutError:
            return f"{name} did not answer within {seconds_max:g} s", None
        except Refusal as refusal:
            return None, str(refusal).rstrip(".")
        return None, None

    def _warnings(self) -> list[str]:
        warnings: list[str] = []
        ahead_seconds = self._probes.hub_time_ahead_seconds()
        if abs(ahead_seconds) >= CLOCKS_APART_SECONDS_MAX:
            warnings.append(f"hub time is {ahead_seconds:.0f} s ahead of the wall clock")
        free_bytes = self._probes.disk_free_bytes()
        if free_bytes is not None and free_bytes < self._limits.disk_free_bytes_min:
            warnings.append(f"the disk is nearly full: {free_bytes // 1024**2} MiB are free")
        return warnings
