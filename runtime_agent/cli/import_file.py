"""``runtime-agent import``: files of lines, line n as event n of a run."""

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from runtime_agent import limits
from runtime_agent.cli.options import DataOption, JsonOption, ProjectOption, WaitOption, data_folder
from runtime_agent.core.errors import (
    AppendError,
    LineRefusedError,
    LogMissingError,
    RunFinalError,
    UsageError,
    WrongSequenceError,
)
from runtime_agent.core.values import NO_ATTRIBUTES, Appended, AppendRequest, NewEvent, RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_client import OpenLocalLog, open_local_log
from synchub.contract import PAYLOAD_BYTES_MAX, content_hash

LINE_EVENT_TYPE: Final = "line"
"""Type of an event that is a line of a file."""

_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImportCount:
    """What became of a file: lines written now, and lines that were in the log with the same bytes."""

    appended_count: int
    known_count: int


def import_files(
    *,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Files to import; - is standard input.")
    ],
    project: ProjectOption,
    run: Annotated[
        str,
        typer.Option("--run", metavar="N", help="The run. Default: the file's name without its extension."),
    ] = "",
    final: Annotated[bool, typer.Option("--final", help="The last line is the run's final event.")] = False,
    data: DataOption = None,
    json_output: JsonOption = False,
    wait: WaitOption = limits.PROCESS_LEASE_WAIT_SECONDS,
) -> None:
    """Import files of lines: line n is event n of the run, type `line`, without a time of its own.

    The payload is the line's exact bytes without its newline (a carriage return stays); an empty line
    is an event with an empty payload; a last line without a newline counts as a line. Importing again
    changes nothing; a file that has grown goes on after what is there; a line that has changed is
    refused with its number. A line of more than 1 MiB is refused, the ones before it are imported.

    Examples:

      runtime-agent import results.jsonl --project shop

      zcat old.log.gz | runtime-agent import - --project shop --run old --final
    """
    if run and len(files) > 1:
        raise UsageError("--run names one run; with several files each has its own")
    runs = [RunKey(project, run or _run_of(file)) for file in files]
    if len({each.run_id for each in runs}) < len(runs):
        raise UsageError("two of the files would become the same run; import them one by one with --run")
    folder = data_folder(data)
    with open_local_log(folder, role="import", wait_seconds=wait) as log:
        for file, key in zip(files, runs, strict=True):
            with _opened(file) as source, _progress(file, source, is_shown=not json_output) as advance:
                count = import_lines(
                    log, source, folder=folder, run=key, name=file, is_last_final=final, advance=advance
                )
            if json_output:
                facts = {
                    "file": file,
                    "project_id": project,
                    "run_id": key.run_id,
                    "appended_count": count.appended_count,
                    "known_count": count.known_count,
                }
                print(json.dumps(facts), flush=True)
            else:
                print(f"{file}: run {key.run_id}: {count.appended_count} appended, {count.known_count} known")


def import_lines(
    log: OpenLocalLog,
    source: BinaryIO,
    *,
    folder: str,
    run: RunKey,
    name: str,
    is_last_final: bool,
    advance: Callable[[int], None],
) -> ImportCount:
    """Import one source; memory is bounded whatever its size.

    ``advance`` is told how many bytes were read. Raises: LineRefusedError; LogError.
    """
    known = _stored_hashes(folder, run)
    batches = _Batches(log, run, name)
    known_count = line_number = 0
    for line, is_last in _with_last(_lines(source, advance)):
        line_number += 1
        if len(line) > PAYLOAD_BYTES_MAX:
            batches.finish()
            raise LineRefusedError(name, line_number, f"has more than {PAYLOAD_BYTES_MAX} bytes")
        is_final = is_last and is_last_final
        stored = next(known, None) if line_number == known_count + 1 else None
        if stored is None:
            batches.add(line_number, NewEvent(LINE_EVENT_TYPE, line, None, NO_ATTRIBUTES, is_final))
            continue
        known_count += 1
        if stored != _line_hash(line, is_final=is_final):
            fault = "differs from the local log"
            if stored == _line_hash(line, is_final=not is_final):
                fault = "is the same as in the local log, but for being final"
            raise LineRefusedError(name, line_number, fault)
    batches.finish()
    return ImportCount(line_number - known_count, known_count)


