"""The command line as shipped: real processes, real files, no agent running."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.core.values import LogEvent, RunKey
from runtime_agent.event_log.opening import take_folder
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader

COMMAND: Final = (sys.executable, "-m", "runtime_agent")
SECONDS: Final = 60


def agent(folder: Path, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "RUNTIME_AGENT_DATA": str(folder)}
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        env=environment,
        check=False,
    )


def events(folder: Path, run: str, project: str = "p") -> tuple[LogEvent, ...]:
    reader = SqliteEventLogReader.open(str(folder))
    try:
        return reader.read_events(
            RunKey(project, run), after_sequence=0, count_max=1_000_000, bytes_max=2**40
        )
    finally:
        reader.close()


def assert_sentence(done: "subprocess.CompletedProcess[bytes]", code: int, *words: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert "Traceback" not in text
    for word in words:
        assert word in text


APPEND: Final = ("append", "--project", "p", "--run", "r", "--type", "t")


def test_append_prints_the_sequence_of_what_is_durable(tmp_path: Path) -> None:
    assert agent(tmp_path, *APPEND, "--payload", "a").stdout == b"1\n"
    done = agent(tmp_path, *APPEND, "--json", "--attribute", "k=v", "--final", stdin=b"\0raw\xff\n")
    assert json.loads(done.stdout) == {"project_id": "p", "run_id": "r", "sequence": 2, "is_repeat": False}
    first, second = events(tmp_path, "r")
    assert (first.payload, second.payload) == (b"a", b"\0raw\xff\n")
    assert (second.attributes, second.is_final) == ({"k": "v"}, True)


def test_append_refuses_with_a_sentence_and_writes_nothing(tmp_path: Path) -> None:
    agent(tmp_path, *APPEND, "--payload", "a", "--append-id", "one")
    assert_sentence(agent(tmp_path, *APPEND, "--payload", "b", "--append-id", "one"), 1, "append id 'one'")
    assert_sentence(agent(tmp_path, *APPEND, stdin=bytes(2**20 + 1)), 1, "1048577 bytes")
    assert_sentence(agent(tmp_path, *APPEND, "--time", "yesterday"), 2, "RFC 3339")
    assert_sentence(agent(tmp_path, *APPEND, "--attribute", "x"), 2, "KEY=VALUE")
    assert_sentence(agent(tmp_path, *APPEND, "--file", str(tmp_path / "none")), 2, "cannot be read")
    assert_sentence(agent(tmp_path, "append"), 2, "Missing option")
    assert len(events(tmp_path, "r")) == 1


def test_commands_without_a_log_say_so(tmp_path: Path) -> None:
    for arguments in (("status",), ("tail",), ("quarantine", "list")):
        assert_sentence(agent(tmp_path / "none", *arguments), 1, "there is no local log in")
    assert not (tmp_path / "none").exists()


def test_import_counts_and_refuses_a_changed_line_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "build.log"
    file.write_bytes(b"a\r\n\nc")
    done = agent(tmp_path / "data", "import", str(file), "--project", "p", "--json")
    assert json.loads(done.stdout)["appended_count"] == 3
    file.write_bytes(b"a\r\nchanged\nc\n")
    assert_sentence(agent(tmp_path / "data", "import", str(file), "--project", "p"), 1, "line 2 differs")
    assert [event.payload for event in events(tmp_path / "data", "build")] == [b"a\r", b"", b"c"]


def test_tail_resumes_after_a_local_position(tmp_path: Path) -> None:
    for payload in ("a", "b", "c"):
        agent(tmp_path, *APPEND, "--payload", payload)
    lines = agent(tmp_path, "tail", "--after", "1", "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["b", "c"]


def test_quarantine_is_listed_released_as_another_run_and_dropped(tmp_path: Path) -> None:
    agent(tmp_path, *APPEND, "--payload", "a")
    held = take_folder(str(tmp_path), role="test", wait_seconds=6)
    held.log.quarantine(RunKey("p", "r"), reason="SEQUENCE_REUSED", detail="why", sequence=1, now_nanos=1)
    held.close()
    (entry,) = agent(tmp_path, "quarantine", "list", "--json").stdout.splitlines()
    assert json.loads(entry)["reason"] == "SEQUENCE_REUSED"
    names = ("--project", "p", "--run", "r")
    assert b"why" in agent(tmp_path, "quarantine", "show", *names).stdout
    assert agent(tmp_path, "quarantine", "release", *names, "--as", "copy").returncode == 0
    assert [event.event_type for event in events(tmp_path, "copy")] == ["forked", "t"]
    assert agent(tmp_path, "quarantine", "drop", *names).returncode == 0
    assert_sentence(agent(tmp_path, "quarantine", "drop", *names), 1, "has no run 'r'")


# --- exec -----------------------------------------------------------------------------------------------


def execute(folder: Path, *command: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return agent(folder, "exec", "--project", "p", "--run", "r", "--", *command, stdin=stdin)


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_exec_passes_output_and_exit_code_on_and_keeps_them(tmp_path: Path, code: int) -> None:
    done = execute(tmp_path, "sh", "-c", f"printf 'a\\nb\\000\\nrest'; printf 'err\\n' >&2; exit {code}")
    assert (done.stdout, done.stderr, done.returncode) == (b"a\nb\0\nrest", b"err\n", code)
    found = events(tmp_path, "r")
    assert [event.payload for event in found if event.event_type == "stdout"] == [b"a\n", b"b\0\n", b"rest"]
    assert [event.payload for event in found if event.event_type == "stderr"] == [b"err\n"]
    assert (found[-1].event_type, found[-1].attributes) == ("exit", {"exit_code": str(code)})
    assert [event.is_final for event in found] == [False] * 4 + [True]


def test_exec_keeps_large_output_byte_for_byte(tmp_path: Path, rng: random.Random) -> None:
    content = b"".join(rng.randbytes(rng.choice((1, 50, 200_000))) + b"\n" for _ in range(60))
    done = execute(tmp_path, "cat", stdin=content)
    assert done.stdout == content
    found = [event.payload for event in events(tmp_path, "r") if event.event_type == "stdout"]
    assert b"".join(payload or b"" for payload in found) == content


def test_exec_of_what_cannot_run_has_the_exit_codes_of_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not executable")
    assert_sentence(execute(tmp_path / "a", str(tmp_path / "none")), 127, "No such file")
    assert_sentence(execute(tmp_path / "b", str(file)), 126, "Permission denied")
    assert events(tmp_path / "a", "r")[0].attributes["exit_code"] == "127"
    assert events(tmp_path / "b", "r")[0].attributes["exit_code"] == "126"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exec_hands_signals_on_and_tells_how_the_program_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "exec", "--project", "p", "--run", "r", "--data", str(tmp_path), "--",
         "sh", "-c", "echo begun; exec sleep 100"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    assert process.wait(SECONDS) == 128 + number
    process.stdout.close()
    assert events(tmp_path, "r")[-1].attributes == {
        "exit_code": str(128 + number),
        "signal": str(int(number)),
    }


def test_exec_runs_the_program_although_the_log_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "events.sqlite3").write_bytes(b"somebody else's file, not a database at all" * 50)
    done = execute(tmp_path, "sh", "-c", "echo out; exit 7")
    assert (done.stdout, done.returncode) == (b"out\n", 7)
    assert b"not in the local log" in done.stderr


def test_exec_into_a_run_that_has_ended_says_so_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    assert execute(tmp_path, "true").returncode == 0
    done = execute(tmp_path, "sh", "-c", "exit 5")
    assert_sentence(done, 5, "ended with its final event")
    assert len(events(tmp_path, "r")) == 1


def test_exec_does_not_keep_others_from_the_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "exec", "--project", "p", "--run", "r", "--data", str(tmp_path), "--",
         "sh", "-c", "echo begun; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert (
        agent(tmp_path, "append", "--project", "p", "--run", "other", "--type", "t", "--payload", "x").stdout
        == b"1\n"
    )
    process.communicate(b"\n", timeout=SECONDS)
    assert [event.event_type for event in events(tmp_path, "r")] == ["stdout", "exit"]


# --- SIGKILL --------------------------------------------------------------------------------------------

APPENDER: Final = """
import sys
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import open_local_log
with open_local_log(sys.argv[1]) as log:
    while True:
        appended = log.append(AppendRequest(RunKey("p", "r"), (NewEvent("t", b"x" * 100),)))
        print(appended.last_sequence, flush=True)
