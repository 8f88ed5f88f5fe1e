"""Brings a file to the newest schema without serving it; a hub does the same when it starts."""

from pathlib import Path

import apsw

from hub.core.errors import StartRefused
from hub.store.sqlite import file


def migrate_store(database: Path, *, busy_timeout_seconds: float) -> tuple[int, int]:
    """Apply the migrations that are missing, each in one transaction; return the schema before and after.

    Raises: StartRefused where the file is not there, in use, foreign, newer or changed by hand.
    """
    file.application_id_there(database)
    with file.exclusive_lock(database):
        before = file.prepare(database, busy_timeout_seconds=busy_timeout_seconds)
    return before, file.schema_version_newest()


def schema_of_store(database: Path, *, busy_timeout_seconds: float) -> tuple[int, int]:
    """Return the schema of a store and the newest one; reads only, also while a hub serves the file.

    Raises: StartRefused.
    """
    file.application_id_there(database)
    try:
        connection = file.connect_for_reading(database, busy_timeout_seconds=busy_timeout_seconds)
        try:
            return file.schema_version_of(connection, database)
        finally:
            connection.close(True)
    except apsw.Error as error:
        sentence = f"cannot read the store {database}: {error}."
        raise StartRefused(sentence, "Check the file's permissions, and those of its folder.") from error