def _line_hash(line: bytes, *, is_final: bool) -> bytes:
    return content_hash(LINE_EVENT_TYPE, None, is_final=is_final, attributes=NO_ATTRIBUTES, payload=line)


class _Batches:
    """Lines on their way into the log: a batch being filled, and some whose answers are awaited."""

    def __init__(self, log: OpenLocalLog, run: RunKey, name: str) -> None:
        self._log = log
        self._run = run
        self._name = name
        self._events: list[NewEvent] = []
        self._bytes = 0
        self._first_line = 0
        self._unanswered: deque[tuple[int, int, Future[Appended]]] = deque()

    def add(self, line_number: int, event: NewEvent) -> None:
        """Add the next line; sends a batch when there is one."""
        if not self._events:
            self._first_line = line_number
        self._events.append(event)
        self._bytes += len(event.payload)
        if len(self._events) >= limits.IMPORT_BATCH_LINES or self._bytes >= limits.IMPORT_BATCH_BYTES:
            self._send()

    def finish(self) -> None:
        """Send the rest, and return once everything is on stable storage."""
        if self._events:
            self._send()
        while self._unanswered:
            self._await_oldest()

    def _send(self) -> None:
        while len(self._unanswered) >= limits.IMPORT_BATCHES_IN_FLIGHT:
            self._await_oldest()
        request = AppendRequest(
            self._run, tuple(self._events), expected_sequence=self._first_line, stamp_time=False
        )
        last_line = self._first_line + len(self._events) - 1
        self._unanswered.append((self._first_line, last_line, self._log.append_soon(request)))
        self._events, self._bytes = [], 0

    def _await_oldest(self) -> None:
        first_line, last_line, future = self._unanswered.popleft()
        try:
            future.result()
        except WrongSequenceError as error:
            fault = f"is not next: another program appended up to sequence {error.next_sequence - 1}"
            raise LineRefusedError(self._name, first_line, fault) from error
        except RunFinalError as error:
            fault = f"comes after the run's final event at sequence {error.final_sequence}"
            raise LineRefusedError(self._name, first_line, fault) from error
        except AppendError as error:
            raise LineRefusedError(self._name, first_line, f"(to {last_line}): {error}") from error


def _stored_hashes(folder: str, run: RunKey) -> Iterator[bytes]:
    """Yield the content hashes that the log has of the run now, in order."""
    try:
        reader = SqliteEventLogReader.open(folder)
    except LogMissingError:
        return
    try:
        after = 0
        while page := reader.read_content_hashes(run, after_sequence=after, limit=limits.COPY_PAGE_EVENTS):
            yield from page
            after += len(page)
    finally:
        reader.close()


def _lines(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield lines without their newlines; one that is too long comes cut off, yet too long."""
    rest = b""
    while chunk := source.read(_CHUNK_BYTES):
        advance(len(chunk))
        parts = chunk.split(b"\n")
        parts[0] = rest + parts[0]
        rest = parts.pop()
        yield from parts
        if len(rest) > PAYLOAD_BYTES_MAX:
            break
    if rest:
        yield rest


def _with_last(lines: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each line with whether it is the last one."""
    previous = next(lines, None)
    if previous is None:
        return
    for line in lines:
        yield previous, False
        previous = line
    yield previous, True


def _run_of(file: str) -> str:
    if file == "-":
        raise UsageError("standard input has no name; give the run with --run")
    return Path(file).stem


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        source = open(file, "rb")  # noqa: SIM115  # closed below; only opening it may fail in this way
        if os.path.isdir(file):
            raise IsADirectoryError(21, "it is a folder")
    except OSError as error:
        raise UsageError(f"the file {file} cannot be read: {error.strerror}") from error
    with source:
        yield source


@contextmanager
def _progress(file: str, source: BinaryIO, *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal's standard error."""
    console = Console(stderr=True)
    if not is_shown or not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        total = os.fstat(source.fileno()).st_size
        task = progress.add_task(file, total=total or None)
        yield lambda size: progress.advance(task, size)
