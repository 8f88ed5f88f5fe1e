"""A hub and an agent as processes that can be killed at any moment and started again."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

from runtime_agent.core.values import LogEvent
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from synchub.v1.sync_event_pb2 import StoredEvent, SyncEvent
from synchub.v1.sync_service_pb2 import ListRunsRequest, WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.robustness.checker import OnHub, Run

HUB_PROJECT: Final = "robust"
SECONDS_MAX: Final = 60.0
RUNS_MAX: Final = 1000


def payload_of(event: StoredEvent) -> bytes:
    """Return the payload alone."""
    return event.payload


def whole(event: StoredEvent) -> bytes:
    """Return everything that a runtime said of an event, as bytes to compare."""
    time = event.event_time if event.HasField("event_time") else None
    pushed = SyncEvent(
        event_type=event.event_type,
        event_time=time,
        attributes=event.attributes,
        payload=event.payload,
        is_final=event.is_final,
    )
    return pushed.SerializeToString(deterministic=True)


def whole_of_logged(event: LogEvent) -> bytes:
    """Return the same of an event in the agent's log."""
    assert event.payload is not None
    pushed = SyncEvent(
        event_type=event.event_type,
        attributes=event.attributes,
        payload=event.payload,
        is_final=event.is_final,
    )
    if event.event_time_nanos is not None:
        pushed.event_time.FromNanoseconds(event.event_time_nanos)
    return pushed.SerializeToString(deterministic=True)


class Program:
    """One of the two programs; the same one each time that it is started."""

    def __init__(
        self, arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Begin without a process; ``environment``: in place of this process's own."""
        self._arguments = arguments
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Start it and return the line that says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
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

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def pause(self) -> None:
        """Freeze it with SIGSTOP; it runs on with ``resume``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on. Does no harm to one that runs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Return how much memory it has in use now."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        (kibibytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(kibibytes) * 1024

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
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

    def agent_in(self, data: Path, *, hub_address: str = "") -> Program:
        """Return an agent of the one runtime over a data folder; ``hub_address``: not the hub's own."""
        address = hub_address or self.address
        arguments = ["runtime_agent", "start", "--hub", address, "--data", str(data)]
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
            unsynced_count = self.unsynced_count()
            if unsynced_count == 0:
                return
            assert time.monotonic() < deadline, unsynced_count
            time.sleep(0.1)

    def unsynced_count(self) -> int:
        """Return how many events the agent holds that the hub has not acknowledged."""
        status: dict[str, int] = json.loads(self.agent_command("status", "--json"))
        return status["unsynced_event_count"]

    def logged(self) -> dict[Run, list[bytes]]:
        """Return what lies in the agent's log, as ``whole`` events, and that its sequences have no gap."""
        reader = SqliteEventLogReader.open(str(self.data))
        logged: dict[Run, list[bytes]] = {}
        try:
            for state in reader.list_runs(after=None, limit=RUNS_MAX):
                events = reader.read_events(
                    state.run, after_sequence=0, count_max=state.last_sequence + 1, bytes_max=2**40
                )
                assert [event.sequence for event in events] == list(range(1, state.last_sequence + 1))
                logged[state.run.project_id, state.run.run_id] = [whole_of_logged(event) for event in events]
        finally:
            reader.close()
        return logged

    def cursors(self) -> dict[Run, int]:
        """Return up to where the hub says that it has each run without a gap."""
        with grpc.insecure_channel(self.address) as channel:
            request = ListRunsRequest(hub_project=HUB_PROJECT, page_size=RUNS_MAX)
            answer = SyncServiceStub(channel).ListRuns(request, timeout=SECONDS_MAX)
        assert not answer.next_page_token
        return {(run.project_id, run.run_id): run.cursor for run in answer.runs}

    def watched(self, content_of: Callable[[StoredEvent], bytes] = payload_of) -> list[OnHub]:
        """Return all that a watcher gets from the first event to the head."""
        events: list[OnHub] = []
        with grpc.insecure_channel(self.address) as channel:
            stub = SyncServiceStub(channel)
            call = stub.WatchEvents(WatchEventsRequest(hub_project=HUB_PROJECT), timeout=SECONDS_MAX)
            for answer in call:
                events.extend(
                    OnHub((event.project_id, event.run_id), event.sequence, event.position, content_of(event))
                    for event in answer.events
                )
                if not answer.events:
                    break
            call.cancel()
        return events


@contextmanager
def running_programs(folder: Path) -> Iterator[Programs]:
    """Give both programs running, and end both, however far they came."""
    programs = Programs(folder)
    try:
        programs.start()
        yield programs
    finally:
        programs.agent.stop()
        programs.hub.stop()
