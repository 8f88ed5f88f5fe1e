"""A hub killed while it takes a backup: there is none, and what is left of it goes with the next start."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from hub.store.sqlite.verify import verify_store
from synchub.v1.hub_service_pb2 import BackupHubRequest, BackupHubResponse
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.pushing import events, push
from tests.robustness.programs import HUB_PROJECT, Program

KILLS: Final = 6
KILLS_LONG: Final = 60
EVENT_COUNT: Final = 40_000
SECONDS_MAX: Final = 60.0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Program]:
    arguments = [
        "hub",
        "serve",
        "--db",
        str(tmp_path / "hub.db"),
        "--listen",
        "127.0.0.1:0",
        "--http",
        "none",
    ]
    hub = Program([*arguments, "--backup-folder", str(tmp_path / "backups")], tmp_path / "hub.log")
    yield hub
    hub.stop()


def assert_whole(database: Path) -> None:
    *_, last = verify_store(database, limits=Limits(), is_quiet=True)
    assert (last.event_count, last.findings) == (EVENT_COUNT, ())


@pytest.mark.timeout(1800)
def test_a_backup_whose_hub_dies_is_not_there_or_whole(
    hub: Program, tmp_path: Path, rng: random.Random, *, long_run: bool
) -> None:
    backups = tmp_path / "backups"
    backups.mkdir()
    address = hub.start().split()[2]
    with grpc.insecure_channel(address) as channel:
        for first in range(1, EVENT_COUNT, 1000):
            push(SyncServiceStub(channel), HUB_PROJECT, batch=events(first, first + 999))
    seconds = seconds_of_backup(address)
    (backups / "whole.db").unlink()
    seen = {"unfinished": 0, "whole": 0}
    for number in range(KILLS_LONG if long_run else KILLS):
        name = f"{number}.db"
        with grpc.insecure_channel(address) as channel:
            call = HubServiceStub(channel).BackupHub(BackupHubRequest(file_name=name), timeout=SECONDS_MAX)
            next(call)
            # The moment is what is random here.
            time.sleep(rng.uniform(0, seconds))
            hub.kill()
            call.cancel()
        is_there = (backups / name).exists()
        seen["unfinished"] += (backups / f"{name}.part").exists()
        seen["whole"] += is_there
        if is_there:
            assert_whole(backups / name)
        address = hub.start().split()[2]
        left = {path.name for path in backups.iterdir()}
        assert left == {f"{each}.db" for each in range(number + 1) if f"{each}.db" in left}
    # The same name again, after all of that.
    (backups / "whole.db").unlink(missing_ok=True)
    seconds_of_backup(address)
    assert_whole(backups / "whole.db")
    assert seen["unfinished"] > 0


def seconds_of_backup(address: str) -> float:
    """Take a backup and return how long it took."""
    with grpc.insecure_channel(address) as channel:
        begin = time.monotonic()
        request = BackupHubRequest(file_name="whole.db")
        *_, last = HubServiceStub(channel).BackupHub(request, timeout=SECONDS_MAX)
        assert last.phase == BackupHubResponse.PHASE_DONE
        return time.monotonic() - begin
