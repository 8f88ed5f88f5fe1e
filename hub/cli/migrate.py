"""``synchub migrate``: brings a store to the newest schema, as a hub does when it starts."""

from pathlib import Path
from typing import Annotated

import typer

from hub.cli.options import JsonOption
from hub.cli.output import CommandFailed, failures_told, print_json

EXAMPLES = """Examples:

  synchub migrate --db hub.db --check

  synchub migrate --db hub.db
"""


def migrate(
    *,
    db: Annotated[str, typer.Option("--db", metavar="FILE", help="The store, which no hub serves now.")],
    is_check: Annotated[
        bool, typer.Option("--check", help="Only say what there is to do; exit code 1 where there is.")
    ] = False,
    is_json: JsonOption = False,
) -> None:
    """Bring a store to the schema of this program, each step all or nothing.

    A hub does the same when it starts; by hand it can be done, and take its time, before that. Take a
    backup first: an older program does not open a newer store.
    """
    # Imported only here: other commands need no store.
    from hub.core.limits import Limits
    from hub.store.sqlite.migration import migrate_store, schema_of_store

    with failures_told():
        database = Path(db)
        seconds = Limits().busy_timeout_seconds
        act = schema_of_store if is_check else migrate_store
        before, after = act(database, busy_timeout_seconds=seconds)
        if is_json:
            print_json({"schema_before": before, "schema_after": before if is_check else after})
        if is_check and before != after:
            hint = f"synchub migrate --db {db}"
            raise CommandFailed(f"{db} has schema {before}, and this program's is {after}", hint=hint)
        if is_json:
            return
        if before == after:
            print(f"{db} has schema {before}: nothing to do")
        else:
            print(f"{db}: migrated from schema {before} to {after}")
