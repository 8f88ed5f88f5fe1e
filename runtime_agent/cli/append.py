"""``runtime-agent append``: one event, durable when the command returns."""

import json
import os
import sys
from typing import Annotated

import typer

from runtime_agent import limits
from runtime_agent.cli.options import (
    DataOption,
    JsonOption,
    ProjectOption,
    RunOption,
    WaitOption,
    attributes_from_pairs,
    data_folder,
    time_to_nanos,
)
from runtime_agent.core.errors import UsageError
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.current_trace import traceparent_of_environment
from runtime_agent.local_client import open_local_log
from synchub.contract import PAYLOAD_BYTES_MAX


def append(
    *,
    project: ProjectOption,
    run: RunOption,
    event_type: Annotated[str, typer.Option("--type", metavar="T", help="Type of the event.")],
    payload: Annotated[
        str | None,
        typer.Option("--payload", "--text", metavar="TEXT", help="The payload, byte for byte as given."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="The payload is this file; - is standard input."),
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", metavar="KEY=VALUE", help="May be given several times.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="RFC3339", help="When it happened. Default: now.")
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="It is the run's last event.")] = False,
    append_id: Annotated[
        str,
        typer.Option(
            "--append-id", metavar="ID", help="Name of this append: given again, it is not doubled."
        ),
    ] = "",
    data: DataOption = None,
    json_output: JsonOption = False,
    wait: WaitOption = limits.PROCESS_LEASE_WAIT_SECONDS,
) -> None:
    """Append one event and print its sequence once it is on stable storage.

    The payload comes from --payload, --file, or standard input where that is not a terminal. Where
    TRACEPARENT is set, the event carries that trace context to the hub.

    Examples:

      runtime-agent append --project shop --run r1 --type started --payload '{"step": 1}'

      make 2>&1 | runtime-agent append --project shop --run r1 --type build-output --final
    """
    event = NewEvent(
        event_type=event_type,
        payload=_read_payload(payload, file),
        event_time_nanos=None if time is None else time_to_nanos(time),
        attributes=attributes_from_pairs(attribute or []),
        is_final=final,
    )
    request = AppendRequest(RunKey(project, run), (event,), append_id=append_id)
    with open_local_log(data_folder(data), role="append", wait_seconds=wait) as log:
        appended = log.append(request, traceparent=traceparent_of_environment())
    if json_output:
        facts = {
            "project_id": project,
            "run_id": run,
            "sequence": appended.last_sequence,
            "is_repeat": appended.is_repeat,
        }
        print(json.dumps(facts))
    else:
        print(appended.last_sequence)


def _read_payload(payload: str | None, file: str | None) -> bytes:
    if payload is not None and file is not None:
        raise UsageError("give --payload or --file, not both")
    if payload is not None:
        return os.fsencode(payload)
    # One byte more than is allowed, so that the log can say that it is too large.
    if file is None or file == "-":
        if file is None and sys.stdin.isatty():
            return b""
        return sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1)
    try:
        with open(file, "rb") as opened:
            return opened.read(PAYLOAD_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"the file {file} cannot be read: {error.strerror}") from error
