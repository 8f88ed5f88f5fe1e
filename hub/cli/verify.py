"""``synchub verify``: whether what is stored is as its hashes say, of a file or over a hub."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from hub.cli.hub_calls import channel_to, message_to_json
from hub.cli.logs import without_log
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    checked_hub_project,
)
from hub.cli.output import CommandFailed, failures_told, print_json, printable
from hub.cli.progress import shown_progress
from hub.core.verify import Finding
from synchub.v1.hub_service_pb2 import VerifyEventsRequest, VerifyEventsResponse
from synchub.v1.hub_service_pb2_grpc import HubServiceStub

EXAMPLES = """Examples:

  synchub verify --db hub.db

  synchub verify --hub-project demo --project my-project
"""


def verify(
    *,
    db: Annotated[
        str,
        typer.Option("--db", metavar="FILE", help="All of this store or backup, served by a hub or not."),
    ] = "",
    project: Annotated[
        str, typer.Option("--project", metavar="PROJECT", help="Of a hub: only this project.")
    ] = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Compute every content hash and chain hash anew, and name what does not fit.

    With --db also the structure of the file, its schema, positions, the journal and what is counted; while
    a hub serves the file, what holds only while nobody writes is left out. Reads only. Exit code 1 where
    anything was found.
    """
    if db:
        with failures_told(), without_log():
            _verify_file(Path(db), is_json=is_json)
        return
    with channel_to(hub) as channel:
        request = VerifyEventsRequest(hub_project=checked_hub_project(hub_project), project_id=project)
        answer = VerifyEventsResponse()
        found_count = 0
        with shown_progress() as tell:
            for answer in HubServiceStub(channel).VerifyEvents(request):
                tell("verifying", answer.event_count, total=answer.total_count)
                for each in answer.findings:
                    found_count += 1
                    finding = Finding(each.problem, "", each.project_id, each.run_id, each.sequence)
                    _say(finding, is_json=is_json)
        if not answer.is_done:
            raise CommandFailed("the hub ended the verification before its end")
        answer.ClearField("findings")
        if is_json:
            print_json({**message_to_json(answer), "finding_count": found_count})
        _end(answer.event_count, answer.run_count, found_count=found_count, is_json=is_json)


def _verify_file(database: Path, *, is_json: bool) -> None:
    # Imported only here: other commands need no store.
    from hub.core.limits import Limits
    from hub.store.sqlite.file import is_served
    from hub.store.sqlite.verify import verify_store

    is_quiet = not is_served(database)
    found_count = event_count = run_count = 0
    steps = verify_store(database, limits=Limits(), is_quiet=is_quiet)
    with shown_progress() as tell, closing(steps):
        for progress in steps:
            event_count, run_count = progress.event_count, progress.run_count
            tell("verifying", event_count, total=progress.total_count)
            for finding in progress.findings:
                found_count += 1
                _say(finding, is_json=is_json)
    if is_json:
        print_json(
            {
                "event_count": event_count,
                "run_count": run_count,
                "finding_count": found_count,
                "is_complete": is_quiet,
            }
        )
    elif not is_quiet:
        print("a hub serves the file: its structure and what is counted were left out")
    _end(event_count, run_count, found_count=found_count, is_json=is_json)


def _say(finding: Finding, *, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                "hub_project": finding.hub_project,
                "project_id": finding.project_id,
                "run_id": finding.run_id,
                "sequence": finding.sequence,
                "problem": finding.problem,
            }
        )
    else:
        print(printable(finding.sentence))


def _end(event_count: int, run_count: int, *, found_count: int, is_json: bool) -> None:
    """Say what was looked at; what was found ends the command with exit code 1."""
    if found_count:
        hint = "Restore a backup that verifies; runtimes that come back push again what it does not have."
        findings = "1 finding" if found_count == 1 else f"{found_count} findings"
        raise CommandFailed(f"{findings} in {event_count} events of {run_count} runs", hint=hint)
    if not is_json:
        print(f"{event_count} events of {run_count} runs: all as they should be")
