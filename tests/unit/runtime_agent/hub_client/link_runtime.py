"""A log with its link and presence, as the agent puts them together, for tests against a wire hub."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from runtime_agent.core.instance import InstanceLife
from runtime_agent.core.values import (
    AppendRequest,
    NewEvent,
    RunKey,
    RunState,
    RuntimeIdentity,
)
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import take_folder
from runtime_agent.hub_client.link import PUSH_BOUNDS, Link
from runtime_agent.hub_client.surroundings import Surroundings
from synchub.channel import HubAddress
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven

IDENTITY = RuntimeIdentity("hp", "r1")
RUN = RunKey("p", "n1")
OTHER = RunKey("p", "n2")
EVENTUALLY_SECONDS = 20.0


class Notes:
    """The program's log, kept to be looked at."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def info(self, event: str, **facts: str | float) -> None:
        pass

    def warning(self, event: str, **facts: str | float) -> None:
        pass

    def exception(self, event: str, **facts: str | float) -> None:
        self.mistakes.append(event)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(EVENTUALLY_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in the test's hub
            await asyncio.sleep(0.01)


class Runtime:
    """A log with its link and presence, as the agent puts them together."""

    def __init__(self, folder: Path) -> None:
        self.log = LogThread(take_folder(str(folder), role="test"))
        self.log.start()
        self.notes = Notes()
        self.bounds = PUSH_BOUNDS
        self.credentials: CredentialsGiven = NO_CREDENTIALS
        ids = (f"i{n}" for n in count(1))
        self.instance = InstanceLife(
            new_instance_id=lambda: next(ids), wait_seconds_first=0.2, wait_seconds_max=1.0, calm_seconds=60.0
        )
        self.surroundings = Surroundings(
            clock=time.monotonic, wall_clock_nanos=time.time_ns, chance=lambda: 0.05, program_log=self.notes
        )

    async def append(self, run: RunKey, payloads: Sequence[bytes]) -> None:
        events = tuple(NewEvent("t", payload) for payload in payloads)
        await asyncio.wrap_future(self.log.append(AppendRequest(run, events, stamp_time=False)))

    async def state(self, run: RunKey) -> RunState:
        state = await asyncio.wrap_future(self.log.read(lambda reader: reader.load_run(run)))
        assert state is not None
        return state

    async def until(self, run: RunKey, condition: Callable[[RunState], bool]) -> RunState:
        async with asyncio.timeout(EVENTUALLY_SECONDS):
            while not condition(state := await self.state(run)):  # noqa: ASYNC110 - it is in the log
                await asyncio.sleep(0.01)
        return state

    async def until_synced(self, run: RunKey, sequence: int) -> RunState:
        return await self.until(run, lambda state: state.acknowledged_sequence == sequence)

    async def until_quarantined(self, run: RunKey) -> str:
        state = await self.until(run, lambda state: state.quarantine is not None)
        assert state.quarantine is not None
        return state.quarantine.reason

    def new_link(self, port: int) -> Link:
        return Link(
            (HubAddress("127.0.0.1", port),),
            identity=IDENTITY,
            instance=self.instance,
            log=self.log,
            surroundings=self.surroundings,
            credentials=self.credentials,
            bounds=self.bounds,
        )

    @asynccontextmanager
    async def linked(self, port: int) -> AsyncIterator[Link]:
        link = self.new_link(port)
        task = asyncio.create_task(link.run())
        try:
            yield link
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
