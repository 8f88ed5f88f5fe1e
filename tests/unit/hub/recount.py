"""What hub projects keep, counted anew from all rows, as the migration did that began counting."""

from importlib.resources import files
from pathlib import Path
from typing import cast

import apsw

from hub.core.quota import Usage

_MIGRATION = files("hub.store.sqlite").joinpath("migrations", "0004_identity_and_operations.sql")


def kept_and_counted(database: Path) -> list[tuple[str, Usage, Usage]]:
    """Each hub project with what the store says that it keeps, and what counting anew gives."""
    text = _MIGRATION.read_text(encoding="utf-8")
    begin = text.index("UPDATE hub_project SET")
    count_anew = text[begin : text.index(";", begin) + 1]
    connection = apsw.Connection(str(database))
    try:
        kept = _usages(connection)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(count_anew)
        counted = _usages(connection)
        connection.execute("ROLLBACK")
    finally:
        connection.close()
    return [(hub_project, usage, counted[hub_project]) for hub_project, usage in kept.items()]


def assert_counted(database: Path) -> dict[str, Usage]:
    """Assert that the store says what counting anew gives, and return that."""
    rows = kept_and_counted(database)
    assert [row[:2] for row in rows] == [(row[0], row[2]) for row in rows]
    return {hub_project: usage for hub_project, usage, _ in rows}


def _usages(connection: apsw.Connection) -> dict[str, Usage]:
    rows = connection.execute(
        "SELECT hub_project, stored_bytes, active_run_count FROM hub_project ORDER BY 1"
    )
    return {name: Usage(*counts) for name, *counts in cast("list[tuple[str, int, int]]", list(rows))}
