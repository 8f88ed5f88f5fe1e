"""How a hub looks at itself: by calls of its own, now and then and when somebody asks.

Belongs to the composition root (``hub.app``).
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hub.assembly.measurements import Measurements
from hub.assembly.parts import HubParts
from hub.core.values import HubProject
from hub.rpc.self_call import SelfCall
from hub.service.health import Health, Probes
from hub.service.loops import Sleep
from hub.store.contract import ReadTransaction


class SelfWatch:
    """Health and measurements of one hub; make it inside the running loop, and close it."""

    def __init__(
        self, parts: HubParts, measurements: Measurements, *, socket: Path, is_stopping: Callable[[], bool]
    ) -> None:
        """Prepare to look, over the socket on which the server listens too."""
        self._parts = parts
        self._measurements = measurements
        self._is_stopping = is_stopping
        self._self_call = SelfCall(socket)
        self.health = Health(
            Probes(
                call_grpc=self._call_grpc,
                run_through_writer=parts.async_writer.settle,
                read=self._read,
                loop_problems=self._loop_problems,
                store_fault=parts.store.last_fault,
                disk_free_bytes=lambda: measurements.sizes.disk_free_bytes,
                hub_time_ahead_seconds=parts.time_ahead_seconds,
                is_stopping=is_stopping,
            ),
            limits=parts.limits,
            monotonic_seconds=time.monotonic,
        )

    async def run(self, sleep: Sleep, *, say_well: Callable[[bool], Awaitable[None]]) -> None:
        """Look now and then, and say whether the hub is well, until cancelled."""
        while True:
            await self._measurements.measure()
            found = await self.health.findings()
            await say_well(found.is_well)
            await sleep(self._parts.limits.health_check_seconds)

    async def close(self) -> None:
        """Call no more."""
        await self._self_call.close()

    async def _call_grpc(self) -> None:
        # A server that stops takes no calls, and is well.
        if not self._is_stopping():
            await self._self_call.ask(self._parts.limits.probe_seconds_max)

    async def _read(self) -> None:
        await self._parts.readers.call(_read_something)

    def _loop_problems(self) -> list[str]:
        problems = self._parts.loops.problems()
        if not self._parts.writer_thread.is_alive() and not self._is_stopping():
            problems.append("the writer's thread has ended; the log has the details")
        return problems


def _read_something(transaction: ReadTransaction) -> None:
    transaction.head_position(HubProject(""))
