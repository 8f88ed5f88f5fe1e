"""A hub and an agent as processes that can be killed at any moment and started again."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc

from synchub.v1.sync_service_pb2 import WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.robustness.checker import OnHub

HUB_PROJECT: Final = "robust"
SECONDS_MAX: Final = 60.0
QUIET_SECONDS: Final = 5.0


class Program:
    """One of the two programs; the same one each time that it is started."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Start it and return the line that says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._arguments], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return line

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM and return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.communicate(timeout=SECONDS_MAX)
        return self._process.returncode


class Programs:
    """A hub and one agent in a folder; start ``hub`` before ``agent``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "agent"
        self.database = folder / "hub.db"
        self.address = "127.0.0.1:0"
        self.hub = self._hub()
        self.agent = self.agent_in(self.data)

    def _hub(self) -> Program:
        arguments = ["hub", "serve", "--db", str(self.database), "--listen", self.address, "--http", "none"]
        return Program(arguments, self.folder / "hub.log")

    def agent_in(self, data: Path) -> Program:
        """Return an agent of the one runtime over a data folder."""
        arguments = ["runtime_agent", "start", "--hub", self.address, "--data", str(data)]
        arguments += ["--hub-project", HUB_PROJECT, "--runtime-id", "robust-runtime"]
        return Program(arguments, self.folder / "agent.log")

    def start(self) -> None:
        """Start both; from now on the hub keeps its port."""
        self.address = self.hub.start().split()[2]
        self.hub.stop()
        self.hub = self._hub()
        self.hub.start()
        self.agent = self.agent_in(self.data)
        self.agent.start()

    def agent_command(self, *arguments: str) -> str:
        """Run a command of the agent and return what it printed."""
        name, *rest = arguments
        command = [sys.executable, "-m", "runtime_agent", name, *rest, "--data", str(self.data)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX).stdout

    def wait_until_synced(self) -> None:
        """Wait until the hub has acknowledged everything; fail after a minute."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            status: dict[str, int] = json.loads(self.agent_command("status", "--json"))
            if status["unsynced_event_count"] == 0:
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.1)

    def watched(self) -> list[OnHub]:
        """Return all that a watcher gets from the first event to the head."""
        events: list[OnHub] = []
        with grpc.insecure_channel(self.address) as channel:
            stub = SyncServiceStub(channel)
            call = stub.WatchEvents(WatchEventsRequest(hub_project=HUB_PROJECT), timeout=SECONDS_MAX)
            for answer in call:
                events.extend(
                    OnHub((event.project_id, event.run_id), event.sequence, event.position, event.payload)
                    for event in answer.events
                )
                if not answer.events:
                    break
            call.cancel()
        return events
