"""The front of the log: groups, order, bounds, faults of the disk."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import apsw
import pytest

from runtime_agent import limits
from runtime_agent.core.errors import (
    LogOutcomeUnknownError,
    LogOwnerLostError,
    LogQueueFullError,
    LogStoppedError,
    LogStorageError,
    RuntimeAgentError,
    WrongSequenceError,
)
from runtime_agent.core.values import Appended, AppendRequest, NewEvent, RunKey
from runtime_agent.event_log.contract import EventLog
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import OwnedLog, take_folder
from runtime_agent.event_log.schema import connect_with_apsw

RUN = RunKey("p", "r")


def one(payload: bytes = b"x", *, append_id: str = "", expected: int = 0) -> AppendRequest:
    return AppendRequest(RUN, (NewEvent("line", payload),), append_id, expected)


@pytest.fixture
def thread(owned: OwnedLog) -> Iterator[LogThread]:
    started = LogThread(owned)
    started.start()
    yield started
    started.stop()


def commit_count(owned: OwnedLog) -> list[int]:
    counts = [0]

    def count() -> bool:
        counts[0] += 1
        return False

    owned.log._connected().set_commit_hook(count)
    return counts


def test_what_waits_is_written_in_one_transaction(owned: OwnedLog, thread: LogThread) -> None:
    counts = commit_count(owned)
    begun, go_on = threading.Event(), threading.Event()

    def hold(log: EventLog) -> None:
        begun.set()
        assert go_on.wait(10)

    held = thread.call(hold)
    assert begun.wait(10)
    futures = [thread.append(one()) for _ in range(50)]
    go_on.set()
    held.result(10)
    assert [future.result(10) for future in futures] == [Appended(n, n) for n in range(1, 51)]
    assert counts[0] <= 2  # one group, and maybe a heartbeat


def test_each_caller_gets_its_own_refusal(thread: LogThread) -> None:
    good, bad, after = thread.append(one()), thread.append(one(expected=7)), thread.append(one())
    assert good.result(10) == Appended(1, 1)
    with pytest.raises(WrongSequenceError):
        bad.result(10)
    assert after.result(10) == Appended(2, 2)


def test_a_read_sees_what_was_answered_before(thread: LogThread) -> None:
    for number in range(1, 20):
        thread.append(one()).result(10)
        state = thread.read(lambda log: log.load_run(RUN)).result(10)
        assert state is not None
        assert state.last_sequence == number


def test_listeners_hear_of_appends_until_they_leave(thread: LogThread) -> None:
    heard = threading.Event()
    thread.add_append_listener(heard.set)
    thread.append(one()).result(10)
    assert heard.wait(10)
    thread.remove_append_listener(heard.set)


def test_the_queue_is_bounded_and_says_so(owned: OwnedLog) -> None:
    thread = LogThread(owned)  # not started: nothing leaves the queue
    large = AppendRequest(RUN, tuple(NewEvent("line", bytes(2**20)) for _ in range(4)))
    fitting = limits.QUEUE_BYTES_MAX // (4 * 2**20)
    futures = [thread.append(large) for _ in range(fitting + 1)]
    with pytest.raises(LogQueueFullError):
        futures[-1].result(1)
    assert not any(future.done() for future in futures[:-1])
    thread.start()
    assert futures[0].result(30) == Appended(1, 4)
    thread.stop()


def test_a_stop_writes_what_waits_and_refuses_what_comes(owned: OwnedLog, tmp_path: Path) -> None:
    thread = LogThread(owned)
    waiting = thread.append(one())
    thread.start()
    thread.stop()
    assert waiting.result(1) == Appended(1, 1)
    for late in (thread.append(one()), thread.read(lambda log: log.load_totals())):
        assert isinstance(late.exception(1), LogStoppedError)
    take_folder(str(tmp_path), role="test").close()


def test_a_lost_owner_stops_the_thread_and_tells(owned: OwnedLog) -> None:
    told: Future[RuntimeAgentError] = Future()
    thread = LogThread(owned, on_owner_lost=told.set_result)
    owned.log._connected().execute("UPDATE process_lease SET owner = 'x'")
    thread.start()
    assert isinstance(thread.append(one()).exception(10), LogOwnerLostError)
    assert isinstance(told.result(10), LogOwnerLostError)
    assert isinstance(thread.append(one()).exception(10), LogStoppedError)
    thread.stop()


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(owned: OwnedLog, thread: LogThread) -> None:
    thread.append(one()).result(10)
    connection = owned.log._connected()
    pages = connection.pragma("page_count")
    assert isinstance(pages, int)
    connection.pragma("max_page_count", pages)
    large = AppendRequest(RUN, tuple(NewEvent("line", bytes(100_000)) for _ in range(4)))
    assert isinstance(thread.append(large).exception(10), LogStorageError)
    connection.pragma("max_page_count", 10**6)
    assert thread.append(one()).result(10) == Appended(2, 2)


class FailingFile(apsw.VFSFile):
    """A file of the disk whose syncs can be made to fail."""

    is_failing = False

    def __init__(self, name: str, filename: "apsw.URIFilename | str | None", flags: list[int]) -> None:
        super().__init__(name, filename, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802  # SQLite's name
        if FailingFile.is_failing:
            raise apsw.IOError("the disk fails")
        super().xSync(flags)


class FailingDisk(apsw.VFS):
    """A file system made of such files."""

    def __init__(self) -> None:
        super().__init__("failing", "")

    def xOpen(  # noqa: N802  # SQLite's name
        self, name: "apsw.URIFilename | str | None", flags: list[int]
    ) -> apsw.VFSFile:
        return FailingFile("", name, flags)


def test_a_commit_that_fails_is_unknown_and_a_repeat_settles_it(tmp_path: Path) -> None:
    disk = FailingDisk()

    def connect(path: str, flags: int) -> apsw.Connection:
        return apsw.Connection(path, flags=flags, vfs="failing")

    held = take_folder(str(tmp_path), role="test", connect=connect)
    try:
        assert held.log.append([one(append_id="a")], now_nanos=1) == (Appended(1, 1),)
        FailingFile.is_failing = True
        with pytest.raises((LogOutcomeUnknownError, LogStorageError)):
            held.log.append([one(b"y", append_id="b")], now_nanos=1)
        FailingFile.is_failing = False
        (outcome,) = held.log.append([one(b"y", append_id="b")], now_nanos=2)
        assert isinstance(outcome, Appended)
        assert (outcome.first_sequence, outcome.last_sequence) == (2, 2)
        assert len(held.log.read_events(RUN, after_sequence=0, count_max=9, bytes_max=2**30)) == 2
    finally:
        FailingFile.is_failing = False
        held.close()
        disk.unregister()


def test_the_default_factory_opens_real_files(tmp_path: Path) -> None:
    connection = connect_with_apsw(str(tmp_path / "x"), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    assert connection.filename == str(tmp_path / "x")
    connection.close()
