"""What docs/ tells is true: its examples run, its vectors are right, its commands do what it says."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
SECONDS_MAX: Final = 60.0
ADDRESS: Final = "127.0.0.1:7443"


def blocks(page: str, language: str) -> list[str]:
    """Fenced blocks of a page in docs/."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def run(command: list[str], *, folder: Path) -> str:
    """What a command prints that must end with 0."""
    told = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


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


def test_the_vectors_of_the_page_are_what_the_example_computes() -> None:
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    printed = run([sys.executable, "-I", "-S", str(EXAMPLES / "hashes.py")], folder=ROOT)
    computed = re.findall(r"[0-9a-f]{64}", printed)
    assert len(computed) == 5
    assert re.findall(r"`([0-9a-f]{64})`", page) == computed


def test_the_commands_of_the_page_push_and_read_a_run(address: str) -> None:
    if not (ROOT / ".venv-grpcurl" / "bin" / "grpcurl").exists():
        pytest.skip("no grpcurl: scripts/setup installs it on x86-64 Linux")
    (script,) = blocks("wire.md", "sh")
    told = run(["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, address)], folder=ROOT)
    answer, read = json.loads("[" + told.replace("}\n{", "},\n{") + "]")
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    assert answer["accepted_count"] == 2
    assert f"`{answer['chain_hash']}`" in page
    assert read["run"]["is_complete"]
    assert read["run"]["chain_hash"] == answer["chain_hash"]


def test_the_example_that_pushes_sees_its_events_once(address: str) -> None:
    printed = run([sys.executable, str(EXAMPLES / "push_and_watch.py"), address], folder=ROOT)
    assert printed.splitlines() == [
        "2 accepted, 0 duplicate",
        "0 accepted, 2 duplicate",
        "1 note b'sown'",
        "2 note b'fenced'",
    ]


def test_the_example_that_appends_may_run_again(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "append_locally.py"), str(tmp_path / "agent")]
    first, again = run(command, folder=ROOT), run(command, folder=ROOT)
    assert first == again == "sequences 1 and 2 are on stable storage\n"
    tail = [sys.executable, "-m", "runtime_agent", "tail", "--json", "--data", str(tmp_path / "agent")]
    assert len(run(tail, folder=ROOT).splitlines()) == 2


def test_the_settings_file_of_the_page_is_taken(tmp_path: Path) -> None:
    (settings,) = blocks("running.md", "toml")
    settings = settings.replace("/var/lib/synchub", str(tmp_path))
    file = tmp_path / "hub.toml"
    file.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", settings), encoding="utf-8")
    command = [sys.executable, "-m", "hub", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:
        assert hub.stdout is not None
        listening = hub.stdout.readline().split()[2]
        told = run([sys.executable, "-m", "hub", "info", "--hub", listening], folder=ROOT)
        hub.send_signal(signal.SIGTERM)
        assert hub.wait(SECONDS_MAX) == 0
    assert re.search(r"presence_ttl +60\.0", told)
    assert (tmp_path / "hub.db").is_file()
