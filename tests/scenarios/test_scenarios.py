"""Runs the scenarios that lie beside this file as text, each against a tenant of its own on a real hub.

A scenario is a sequence of a command, a line ``----``, and what the hub must answer. The commands:

- ``push [tenant=T] [project=P] [run=R] [runtime=A] [instance=I] [after=HISTORY] EVENT…``, where an event
  is ``SEQUENCE:TEXT``, with ``!`` behind it if it is final; ``after`` proves the history: the texts before
  the first event, with commas between them (``after=`` for the beginning of a run);
- ``reconcile [run=R] [runtime=A] instance=I [told=N] TEXT…``: a runtime that has these texts, of which
  the hub acknowledged N;
- ``run [run=R]``, ``watch``, ``alerts``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.channel import refusal_from_error
from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash
from synchub.v1 import sync_service_pb2 as pb
from synchub.v1.alert_pb2 import AlertReason
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread

FOLDER: Final = Path(__file__).parent
SECONDS_MAX: Final = 10.0
SEPARATOR: Final = "----"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncServiceStub]:
    with (
        HubInThread(settings_in(tmp_path_factory.mktemp("hub"))) as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        yield SyncServiceStub(channel)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_the_hub_answers_as_the_scenario_says(hub: SyncServiceStub, name: str) -> None:
    scenario = _Scenario(hub, tenant=name)
    steps = list(steps_in((FOLDER / name).read_text(encoding="utf-8")))
    assert len(steps) > 1
    for command, expected in steps:
        assert (command, scenario.run(command)) == (command, expected)


def steps_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Give (command, expected lines) of a scenario; what begins with # is for its reader."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in "\n".join(lines).strip().split("\n\n"):
        command, separator, *expected = block.strip().splitlines()
        assert separator == SEPARATOR, block
        yield command, expected


class _Scenario:
    """One tenant, and the commands that are run for it."""

    def __init__(self, hub: SyncServiceStub, *, tenant: str) -> None:
        self._hub = hub
        self._tenant = tenant

    def run(self, line: str) -> list[str]:
        """Run a command; return the lines that say what the hub answered."""
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        rest = [word for word in words if "=" not in word]
        try:
            answer: list[str] = getattr(self, f"_{name}")(options, rest)
        except grpc.RpcError as error:
            return [refusal_from_error(error).code.name]
        return answer

    def _push(self, options: Mapping[str, str], words: Sequence[str]) -> list[str]:
        project, run = self._project(options), options.get("run", "r")
        request = pb.PushEventsRequest(
            hub_project=f"{options.get('tenant', 'own')} {self._tenant}",
            project_id=project,
            run_id=run,
            runtime_id=options.get("runtime", "a"),
            instance_id=options.get("instance", ""),
            events=map(event_of, words),
        )
        if "after" in options:
            request.previous_chain_hash = chain_of(project, run, options["after"])
        (answer,) = self._hub.PushEvents(iter([request]), timeout=SECONDS_MAX)
        if answer.go_back:
            return [f"go back to {answer.cursor}"]
        counts = f"accepted {answer.accepted_count} duplicate {answer.duplicate_count}"
        reasons = [
            f"{each.sequence} {pb.ConflictReason.Name(each.reason).removeprefix('CONFLICT_REASON_')}"
            for each in answer.conflicts
        ]
        return [f"{counts} cursor {answer.cursor}", *reasons]

    def _reconcile(self, options: Mapping[str, str], texts: Sequence[str]) -> list[str]:
        project, run = self._project(options), options.get("run", "r")
        told = int(options.get("told", "0"))
        request = pb.ReconcileRunsRequest(
            hub_project=f"own {self._tenant}",
            runtime_id=options.get("runtime", "a"),
            instance_id=options["instance"],
            runs=[
                pb.ReconcileRun(
                    project_id=project,
                    run_id=run,
                    sequence=len(texts),
                    chain_hash=chain_of(project, run, ",".join(texts)),
                    acknowledged_sequence=told,
                )
            ],
        )
        (found,) = self._hub.ReconcileRuns(request, timeout=SECONDS_MAX).runs
        state = pb.ReconcileState.Name(found.state).removeprefix("RECONCILE_STATE_")
        return [f"{state} cursor {found.cursor} highest {found.highest_sequence}"]

    def _run(self, options: Mapping[str, str], _words: Sequence[str]) -> list[str]:
        request = pb.GetRunRequest(
            hub_project=f"own {self._tenant}",
            project_id=self._project(options),
            run_id=options.get("run", "r"),
        )
        run = self._hub.GetRun(request, timeout=SECONDS_MAX).run
        complete = "complete" if run.is_complete else "open"
        return [f"{run.home_runtime_id} cursor {run.cursor} highest {run.highest_sequence} {complete}"]

    def _watch(self, _options: Mapping[str, str], _words: Sequence[str]) -> list[str]:
        request = pb.WatchEventsRequest(hub_project=f"own {self._tenant}")
        call = self._hub.WatchEvents(request, timeout=SECONDS_MAX)
        lines: list[str] = []
        for answer in call:
            lines.extend(
                f"{event.run_id} {event.sequence} {event.payload.decode()}" for event in answer.events
            )
            if not answer.events:
                break
        call.cancel()
        return lines

    def _alerts(self, _options: Mapping[str, str], _words: Sequence[str]) -> list[str]:
        request = pb.ListAlertsRequest(hub_project=f"own {self._tenant}")
        alerts = self._hub.ListAlerts(request, timeout=SECONDS_MAX).alerts
        return sorted(
            f"{AlertReason.Name(each.reason).removeprefix('ALERT_REASON_')} {each.seen_count}"
            for each in alerts
        )

    def _project(self, options: Mapping[str, str]) -> str:
        """A project of the scenario's own: a project belongs to one tenant of the whole hub."""
        return f"{options.get('project', 'p')} {self._tenant}"


def event_of(word: str) -> SyncEvent:
    """Return the event that a word of a scenario stands for."""
    sequence, text = word.split(":", 1)
    return SyncEvent(
        sequence=int(sequence), event_type="said", text=text.rstrip("!"), is_final=text.endswith("!")
    )


def chain_of(project: str, run: str, texts: str) -> bytes:
    """Return the chain hash of a run that has these texts, none of them final."""
    hashes = [
        content_hash("said", None, is_final=False, attributes={}, payload=text.encode())
        for text in texts.split(",")
        if text
    ]
    return chain_hash_after(chain_hash_at_start(project, run), hashes)
