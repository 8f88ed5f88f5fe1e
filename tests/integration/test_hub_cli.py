"""The commands of ``synchub`` that ask a hub, as shipped: real processes on loopback."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.integration.hub_process import (
    HUB_PROJECT,
    SECONDS_MAX,
    SYNCHUB,
    HubProcess,
    environment_for,
    synchub,
)

PAYLOADS: Final = [b"first line\r", b"", b"\xff\x00 no text", "é \x1b[31m".encode()]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with one complete run of four odd payloads, and an alert."""
    process = HubProcess(tmp_path_factory.mktemp("hub") / "hub.db")
    with grpc.insecure_channel(process.address) as channel:
        stub = SyncServiceStub(channel)
        batch = [
            SyncEvent(sequence=n, event_type="line", payload=payload, is_final=n == len(PAYLOADS))
            for n, payload in enumerate(PAYLOADS, start=1)
        ]
        reused = [SyncEvent(sequence=1, event_type="line", payload=b"other")]
        for events in (batch, reused):
            push(stub, events)
    yield process
    process.stop()


def push(stub: SyncServiceStub, events: list[SyncEvent], run_id: str = "run") -> None:
    request = PushEventsRequest(
        hub_project=HUB_PROJECT, project_id="project", run_id=run_id, runtime_id="runtime", events=events
    )
    (response,) = stub.PushEvents(iter([request]), timeout=SECONDS_MAX)
    assert response.run_id == run_id


def test_runs_are_a_table_for_people_and_json_for_programs(hub: HubProcess) -> None:
    table = synchub(hub.address, "runs")
    assert table.code == 0
    assert table.out.splitlines()[0].split()[:3] == ["PROJECT", "RUN", "RUNTIME"]
    assert "project" in table.out.splitlines()[1]
    (run,) = synchub(hub.address, "runs", "--complete", "--json").json_lines()
    assert (run["run_id"], run["cursor"], run["is_complete"]) == ("run", 4, True)
    assert synchub(hub.address, "runs", "project", "run", "--json").json_lines() == [run]
    assert synchub(hub.address, "runs", "--incomplete").out == "no runs\n"


def test_events_are_shown_without_what_could_steer_a_terminal(hub: HubProcess) -> None:
    shown = synchub(hub.address, "events", "project", "run").out
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
    assert "(10 bytes) ff 00" in shown
    events = synchub(hub.address, "events", "project", "run", "--newest", "2", "--json").json_lines()
    assert [(each["sequence"], each.get("text"), each.get("payload")) for each in events] == [
        (3, None, "/wAgbm8gdGV4dA=="),
        (4, "é \x1b[31m", None),
    ]


