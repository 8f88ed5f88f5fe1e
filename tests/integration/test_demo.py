"""``synchub demo`` as shipped: its figures, and that it leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SECONDS_MAX: Final = 120.0
COMMAND: Final = (sys.executable, "-m", "hub", "demo")


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # It has ended meanwhile.
            if os.fsencode(folder) in command:
                found.append(command.decode(errors="replace").replace("\0", " "))
    return found


def test_every_figure_is_as_it_must_be_and_none_is_missing(tmp_path: Path) -> None:
    told = subprocess.run(
        [*COMMAND, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=SECONDS_MAX,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found = {check["what"]: check for check in map(json.loads, told.stdout.splitlines())}
    assert [check for check in found.values() if not check["is_right"]] == []
    assert found["security alerts"]["found"] == "HOME_RUNTIME_MISMATCH, SEQUENCE_REUSED"
    assert found["events that the hub has twice"]["found"] == "0"
    lines, events = found["lines of installed.jsonl / events on the hub"]["found"].split(" / ")
    assert int(lines) == int(events) > 100
    taken = found["lease of a worker paused with SIGSTOP / of the next"]["found"]
    tokens = re.fullmatch(r"token (\d+) / token (\d+) after \d+\.\d s", taken)
    assert tokens is not None
    assert int(tokens[1]) < int(tokens[2])
    late = found["the paused worker's late write with its old token"]["found"]
    assert late == f"refused and it knows; the table has token {tokens[2]} of the second"
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_ended_in_the_middle_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    with subprocess.Popen(
        COMMAND, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as demo:
        assert demo.stderr is not None
        # Hub and agent run by the time that it says so.
        begin = demo.stderr.readline()
        assert "a hub listens on" in begin
        assert len(processes_in(tmp_path)) >= 2
        demo.send_signal(number)
        rest = demo.stderr.read()
        assert demo.wait(SECONDS_MAX) == exit_code
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []
