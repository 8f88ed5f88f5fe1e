"""What docs/ tells is true: its examples run, its vectors are right, its commands do what it says."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from synchub.v1.lease_service_pb2 import StaleCause

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
SECONDS_MAX: Final = 60.0
ADDRESS: Final = "127.0.0.1:7443"
TAKE_A_LEASE: Final = """
import sys, grpc
from synchub.v1.lease_service_pb2 import AcquireLeaseRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
request = AcquireLeaseRequest(
    hub_project="home", resource="garden-db", runtime_id="me", holder_id="worker-1", ttl={"seconds": 60})
with grpc.insecure_channel(sys.argv[1]) as channel:
    LeaseServiceStub(channel).AcquireLease(request, timeout=10)
"""


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
    (script,) = (block for block in blocks("wire.md", "sh") if "PushEvents" in block)
    told = run(["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, address)], folder=ROOT)
    answer, read = json.loads("[" + told.replace("}\n{", "},\n{") + "]")
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    assert answer["accepted_count"] == 2
    assert f"`{answer['chain_hash']}`" in page
    assert read["run"]["is_complete"]
    assert read["run"]["chain_hash"] == answer["chain_hash"]


def test_the_commands_of_the_page_take_a_lease_through_its_life(address: str) -> None:
    if not (ROOT / ".venv-grpcurl" / "bin" / "grpcurl").exists():
        pytest.skip("no grpcurl: scripts/setup installs it on x86-64 Linux")
    (script,) = (block for block in blocks("wire.md", "sh") if "LeaseService/$1" in block)
    told = run(["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, address)], folder=ROOT)
    acquired, renewed, checked, aborted, _, state = json.loads("[" + told.replace("}\n{", "},\n{") + "]")
    assert (acquired["lease"]["fencing_token"], acquired["lease"]["ttl"]) == ("1", "30s")
    assert renewed["lease"]["state"] == "LEASE_STATE_LIVE"
    assert checked["is_current"]
    assert aborted["lease"]["is_abort_requested"]
    assert state["lease"]["state"] == "LEASE_STATE_RELEASED"


def test_the_commands_of_the_page_commit_read_and_deliver(address: str) -> None:
    if not (ROOT / ".venv-grpcurl" / "bin" / "grpcurl").exists():
        pytest.skip("no grpcurl: scripts/setup installs it on x86-64 Linux")
    told: list[str] = []
    for mark in ("JournalService/Commit", "AcknowledgeOutboxMessage"):
        (script,) = (block for block in blocks("wire.md", "sh") if mark in block)
        told.append(run(["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, address)], folder=ROOT))
    answers = json.loads("[" + "".join(told).replace("}\n{", "},\n{") + "]")
    _, committed, again, stream, streams, projection, journal, outbox, returned, late = answers
    assert (committed["revision"], committed["positions"], "recovered" in committed) == ("1", ["1"], False)
    assert again.pop("recovered")
    assert again == committed
    (event,) = stream["events"]
    assert (event["event_id"], event["text"], stream["done"]) == ("placed-7", "two chairs", True)
    assert [each["stream_id"] for each in streams["streams"]] == ["order-7"]
    assert b64decode(projection["projection"]["value"]) == b"2 chairs"
    assert [each["position"] for each in journal["events"]] == ["1"]
    assert [each["text"] for each in outbox["messages"]] == ["thank you"]
    assert returned == {"outcome": "OUTBOX_OUTCOME_DONE", "state": "OUTBOX_MESSAGE_STATE_PENDING"}
    assert late == {"outcome": "OUTBOX_OUTCOME_CLAIM_LOST"}


def test_the_pages_of_leases_name_each_reason_that_the_contract_has() -> None:
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    causes = [name.removeprefix("STALE_CAUSE_") for name in StaleCause.keys()[1:]]
    assert re.findall(r"^\| `(LEASE_\w+)`", page, re.M)[: len(causes)] == causes


def test_the_statement_of_the_page_on_fencing_is_the_one_of_the_example() -> None:
    (statement,) = blocks("fencing.md", "sql")
    assert statement in (EXAMPLES / "fenced_store.py").read_text(encoding="utf-8")


def test_the_example_of_a_store_refuses_the_older_token() -> None:
    printed = run([sys.executable, "-I", "-S", str(EXAMPLES / "fenced_store.py")], folder=ROOT)
    assert printed.splitlines() == [
        "the first holder checks token 1: current",
        "the second holder writes with token 2: 'final text'",
        "the first holder writes with token 1: refused, still 'final text'",
        "its transaction over many rows: refused, nothing of it is stored",
        "the same write into a table without tokens: 'old text', and nobody is told",
    ]


def test_the_commands_of_the_page_on_fencing_do_what_an_operator_does(address: str) -> None:
    (script,) = blocks("fencing.md", "sh")
    environment = {**os.environ, "SYNCHUB_HUB": address}
    take = f"{sys.executable} -c {shlex.quote(TAKE_A_LEASE)} {address}"
    script = script.replace("./repair", "sh -c 'echo repairs with token $SYNCHUB_FENCING_TOKEN'")
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{take}\n{script}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert re.search(r"holder +worker-1", told.stdout)
    assert "asked worker-1 of me to stop: garden-db, token 1, EXTERNAL" in told.stdout
    assert "repairs with token 2" in told.stdout
    assert "garden-db is free again" in told.stderr


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
