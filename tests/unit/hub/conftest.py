"""A real store in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.core.limits import Limits
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.unit.hub.stored_runs import WALL_NANOS, StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    limits = Limits()
    with opened_engine(tmp_path / "hub.db", limits=limits) as engine:
        store = SqlStore(engine, limits=limits, wall_nanos=WALL_NANOS)
        yield store
        store.close()


@pytest.fixture
def writer(store: SqlStore) -> StoreWriter:
    return StoreWriter(store)
