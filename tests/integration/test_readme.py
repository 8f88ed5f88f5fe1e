"""What README.md tells a newcomer to type, typed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.contract.tls import Authority, CertificateFolder

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 120.0
BLOCKS: Final = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
README_ADDRESS: Final = "127.0.0.1:7443"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Give the address of a hub process, on a port of its own."""
    command = [sys.executable, "-m", "hub", "serve", "--db", str(tmp_path / "hub.db")]
    command += ["--listen", "127.0.0.1:0", "--http", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:
        assert hub.stdout is not None
        yield hub.stdout.readline().split()[2]
        hub.terminate()
        hub.wait(SECONDS_MAX)


def block_with(language: str, words: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and words in text]
    return str(found)


def run_shell(script: str) -> "subprocess.CompletedProcess[str]":
    # -e and pipefail: the first command that fails ends it. A watch that reaches its -max-time does not.
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_the_grpcurl_section_works_as_written(address: str) -> None:
    if not (ROOT / ".venv-grpcurl" / "bin" / "grpcurl").exists():
        pytest.skip("no grpcurl: scripts/setup installs it on x86-64 Linux")
    script = block_with("sh", "PushEvents").replace(README_ADDRESS, address)
    told = run_shell(script.rstrip() + " || true")
    assert told.returncode == 0, told.stderr
    assert "synchub.v1.SyncService" in told.stdout.splitlines()
    assert '"accepted_count": 2' in told.stdout
    assert '"progress_position": "2"' in told.stdout
    again = run_shell(script.rstrip() + " || true")
    assert '"duplicate_count": 2' in again.stdout


def test_the_descriptor_set_that_is_shipped_tells_the_comments() -> None:
    grpcurl = ROOT / ".venv-grpcurl" / "bin" / "grpcurl"
    if not grpcurl.exists():
        pytest.skip("no grpcurl: scripts/setup installs it on x86-64 Linux")
    command = [
        str(grpcurl),
        "-protoset",
        "protos/synchub/v1/synchub.protoset",
        "describe",
        "synchub.v1.SyncEvent",
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert "given by the runtime and never changed" in told.stdout


def test_the_python_example_prints_what_was_pushed(address: str, tmp_path: Path) -> None:
    for sequence, text in enumerate(("watered", "weeded"), 1):
        push(address, sequence, text)
    example = tmp_path / "example.py"
    example.write_text(block_with("python", "list_events").replace(README_ADDRESS, address))
    told = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=SECONDS_MAX, check=True
    )
    assert told.stdout.splitlines() == ["1 note b'watered'", "2 note b'weeded'"]


def push(address: str, sequence: int, text: str) -> None:
    code = (
        "import sys, grpc\n"
        "from synchub.v1.sync_event_pb2 import SyncEvent\n"
        "from synchub.v1.sync_service_pb2 import PushEventsRequest\n"
        "from synchub.v1.sync_service_pb2_grpc import SyncServiceStub\n"
        "event = SyncEvent(sequence=int(sys.argv[2]), event_type='note', text=sys.argv[3])\n"
        "request = PushEventsRequest(hub_project='home', project_id='garden', run_id='monday',\n"
        "                            runtime_id='me', events=[event])\n"
        "with grpc.insecure_channel(sys.argv[1]) as channel:\n"
        "    (answer,) = SyncServiceStub(channel).PushEvents(iter([request]), timeout=10)\n"
        "assert answer.accepted_count == 1\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, address, str(sequence), text], timeout=SECONDS_MAX, check=True
    )


def test_the_agent_section_works_as_written(address: str, tmp_path: Path) -> None:
    start = block_with("sh", "runtime-agent start --hub 127.0.0.1").replace(README_ADDRESS, address).split()
    start[0] = str(ROOT / start[0])
    with subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        (tmp_path / "results.jsonl").write_text('{"ok": true}\n{"ok": false}\n')
        script = block_with("sh", "runtime-agent exec").replace("make test", "echo tested")
        script = script.replace(".venv/bin/", f"{ROOT}/.venv/bin/").replace(
            " --hub-project home", f" --hub {address} --hub-project home"
        )
        # A tail ends only by Ctrl-C; and what it shows is in the export as well.
        lines = [line for line in script.splitlines() if "bin/synchub tail" not in line]
        local = [line for line in lines if "bin/runtime-agent" in line]
        asks = [line for line in lines if "bin/synchub" in line]
        wait = f"until {asks[-1]} | grep -q tested; do sleep 0.1; done"
        told = run_shell("\n".join([f"cd {tmp_path}", *local, wait, *asks]))
        agent.terminate()
        agent.wait(SECONDS_MAX)
    assert told.returncode == 0, told.stderr
    assert re.search(r"garden +nightly +laptop-1 +2 +2 +yes", told.stdout)
    assert re.search(r"garden +log +laptop-1 +1 +1 +no", told.stdout)
    assert re.search(r"garden +results +laptop-1 +2 +2 +no", told.stdout)
    assert "\ntested\n" in told.stdout


def test_the_lease_of_the_python_example_is_what_the_commands_of_an_operator_show(
    address: str, tmp_path: Path
) -> None:
    example = tmp_path / "example.py"
    example.write_text(block_with("python", "lease.check()").replace(README_ADDRESS, address))
    told = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=SECONDS_MAX, check=True
    )
    assert told.stdout == "write with token 1\n"
    script = block_with("sh", "synchub leases").replace("./repair", "echo repairs")
    # A watch ends only by Ctrl-C; and nobody holds the lease any more who could be asked to stop.
    lines = [
        line for line in script.splitlines() if "leases watch" not in line and "leases abort" not in line
    ]
    state = f"export SYNCHUB_HUB={address} XDG_STATE_HOME={tmp_path}"
    told = run_shell("\n".join([state, *lines]))
    assert told.returncode == 0, told.stderr
    assert re.search(r"garden-db +RELEASED +1 +0 +planner", told.stdout)
    assert re.search(r"last token given +1", told.stdout)
    assert "(30 min 0 s from now), epoch 1, token 2" in told.stdout
    assert "garden-db is free again, epoch 1\nrepairs\n" in told.stdout


