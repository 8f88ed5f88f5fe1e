"""BackupHub and VerifyEvents over the wire, while the hub goes on."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.errors import StartRefused
from synchub.v1.hub_service_pb2 import (
    BackupHubRequest,
    BackupHubResponse,
    VerifyEventsRequest,
    VerifyEventsResponse,
)
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import refusal_of
from tests.contract.full_store import alter, findings_in, rows_of
from tests.contract.holding import until
from tests.contract.hub_in_thread import HubInThread
from tests.contract.pushing import events, push

SECONDS_MAX: Final = 30.0
H: Final = "h"
DONE: Final = BackupHubResponse.PHASE_DONE


class Hub:
    """A hub with a folder for backups."""

    def __init__(self, folder: Path, channel: grpc.Channel) -> None:
        self.database = folder / "hub.db"
        self.backups = folder / "backups"
        self.sync = SyncServiceStub(channel)
        self.hub = HubServiceStub(channel)

    def backup(self, file_name: str = "") -> list[BackupHubResponse]:
        return list(self.hub.BackupHub(BackupHubRequest(file_name=file_name), timeout=SECONDS_MAX))

    def verify(self, project_id: str = "", hub_project: str = H) -> list[VerifyEventsResponse]:
        request = VerifyEventsRequest(hub_project=hub_project, project_id=project_id)
        return list(self.hub.VerifyEvents(request, timeout=SECONDS_MAX))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.backups.iterdir())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[HubInThread]:
    (tmp_path / "backups").mkdir()
    with HubInThread(replace(settings_in(tmp_path), backup_folder=tmp_path / "backups")) as running:
        yield running


@pytest.fixture
def hub(running: HubInThread, tmp_path: Path) -> Iterator[Hub]:
    with grpc.insecure_channel(running.address) as channel:
        yield Hub(tmp_path, channel)


def fill(hub: Hub, count: int = 30) -> None:
    """Give the hub enough events for a backup of some steps."""
    for number in range(count):
        push(hub.sync, H, run_id=f"run-{number}", batch=events(1, 1000))


def test_a_backup_is_whole_verified_and_told_of_step_by_step(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 3))
    *before, last = hub.backup("b.db")
    assert hub.names() == ["b.db"]
    size = (hub.backups / "b.db").stat().st_size
    assert last == BackupHubResponse(
        phase=DONE, done_count=size, total_count=size, file_name="b.db", size_bytes=size
    )
    assert {each.phase for each in before} <= {BackupHubResponse.PHASE_COPY, BackupHubResponse.PHASE_VERIFY}
    assert before
    assert rows_of(hub.backups / "b.db", "SELECT count(*) FROM event") == [(3,)]
    assert findings_in(hub.backups / "b.db") == []


def test_a_backup_without_a_name_is_called_after_the_time(hub: Hub) -> None:
    *_, last = hub.backup()
    assert hub.names() == [last.file_name]
    assert last.file_name.startswith("synchub-2")
    assert last.file_name.endswith("Z.db")


def test_a_name_that_is_taken_is_refused_and_the_file_stays(hub: Hub) -> None:
    (hub.backups / "b.db").write_text("mine")
    refusal = refusal_of(lambda: hub.backup("b.db"))
    assert (refusal.reason, refusal.code) == ("IDEMPOTENCY_CONFLICT", grpc.StatusCode.ALREADY_EXISTS)
    assert (hub.backups / "b.db").read_text() == "mine"
    assert hub.names() == ["b.db"]


@pytest.mark.parametrize("name", ["../b.db", "/tmp/b.db", ".b", "b.db.part", "hub.db-wal", "a b", "x" * 201])
def test_a_path_is_no_name(hub: Hub, name: str) -> None:
    refusal = refusal_of(lambda: hub.backup(name))
    assert (refusal.reason, refusal.metadata["field"]) == ("INVALID_REQUEST", "file_name")
    assert hub.names() == []


def test_one_backup_is_taken_at_a_time_and_one_that_nobody_wants_any_more_leaves_nothing(hub: Hub) -> None:
    fill(hub)
    call = hub.hub.BackupHub(BackupHubRequest(file_name="b.db"), timeout=SECONDS_MAX)
    next(call)
    refusal = refusal_of(lambda: hub.backup("c.db"))
    assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "backups_at_once_max")
    assert "c.db" not in hub.names()
    call.cancel()
    until(lambda: hub.names() == [])

    def is_taken() -> bool:
        try:
            return hub.backup("d.db")[-1].phase == DONE
        except grpc.RpcError:
            return False

    until(is_taken)
    assert hub.names() == ["d.db"]


def test_a_stop_ends_a_backup_in_time_and_leaves_nothing(running: HubInThread, hub: Hub) -> None:
    fill(hub)
    call = hub.hub.BackupHub(BackupHubRequest(file_name="b.db"), timeout=SECONDS_MAX)
    next(call)
    begin = time.monotonic()
    running.begin_stop()
    with pytest.raises(grpc.RpcError):
        list(call)
    running.join()
    assert time.monotonic() - begin < 10
    assert hub.names() == []


def test_what_a_killed_hub_left_unfinished_is_gone_after_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "b.db.part").write_text("left")
    with HubInThread(replace(settings_in(tmp_path), backup_folder=folder)):
        assert list(folder.iterdir()) == []


def test_a_hub_without_a_folder_takes_no_backup(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as running, grpc.insecure_channel(running.address) as channel:
        refusal = refusal_of(lambda: Hub(tmp_path, channel).backup("b.db"))
    assert (refusal.reason, refusal.metadata["field"]) == ("INVALID_REQUEST", "file_name")
    missing = replace(settings_in(tmp_path), backup_folder=tmp_path / "none")
    with pytest.raises(StartRefused, match="the folder for backups"), HubInThread(missing):
        pass


def test_every_event_of_a_hub_project_is_verified(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 3))
    push(hub.sync, H, project_id="q", run_id="r2", batch=events(1, 2))
    push(hub.sync, "other", project_id="o", batch=events(1, 4))
    last = VerifyEventsResponse(event_count=5, total_count=5, run_count=2, is_done=True)
    assert hub.verify()[-1] == last
    of_q = VerifyEventsResponse(event_count=2, total_count=2, run_count=1, is_done=True)
    assert hub.verify("q")[-1] == of_q
    assert hub.verify(hub_project="nobody")[-1] == VerifyEventsResponse(is_done=True)


def test_what_does_not_fit_is_told_and_nothing_of_another_hub_project(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 3))
    push(hub.sync, H, run_id="r2", batch=events(1, 3))
    push(hub.sync, "other", project_id="o", batch=events(1, 3))
    alter(
        hub.database,
        "UPDATE event SET payload = x'00' WHERE sequence = 2 AND run_key <> 2",
        "UPDATE run SET chain_hash = zeroblob(32) WHERE run_id = 'r2'",
    )
    answers = hub.verify()
    told = [(each.project_id, each.run_id, each.sequence) for answer in answers for each in answer.findings]
    assert told == [("p", "r", 2), ("p", "r2", 0)]
    assert answers[-1].is_done
    assert not answers[-1].findings
    refusal = refusal_of(lambda: hub.verify("o"))
    assert refusal.reason == "NOT_FOUND"


def test_one_verification_of_a_hub_project_runs_at_a_time(hub: Hub) -> None:
    fill(hub, 60)
    call = hub.hub.VerifyEvents(VerifyEventsRequest(hub_project=H), timeout=SECONDS_MAX)
    next(call)
    refusal = refusal_of(hub.verify)
    assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "verifications_at_once_max")
    assert hub.verify(hub_project="another")[-1].is_done
    *_, last = call
    assert (last.is_done, last.event_count) == (True, 60_000)
    assert hub.verify()[-1].is_done
