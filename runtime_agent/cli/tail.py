"""``runtime-agent tail``: the events of the local log in its own order."""

import json
import os
from base64 import b64encode
from typing import Annotated

import typer

from runtime_agent import limits
from runtime_agent.cli.options import DataOption, JsonOption, data_folder, nanos_to_time
from runtime_agent.core.errors import UsageError
from runtime_agent.core.values import LogEvent, RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_api.codec import local_event_from_proto
from runtime_agent.local_client import SocketLog

_SHOWN_CHARACTERS = 120


def tail(
    *,
    project: Annotated[str, typer.Option("--project", metavar="P", help="Only this project.")] = "",
    run: Annotated[str, typer.Option("--run", metavar="N", help="Only this run; needs --project.")] = "",
    after: Annotated[
        int, typer.Option("--after", metavar="POSITION", min=0, help="Begin after this local position.")
    ] = 0,
    from_now: Annotated[bool, typer.Option("--from-now", help="Leave out what is there already.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is appended; needs a running agent.")
    ] = False,
    data: DataOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print the events of the local log over all runs, in the order in which they were appended.

    The first column is the local position: give the last one with --after to go on from there.

    Example:

      runtime-agent tail --project shop --follow --json
    """
    if run and not project:
        raise UsageError("--run needs --project")
    folder = data_folder(data)
    reader = SqliteEventLogReader.open(folder)
    try:
        if from_now:
            after = max(after, reader.load_head_local_position())
        while page := reader.tail_events(
            after_local_position=after,
            project_id=project,
            run_id=run,
            count_max=limits.EVENT_PAGE_DEFAULT,
            bytes_max=limits.PAGE_BYTES_MAX,
        ):
            for key, event, is_acknowledged in page:
                _show(key, event, is_acknowledged=is_acknowledged, json_output=json_output)
            after = page[-1].event.local_position
    finally:
        reader.close()
    if follow:
        _follow(folder, project=project, run=run, after=after, json_output=json_output)


def _follow(folder: str, *, project: str, run: str, after: int, json_output: bool) -> None:
    agent = SocketLog.connect(folder)
    if agent is None:
        raise UsageError("--follow needs a running agent; without one nothing more is told")
    try:
        for message in agent.tail(after_local_position=after, project_id=project, run_id=run):
            key, event, is_acknowledged = local_event_from_proto(message)
            _show(key, event, is_acknowledged=is_acknowledged, json_output=json_output)
    finally:
        agent.close()


def _show(run: RunKey, event: LogEvent, *, is_acknowledged: bool, json_output: bool) -> None:
    time_text = "" if event.event_time_nanos is None else nanos_to_time(event.event_time_nanos)
    if not json_output:
        text = (
            "(dropped)"
            if event.payload is None
            else event.payload[: _SHOWN_CHARACTERS * 4].decode(errors="replace")
        )
        shown = "".join(each if each.isprintable() else "·" for each in text[:_SHOWN_CHARACTERS])
        mark = "synced" if is_acknowledged else "local"
        print(
            event.local_position, f"{run.project_id}/{run.run_id}", event.sequence, event.event_type,
            time_text or "-", mark, shown, flush=True,
        )  # fmt: skip
        return
    facts: dict[str, str | int | bool | dict[str, str] | None] = {
        "local_position": event.local_position,
        "project_id": run.project_id,
        "run_id": run.run_id,
        "sequence": event.sequence,
        "event_type": event.event_type,
        "event_time": time_text or None,
        "attributes": dict(event.attributes),
        "is_final": event.is_final,
        "is_acknowledged": is_acknowledged,
        "content_hash": event.content_hash.hex(),
        "payload_dropped": event.payload is None,
    }
    if event.payload is not None:
        try:
            facts["text"] = event.payload.decode()
        except UnicodeDecodeError:
            facts["payload"] = b64encode(event.payload).decode()
    os.write(1, json.dumps(facts).encode() + b"\n")