def test_a_raw_export_is_the_payloads_as_they_came(hub: HubProcess, tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    told = synchub(hub.address, "export", "project", "run", "--raw", "--output", str(file))
    assert (told.code, told.out, told.error) == (0, "", "")
    assert file.read_bytes() == b"".join(payload + b"\n" for payload in PAYLOADS)
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_is_a_line_of_json_an_event(hub: HubProcess) -> None:
    lines = synchub(hub.address, "export", "project").json_lines()
    assert [(each["run_id"], each["sequence"]) for each in lines if each["run_id"] == "run"] == [
        ("run", n) for n in range(1, 5)
    ]


def test_an_export_to_a_pipe_is_written_to_it_and_leaves_it_a_pipe(hub: HubProcess, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        told = synchub(hub.address, "export", "-o", str(pipe))
        assert told.code == 0, told.error
        assert reader.stdout is not None
        assert reader.stdout.read() == synchub(hub.address, "export").out
    assert pipe.is_fifo()


def test_output_that_cannot_be_written_is_a_sentence(hub: HubProcess) -> None:
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run(
            [SYNCHUB, "runs"],
            env=environment_for(hub.address),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert (told.returncode, told.stderr) == (
        1,
        "synchub: cannot write the output: No space left on device\n",
    )


def test_an_export_that_fails_leaves_no_file(hub: HubProcess, tmp_path: Path) -> None:
    told = synchub(hub.address, "export", "nowhere", "--output", str(tmp_path / "file"))
    assert (told.code, told.error) == (1, "synchub: there is no project with project id 'nowhere'\n")
    assert list(tmp_path.iterdir()) == []


def test_an_alert_is_listed_and_acknowledged(hub: HubProcess) -> None:
    (alert,) = synchub(hub.address, "alerts", "list", "--json").json_lines()
    assert (alert["reason"], alert["seen_count"]) == ("SEQUENCE_REUSED", 1)
    assert "SEQUENCE_REUSED" in synchub(hub.address, "alerts", "list").out
    told = synchub(hub.address, "alerts", "ack", str(alert["alert_id"]))
    assert told.out == f"acknowledged {alert['alert_id']}: SEQUENCE_REUSED, seen 1 times\n"
    assert synchub(hub.address, "alerts", "list").out == "no alerts\n"
    assert len(synchub(hub.address, "alerts", "list", "--all", "--json").json_lines()) == 1


def test_projects_are_bound_listed_and_released(hub: HubProcess) -> None:
    assert synchub(hub.address, "projects", "bind", "new").code == 0
    listed = synchub(hub.address, "projects", "list", "--json").json_lines()
    assert [each["project_id"] for each in listed] == ["new", "project"]
    assert synchub(hub.address, "projects", "release", "new").out == "new belongs to nobody now\n"
    told = synchub(hub.address, "projects", "release", "project")
    assert told.code == 1
    assert "a project with events is bound for good" in told.error


def test_runtimes_and_the_hub_itself_are_told(hub: HubProcess) -> None:
    assert synchub(hub.address, "runtimes").out == "no runtimes\n"
    (info,) = synchub(hub.address, "info", "--json").json_lines()
    assert info["engine"] == "sqlite"
    assert "hub generation" in synchub(hub.address, "info").out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["runs", "project", "none"], 1, "there is no run with project id 'project', run id 'none'"),
        (["events", "project"], 2, "Missing argument"),
        (["runtimes", "--state", "odd"], 2, "--state 'odd' is not one of online, offline, lost"),
        (["runs", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
        (["tail", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
        (["runs", "--hub", "nonsense"], 2, "has no host or no port"),
        (["runs", "--hub-project", ""], 2, "no hub project is given"),
        (["runs", "--limit", "9223372036854775808"], 2, "is larger than 9223372036854775807"),
        (["events", "project", "\udcff"], 2, "'\\udcff' is not UTF-8"),
    ],
)
def test_a_mistake_is_one_sentence_and_never_a_traceback(
    hub: HubProcess, *, arguments: list[str], code: int, sentence: str
) -> None:
    told = synchub(hub.address, *arguments)
    assert told.code == code
    assert sentence in told.error
    assert "Traceback" not in told.error
    assert told.out == ""


def test_a_tail_goes_on_where_it_was_when_the_hub_comes_back(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    arguments = ["tail", "--json", "--hub", hub.address, "--hub-project", HUB_PROJECT]
    tail = subprocess.Popen([SYNCHUB, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None
        assert tail.stderr is not None
        for n in (1, 2):
            with grpc.insecure_channel(hub.address) as channel:
                push(SyncServiceStub(channel), [SyncEvent(sequence=n, event_type="line", text=str(n))])
            assert json.loads(tail.stdout.readline())["sequence"] == n
            if n == 1:
                hub.stop()
                assert "trying again in" in tail.stderr.readline()
                hub = HubProcess(tmp_path / "hub.db", listen=hub.address)
        tail.send_signal(signal.SIGINT)
        out, error = tail.communicate(timeout=SECONDS_MAX)
        assert out == ""
        assert "Traceback" not in error
    finally:
        tail.kill()
        tail.communicate()
        hub.stop()
