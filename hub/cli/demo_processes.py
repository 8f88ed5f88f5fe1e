"""The programs that the demo runs, as real processes in a folder of their own."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hub.cli.output import CommandFailed

READY_SECONDS_MAX: Final = 30.0
"""How long a program may take until it says that it is ready."""
STOP_SECONDS_MAX: Final = 15.0
"""How long a program may take to stop before it is killed."""
COMMAND_SECONDS_MAX: Final = 120.0
"""How long a command of the agent may take."""

HUB_PROJECT: Final = "demo"
RUNTIME_ID: Final = "demo-runtime"


class DemoProcesses:
    """A hub and an agent, and commands of the agent; ended together by ``close``."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet; everything that they write lies in the folder."""
        self._folder = folder
        self._environment = _environment_without_settings(folder / "agent.toml")
        self._data = folder / "agent"
        self._listen = "127.0.0.1:0"
        self._hub: subprocess.Popen[str] | None = None
        self._started: list[subprocess.Popen[str] | subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """Where the hub listens, or did before it was killed."""
        return self._listen

    @property
    def hub_pid(self) -> int:
        """The hub's process id."""
        return self._hub.pid if self._hub is not None else 0

    def start_hub(self) -> None:
        """Start the hub, on the port that it had before."""
        command = ["hub", "serve", "--db", str(self._folder / "hub.db")]
        self._hub, line = self._start([*command, "--listen", self._listen, "--http", "none"], log="hub.log")
        self._listen = line.split()[2]

    def kill_hub(self) -> None:
        """End the hub with SIGKILL: it gets no chance to finish anything."""
        if self._hub is not None:
            self._hub.send_signal(signal.SIGKILL)
            self._hub.wait(STOP_SECONDS_MAX)

    def start_agent(self) -> None:
        """Start the agent and wait until it takes appends."""
        command = ["runtime_agent", "start", "--hub", self._listen, "--data", str(self._data)]
        command += ["--hub-project", HUB_PROJECT, "--runtime-id", RUNTIME_ID]
        self._start(command, log="agent.log")

    def start_command(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command of the agent with both its outputs kept."""
        name, *rest = arguments
        command = [sys.executable, "-m", "runtime_agent", name, "--data", str(self._data), *rest]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment
        )
        self._started.append(process)
        return process

    def run_command(self, arguments: Sequence[str]) -> bytes:
        """Run a command of the agent to its end and return what it printed.

        Raises: CommandFailed with what it said on standard error.
        """
        return self.finish_command(self.start_command(arguments))

    def finish_command(self, process: subprocess.Popen[bytes]) -> bytes:
        """Wait for a command of the agent that was started and return what it printed.

        Raises: CommandFailed with what it said on standard error.
        """
        try:
            output, errors = process.communicate(timeout=COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise CommandFailed("a command of runtime-agent did not end in time") from error
        if process.returncode != 0:
            raise CommandFailed(f"runtime-agent failed: {errors.decode(errors='replace').strip()}")
        return output

    def start_worker(self, resource: str, table: Path, *, holder: str) -> "DemoWorker":
        """Start a worker that writes to a table under a lease."""
        command = [sys.executable, "-m", "runtime_agent.demo_worker", self._listen, HUB_PROJECT]
        with (self._folder / f"worker-{holder}.log").open("ab") as errors:
            process = subprocess.Popen(
                [*command, resource, str(table), holder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )
        self._started.append(process)
        return DemoWorker(process)

    def unsynced_count(self) -> int:
        """Return how many events the agent holds that no hub has acknowledged."""
        status: dict[str, int] = json.loads(self.run_command(["status", "--json"]))
        return status["unsynced_event_count"]

    def close(self) -> None:
        """End what still runs, each by its own pid, the latest first; a second Ctrl-C kills them."""
        for process in reversed(self._started):
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # one that is paused hears nothing else
                try:
                    process.wait(STOP_SECONDS_MAX)
                except (subprocess.TimeoutExpired, KeyboardInterrupt):
                    process.kill()
                    process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def _start(self, arguments: Sequence[str], *, log: str) -> tuple[subprocess.Popen[str], str]:
        """Start a program and return it with the line that says that it is ready."""
        with (self._folder / log).open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )
        self._started.append(process)
        assert process.stdout is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline and process.poll() is None:
            if select.select([process.stdout], [], [], 0.1)[0]:
                line = process.stdout.readline()
                if line:
                    return process, line
        process.kill()
        process.wait()
        said = (self._folder / log).read_text(errors="replace").strip().splitlines()
        raise CommandFailed(f"{arguments[0]} did not start: {said[-1] if said else 'it said nothing'}")


def _environment_without_settings(agent_file: Path) -> dict[str, str]:
    """Return this environment without what is meant for other hubs and agents, such as tokens.

    ``agent_file``: stands in for the settings file that the agent would look for.
    """
    agent_file.touch()
    settings = ("SYNCHUB_", "RUNTIME_AGENT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    return {**kept, "RUNTIME_AGENT_CONFIG": str(agent_file)}


class DemoWorker:
    """A worker that does what it is told, line by line; ended by ``DemoProcesses.close``."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """It may still be starting."""
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def tell(self, what: str) -> dict[str, int]:
        """Tell it what to do and return its answer. Raises: CommandFailed where it gives none."""
        self.send(what)
        return self.answer()

    def send(self, what: str) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise CommandFailed("a worker ended too early") from error

    def answer(self) -> dict[str, int]:
        """Return its next answer. Raises: CommandFailed where it gives none."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], READY_SECONDS_MAX)[0]:
            raise CommandFailed("a worker did not answer in time")
        line = self._process.stdout.readline()
        if not line:
            raise CommandFailed("a worker ended too early")
        answer: dict[str, int] = json.loads(line)
        return answer
