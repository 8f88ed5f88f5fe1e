"""The agent as a process: it starts, serves, stops in order, and nobody else gets its folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime_agent.core.values import RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader

STOP_SECONDS_MAX = 10.0
NO_HUB = "127.0.0.1:1"


def agent_command(folder: Path, *, runtime_id: str = "r1") -> list[str]:
    return [
        *(sys.executable, "-m", "runtime_agent", "start", "--hub", NO_HUB),
        *("--data", str(folder), "--hub-project", "hp", "--runtime-id", runtime_id),
    ]


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent that said it is ready; killed at the end where it still runs."""
    process = subprocess.Popen(
        agent_command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready: listening on {folder / 'agent.sock'}\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def append(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    return run(
        *(sys.executable, "-m", "runtime_agent", "append", "--data", str(folder)),
        *("--project", "p", "--run", "n1", "--type", "t", "--text", text),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_without_a_hub_takes_appends_and_stops_in_time(tmp_path: Path, number: int) -> None:
    with running(tmp_path) as process:
        appended = append(tmp_path, "one")
        assert (appended.stdout, appended.returncode) == ("1\n", 0)
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(STOP_SECONDS_MAX) == 0
        assert time.monotonic() - began < STOP_SECONDS_MAX
    assert not os.path.exists(tmp_path / "agent.sock")
    reader = SqliteEventLogReader.open(str(tmp_path))
    state = reader.load_run(RunKey("p", "n1"))
    reader.close()
    assert state is not None
    assert (state.last_sequence, state.acknowledged_sequence) == (1, 0)


def test_a_second_agent_on_the_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        second = run(*agent_command(tmp_path))
        assert second.returncode == 1
        assert f"already running (pid {process.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        assert append(tmp_path, "still served").stdout == "1\n"


def test_a_folder_of_another_runtime_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
    other = run(*agent_command(tmp_path, runtime_id="r2"))
    assert other.returncode == 1
    assert "belongs to runtime 'r1', not 'r2'" in other.stderr
    assert "Traceback" not in other.stderr
    with running(tmp_path):
        assert append(tmp_path, "again").stdout == "1\n"


def test_a_killed_agent_leaves_the_folder_to_the_next(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert append(tmp_path, "one").stdout == "1\n"
        process.kill()
        process.wait(STOP_SECONDS_MAX)
    with running(tmp_path):
        assert append(tmp_path, "two").stdout == "2\n"


def test_an_agent_whose_token_file_is_not_there_says_so_and_touches_nothing(tmp_path: Path) -> None:
    folder, token = tmp_path / "data", tmp_path / "token"
    refused = run(*agent_command(folder), "--token-file", str(token))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (f"runtime-agent: the file {token} cannot be read: No such file or directory\n")
    assert not folder.exists()
