"""Real event logs through both programs: equal byte for byte, and sent again without one new row."""

import base64
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import open_local_log
from synchub.v1.sync_event_pb2 import StoredEvent, SyncEvent
from synchub.v1.sync_service_pb2 import ExportEventsRequest, ListRunsRequest, PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.robustness.programs import HUB_PROJECT, Programs, running_programs

ROOT: Final = Path(__file__).resolve().parents[2]
LOGS: Final = Path(os.environ.get("SYNCHUB_TEST_EVENT_LOGS", ROOT.parent / "shared" / "real_input"))
MAPPER: Final = LOGS / "map_events.py"
SETS: Final = ("bazel_bep", "temporal_histories", "go_test_json")
SECONDS_MAX: Final = 60.0
EVENTS_PER_APPEND: Final = 200


@dataclass(frozen=True, slots=True)
class RealEvent:
    """One event of a log: its type, its time in Unix nanoseconds, and the exact bytes of its line."""

    event_type: str
    nanos: int | None
    payload: bytes


# By a mark: a fixture would have started both programs before the test could say that it is skipped.
pytestmark = pytest.mark.skipif(
    not MAPPER.exists(), reason="no real event logs: SYNCHUB_TEST_EVENT_LOGS names the folder that has them"
)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with running_programs(tmp_path) as programs:
        yield programs


def real_runs(name: str) -> dict[RunKey, list[RealEvent]]:
    """Return the runs of a set, as its own script maps them."""
    told = subprocess.run(
        [sys.executable, str(MAPPER), name], capture_output=True, check=True, timeout=SECONDS_MAX
    )
    runs: dict[RunKey, list[RealEvent]] = defaultdict(list)
    for line in told.stdout.splitlines():
        event = json.loads(line)
        run = RunKey(event["project_id"], event["run_id"])
        assert event["sequence"] == len(runs[run]) + 1
        payload = base64.b64decode(event["payload_b64"])
        runs[run].append(RealEvent(event["event_type"], nanos_of(event["occurred_at"]), payload))
    return runs


def nanos_of(moment: str | None) -> int | None:
    if moment is None:
        return None
    timestamp = Timestamp()
    timestamp.FromJsonString(moment)
    return timestamp.ToNanoseconds()


def append_all(programs: Programs, runs: dict[RunKey, list[RealEvent]]) -> None:
    with open_local_log(str(programs.data)) as log:
        assert log.is_through_agent
        answers = []
        for run, events in runs.items():
            new = [NewEvent(event.event_type, event.payload, event.nanos) for event in events]
            for first in range(0, len(new), EVENTS_PER_APPEND):
                part = tuple(new[first : first + EVENTS_PER_APPEND])
                answers.append(log.append_soon(AppendRequest(run, part, stamp_time=False)))
        assert not wait(answers, timeout=SECONDS_MAX).not_done
        assert [answer.exception() for answer in answers] == [None] * len(answers)


def exported(hub: SyncServiceStub) -> list[StoredEvent]:
    answers = hub.ExportEvents(ExportEventsRequest(hub_project=HUB_PROJECT), timeout=SECONDS_MAX)
    return [event for answer in answers for event in answer.events]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SETS)
def test_a_real_log_is_on_the_hub_byte_for_byte_and_once(programs: Programs, name: str) -> None:
    runs = real_runs(name)
    append_all(programs, runs)
    programs.wait_until_synced()
    with grpc.insecure_channel(programs.address) as channel:
        hub = SyncServiceStub(channel)
        events = exported(hub)
        found: dict[RunKey, list[RealEvent]] = defaultdict(list)
        for event in events:
            run = RunKey(event.project_id, event.run_id)
            assert event.sequence == len(found[run]) + 1
            nanos = event.event_time.ToNanoseconds() if event.HasField("event_time") else None
            found[run].append(RealEvent(event.event_type, nanos, event.payload))
        assert found == runs

        before = hub.ListRuns(ListRunsRequest(hub_project=HUB_PROJECT, page_size=1000)).runs
        answers = list(hub.PushEvents(again(events), timeout=SECONDS_MAX))
        assert sum(answer.duplicate_count for answer in answers) == len(events) > 1000
        assert sum(answer.accepted_count for answer in answers) == 0
        assert [conflict for answer in answers for conflict in answer.conflicts] == []
        assert exported(hub) == events
        assert hub.ListRuns(ListRunsRequest(hub_project=HUB_PROJECT, page_size=1000)).runs == before


def again(events: list[StoredEvent]) -> Iterator[PushEventsRequest]:
    """Give every event once more, one run after the other, as another program would push it."""
    by_run: dict[RunKey, list[StoredEvent]] = defaultdict(list)
    for event in events:
        by_run[RunKey(event.project_id, event.run_id)].append(event)
    for run, stored in by_run.items():
        for first in range(0, len(stored), EVENTS_PER_APPEND):
            yield PushEventsRequest(
                hub_project=HUB_PROJECT,
                project_id=run.project_id,
                run_id=run.run_id,
                runtime_id="robust-runtime",
                events=map(pushed, stored[first : first + EVENTS_PER_APPEND]),
            )


def pushed(event: StoredEvent) -> SyncEvent:
    time = event.event_time if event.HasField("event_time") else None
    return SyncEvent(
        sequence=event.sequence, event_type=event.event_type, event_time=time, payload=event.payload
    )
