"""``synchub export``: all events of a hub project, a project or a run, to a file or standard output."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hub.cli.hub_calls import channel_to, event_to_json, pages_of
from hub.cli.options import DEFAULT_HUB, HubOption, HubProjectOption, checked_hub_project
from hub.cli.output import CommandFailed
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.sync_event_pb2 import StoredEvent
from synchub.v1.sync_service_pb2 import ExportEventsRequest, GetRunRequest, ListRunsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

EXAMPLES = """Examples:

  synchub export my-project run-42 --hub-project demo --raw --output run-42.log

  synchub export --hub-project demo > everything.jsonl
"""


def export(
    *,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Only this project.")] = "",
    run: Annotated[str, typer.Argument(metavar="RUN", help="Only this run of the project.")] = "",
    is_raw: Annotated[
        bool, typer.Option("--raw", help="Only the payloads, as they came, each as a line of its own.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file, which appears when complete."),
    ] = None,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
) -> None:
    """Write all events, ascending by project, run and sequence: JSON lines, or raw payloads.

    A payload that is UTF-8 stands as "text", any other in base64 as "payload".
    """
    with channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        tenant = checked_hub_project(hub_project)
        request = ExportEventsRequest(hub_project=tenant, project_id=project, run_id=run)
        dropped_count = 0
        with _sink(output) as file, _progress_of(stub, request, is_to_file=output is not None) as advance:
            for response in stub.ExportEvents(request):
                for event in response.events:
                    if is_raw and event.payload_dropped:
                        dropped_count += 1
                        continue
                    file.write(_line(event, is_raw=is_raw))
                advance(len(response.events))
        if dropped_count:
            raise CommandFailed(
                f"the payloads of {dropped_count} events are gone and left out",
                hint="Without --raw these events are written with their hashes.",
            )


def _line(event: StoredEvent, *, is_raw: bool) -> bytes:
    if is_raw:
        # What `exec` records has its newlines already, what `import` records has none.
        return event.payload if event.payload.endswith(b"\n") else event.payload + b"\n"
    return json.dumps(event_to_json(event), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Give where to write; a file appears under its name only when it is complete and on disk."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        if output.exists() and not output.is_file():
            # A pipe or a device is written to; a file in its place would be another thing.
            with output.open("wb") as file:
                yield file
            return
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


class _Advance:
    """Counts events on a progress bar, where there is one."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("events", total=total)

    def __call__(self, count: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)


@contextmanager
def _progress_of(
    stub: SyncServiceStub, request: ExportEventsRequest, *, is_to_file: bool
) -> Iterator[_Advance]:
    """Give what counts events; a bar for a person who waits for a file."""
    if not (is_to_file and sys.stderr.isatty()):
        yield _Advance(None, 0)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Advance(progress, _count_events(stub, request))


def _count_events(stub: SyncServiceStub, request: ExportEventsRequest) -> int:
    """Return how many events there are to export, as the runs say now."""
    if request.run_id:
        get = GetRunRequest(
            hub_project=request.hub_project, project_id=request.project_id, run_id=request.run_id
        )
        return stub.GetRun(get, timeout=UNARY_SECONDS_MAX).run.event_count
    runs = ListRunsRequest(hub_project=request.hub_project, project_id=request.project_id)
    pages = pages_of(lambda request, timeout: stub.ListRuns(request, timeout=timeout), runs, entries_max=0)
    return sum(run.event_count for page in pages for run in page.runs)
