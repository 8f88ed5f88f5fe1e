"""The real service on a real socket over a real log; only the link to a hub stands still."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runtime_agent.core.values import (
    AgentFacts,
    HubLinkState,
    HubLinkStatus,
    RunKey,
    RuntimeIdentity,
)
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import take_folder
from runtime_agent.local_api.server import LocalServer
from runtime_agent.local_api.service import RuntimeAgentServicer
from runtime_agent.local_client import SocketLog

FACTS = AgentFacts(RuntimeIdentity("hp", "rt"), 42, "1.2.3", 1_000_000_000)


@dataclass
class StandingLink:
    """A link that never reaches a hub, and remembers what it was told."""

    released: list[RunKey] = field(default_factory=list)
    dropped: list[RunKey] = field(default_factory=list)

    def status(self) -> HubLinkStatus:
        return HubLinkStatus(HubLinkState.WAITING, "no hub", "127.0.0.1:1", "instance")

    def run_released(self, run: RunKey) -> None:
        self.released.append(run)

    def run_dropped(self, run: RunKey) -> None:
        self.dropped.append(run)


@dataclass
class RunningService:
    folder: str
    thread: LogThread
    link: StandingLink
    client: SocketLog


def serve(folder: str) -> Iterator[RunningService]:
    thread = LogThread(take_folder(folder, role="agent"))
    thread.start()
    link = StandingLink()
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()

    async def start() -> LocalServer:
        server = LocalServer(folder, RuntimeAgentServicer(thread, link, FACTS))
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    client = SocketLog.connect(folder)
    assert client is not None
    yield RunningService(folder, thread, link, client)
    client.close()
    asyncio.run_coroutine_threadsafe(server.stop(1.0), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    runner.join(10)
    loop.close()
    thread.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    yield from serve(str(tmp_path))


@pytest.fixture(params=["a b%20é?#", "x" * 120])
def oddly_placed_service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningService]:
    folder = tmp_path / str(request.param)
    folder.mkdir()
    assert os.path.isdir(folder)
    yield from serve(str(folder))
