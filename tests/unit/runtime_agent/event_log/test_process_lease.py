"""One process a data folder, tried with real processes where it takes two."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_agent import limits
from runtime_agent.core.errors import AlreadyRunningError, LogOwnerLostError, LogStorageError
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.event_log.opening import OwnedLog, take_folder
from runtime_agent.event_log.process_lease import (
    LOCK_FILE_NAME,
    LeaseRow,
    describe_this_process,
    is_holder_alive,
)

SECOND = limits.NANOS_PER_SECOND
THIS = LeaseRow("me", "test", 10, "host", "boot", "pidns", 100 * SECOND)

HOLDER = """
import sys
from runtime_agent.event_log.opening import take_folder
held = take_folder(sys.argv[1], role="agent")
print("held", flush=True)
sys.stdin.read()
"""


def hold_in_another_process(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    try:
        with pytest.raises(AlreadyRunningError) as refusal:
            take_folder(str(tmp_path), role="test")
        assert refusal.value.pid == holder.pid
        assert refusal.value.role == "agent"
        assert f"already running (pid {holder.pid}" in str(refusal.value)
    finally:
        end(holder)


def test_a_killed_holder_leaves_the_folder_free_at_once(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    take_folder(str(tmp_path), role="test").close()


def test_a_stopped_holder_still_holds(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    try:
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(AlreadyRunningError):
            take_folder(str(tmp_path), role="test")
    finally:
        holder.send_signal(signal.SIGCONT)
        end(holder)


def test_who_waits_gets_the_folder_when_it_is_given_back(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            end(holder)

    held = take_folder(
        str(tmp_path), role="test", wait_seconds=6, sleep=sleep, monotonic_seconds=lambda: sum(waits)
    )
    held.close()
    assert waits == [limits.PROCESS_LEASE_RETRY_SECONDS] * 3


def test_waiting_is_bounded(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    waits: list[float] = []
    try:
        with pytest.raises(AlreadyRunningError):
            take_folder(
                str(tmp_path),
                role="test",
                wait_seconds=1,
                sleep=waits.append,
                monotonic_seconds=lambda: sum(waits),
            )
        assert 1 <= sum(waits) < 1.2
    finally:
        end(holder)


def test_a_deleted_lock_file_does_not_let_a_second_process_in(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path)
    try:
        (tmp_path / LOCK_FILE_NAME).unlink()
        with pytest.raises(AlreadyRunningError) as refusal:
            take_folder(str(tmp_path), role="test")
        assert refusal.value.pid == holder.pid
    finally:
        end(holder)


def test_a_deleted_lock_file_is_made_again_by_its_holder(tmp_path: Path) -> None:
    held = take_folder(str(tmp_path), role="test")
    try:
        (tmp_path / LOCK_FILE_NAME).unlink()
        held.lock.restore_file()
        assert (tmp_path / LOCK_FILE_NAME).exists()
        with pytest.raises(AlreadyRunningError):
            take_folder(str(tmp_path), role="test")
    finally:
        held.close()


def test_a_process_that_lost_the_log_cannot_write_any_more(owned: OwnedLog) -> None:
    request = AppendRequest(RunKey("p", "r"), (NewEvent("a"),))
    owned.log.append([request], now_nanos=1)
    owned.log._connected().execute("UPDATE process_lease SET owner = 'somebody else'")
    with pytest.raises(LogOwnerLostError):
        owned.log.append([request], now_nanos=1)
    with pytest.raises(LogOwnerLostError):
        owned.log.beat(now_nanos=1)
    state = owned.log.load_run(RunKey("p", "r"))
    assert state is not None
    assert state.last_sequence == 1


def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogStorageError, match="cannot be used"):
        take_folder(str(tmp_path / "file" / "folder"), role="test")


def row(*, pid: int = 10, host: str = "host", age_seconds: float = 0) -> LeaseRow:
    heartbeat_nanos = THIS.heartbeat_nanos - int(age_seconds * SECOND)
    return dataclasses.replace(THIS, owner="other", pid=pid, host=host, heartbeat_nanos=heartbeat_nanos)


def test_a_pid_is_judged_only_on_the_same_host_boot_and_namespace() -> None:
    this = dataclasses.replace(describe_this_process("test", now_nanos=100 * SECOND), pid=-1)
    living = dataclasses.replace(this, owner="o", pid=os.getppid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = dataclasses.replace(this, owner="o", pid=gone.pid)
    assert is_holder_alive(living, this)
    assert not is_holder_alive(dead, this)
    elsewhere = (
        dataclasses.replace(dead, host="x"),
        dataclasses.replace(dead, boot_id="x"),
        dataclasses.replace(dead, pid_namespace="x"),
    )
    assert all(is_holder_alive(each, this) for each in elsewhere)


def test_a_holder_elsewhere_counts_as_gone_without_a_fresh_heartbeat() -> None:
    assert is_holder_alive(row(host="elsewhere", age_seconds=4.9), THIS)
    assert not is_holder_alive(row(host="elsewhere", age_seconds=5.1), THIS)
    assert not is_holder_alive(row(host="elsewhere", age_seconds=-5.1), THIS)


def test_a_pid_that_is_ones_own_is_a_container_that_came_again() -> None:
    assert not is_holder_alive(row(pid=THIS.pid), THIS)
