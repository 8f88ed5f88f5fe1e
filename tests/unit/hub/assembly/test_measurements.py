"""What is measured now and then is what is there, and stays as it was where it cannot be read."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hub.assembly.measurements import Measurements, RowCounts
from hub.core.limits import Limits
from hub.service.readers import Readers
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.unit.hub.journal_gate import JournalGate
from tests.unit.hub.journal_values import commit, message


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with opened_engine(tmp_path / "hub.db", limits=Limits()) as engine:
        opened = SqlStore(engine, limits=Limits(), wall_nanos=1)
        yield opened
        opened.close()


@pytest.fixture
def readers(store: SqlStore) -> Iterator[Readers]:
    with ThreadPoolExecutor(1) as executor:
        yield Readers(store, executor)


def test_leases_and_messages_that_are_not_delivered_are_counted(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path)
    try:
        credential = gate.credential("s")
        gate.acquire("t")
        messages = [message("o1", key="k"), message("o2", key="k"), message("o3")]
        gate.commit(commit("m", stream="s", credential=credential, messages=messages))
        with gate.store.reading() as transaction:
            assert transaction.leases.open_count(100) == 2
            assert transaction.leases.open_count(1) == 1
            assert transaction.journal.undelivered_counts(100) == {"WAITING": 2, "BEHIND": 1, "DEAD": 0}
            assert transaction.journal.undelivered_counts(1) == {"WAITING": 1, "BEHIND": 1, "DEAD": 0}
    finally:
        gate.close()


async def test_sizes_are_those_of_the_files(tmp_path: Path, readers: Readers) -> None:
    measured = Measurements(readers, database=tmp_path / "hub.db", backup_folder=None)
    assert (measured.sizes.store_bytes, measured.backup_age_seconds()) == (None, None)
    await measured.measure()
    assert measured.sizes.store_bytes == (tmp_path / "hub.db").stat().st_size
    assert measured.sizes.disk_free_bytes is not None
    assert 0 < measured.sizes.disk_free_bytes <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert measured.counts == RowCounts(0, {"WAITING": 0, "BEHIND": 0, "DEAD": 0})


async def test_the_age_of_backups_is_that_of_the_newest_whole_one(tmp_path: Path, readers: Readers) -> None:
    folder = tmp_path / "backups"
    measured = Measurements(readers, database=tmp_path / "hub.db", backup_folder=folder)
    await measured.measure()
    assert measured.backup_age_seconds() is None
    folder.mkdir()
    await measured.measure()
    assert measured.backup_age_seconds() is None
    now = time.time()
    for name, age_seconds in (("old", 9_000), ("new", 1_000), ("newest.part", 10)):
        (folder / name).touch()
        os.utime(folder / name, (now - age_seconds, now - age_seconds))
    (folder / "a folder").mkdir()
    await measured.measure()
    assert measured.backup_age_seconds() == pytest.approx(1_000, abs=60)


def spoil(folder: Path) -> None:
    """Put something else in the place of the store."""
    for path in folder.glob("hub.db*"):
        path.rename(path.with_name("gone-" + path.name))
    (folder / "hub.db").write_bytes(b"no database" * 100)


async def test_what_cannot_be_read_stays_as_it_was(tmp_path: Path, store: SqlStore, readers: Readers) -> None:
    measured = Measurements(readers, database=tmp_path / "hub.db", backup_folder=None)
    await measured.measure()
    before = measured.counts
    store.close()
    spoil(tmp_path)
    await measured.measure()
    assert measured.counts is before
    assert measured.sizes.store_bytes == 1_100
