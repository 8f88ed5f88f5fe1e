"""``synchub prune`` as shipped: over a hub, and over a store that no hub serves."""

import os
import pty
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import ExportEventsRequest, PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.integration.hub_process import (
    HUB_PROJECT,
    SECONDS_MAX,
    SYNCHUB,
    HubProcess,
    environment_for,
    synchub,
)

EVENTS: Final = 5
OLD: Final = "1s"
SAID: Final = "5 payloads (1 KiB) of 5 events, 0 ended leases, 0 receipts and the presence of 0 runtimes"


class Hub:
    """A hub with a run in it, all of which is old."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "hub.db"
        self._process: HubProcess | None = None
        self.start()

    @property
    def address(self) -> str:
        assert self._process is not None
        return self._process.address

    def start(self) -> None:
        self._process = HubProcess(self.database)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def fill(self) -> None:
        batch = [SyncEvent(sequence=n, event_type="line", payload=b"payload") for n in range(1, EVENTS + 1)]
        request = PushEventsRequest(
            hub_project=HUB_PROJECT, project_id="p", run_id="r", runtime_id="runtime", events=batch
        )
        with grpc.insecure_channel(self.address) as channel:
            (answer,) = SyncServiceStub(channel).PushEvents(iter([request]), timeout=SECONDS_MAX)
        assert answer.accepted_count == EVENTS
        time.sleep(1)  # by the wall clock of another process

    def payload_count(self) -> int:
        with grpc.insecure_channel(self.address) as channel:
            request = ExportEventsRequest(hub_project=HUB_PROJECT)
            answers = list(SyncServiceStub(channel).ExportEvents(request, timeout=SECONDS_MAX))
        return sum(not event.payload_dropped for answer in answers for event in answer.events)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    hub.fill()
    yield hub
    hub.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub of which nothing is ever pruned."""
    hub = Hub(tmp_path_factory.mktemp("whole"))
    hub.fill()
    yield hub
    hub.stop()


def test_a_person_sees_what_would_go_and_what_went(hub: Hub) -> None:
    looked = synchub(hub.address, "prune", "--older-than", OLD, "--dry-run")
    assert (looked.code, looked.out, looked.error) == (0, f"would drop {SAID}\n", "")
    assert hub.payload_count() == EVENTS
    pruned = synchub(hub.address, "prune", "--older-than", OLD, "--yes")
    assert (pruned.code, pruned.out, pruned.error) == (0, f"dropped {SAID}\n", "")
    assert hub.payload_count() == 0


def test_a_program_reads_it_as_json(hub: Hub) -> None:
    (told,) = synchub(
        hub.address, "prune", "--older-than", OLD, "--project", "p", "--yes", "--json"
    ).json_lines()
    assert told == {
        "considered_count": 5,
        "total_count": 5,
        "payload_count": 5,
        "payload_bytes": 35,
        "resource_count": 0,
        "receipt_count": 0,
        "runtime_count": 0,
        "is_done": True,
        "is_dry_run": False,
    }


def test_nothing_is_pruned_where_nobody_can_be_asked(whole: Hub) -> None:
    told = synchub(whole.address, "prune", "--older-than", OLD)
    assert (told.code, told.out) == (1, "")
    assert told.error == (
        "synchub: nothing was pruned: nobody is there to be asked\n"
        "  Give --yes, or look first with --dry-run.\n"
    )
    assert whole.payload_count() == EVENTS


@pytest.mark.parametrize(("answer", "left"), [("n\n", EVENTS), ("y\n", 0)])
def test_a_person_at_a_terminal_is_asked(hub: Hub, answer: str, left: int) -> None:
    parent, child = pty.openpty()
    try:
        with subprocess.Popen(
            [SYNCHUB, "prune", "--older-than", OLD],
            stdin=child,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment_for(hub.address),
        ) as process:
            os.write(parent, answer.encode())
            out, error = process.communicate(timeout=SECONDS_MAX)
    finally:
        os.close(parent)
        os.close(child)
    assert f"This drops for good {SAID}. Go on?" in error
    assert hub.payload_count() == left
    assert (process.returncode, out) == ((0, f"dropped {SAID}\n") if left == 0 else (1, ""))


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--older-than", "90", "--yes"], 2, "--older-than '90' is no span of time"),
        (["--older-than", "", "--yes"], 2, "--older-than is empty"),
        (["--older-than", "0d", "--yes"], 2, "--older-than must be longer than nothing"),
        (["--older-than", "999ms", "--yes"], 1, "older_than is less than 1 s"),
        (["--older-than", OLD, "--project", "nobody", "--yes"], 1, "there is no project with project id"),
    ],
)
def test_what_cannot_be_pruned_is_a_sentence(
    whole: Hub, arguments: list[str], code: int, sentence: str
) -> None:
    told = synchub(whole.address, "prune", *arguments)
    assert (told.code, told.out) == (code, "")
    assert sentence in told.error
    assert "Traceback" not in told.error
    assert whole.payload_count() == EVENTS


def test_a_store_that_no_hub_serves_is_pruned_by_the_command_itself(hub: Hub) -> None:
    arguments = ["prune", "--db", str(hub.database), "--older-than", OLD, "--yes"]
    refused = synchub("127.0.0.1:1", *arguments)
    assert refused.code == 1
    assert "serves" in refused.error
    assert hub.payload_count() == EVENTS
    hub.stop()
    looked = synchub("127.0.0.1:1", *arguments, "--dry-run")
    assert (looked.code, looked.out) == (0, f"would drop {SAID}\n")
    pruned = synchub("127.0.0.1:1", *arguments)
    assert (pruned.code, pruned.out, pruned.error) == (0, f"dropped {SAID}\n", "")
    hub.start()
    assert hub.payload_count() == 0


def test_by_itself_the_command_refuses_like_a_hub(hub: Hub) -> None:
    hub.stop()
    for project, sentence in (("nobody", "there is no project"), (" p", "project_id")):
        arguments = ["--db", str(hub.database), "--older-than", OLD, "--project", project, "--yes"]
        told = synchub("127.0.0.1:1", "prune", *arguments)
        assert (told.code, told.out) == (1, "")
        assert told.error.startswith("synchub: ")
        assert sentence in told.error
        assert "Traceback" not in told.error
    hub.start()
    assert hub.payload_count() == EVENTS


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    told = synchub("127.0.0.1:1", "prune", "--db", str(tmp_path / "no.db"), "--older-than", OLD, "--yes")
    assert (told.code, told.out) == (1, "")
    assert "there is no store" in told.error
    assert list(tmp_path.iterdir()) == []
