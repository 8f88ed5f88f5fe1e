"""The command line beside a running agent that has no hub in sight; and the agent killed under it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.core.values import AppendRequest, LogEvent, NewEvent, RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_client import SocketLog

COMMAND: Final = (sys.executable, "-m", "runtime_agent")
SECONDS: Final = 60
START: Final = ("start", "--hub", "127.0.0.1:1", "--hub-project", "hp", "--runtime-id", "rt")


def begin_agent(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [*COMMAND, *START, "--data", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() != b""
    return process


def end(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGKILL) -> int:
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    return process.returncode


@pytest.fixture
def agent(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = begin_agent(tmp_path)
    yield process
    end(process)


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *arguments, "--data", str(folder)], capture_output=True, timeout=SECONDS, check=False
    )


def events(folder: Path, run_id: str) -> tuple[LogEvent, ...]:
    reader = SqliteEventLogReader.open(str(folder))
    try:
        return reader.read_events(RunKey("p", run_id), after_sequence=0, count_max=10**6, bytes_max=2**40)
    finally:
        reader.close()


APPEND: Final = ("append", "--project", "p", "--run", "r", "--type", "t", "--payload", "x")


def test_commands_go_through_the_agent(tmp_path: Path, agent: "subprocess.Popen[bytes]") -> None:
    file = tmp_path / "file.log"
    file.write_bytes(b"a\nb\n")
    assert run(tmp_path, *APPEND).stdout == b"1\n"
    for appended in (2, 0):
        done = run(tmp_path, "import", str(file), "--project", "p", "--json")
        assert json.loads(done.stdout)["appended_count"] == appended
    assert events(tmp_path, "file")[0].event_time_nanos is None
    status = json.loads(run(tmp_path, "status", "--json").stdout)
    assert (status["pid"], status["hub_project"], status["event_count"]) == (agent.pid, "hp", 3)


def test_a_second_agent_is_refused_with_the_pid_of_the_first(
    tmp_path: Path, agent: "subprocess.Popen[bytes]"
) -> None:
    done = run(tmp_path, *START)
    assert done.returncode == 1
    assert f"already running (pid {agent.pid}".encode() in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_agent_ends_in_order_and_the_folder_is_free(
    tmp_path: Path, agent: "subprocess.Popen[bytes]"
) -> None:
    run(tmp_path, *APPEND)
    assert end(agent, signal.SIGTERM) == 0
    assert not (tmp_path / "agent.sock").exists()
    assert run(tmp_path, *APPEND, "--wait", "0").stdout == b"2\n"


def test_another_runtime_cannot_start_on_the_folder(tmp_path: Path, agent: "subprocess.Popen[bytes]") -> None:
    end(agent, signal.SIGTERM)
    done = run(tmp_path, *START[:-1], "another")
    assert done.returncode == 1
    assert b"belongs to runtime 'rt'" in done.stderr


def test_what_the_agent_answered_survives_its_sigkill(
    tmp_path: Path, agent: "subprocess.Popen[bytes]"
) -> None:
    client = SocketLog.connect(str(tmp_path))
    assert client is not None
    futures = [
        client.append_soon(AppendRequest(RunKey("p", "many"), (NewEvent("t", b"x"),))) for _ in range(3000)
    ]
    futures[500].result(SECONDS)
    end(agent)
    answered = [future.result(SECONDS) for future in futures if future.exception(SECONDS) is None]
    client.close()
    assert len(answered) > 500
    sequences = [event.sequence for event in events(tmp_path, "many")]
    assert sequences == list(range(1, len(sequences) + 1))
    assert len(sequences) >= answered[-1].last_sequence
    assert run(tmp_path, *APPEND).stdout == b"1\n"


def test_exec_goes_on_when_its_agent_is_killed(tmp_path: Path, agent: "subprocess.Popen[bytes]") -> None:
    program = subprocess.Popen(
        [*COMMAND, "exec", "--project", "p", "--run", "e", "--data", str(tmp_path), "--", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    for number in range(20):
        if number == 10:
            end(agent)
        program.stdin.write(b"%d\n" % number)
        program.stdin.flush()
        assert program.stdout.readline() == b"%d\n" % number
    program.communicate(timeout=SECONDS)
    assert program.returncode == 0
    assert [event.payload for event in events(tmp_path, "e")] == [*(b"%d\n" % n for n in range(20)), b""]
