"""``synchub restore``: makes a store of a backup, or begins a new life of one that was restored otherwise."""

import dataclasses
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from hub.cli.backup import tell_progress
from hub.cli.logs import configure_logs
from hub.cli.options import JsonOption
from hub.cli.output import EXIT_USAGE, CommandFailed, failures_told, print_json
from hub.cli.progress import shown_progress
from hub.core.backup import BackupProgress

if TYPE_CHECKING:
    from hub.core.restore import Restored

EXAMPLES = """Examples:

  synchub restore /backups/hub.db --db hub.db

  synchub restore --in-place --db hub.db

The second one after the file itself was brought back, by a copy or a snapshot of the disk.
"""

LOST_TAIL: Final = (
    "What was stored after the backup is not in it. Runtimes that come back push it again; what runtimes had"
    " that never come back, and what was committed to the journal, is lost."
)


def restore(
    *,
    backup: Annotated[str, typer.Argument(metavar="BACKUP", help="The backup.")] = "",
    db: Annotated[
        str, typer.Option("--db", metavar="FILE", help="The store to make, which must not be there yet.")
    ],
    is_in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Instead of a BACKUP: --db itself was restored by other means, or went back."
        ),
    ] = False,
    keep_credentials: Annotated[
        bool, typer.Option("--keep-credentials", help="Do not revoke the tokens that are in the backup.")
    ] = False,
    is_json: JsonOption = False,
) -> None:
    """Restore a store, while no hub serves it.

    The backup is verified first. The store begins a new life: a new hub generation, so that watchers and
    runtimes learn that a tail may be lost; fencing tokens above all that were given; no lease, no receipt,
    and every token for callers revoked.
    """
    with failures_told():
        if is_in_place == bool(backup):
            sentence = "give either BACKUP, to make a new store, or --in-place"
            raise CommandFailed(sentence, exit_code=EXIT_USAGE)
        configure_logs()
        restored = _restored(
            None if is_in_place else Path(backup), Path(db), are_credentials_kept=keep_credentials
        )
        if is_json:
            heads = {
                name: {"head_position": head, "journal_head_position": journal_head}
                for name, (head, journal_head) in restored.head_positions.items()
            }
            print_json({**dataclasses.asdict(restored), "head_positions": heads})
        else:
            _say(restored, db)


def _restored(backup: Path | None, database: Path, *, are_credentials_kept: bool) -> "Restored":
    # Imported only here: other commands need no store.
    import apsw

    from hub.core.limits import Limits
    from hub.core.restore import Restored
    from hub.store.sqlite.backup import BackupDamaged
    from hub.store.sqlite.restore import Restore, restore_backup, restore_in_place
    from hub.store.sqlite.session import problem_of

    plan = Restore(uuid4().hex, time.time_ns(), are_credentials_kept)
    steps: Generator[BackupProgress | Restored, None, None]
    if backup is None:
        steps = restore_in_place(database, restore=plan, limits=Limits())
    else:
        steps = restore_backup(backup, database, restore=plan, limits=Limits())
    try:
        with shown_progress() as tell, closing(steps):
            for step in steps:
                if isinstance(step, Restored):
                    return step
                tell_progress(tell, step)
    except FileExistsError as error:
        hint = "Give another --db, or move away what is there."
        raise CommandFailed(str(error) or f"{database} is there already", hint=hint) from error
    except (BackupDamaged, apsw.CorruptError, apsw.NotADBError) as error:
        hint = "Nothing was restored. Take another backup; synchub verify --db FILE names all that is wrong."
        raise CommandFailed(f"it does not verify: {error}", hint=hint) from error
    except (OSError, apsw.Error) as error:
        why = error.strerror if isinstance(error, OSError) else problem_of(error, str(database))
        raise CommandFailed(f"cannot restore {database}: {why}; nothing was restored") from error
    raise AssertionError("a restore ends with what it did")


def _say(restored: "Restored", db: str) -> None:
    print(f"restored {db}: generation {restored.hub_generation}, after {restored.previous_generation}")
    if restored.schema_before != restored.schema_after:
        print(f"  migrated from schema {restored.schema_before} to {restored.schema_after}")
    print(f"  leases and maintenances ended: {restored.ended_tenure_count}")
    print(f"  receipts dropped: {restored.dropped_receipt_count}")
    if restored.kept_token_count:
        print(f"  tokens for callers kept: {restored.kept_token_count}")
    else:
        print(f"  tokens for callers revoked: {restored.revoked_token_count}")
    print(f"  fencing tokens and epochs go on above {restored.token_floor}")
    for hub_project, (head, journal_head) in restored.head_positions.items():
        print(f"  {hub_project}: positions up to {head} hold, in the journal up to {journal_head}")
    print(LOST_TAIL)
    if restored.revoked_token_count:
        print(f"Make a token before the hub is started: synchub token create --db {db} --role admin …")
    if restored.is_clock_behind:
        print("The clock of this machine is behind the store's time: set it right before the hub is started.")
