"""The examples of the journal in docs/ run, and print what they promise."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.hub_client.client import HubClient

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


def test_the_example_of_a_shared_stream_refuses_the_late_commit_and_may_run_again(address: str) -> None:
    for first_token in (1, 3):
        assert printed_by("shared_stream.py", address) == [
            f"anna has the stream with token {first_token}",
            "anna commits 'sown'",
            "anna is frozen, with her next commit decided and not sent",
            f"bert has the stream with token {first_token + 1}",
            "bert commits 'watered'",
            "anna commits 'fenced': refused, SUPERSEDED",
            "bert commits 'harvested'",
            "the stream has: sown, watered, harvested",
        ]


def test_the_example_of_an_outbox_sends_each_letter_though_one_fails_at_first(address: str) -> None:
    for _ in range(2):
        assert printed_by("outbox.py", address) == [
            "taken: seeds",
            "failed: tools (the post office is closed)",
            "taken: bill",
            "taken: tools",
            "still to be sent: 0",
        ]


def test_the_example_of_a_read_model_counts_each_event_once(address: str, tmp_path: Path) -> None:
    for number in (1, 2):
        assert printed_by("projection.py", address, str(tmp_path / "harvest.db")) == [
            f"apples: {5 * number} kg",
            f"pears: {3 * number} kg",
            f"plums: {2 * number} kg",
            f"from {3 * number} events",
        ]


def test_the_program_of_the_page_commits_once_however_often_it_runs(address: str) -> None:
    page = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
    program = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)[0]
    program = program.replace("127.0.0.1:7443", address)
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-c", program]
        told = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert (told.returncode, told.stderr) == (0, "")
    with HubClient.connect(address, hub_project="home") as hub:
        assert [event.event_type for event in hub.stream_events("orders/7")] == ["order.paid"]
        assert [message.outbox_id for message in hub.list_outbox()] == ["receipt 7"]


def test_an_example_says_that_there_is_no_hub() -> None:
    command = [sys.executable, str(ROOT / "docs" / "examples" / "shared_stream.py"), "127.0.0.1:1"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("no hub can be reached at 127.0.0.1:1")
