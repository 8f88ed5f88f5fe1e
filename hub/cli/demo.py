"""``synchub demo``: the main job on real input, with the hub killed in the middle, shown by figures.

At its end a lease is fenced (``demo_lease``).

Every figure is read back from the hub and compared with its source; none is known beforehand.
"""

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from hub.cli.demo_figures import Check, tell_checks
from hub.cli.demo_input import PROGRAM, write_history, write_installed_files
from hub.cli.demo_lease import play_fenced_lease
from hub.cli.demo_processes import HUB_PROJECT, RUNTIME_ID, DemoProcesses
from hub.cli.hub_calls import bare_enum_name, channel_to
from hub.cli.output import CommandFailed
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.alert_pb2 import AlertReason
from synchub.v1.sync_event_pb2 import StoredEvent, SyncEvent
from synchub.v1.sync_service_pb2 import (
    ConflictReason,
    ExportEventsRequest,
    ListAlertsRequest,
    PushEventsRequest,
    PushEventsResponse,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

EXAMPLES = """Example:

  synchub demo --json
"""

SYNC_SECONDS_MAX: Final = 60.0
"""How long the agent may take to bring everything to the hub that was restarted."""
EXPORT_SECONDS_MAX: Final = 60.0
RESEND_EVENTS: Final = 200
"""Events of one request when everything is sent again."""
PROJECT_ID: Final = "demo-project"
PROGRAM_RUN: Final = "program"
POLL_SECONDS: Final = 0.02


def demo(
    *,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Sync real input to a hub that is killed in the middle, and show that nothing is lost or doubled.

    Then pause the holder of a lease until another has it, and show that its late write is refused.

    Runs a hub and an agent of its own in a temporary folder; touches nothing else. Takes some ten
    seconds. Exit code 1 if any figure is not as it must be.
    """
    with _terminated_like_interrupted(), tempfile.TemporaryDirectory(prefix="synchub-demo-") as folder:
        story = _Story(Path(folder), Console(stderr=True, quiet=is_json, highlight=False))
        try:
            checks = story.run()
        finally:
            story.processes.close()
    tell_checks(checks, is_json=is_json)


class _Story:
    """The demo step by step."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.processes = DemoProcesses(folder)
        self._folder = folder
        self._console = console
        self._begin = time.monotonic()

    def run(self) -> list[Check]:
        """Tell the whole story; return what was found."""
        processes = self.processes
        processes.start_hub()
        processes.start_agent()
        self._say(f"a hub listens on {processes.address}, an agent keeps its log in {self._folder}/agent")
        files = self._import_history()
        program = self._start_program()
        on_hub = self._kill_in_the_middle()
        files.append(self._import_installed_files())
        program_errors = self._finish_program(program)
        unsynced = processes.unsynced_count()
        self._say(f"both ended without a hub; {unsynced} events are only in the agent's log")
        is_right = on_hub > 0 and unsynced > 0
        what = "events on the hub when it was killed / only on the agent"
        checks = [Check(what, f"{on_hub} / {unsynced}", is_right)]
        processes.start_hub()
        self._say("started the hub again, on the same port and file")
        self._wait_until_synced()
        with channel_to(processes.address) as channel:
            hub = SyncServiceStub(channel)
            events = _exported(hub)
            checks += self._check_runs(events, files, program_errors=program_errors)
            checks += self._check_refusals(hub, events)
        checks += play_fenced_lease(processes, self._folder, say=self._say).checks()
        return checks

    def _say(self, sentence: str) -> None:
        seconds = time.monotonic() - self._begin
        self._console.print(f"[dim]{seconds:5.1f} s[/]  {sentence}", soft_wrap=True)

    def _import_history(self) -> list[tuple[str, Path]]:
        """Import this repository's history, where it has one."""
        path = self._folder / "history.jsonl"
        count = write_history(path)
        if not count:
            return []
        self.processes.run_command(["import", str(path), "--project", PROJECT_ID])
        self._say(f"imported {count} changes of this repository's history, a JSON line each")
        return [("history", path)]

    def _start_program(self) -> subprocess.Popen[bytes]:
        command = ["exec", "--project", PROJECT_ID, "--run", PROGRAM_RUN, "--", *PROGRAM]
        return self.processes.start_command(command)

    def _finish_program(self, program: subprocess.Popen[bytes]) -> bytes:
        """Wait for the program's end; return what it wrote to its standard error."""
        try:
            _, errors = program.communicate(timeout=SYNC_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise CommandFailed("the program did not end in time") from error
        if program.returncode != 0:
            raise CommandFailed(f"the program ended with exit code {program.returncode}")
        return errors

    def _kill_in_the_middle(self) -> int:
        """Kill the hub once it has some of the program's events; return how many events it had."""
        on_hub = self._wait_for_first_events()
        pid = self.processes.hub_pid
        self.processes.kill_hub()
        self._say(f"killed the hub (pid {pid}) with SIGKILL when it had {on_hub} events; the program goes on")
        return on_hub

    def _import_installed_files(self) -> tuple[str, Path]:
        """Import what is installed on this machine, while there is no hub: so there is a tail to sync."""
        path = self._folder / "installed.jsonl"
        count = write_installed_files(path)
        self.processes.run_command(["import", str(path), "--project", PROJECT_ID])
        self._say(f"imported {count} files of installed packages, a JSON line each, with no hub in sight")
        return "installed", path

    def _wait_for_first_events(self) -> int:
        """Return how many events the hub has once it has some of the program's."""
        deadline = time.monotonic() + SYNC_SECONDS_MAX
        with channel_to(self.processes.address) as channel:
            hub = SyncServiceStub(channel)
            while time.monotonic() < deadline:
                events = _exported(hub)
                if any(event.run_id == PROGRAM_RUN for event in events):
                    return len(events)
                time.sleep(POLL_SECONDS)
        raise CommandFailed("no event of the program reached the hub")

    def _wait_until_synced(self) -> None:
        begin = time.monotonic()
        while self.processes.unsynced_count():
            if time.monotonic() - begin > SYNC_SECONDS_MAX:
                raise CommandFailed("the agent did not bring everything to the hub in time")
        self._say("everything is synced")

    def _check_runs(
        self, events: list[StoredEvent], files: list[tuple[str, Path]], *, program_errors: bytes
    ) -> Iterator[Check]:
        """Compare what the hub has with the sources, byte for byte."""
        for run_id, path in files:
            run = _of_run(events, run_id)
            source = path.read_bytes()
            lines = source.count(b"\n")
            yield Check(
                f"lines of {path.name} / events on the hub", f"{lines} / {len(run)}", lines == len(run)
            )
            is_equal = b"".join(event.payload + b"\n" for event in run) == source
            yield Check(f"{path.name} rebuilt from the hub, byte for byte", _verdict(is_equal), is_equal)
        program = _of_run(events, PROGRAM_RUN)
        written = b"".join(event.payload for event in program if event.event_type == "stderr")
        is_equal = written == program_errors and bool(written)
        size = f"{len(program_errors):,} bytes {_verdict(is_equal)}"
        yield Check("the program's messages rebuilt from the hub", size, is_equal)
        is_final = bool(program) and program[-1].is_final and program[-1].event_type == "exit"
        yield Check("the program's run ends with its exit event", str(is_final).lower(), is_final)
        keys = {(event.run_id, event.sequence) for event in events}
        yield Check("events that the hub has twice", str(len(events) - len(keys)), len(keys) == len(events))
        gaps = sum(_gap_count(_of_run(events, run_id)) for run_id in {event.run_id for event in events})
        yield Check("gaps in the sequences", str(gaps), gaps == 0)

    def _check_refusals(self, hub: SyncServiceStub, events: list[StoredEvent]) -> Iterator[Check]:
        """Send everything again, other content under a used key, and from a foreign runtime."""
        answers = _push(hub, _again(events))
        duplicates = sum(answer.duplicate_count for answer in answers)
        accepted = sum(answer.accepted_count for answer in answers)
        found = f"{duplicates} duplicates, {accepted} new"
        yield Check("everything sent again", found, (duplicates, accepted) == (len(events), 0))
        reused = SyncEvent(sequence=1, event_type="forged", text="other content under a used sequence")
        yield _conflict_check(
            hub, reused, runtime_id=RUNTIME_ID, reason=ConflictReason.CONFLICT_REASON_SEQUENCE_REUSED
        )
        foreign = SyncEvent(
            sequence=10**6, event_type="forged", text="from a runtime that is not the run's home"
        )
        mismatch = ConflictReason.CONFLICT_REASON_HOME_RUNTIME_MISMATCH
        yield _conflict_check(hub, foreign, runtime_id="foreign-runtime", reason=mismatch)
        request = ListAlertsRequest(hub_project=HUB_PROJECT)
        alerts = hub.ListAlerts(request, timeout=UNARY_SECONDS_MAX).alerts
        reasons = sorted(bare_enum_name(AlertReason.DESCRIPTOR, alert.reason) for alert in alerts)
        wanted = {"SEQUENCE_REUSED", "HOME_RUNTIME_MISMATCH"}
        yield Check("security alerts", ", ".join(reasons), wanted <= set(reasons))
        after = len(_exported(hub))
        yield Check("events before / after all that", f"{len(events)} / {after}", after == len(events))


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C does, so that nothing that was started stays behind."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exported(hub: SyncServiceStub) -> list[StoredEvent]:
    """Return all events of the demo's project, ascending by run and sequence; none before the first."""
    request = ExportEventsRequest(hub_project=HUB_PROJECT)
    answers = hub.ExportEvents(request, timeout=EXPORT_SECONDS_MAX)
    return [event for answer in answers for event in answer.events]


def _of_run(events: Sequence[StoredEvent], run_id: str) -> list[StoredEvent]:
    return [event for event in events if event.run_id == run_id]


def _gap_count(run: Sequence[StoredEvent]) -> int:
    """Return how many sequences are missing below the last one."""
    return max((event.sequence for event in run), default=0) - len({event.sequence for event in run})


def _again(events: Sequence[StoredEvent]) -> Iterator[PushEventsRequest]:
    """Give the events of the hub as requests that push them once more."""
    for run_id in sorted({event.run_id for event in events}):
        run = _of_run(events, run_id)
        for first in range(0, len(run), RESEND_EVENTS):
            yield _request(
                run_id, RUNTIME_ID, events=[_pushed(event) for event in run[first : first + RESEND_EVENTS]]
            )


def _pushed(event: StoredEvent) -> SyncEvent:
    """Return a stored event as it was pushed."""
    pushed = SyncEvent(
        sequence=event.sequence,
        event_type=event.event_type,
        attributes=event.attributes,
        payload=event.payload,
        is_final=event.is_final,
    )
    if event.HasField("event_time"):
        pushed.event_time.CopyFrom(event.event_time)
    return pushed


def _request(run_id: str, runtime_id: str, *, events: Sequence[SyncEvent]) -> PushEventsRequest:
    return PushEventsRequest(
        hub_project=HUB_PROJECT, project_id=PROJECT_ID, run_id=run_id, runtime_id=runtime_id, events=events
    )


def _push(hub: SyncServiceStub, requests: Iterator[PushEventsRequest]) -> list[PushEventsResponse]:
    return list(hub.PushEvents(requests, timeout=EXPORT_SECONDS_MAX))


def _conflict_check(
    hub: SyncServiceStub, event: SyncEvent, *, runtime_id: str, reason: ConflictReason.ValueType
) -> Check:
    """Push an event that must be refused, and look at the answer."""
    (answer,) = _push(hub, iter([_request(PROGRAM_RUN, runtime_id, events=[event])]))
    reasons = [bare_enum_name(ConflictReason.DESCRIPTOR, conflict.reason) for conflict in answer.conflicts]
    is_right = [conflict.reason for conflict in answer.conflicts] == [reason]
    return Check(event.text, ", ".join(reasons) or "accepted", is_right)


def _verdict(is_equal: bool) -> str:
    return "equal" if is_equal else "NOT equal"
