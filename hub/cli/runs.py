"""``synchub runs``: which runs the hub holds, and how far one is."""

from typing import Annotated

import typer

from hub.cli.hub_calls import channel_to, first_of, message_to_json, moment_text, pages_of
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    checked_hub_project,
)
from hub.cli.output import print_facts, print_json, print_table
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.sync_event_pb2 import Run
from synchub.v1.sync_service_pb2 import GetRunRequest, ListRunsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

EXAMPLES = """Examples:

  synchub runs --hub-project demo

  synchub runs --hub-project demo --runtime build-7 --incomplete

  synchub runs my-project run-42 --hub-project demo
"""


def runs(
    *,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Only runs of this project.")] = "",
    run: Annotated[str, typer.Argument(metavar="RUN", help="This run of the project, in detail.")] = "",
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="R", help="Only runs whose home is this runtime.")
    ] = "",
    is_complete: Annotated[
        bool | None,
        typer.Option("--complete/--incomplete", help="Only runs whose final event has come, or the others."),
    ] = None,
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List runs, or show one."""
    with channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        if run:
            get = GetRunRequest(hub_project=checked_hub_project(hub_project), project_id=project, run_id=run)
            show_run(stub.GetRun(get, timeout=UNARY_SECONDS_MAX).run, is_json=is_json)
            return
        request = ListRunsRequest(
            hub_project=checked_hub_project(hub_project),
            project_id=project,
            runtime_id=runtime,
            is_complete=is_complete,
        )
        pages = pages_of(
            lambda request, timeout: stub.ListRuns(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((each for page in pages for each in page.runs), limit)
        if is_json:
            for each in found:
                print_json(message_to_json(each))
            return
        print_table(
            ["PROJECT", "RUN", "RUNTIME", "EVENTS", "CURSOR", "COMPLETE", "LAST RECEIVED (UTC)"],
            map(_row, found),
            empty="no runs",
        )


def show_run(run: Run, *, is_json: bool) -> None:
    """Print one run."""
    if is_json:
        print_json(message_to_json(run))
        return
    gap = "" if run.highest_sequence == run.cursor else f" (a gap: stored up to {run.highest_sequence})"
    print_facts(
        [
            ("project", run.project_id),
            ("run", run.run_id),
            ("home runtime", run.home_runtime_id),
            ("events", str(run.event_count)),
            ("cursor", f"{run.cursor}{gap}"),
            ("chain hash", run.chain_hash.hex()),
            ("complete", "yes" if run.is_complete else "no"),
            ("first received", f"{moment_text(run.first_receive_time)} UTC"),
            ("last received", f"{moment_text(run.last_receive_time)} UTC"),
        ]
    )


def _row(run: Run) -> list[str]:
    return [
        run.project_id,
        run.run_id,
        run.home_runtime_id,
        str(run.event_count),
        str(run.cursor),
        "yes" if run.is_complete else "no",
        moment_text(run.last_receive_time),
    ]
