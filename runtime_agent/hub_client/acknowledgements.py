"""Writing into the log what the hub acknowledged: all that waits in one transaction."""

import asyncio
from collections.abc import Callable

from runtime_agent.core.values import Acknowledgement, RunKey
from runtime_agent.event_log.contract import LogFront


class AcknowledgementWriter:
    """Collects acknowledgements, the highest of each run, and writes them as fast as the log takes them.

    Bounded by the runs that are being pushed.
    """

    def __init__(self, log: LogFront, *, hub_generation: str, wall_clock_nanos: Callable[[], int]) -> None:
        self._log = log
        self._hub_generation = hub_generation
        self._wall_clock_nanos = wall_clock_nanos
        self._waiting: dict[RunKey, int] = {}
        self._being_written: dict[RunKey, int] = {}
        self._wanted = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether the log knows everything that was noted."""
        return not self._waiting and not self._being_written

    def note(self, run: RunKey, sequence: int) -> None:
        """The hub holds the run up to ``sequence``. Never waits."""
        self._waiting[run] = max(sequence, self._waiting.get(run, 0))
        self._wanted.set()

    def known_sequence(self, run: RunKey) -> int:
        """Return what was noted of a run and may not be in the log yet; 0 for nothing."""
        return max(self._waiting.get(run, 0), self._being_written.get(run, 0))

    async def run(self) -> None:
        """Write until cancelled. Raises: what the log raises, HubGenerationChangedError among it."""
        while True:
            await self._wanted.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write what waits."""
        self._wanted.clear()
        if not self._waiting:
            return
        self._being_written, self._waiting = self._waiting, {}
        marks = [Acknowledgement(run, sequence) for run, sequence in self._being_written.items()]
        generation, now_nanos = self._hub_generation, self._wall_clock_nanos()
        await asyncio.wrap_future(
            self._log.call(lambda log: log.acknowledge(marks, hub_generation=generation, now_nanos=now_nanos))
        )
        self._being_written = {}
