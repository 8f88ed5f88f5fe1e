"""A store of an earlier schema, with something of everything in it, is brought to the newest one."""

from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.core.limits import Limits
from hub.store.sql_files import load_migrations
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.file import APPLICATION_ID, schema_version_newest
from tests.contract.full_store import EVENT_COUNT, findings_in, make_full_store, rows_of

BEFORE_QUOTAS: Final = 3
"""The last schema in which nothing was counted for quotas."""
USAGE: Final = "SELECT hub_project, stored_bytes, active_run_count FROM hub_project ORDER BY hub_project"
RECEIPTS: Final = "SELECT create_nanos = (SELECT time_floor_nanos FROM hub) FROM receipt"


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_full_store(tmp_path_factory.mktemp("full"))


def put_back(newer: Path, older: Path, *, version: int) -> None:
    """Make a store of an older schema with all rows of a newer one that have a place there."""
    connection = apsw.Connection(str(older))
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in load_migrations("hub.store.sqlite.migrations")[:version]:
        connection.execute(script)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("ATTACH ? AS newer", (str(newer),))
    with connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        tables = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            columns = ", ".join(str(row[1]) for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    connection.close()


def test_what_quotas_count_is_computed_from_what_is_stored(full_store: Path, tmp_path: Path) -> None:
    old = tmp_path / "hub.db"
    put_back(full_store, old, version=BEFORE_QUOTAS)
    # Of an older schema events and structure are verified, and they are as they should be.
    assert findings_in(old) == []
    with opened_engine(old, limits=Limits()):
        pass
    assert rows_of(old, "PRAGMA user_version") == [(schema_version_newest(),)]
    assert rows_of(old, "SELECT count(*) FROM event") == [(EVENT_COUNT,)]
    counted = rows_of(old, USAGE)
    assert counted == rows_of(full_store, USAGE)
    assert all(isinstance(row[1], int) and row[1] > 0 and row[2] for row in counted)
    assert findings_in(old) == []
    assert set(rows_of(old, RECEIPTS)) == {(1,)}
