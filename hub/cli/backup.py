"""``synchub backup``: a verified copy of a whole store, also while a hub serves it."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hub.cli.hub_calls import channel_to
from hub.cli.options import DEFAULT_HUB, HubOption, JsonOption
from hub.cli.output import EXIT_USAGE, CommandFailed, failures_told, print_json
from hub.cli.progress import Tell, shown_progress
from synchub.v1.hub_service_pb2 import BackupHubRequest, BackupHubResponse
from synchub.v1.hub_service_pb2_grpc import HubServiceStub

if TYPE_CHECKING:
    from hub.core.backup import BackupProgress

EXAMPLES = """Examples:

  synchub backup --token-file admin.token

  synchub backup before-upgrade.db --token-file admin.token

  synchub backup --db hub.db --to /backups/hub.db

The first two write into the folder that the hub was started with (--backup-folder).
"""

PHASE_WORDS: Final = {
    BackupHubResponse.PHASE_COPY: "copying",
    BackupHubResponse.PHASE_VERIFY: "verifying",
    BackupHubResponse.PHASE_DONE: "done",
}


def backup(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="File name in the hub's folder for backups. Default: one with the time."
        ),
    ] = "",
    db: Annotated[
        str,
        typer.Option(
            "--db", metavar="FILE", help="Copy this store by yourself, whether a hub serves it or not."
        ),
    ] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="With --db: where the backup shall be.")
    ] = "",
    hub: HubOption = DEFAULT_HUB,
    is_json: JsonOption = False,
) -> None:
    """Take a backup of the whole store, and verify it.

    It appears under its name when it is whole, verified and on disk; never in place of another file.
    Runtimes, leases and readers go on meanwhile. It holds payloads and hashes of tokens: keep it as you
    keep the store. `synchub restore` makes a store of it.
    """
    if bool(db) != bool(to) or (db and name):
        with failures_told():
            sentence = "--db FILE and --to FILE belong together, and take the place of NAME"
            raise CommandFailed(sentence, exit_code=EXIT_USAGE)
    if db:
        with failures_told():
            size_bytes = _copy(Path(db), Path(to))
            _say(str(to), size_bytes, is_json=is_json)
        return
    with channel_to(hub) as channel:
        answer = BackupHubResponse()
        with shown_progress() as tell:
            for answer in HubServiceStub(channel).BackupHub(BackupHubRequest(file_name=name)):
                tell(PHASE_WORDS.get(answer.phase, "…"), answer.done_count, total=answer.total_count)
        if answer.phase != BackupHubResponse.PHASE_DONE:
            raise CommandFailed("the hub ended the backup before it was whole; there is none")
        _say(answer.file_name, answer.size_bytes, is_json=is_json)


def tell_progress(tell: Tell, progress: "BackupProgress") -> None:
    """Show how far a backup or a restore is."""
    words = {"COPY": "copying", "VERIFY": "verifying", "DONE": "done"}
    tell(words[progress.phase.name], progress.done_count, total=progress.total_count)


def _copy(database: Path, to: Path) -> int:
    """Take a backup without a hub; return its size."""
    # Imported only here: other commands need no store.
    import apsw

    from hub.core.limits import Limits
    from hub.store.sqlite.backup import BackupDamaged, take_backup
    from hub.store.sqlite.file import application_id_there
    from hub.store.sqlite.session import problem_of

    application_id_there(database)
    size_bytes = 0
    try:
        with shown_progress() as tell, closing(take_backup(database, to, limits=Limits())) as steps:
            for progress in steps:
                tell_progress(tell, progress)
                size_bytes = progress.size_bytes
    except FileExistsError as error:
        raise CommandFailed(f"{to} is there already, or being written", hint="Give another --to.") from error
    except BackupDamaged as error:
        hint = f"Look at all of it: synchub verify --db {database}"
        raise CommandFailed(f"the copy does not verify: {error}; there is no backup", hint=hint) from error
    except (OSError, apsw.Error) as error:
        why = error.strerror if isinstance(error, OSError) else problem_of(error, str(to))
        raise CommandFailed(f"cannot write the backup {to}: {why}") from error
    return size_bytes


def _say(file_name: str, size_bytes: int, *, is_json: bool) -> None:
    if is_json:
        print_json({"file_name": file_name, "size_bytes": size_bytes})
    else:
        print(f"{file_name}: {size_bytes} bytes, verified")
