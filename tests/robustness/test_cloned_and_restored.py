"""Disks that come back from the past, and runtimes that exist twice: nothing is lost or mixed unseen."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc
import pytest

from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import SocketLog
from synchub.v1.alert_pb2 import AlertReason
from synchub.v1.sync_service_pb2 import ListAlertsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.robustness.checker import Run, check
from tests.robustness.programs import HUB_PROJECT, Programs, running_programs

SECONDS_MAX: Final = 60.0
RUN: Final[Run] = ("p", "run")
OTHER: Final[Run] = ("p", "other")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with running_programs(tmp_path) as programs:
        yield programs


def append(folder: Path, run: Run, payloads: Sequence[bytes]) -> None:
    log = SocketLog.connect(str(folder))
    assert log is not None
    request = AppendRequest(RunKey(*run), tuple(NewEvent("e", payload) for payload in payloads))
    log.append_soon(request).result(SECONDS_MAX)
    log.close()


def alert_reasons(programs: Programs) -> set[str]:
    with grpc.insecure_channel(programs.address) as channel:
        request = ListAlertsRequest(hub_project=HUB_PROJECT)
        alerts = SyncServiceStub(channel).ListAlerts(request, timeout=SECONDS_MAX).alerts
    return {AlertReason.Name(alert.reason).removeprefix("ALERT_REASON_") for alert in alerts}


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def copy_database(source: Path, target: Path) -> None:
    """Copy a store whose hub is stopped, its write-ahead log included."""
    for suffix in ("", "-wal"):
        from_file, to_file = source.with_name(source.name + suffix), target.with_name(target.name + suffix)
        to_file.unlink(missing_ok=True)
        if from_file.exists():
            shutil.copy(from_file, to_file)
    source.with_name(source.name + "-shm").unlink(missing_ok=True)
    target.with_name(target.name + "-shm").unlink(missing_ok=True)


@pytest.mark.timeout(180)
def test_a_hub_restored_from_an_older_copy_gets_its_lost_tail_from_the_runtime(programs: Programs) -> None:
    append(programs.data, RUN, [b"1", b"2"])
    programs.wait_until_synced()
    programs.hub.stop()
    older = programs.folder / "older.db"
    copy_database(programs.database, older)
    programs.hub.start()
    append(programs.data, RUN, [b"3", b"4"])
    append(programs.data, OTHER, [b"a"])
    programs.wait_until_synced()
    programs.hub.stop()
    copy_database(older, programs.database)
    programs.hub.start()
    append(programs.data, RUN, [b"5"])
    append(programs.data, OTHER, [b"b"])

    wanted = {RUN: [b"1", b"2", b"3", b"4", b"5"], OTHER: [b"a", b"b"]}
    eventually(lambda: check(wanted, programs.watched()).faults == [])
    programs.wait_until_synced()
    # The copy has the generation under which the tail was acknowledged: that is told.
    assert alert_reasons(programs) == {"HISTORY_LOST"}


@pytest.mark.timeout(180)
def test_an_agent_restored_from_an_older_copy_is_quarantined_where_it_differs(programs: Programs) -> None:
    append(programs.data, RUN, [b"1", b"2"])
    append(programs.data, OTHER, [b"a"])
    programs.wait_until_synced()
    programs.agent.stop()
    older = programs.folder / "older-agent"
    shutil.copytree(programs.data, older)
    programs.agent.start()
    append(programs.data, RUN, [b"3"])
    programs.wait_until_synced()
    programs.agent.stop()
    shutil.rmtree(programs.data)
    older.rename(programs.data)
    programs.agent.start()
    append(programs.data, RUN, [b"another 3", b"another 4"])
    append(programs.data, OTHER, [b"b"])

    def quarantined() -> list[str]:
        lines = programs.agent_command("quarantine", "list", "--json").splitlines()
        return [json.loads(line)["run_id"] for line in lines]

    eventually(lambda: quarantined() == ["run"])
    eventually(lambda: check({RUN: [b"1", b"2", b"3"], OTHER: [b"a", b"b"]}, programs.watched()).faults == [])

    programs.agent_command("quarantine", "release", "--project", "p", "--run", "run", "--as", "forked")

    def forked() -> list[bytes]:
        return [event.payload for event in programs.watched() if event.run == ("p", "forked")]

    eventually(lambda: forked()[1:] == [b"another 3", b"another 4"])


@pytest.mark.timeout(180)
def test_a_cloned_runtime_is_seen_and_its_history_is_never_mixed_in(programs: Programs) -> None:
    append(programs.data, RUN, [b"1"])
    programs.wait_until_synced()
    programs.agent.stop()
    clone = programs.folder / "clone"
    shutil.copytree(programs.data, clone)
    programs.agent.start()
    append(programs.data, RUN, [b"2"])
    programs.wait_until_synced()
    other = programs.agent_in(clone)
    other.start()
    try:
        append(clone, RUN, [b"the clone's 2"])
        append(clone, OTHER, [b"of the clone"])
        eventually(lambda: "RUNTIME_DUPLICATED" in alert_reasons(programs))
        eventually(lambda: ("p", "other") in {event.run for event in programs.watched()})
    finally:
        other.stop()
    wanted = {RUN: [b"1", b"2"], OTHER: [b"of the clone"]}
    assert check(wanted, programs.watched()).faults == []
