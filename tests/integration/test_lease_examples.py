"""The examples of leases in docs/ run, and print what they promise."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 60.0


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a hub process, on a port of its own."""
    command = [sys.executable, "-m", "hub", "serve", "--db", str(tmp_path / "hub.db")]
    command += ["--listen", "127.0.0.1:0", "--http", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:
        assert hub.stdout is not None
        yield hub.stdout.readline().split()[2]
        hub.terminate()
        hub.wait(SECONDS_MAX)


def printed_by(example: str, *arguments: str) -> list[str]:
    """What an example prints that must end with 0 and complain of nothing."""
    command = [sys.executable, "-W", "error", str(ROOT / "docs" / "examples" / example), *arguments]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout.splitlines()


def test_the_example_of_a_lease_loses_it_and_its_late_write_is_refused(address: str) -> None:
    assert printed_by("lease.py", address) == [
        "token 1 writes 'water at noon': written",
        "somebody else is told: held by worker",
        "token 2 writes 'water at night': written",
        "token 1 writes 'water at noon again': refused",
        "the first worker is told: SUPERSEDED",
        "its next check says so too: SUPERSEDED",
    ]


def test_the_example_of_turns_refuses_aborts_and_replaces(address: str) -> None:
    assert printed_by("turn_lease.py", address) == [
        "query q-1 has the topic roses, token 1",
        "bert's q-2 is refused: held by anna",
        "q-1 on lilies is refused: it holds roses",
        "q-1 is asked to stop: EXTERNAL",
        "anna's q-3 has it now, token 2, abort: False",
        "q-1 is told: SUPERSEDED",
    ]


def test_the_example_of_processes_serves_one_after_the_other(address: str) -> None:
    assert printed_by("process_lease.py", address) == [
        "anna serves with token 1",
        "anna has served",
        "bert serves with token 2",
        "bert has served",
    ]


@pytest.mark.parametrize("example", ["lease.py", "turn_lease.py"])
def test_an_example_may_run_again(address: str, example: str) -> None:
    first, again = (printed_by(example, address) for _ in range(2))
    assert first != again
    assert without_tokens(first) == without_tokens(again)


def without_tokens(lines: list[str]) -> list[str]:
    return [re.sub(r"token \d+", "token N", line) for line in lines]


def test_an_example_says_that_there_is_no_hub() -> None:
    command = [sys.executable, str(ROOT / "docs" / "examples" / "process_lease.py"), "127.0.0.1:1", "anna"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("no hub can be reached at 127.0.0.1:1")
