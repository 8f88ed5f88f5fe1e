"""A full disk: nothing acknowledged is lost, the hub says why, serves reads, and goes on by itself.

The disk has 50 MB and is filled in both ways: by the hub, which leaves a reserve, and by somebody else, who
leaves nothing.
"""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from synchub.channel import refusal_from_error
from synchub.v1.hub_service_pb2 import BackupHubRequest, PruneEventsRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import ExportEventsRequest, PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.leasing import acquire, release
from tests.robustness.programs import Program
from tests.robustness.small_disk import MEBIBYTE, SmallDisk, mounted

DISK_MEBIBYTES: Final = 50
PAYLOAD_BYTES: Final = 4_000
BATCH_EVENTS: Final = 64
ROUNDS: Final = 3
ROUNDS_LONG: Final = 20
SECONDS_MAX: Final = 60.0
H: Final = "full"
WALL_NANOS: Final = 1_800_000_000_000_000_000
PRUNE: Final = f"prune --hub-project {H} --older-than 1s --yes"
DAY_SECONDS: Final = 86_400.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", mebibytes=DISK_MEBIBYTES) as disk:
        yield disk


def payload_of(sequence: int) -> bytes:
    return f"{sequence:08d}".encode() * (PAYLOAD_BYTES // 8)


class Pusher:
    """Pushes one run, and knows what was acknowledged; what was not is pushed again."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self.sync = SyncServiceStub(self._channel)
        self.leases = LeaseServiceStub(self._channel)
        self.hub = HubServiceStub(self._channel)
        self.acknowledged = 0
        self.duplicate_count = 0

    def close(self) -> None:
        self._channel.close()

    def push(self) -> str:
        """Push the next batch; return "" or the reason why it was refused."""
        numbers = range(self.acknowledged + 1, self.acknowledged + 1 + BATCH_EVENTS)
        batch = [SyncEvent(sequence=n, event_type="line", payload=payload_of(n)) for n in numbers]
        request = PushEventsRequest(
            hub_project=H, project_id="p", run_id="r", runtime_id="runtime", events=batch
        )
        try:
            (answer,) = self.sync.PushEvents(iter([request]), timeout=SECONDS_MAX)
        except grpc.RpcError as error:
            refusal = refusal_from_error(error)
            assert refusal.code is grpc.StatusCode.UNAVAILABLE, refusal
            return refusal.reason
        if answer.HasField("error"):
            assert answer.error.code == grpc.StatusCode.UNAVAILABLE.value[0], answer.error
            return "STORAGE_UNAVAILABLE"
        assert answer.accepted_count + answer.duplicate_count == BATCH_EVENTS, answer
        self.duplicate_count += answer.duplicate_count
        self.acknowledged += BATCH_EVENTS
        return ""

    def push_until_refused(self) -> int:
        """Push until the disk is full; return how many batches went in."""
        count = 0
        while True:
            reason = self.push()
            if reason:
                assert reason == "STORAGE_UNAVAILABLE"
                return count
            count += 1
            assert count * BATCH_EVENTS * PAYLOAD_BYTES < 10 * DISK_MEBIBYTES * MEBIBYTE, "it never fills"

    def push_until_taken(self) -> None:
        """Push until it goes on; fail after a minute."""
        give_up_at = time.monotonic() + SECONDS_MAX
        while self.push():
            assert time.monotonic() < give_up_at, "it does not go on"
            time.sleep(0.05)

    def stored(self) -> dict[int, bytes | None]:
        """What the hub has, by sequence; None where the payload was dropped."""
        answers = self.sync.ExportEvents(ExportEventsRequest(hub_project=H), timeout=SECONDS_MAX)
        return {
            event.sequence: None if event.payload_dropped else event.payload
            for answer in answers
            for event in answer.events
        }

    def check_all_is_stored(self) -> None:
        """Everything that was acknowledged is there, byte for byte, and without a gap."""
        stored = self.stored()
        assert set(stored) >= set(range(1, self.acknowledged + 1))
        assert max(stored, default=0) == len(stored) <= self.acknowledged + BATCH_EVENTS
        assert all(payload in (None, payload_of(n)) for n, payload in stored.items())


def page(address: str, name: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/{name}", timeout=SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until_ready_says(address: str, words: str, *, code: int) -> str:
    """Wait for what /readyz finds out by itself; return the page."""
    give_up_at = time.monotonic() + SECONDS_MAX
    while True:
        found_code, text = page(address, "readyz")
        if found_code == code and words in text:
            return text
        assert time.monotonic() < give_up_at, (found_code, text)
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_a_hub_outlives_a_disk_that_is_filled_freed_and_filled_again(
    disk: SmallDisk, tmp_path: Path, *, long_run: bool
) -> None:
    log = tmp_path / "hub.log"
    database = str(disk.folder / "hub.db")
    hub = Program(["hub", "serve", "--db", database, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"], log)
    line = hub.start().split()
    pusher = Pusher(line[2])
    http = line[4]
    try:
        for number in range(ROUNDS_LONG if long_run else ROUNDS):
            assert pusher.push_until_refused() > 0 or number > 0
            until_ready_says(http, "the disk is", code=503)
            pusher.check_all_is_stored()
            # Of the reserve leases go on.
            held = acquire(pusher.leases, H, f"r{number}")
            release(pusher.leases, H, held)
            # Somebody else takes the reserve too: now nothing can be written at all.
            disk.fill()
            assert pusher.push() == "STORAGE_UNAVAILABLE"
            until_ready_says(http, "the disk is", code=503)
            pusher.check_all_is_stored()
            disk.free()
            # Somebody makes room.
            disk.resize(DISK_MEBIBYTES + 10 * (number + 1))
            pusher.push_until_taken()
            until_ready_says(http, "ready", code=200)
        pusher.check_all_is_stored()
        assert hub.stop() == 0
        # Why is said once each time, not once a group.
        lines = log.read_text(encoding="utf-8").splitlines()
        told = [each for each in lines if "store_has_no_room" in each or "store_unavailable" in each]
        rounds = ROUNDS_LONG if long_run else ROUNDS
        assert rounds <= len(told) <= 6 * rounds, told
        assert not any("Traceback" in each for each in lines)
        # It starts again, with all that it has.
        pusher.close()
        acknowledged, pusher = pusher.acknowledged, Pusher(hub.start().split()[2])
        pusher.acknowledged = acknowledged
        pusher.check_all_is_stored()
    finally:
        pusher.close()
        hub.stop()


def span(days: float) -> Duration:
    duration = Duration()
    duration.FromSeconds(round(days * DAY_SECONDS))
    return duration


@pytest.mark.timeout(600)
def test_pruning_a_full_store_makes_room_without_a_byte_more_of_disk(disk: SmallDisk) -> None:
    clock, wall = HandClock(), HandClock(WALL_NANOS)
    with hub_in_hand(disk.folder, clock, wall_nanos=wall) as hub:
        pusher = Pusher(hub.address)
        try:
            batches = [pusher.push_until_refused()]
            for _ in range(ROUNDS):
                clock.pass_time(2 * DAY_SECONDS)
                wall.pass_time(2 * DAY_SECONDS)
                request = PruneEventsRequest(hub_project=H, older_than=span(1))
                *_, done = pusher.hub.PruneEvents(request, timeout=SECONDS_MAX)
                assert (done.is_done, done.payload_count) == (True, batches[-1] * BATCH_EVENTS)
                batches.append(pusher.push_until_refused())
                pusher.check_all_is_stored()
            # What was pruned is used again. Keys and hashes stay, so each time a little less goes in.
            assert min(batches[1:]) > 0.6 * batches[0], batches
            kept = sum(payload is not None for payload in pusher.stored().values())
            assert kept == batches[-1] * BATCH_EVENTS
        finally:
            pusher.close()


def test_a_disk_that_somebody_else_filled_to_the_last_byte_is_told_and_recovers(disk: SmallDisk) -> None:
    with HubInThread(settings_in(disk.folder)) as hub:
        pusher = Pusher(hub.address)
        try:
            for _ in range(ROUNDS):
                for _ in range(5):
                    assert pusher.push() == ""
                disk.fill()
                assert [pusher.push() for _ in range(5)] == ["STORAGE_UNAVAILABLE"] * 5
                pusher.check_all_is_stored()
                disk.free()
                pusher.push_until_taken()
            pusher.check_all_is_stored()
        finally:
            pusher.close()


def test_a_backup_on_a_full_disk_fails_cleanly(disk: SmallDisk) -> None:
    backups = disk.folder / "backups"
    backups.mkdir()
    with HubInThread(replace(settings_in(disk.folder), backup_folder=backups)) as hub:
        pusher = Pusher(hub.address)
        try:
            pusher.push_until_refused()
            with pytest.raises(grpc.RpcError) as raised:
                list(pusher.hub.BackupHub(BackupHubRequest(file_name="b.db"), timeout=SECONDS_MAX))
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            assert list(backups.iterdir()) == []
            pusher.check_all_is_stored()
            disk.resize(4 * DISK_MEBIBYTES)
            *_, done = pusher.hub.BackupHub(BackupHubRequest(file_name="b.db"), timeout=SECONDS_MAX)
            assert [each.name for each in backups.iterdir()] == ["b.db"]
            assert done.size_bytes == (backups / "b.db").stat().st_size
        finally:
            pusher.close()


def test_a_hub_and_a_command_that_cannot_work_on_a_full_disk_say_why(disk: SmallDisk, tmp_path: Path) -> None:
    with HubInThread(settings_in(disk.folder)) as hub:
        pusher = Pusher(hub.address)
        for _ in range(10):
            assert pusher.push() == ""
        pusher.close()
    time.sleep(1)  # by the wall clock of another process
    for left_bytes, command in ((0, "serve --listen 127.0.0.1:0 --http none"), (200_000, PRUNE)):
        disk.free()
        disk.fill(left_bytes)
        arguments = [sys.executable, "-m", "hub", *command.split(), "--db", str(disk.folder / "hub.db")]
        ended = subprocess.run(
            arguments, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("synchub: cannot")
        assert "the disk is full" in ended.stderr
        assert "Traceback" not in ended.stderr
    disk.free()
    with HubInThread(settings_in(disk.folder)) as hub:
        pusher = Pusher(hub.address)
        pusher.acknowledged = 10 * BATCH_EVENTS
        pusher.check_all_is_stored()
        pusher.close()