"""


def test_what_was_answered_is_there_after_sigkill_and_sequences_have_no_gap(
    tmp_path: Path, rng: random.Random
) -> None:
    answered = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert int(process.stdout.readline()) > answered
        time.sleep(rng.uniform(0.0, 0.1))  # the moment of the kill is what is random
        process.kill()
        printed = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        process.wait()
        process.stdout.close()
        answered = int(printed[-1]) if printed else answered
        found = events(tmp_path, "r")
        assert [event.sequence for event in found] == list(range(1, len(found) + 1))
        assert len(found) >= answered
    assert answered > 8


def test_an_import_that_was_killed_goes_on_where_it_was(tmp_path: Path, rng: random.Random) -> None:
    lines = [b"%d %s" % (number, b"x" * 80) for number in range(150_000)]
    file = tmp_path / "big.log"
    file.write_bytes(b"\n".join(lines) + b"\n")
    arguments = ("import", str(file), "--project", "p", "--data", str(tmp_path / "data"))
    for _ in range(3):
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.5, 1.2))  # the moment of the kill is what is random
        process.kill()
        process.wait()
    done = agent(tmp_path / "data", *arguments, "--json")
    counts = json.loads(done.stdout)
    assert counts["appended_count"] + counts["known_count"] == len(lines)
    assert [event.payload for event in events(tmp_path / "data", "big")] == lines
