"""The reserve of the disk: what makes the store grow is refused alone, and the log says so once."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest
from structlog.testing import capture_logs

from hub.core.errors import StorageFull
from hub.core.limits import Limits
from hub.core.values import HubProject, ProjectId
from hub.service.writer import Lane
from hub.store.contract import WriteTransaction
from hub.store.health import DISK_FULL, DISK_NEARLY_FULL, StoreHealth
from hub.store.session import DiskRoom
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.session import SqliteSession, problem_of
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate, batch, caller_of
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import commit
from tests.unit.hub.journal_values import event as journal_event
from tests.unit.hub.stored_runs import WALL_NANOS, event

MEBIBYTE = 1024 * 1024
BLOCK = 4096
RESERVE = 10 * MEBIBYTE
BUSY_MILLISECONDS = 3_600_000


class Disk:
    """What the system says of the disk."""

    def __init__(self) -> None:
        self.free_bytes = self.total_bytes = 1_000 * MEBIBYTE

    def __call__(self, _path: str) -> SimpleNamespace:
        blocks = self.total_bytes // BLOCK
        return SimpleNamespace(f_frsize=BLOCK, f_blocks=blocks, f_bavail=self.free_bytes // BLOCK)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "statvfs", disk)
    return disk


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> Iterator[SqlStore]:
    del disk
    limits = Limits(disk_reserve_bytes=RESERVE)
    with opened_engine(tmp_path / "hub.db", limits=limits) as engine:
        store = SqlStore(engine, limits=limits, wall_nanos=WALL_NANOS)
        yield store
        store.close()


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store)


def session_of(store: SqlStore) -> SqliteSession:
    session = store.writing._session
    assert isinstance(session, SqliteSession)
    return session


def bind(transaction: WriteTransaction, now_nanos: int) -> str:
    transaction.bind_project(HubProject("h"), ProjectId("bound"), now_nanos=now_nanos)
    return "bound"


def test_what_grows_is_refused_alone_and_all_else_of_the_group_is_done(gate: Gate, disk: Disk) -> None:
    gate.push(batch(event(1)))
    disk.free_bytes = RESERVE - BLOCK
    events = [batch(event(2)), batch(event(1)), batch(event(1), event(2)), batch(event(1), run_id="new")]
    done = [gate.queue(gate.ingest.command(caller_of("h"), each)) for each in events]
    control = gate.queue(bind, lane=Lane.CONTROL)
    assert gate.writer.step() == 5
    assert control[0].result == "bound"
    refused = [type(each[0].error) if each[0].error else None for each in done]
    assert refused == [StorageFull, None, StorageFull, StorageFull]
    assert [stored.sequence for stored in gate.events()] == [1]
    assert gate.events(run_id="new") == []
    assert gate.store.last_fault() == DISK_NEARLY_FULL
    disk.free_bytes = RESERVE
    assert len(gate.push(batch(event(2))).decision.accepted) == 1
    assert [(stored.sequence, stored.position) for stored in gate.events()] == [(1, 1), (2, 2)]
    assert gate.store.last_fault() is None


def test_a_commit_is_refused_and_a_repeated_one_is_answered(disk: Disk, tmp_path: Path) -> None:
    gate = JournalGate(tmp_path, limits=Limits(disk_reserve_bytes=RESERVE))
    first = commit("m1", credential=gate.credential(), events=[journal_event("e1")])
    gate.commit(first)
    disk.free_bytes = RESERVE - BLOCK
    second = commit("m2", credential=gate.credential(), expected=1, events=[journal_event("e2")])
    with pytest.raises(StorageFull):
        gate.commit(second)
    assert gate.commit(first).is_recovered
    assert [each.event_id for each in gate.events()] == ["e1"]
    disk.free_bytes = RESERVE
    assert gate.commit(second).result.revision == 2
    gate.close()


@pytest.mark.parametrize(
    ("total_mebibytes", "reserve_bytes"), [(50, 50 * MEBIBYTE // 8), (80, RESERVE), (1_000_000, RESERVE)]
)
def test_of_a_small_disk_an_eighth_is_kept(
    gate: Gate, disk: Disk, total_mebibytes: int, reserve_bytes: int
) -> None:
    gate.push(batch(event(1)))
    disk.total_bytes = disk.free_bytes = total_mebibytes * MEBIBYTE
    assert session_of(gate.store).disk_room(RESERVE) == DiskRoom(disk.free_bytes, reserve_bytes)


def test_what_is_free_in_the_store_counts_as_room(gate: Gate, disk: Disk) -> None:
    gate.push(batch(event(1, b"x" * 900_000), event(2, b"x" * 900_000)))
    gate.run(lambda transaction, _now: transaction.retention.drop_payloads(
        HubProject("h"), [1, 2], received_before_nanos=WALL_NANOS + 1
    ))  # fmt: skip
    (free_pages,) = next(session_of(gate.store)._connection.execute("PRAGMA freelist_count"))
    assert free_pages > 400
    disk.free_bytes = RESERVE - 400 * BLOCK
    assert len(gate.push(batch(event(3))).decision.accepted) == 1
    disk.free_bytes = RESERVE - (free_pages + 1) * BLOCK
    with pytest.raises(StorageFull):
        gate.push(batch(event(4)))


def test_a_log_that_is_not_needed_is_given_back_before_anything_is_refused(
    gate: Gate, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.push(batch(event(1, b"x" * 1_000_000), event(2, b"x" * 1_000_000)))
    assert gate.store.log_bytes() > MEBIBYTE

    def depends_on_the_log(_path: str) -> SimpleNamespace:
        disk.free_bytes = RESERVE + MEBIBYTE - gate.store.log_bytes()
        return disk(_path)

    monkeypatch.setattr(os, "statvfs", depends_on_the_log)
    assert len(gate.push(batch(event(3))).decision.accepted) == 1
    assert gate.store.log_bytes() < MEBIBYTE


def test_a_reader_in_the_way_holds_up_nobody(gate: Gate, disk: Disk) -> None:
    gate.push(batch(event(1, b"x" * 1_000_000), event(2, b"x" * 1_000_000)))
    disk.free_bytes = RESERVE - BLOCK
    connection = session_of(gate.store)._connection
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    with gate.store.reading() as reading:
        reading.head_position(HubProject("h"))
        gate.push(batch(event(1, b"x" * 1_000_000)))
        # Whoever waited for the reader would wait for the whole timeout: it is in this thread.
        with pytest.raises(StorageFull):
            gate.push(batch(event(3)))
    assert connection.pragma("busy_timeout") == BUSY_MILLISECONDS


def test_the_files_beside_the_store_stay_when_the_writer_begins_anew(store: SqlStore, tmp_path: Path) -> None:
    gate = Gate(store)
    gate.push(batch(event(1)))
    store.writing.close()
    assert {path.name for path in tmp_path.iterdir()} >= {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert [stored.sequence for stored in gate.events()] == [1]


def test_a_fault_is_logged_once_until_it_is_over(gate: Gate, disk: Disk) -> None:
    with capture_logs() as lines:
        for n in range(1, 4):
            gate.push(batch(event(n)))
        disk.free_bytes = 0
        for _ in range(5):
            with pytest.raises(StorageFull):
                gate.push(batch(event(4)))
        disk.free_bytes = disk.total_bytes
        gate.push(batch(event(4)))
    assert [line["event"] for line in lines] == ["store_has_no_room", "store_has_room_again"]


def test_another_fault_is_another_line_and_reading_is_told_apart_from_writing() -> None:
    health = StoreHealth()

    def fail(problem: str, *, is_writing: bool) -> None:
        health.failed(problem, is_writing=is_writing, during="test", error="Error", detail="")

    with capture_logs() as lines:
        fail("a", is_writing=False)
        fail("b", is_writing=True)
        fail("b", is_writing=True)
        assert health.fault() == "b"
        health.worked(is_writing=True)
        assert health.fault() == "a"
        fail("c", is_writing=False)
        health.worked(is_writing=False)
        health.worked(is_writing=False)
        assert health.fault() is None
    told = [line.get("problem", line["event"]) for line in lines]
    assert told == ["a", "b", "store_available_again", "c", "store_available_again"]


def test_a_commit_that_still_fits_into_a_full_disk_does_not_make_it_well() -> None:
    health = StoreHealth()
    health.room_is_low(True, room_bytes=0, reserve_bytes=1)
    health.failed(DISK_FULL, is_writing=True, during="test", error="FullError", detail="")
    health.worked(is_writing=True)
    assert health.fault() == DISK_FULL
    health.room_is_low(False, room_bytes=2, reserve_bytes=1)
    health.worked(is_writing=True)
    assert health.fault() is None


@pytest.mark.parametrize(
    ("error", "free_bytes", "problem"),
    [
        (apsw.FullError, MEBIBYTE, DISK_FULL),
        (apsw.IOError, 0, DISK_FULL),
        (apsw.CantOpenError, 0, DISK_FULL),
        (apsw.IOError, MEBIBYTE, "the disk cannot be read or written"),
        (apsw.CorruptError, MEBIBYTE, "the store's file is damaged: restore a backup"),
        (apsw.BusyError, MEBIBYTE, "another program holds the store's file"),
    ],
)
def test_what_keeps_the_store_from_being_written_is_said_in_words(
    disk: Disk, error: type[Exception], free_bytes: int, problem: str
) -> None:
    disk.free_bytes = free_bytes
    assert problem_of(error("detail"), "/nowhere/hub.db") == problem
