"""``runtime-agent quarantine``: runs that are kept from syncing until a person decides."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from runtime_agent import limits
from runtime_agent.cli.options import (
    DataOption,
    JsonOption,
    ProjectOption,
    RunOption,
    WaitOption,
    data_folder,
    nanos_to_time,
)
from runtime_agent.core.errors import RunNotQuarantinedError, RunUnknownError
from runtime_agent.core.values import RunKey, RunState
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_client import open_local_log

app = typer.Typer(no_args_is_help=True, help="Look at and decide on runs that are kept from syncing.")


@app.command("list")
def list_runs(data: DataOption = None, json_output: JsonOption = False) -> None:
    """List the quarantined runs."""
    reader = SqliteEventLogReader.open(data_folder(data))
    try:
        states = _quarantined(reader)
        if json_output:
            for state in states:
                print(json.dumps(_facts(state)))
            return
        table = Table("project", "run", "reason", "at", "events", "synced", "since")
        for state in states:
            assert state.quarantine is not None
            table.add_row(
                state.run.project_id,
                state.run.run_id,
                state.quarantine.reason,
                str(state.quarantine.sequence or "-"),
                str(state.last_sequence),
                str(state.acknowledged_sequence),
                nanos_to_time(state.quarantine.quarantine_time_nanos),
            )
    finally:
        reader.close()
    if table.row_count:
        Console().print(table, markup=False)
    else:
        print("no run is quarantined")


@app.command("show")
def show(
    *, project: ProjectOption, run: RunOption, data: DataOption = None, json_output: JsonOption = False
) -> None:
    """Show why a run is quarantined and what can be done."""
    reader = SqliteEventLogReader.open(data_folder(data))
    try:
        state = reader.load_run(RunKey(project, run))
    finally:
        reader.close()
    if state is None:
        raise RunUnknownError(project, run)
    if state.quarantine is None:
        raise RunNotQuarantinedError(project, run)
    if json_output:
        print(json.dumps(_facts(state)))
        return
    for name, value in _facts(state).items():
        print(f"{name.replace('_', ' ')}: {value}")
    print("release: reconcile and push again; release --as RUN: copy what the hub lacks; drop: delete")


@app.command("release")
def release(
    *,
    project: ProjectOption,
    run: RunOption,
    as_run: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="RUN",
            help="Copy the events that the hub does not have to this new run; the old one stays quarantined.",
        ),
    ] = "",
    data: DataOption = None,
    json_output: JsonOption = False,
    wait: WaitOption = limits.PROCESS_LEASE_WAIT_SECONDS,
) -> None:
    """Let a quarantined run sync again, as itself or copied to a new run.

    Examples:

      runtime-agent quarantine release --project shop --run r1

      runtime-agent quarantine release --project shop --run r1 --as r1-after-restore
    """
    key = RunKey(project, run)
    copied_count = 0
    with open_local_log(data_folder(data), role="quarantine release", wait_seconds=wait) as log:
        if as_run:
            copied_count = log.release_as(key, as_run)
        else:
            log.release(key)
    if json_output:
        print(json.dumps({"run_id": as_run or run, "copied_event_count": copied_count}))
    elif as_run:
        print(
            f"copied {copied_count} events to run {as_run}; run {run} stays quarantined until it is dropped"
        )
    else:
        print(f"run {run} is released")


@app.command("drop")
def drop(
    *,
    project: ProjectOption,
    run: RunOption,
    data: DataOption = None,
    json_output: JsonOption = False,
    wait: WaitOption = limits.PROCESS_LEASE_WAIT_SECONDS,
) -> None:
    """Delete a quarantined run with all its events from the local log. There is no way back."""
    with open_local_log(data_folder(data), role="quarantine drop", wait_seconds=wait) as log:
        count = log.drop(RunKey(project, run))
    if json_output:
        print(json.dumps({"run_id": run, "dropped_event_count": count}))
    else:
        print(f"dropped run {run} with {count} events")


def _quarantined(reader: SqliteEventLogReader) -> Iterator[RunState]:
    after: RunKey | None = None
    while page := reader.list_quarantined_runs(after=after, limit=limits.RUN_PAGE_DEFAULT):
        yield from page
        after = page[-1].run


def _facts(state: RunState) -> dict[str, str | int]:
    assert state.quarantine is not None
    return {
        "project_id": state.run.project_id,
        "run_id": state.run.run_id,
        "reason": state.quarantine.reason,
        "detail": state.quarantine.detail,
        "sequence": state.quarantine.sequence,
        "quarantine_time": nanos_to_time(state.quarantine.quarantine_time_nanos),
        "last_sequence": state.last_sequence,
        "acknowledged_sequence": state.acknowledged_sequence,
        "copied_through_sequence": state.quarantine.copied_through_sequence,
    }