def test_the_commit_of_the_python_example_is_what_the_commands_show(address: str, tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(block_with("python", "hub.commit").replace(README_ADDRESS, address))
    for _ in range(2):  # sent again, it gives the stored result
        told = subprocess.run(
            [sys.executable, str(example)], capture_output=True, text=True, timeout=SECONDS_MAX, check=True
        )
        assert told.stdout == "order 7 is at revision 1\n"
    # A tail ends only by Ctrl-C.
    script = block_with("sh", "synchub journal")
    lines = [line for line in script.splitlines() if "journal tail" not in line]
    told = run_shell("\n".join([f"export SYNCHUB_HUB={address} COLUMNS=200", *lines]))
    assert told.returncode == 0, told.stderr
    assert re.search(r"^orders/7 +1 +1 ", told.stdout, re.M)
    assert re.search(r"^1 .* order\.paid +order 7 paid +1 +12 EUR", told.stdout, re.M)
    assert re.search(r"^receipt 7 +mail +PENDING +0 ", told.stdout, re.M)
    assert "receipt 7 may be tried for mail from " in told.stdout


def test_the_network_section_works_as_written(tmp_path: Path) -> None:
    authority = Authority()
    CertificateFolder(tmp_path).put(authority.server())
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    script = block_with("sh", "--role admin").replace(".venv/bin/", f"{ROOT}/.venv/bin/").replace("\\\n", " ")
    first, folder, serve, export, create, start = script.splitlines()
    prelude = [f"cd {tmp_path}", first, folder]
    assert run_shell("\n".join(prelude)).returncode == 0
    command = serve.replace("0.0.0.0:7443", "127.0.0.1:0 --http none").split()
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as hub:
        assert hub.stdout is not None
        address = hub.stdout.readline().split()[2]
        hub_environment = [f"cd {tmp_path}", f"export SYNCHUB_HUB={address}", export]
        made = run_shell("\n".join([*hub_environment, create]))
        assert made.returncode == 0, made.stderr
        words = start.replace("hub.example.org:7443", address).split()
        with subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as agent:
            assert agent.stdout is not None
            agent.stdout.readline()
            event = "--data agent --project garden --run log --type note --text rain"
            append = f"{ROOT}/.venv/bin/runtime-agent append {event}"
            is_there = f"until {ROOT}/.venv/bin/synchub runs | grep -q garden; do sleep 0.1; done"
            told = run_shell("\n".join([*hub_environment, append, is_there]))
            assert told.returncode == 0, told.stderr
            agent.terminate()
            agent.wait(SECONDS_MAX)
        told = run_shell(
            "\n".join(
                [*hub_environment, block_with("sh", "synchub backup").replace(".venv", f"{ROOT}/.venv")]
            )
        )
        hub.terminate()
        hub.wait(SECONDS_MAX)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "new.db").exists()
