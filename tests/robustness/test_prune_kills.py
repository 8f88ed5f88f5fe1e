"""A prune killed at many points: what it told of is done, nothing else of any event is touched.

Meanwhile others push, and nothing of theirs is lost. (Like every SIGKILL this says nothing about syncs.)
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from synchub.v1.hub_service_pb2 import PruneEventsRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.robustness.programs import Program

H: Final = "pruned"
RUNS: Final = 20
EVENTS: Final = 400
"""Events of each run."""
KILLS: Final = 8
KILLS_LONG: Final = 100
SECONDS_MAX: Final = 60.0
OLDER_THAN_SECONDS: Final = 1

FACTS: Final = """
SELECT run.run_id, sequence, position, event_type, attributes, is_final, hex(content_hash), receive_nanos
FROM event JOIN run USING (run_key) ORDER BY position
"""
KEPT: Final = """
SELECT hub_project, stored_bytes, (
    SELECT coalesce(sum(128 + coalesce(length(payload), 0) + coalesce(octet_length(attributes), 0)), 0)
    FROM event WHERE event.hub_project_key = hub_project.hub_project_key)
FROM hub_project
"""


def payload_of(run_id: str, sequence: int) -> bytes:
    return f"{run_id}/{sequence} ".encode() * (1 + sequence % 40)


def batch_of(run_id: str, first: int, count: int) -> PushEventsRequest:
    events = [
        SyncEvent(sequence=n, event_type="line", payload=payload_of(run_id, n), attributes={"n": str(n)})
        for n in range(first, first + count)
    ]
    return PushEventsRequest(
        hub_project=H, project_id="p", run_id=run_id, runtime_id="runtime", events=events
    )


class PrunedHub:
    """A hub whose prune takes many small commands, and its store."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "hub.db"
        environment = {**os.environ, "SYNCHUB_LIMITS__PRUNE_EVENTS_MAX": "50"}
        arguments = ["hub", "serve", "--db", str(self.database), "--listen", "127.0.0.1:0", "--http", "none"]
        self.program = Program(arguments, folder / "hub.log", environment=environment)
        self.address = ""

    def start(self) -> None:
        self.address = self.program.start().split()[2]

    def push(self, request: PushEventsRequest) -> PushEventsResponse:
        with grpc.insecure_channel(self.address) as channel:
            (answer,) = SyncServiceStub(channel).PushEvents(iter([request]), timeout=SECONDS_MAX)
        return answer

    def fill(self) -> None:
        """Store runs that are old enough to be pruned when this returns."""
        for number in range(RUNS):
            assert self.push(batch_of(f"old-{number}", 1, EVENTS)).accepted_count == EVENTS
        time.sleep(OLDER_THAN_SECONDS)  # by the wall clock of another process

    def facts(self) -> list[tuple[object, ...]]:
        """All of every event but its payload."""
        with closing(apsw.Connection(str(self.database))) as sql:
            return list(sql.execute(FACTS))

    def payloads(self) -> dict[tuple[str, int], bytes | None]:
        with closing(apsw.Connection(str(self.database))) as sql:
            rows = sql.execute("SELECT run.run_id, sequence, payload FROM event JOIN run USING (run_key)")
            return {(run_id, sequence): payload for run_id, sequence, payload in rows}

    def check(self, facts: list[tuple[object, ...]]) -> int:
        """Nothing is half done; return how many payloads are gone."""
        assert self.facts()[: len(facts)] == facts
        payloads = self.payloads()
        assert all(payload in (None, payload_of(*key)) for key, payload in payloads.items())
        with closing(apsw.Connection(str(self.database))) as sql:
            assert list(sql.execute("PRAGMA integrity_check")) == [("ok",)]
            assert [row for row in sql.execute(KEPT) if row[1] != row[2]] == []
            undone = "SELECT count(*) FROM event WHERE payload IS NULL AND was_pushed_dropped = 1"
            assert list(sql.execute(undone)) == [(0,)]
        return sum(payload is None for payload in payloads.values())


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[PrunedHub]:
    hub = PrunedHub(tmp_path)
    hub.start()
    yield hub
    hub.program.stop()


def request() -> PruneEventsRequest:
    return PruneEventsRequest(hub_project=H, older_than=Duration(seconds=OLDER_THAN_SECONDS))


class Pruner(threading.Thread):
    """Prunes until the hub is gone, and keeps what it was told."""

    def __init__(self, address: str) -> None:
        super().__init__(name="pruner", daemon=True)
        self._address = address
        self.told_count = 0
        self.is_done = False
        self.begun = threading.Event()

    def run(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            try:
                for answer in HubServiceStub(channel).PruneEvents(request(), timeout=SECONDS_MAX):
                    self.told_count = answer.payload_count
                    self.is_done = answer.is_done
                    self.begun.set()
            except grpc.RpcError:
                pass
            finally:
                self.begun.set()


class Pusher(threading.Thread):
    """Pushes a run of its own all the time; what was not answered is pushed again."""

    def __init__(self, hub: PrunedHub) -> None:
        super().__init__(name="pusher", daemon=True)
        self._hub = hub
        self.acknowledged = 0
        self.is_ending = threading.Event()
        self.has_ended_well = False

    def run(self) -> None:
        while not self.is_ending.is_set():
            try:
                answer = self._hub.push(batch_of("new", self.acknowledged + 1, 20))
            except grpc.RpcError:
                time.sleep(0.02)
                continue
            assert answer.accepted_count + answer.duplicate_count == 20
            self.acknowledged += 20
        self.has_ended_well = True


@pytest.mark.timeout(1800)
def test_a_prune_is_what_it_told_whenever_the_hub_is_killed(
    hub: PrunedHub, rng: random.Random, *, long_run: bool
) -> None:
    interrupted_count = 0
    gone_count = 0
    hub.fill()
    facts = hub.facts()
    pusher = Pusher(hub)
    pusher.start()
    for number in range(KILLS_LONG if long_run else KILLS):
        if gone_count >= RUNS * EVENTS:
            # All is pruned: more of it.
            name = f"more-{number}"
            assert hub.push(batch_of(name, 1, EVENTS)).accepted_count == EVENTS
            time.sleep(OLDER_THAN_SECONDS)
        pruner = Pruner(hub.address)
        pruner.start()
        assert pruner.begun.wait(SECONDS_MAX)
        time.sleep(rng.uniform(0, 0.04))
        hub.program.kill()
        pruner.join(SECONDS_MAX)
        interrupted_count += not pruner.is_done
        before, gone_count = gone_count, hub.check(facts)
        assert gone_count >= before + pruner.told_count
        hub.start()
    pusher.is_ending.set()
    pusher.join(SECONDS_MAX)
    assert pusher.has_ended_well
    with grpc.insecure_channel(hub.address) as channel:
        *_, done = HubServiceStub(channel).PruneEvents(request(), timeout=SECONDS_MAX)
    assert done.is_done
    hub.check(facts)
    payloads = hub.payloads()
    assert all(payload is None for (run_id, _), payload in payloads.items() if run_id != "new")
    assert {n for run_id, n in payloads if run_id == "new"} >= set(range(1, pusher.acknowledged + 1))
    # What is gone is still known, and is not filled in by a repetition.
    again = hub.push(batch_of("old-3", 1, EVENTS))
    assert (again.accepted_count, again.duplicate_count, len(again.conflicts)) == (0, EVENTS, 0)
    assert all(hub.payloads()["old-3", n] is None for n in range(1, EVENTS + 1))
    # A zero here means that nothing was tested.
    assert min(interrupted_count, pusher.acknowledged) > 0


@pytest.mark.timeout(1800)
def test_a_prune_without_a_hub_is_whole_in_each_step_whenever_it_is_killed(
    hub: PrunedHub, rng: random.Random, *, long_run: bool
) -> None:
    hub.fill()
    hub.program.stop()
    facts = hub.facts()
    command = [sys.executable, "-m", "hub", "prune", "--db", str(hub.database), "--hub-project", H]
    options = ["--older-than", f"{OLDER_THAN_SECONDS}s", "--yes"]
    environment = {**os.environ, "SYNCHUB_LIMITS__PRUNE_EVENTS_MAX": "5"}
    counts = [0]
    for _ in range(KILLS_LONG if long_run else KILLS):
        process = subprocess.Popen(
            [*command, *options], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # Until it has begun, and then some more.
        give_up_at = time.monotonic() + SECONDS_MAX
        while process.poll() is None and hub_gone(hub) <= counts[-1]:
            assert time.monotonic() < give_up_at, "it never begins"
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS_MAX)
        counts.append(hub.check(facts))
        if counts[-1] == RUNS * EVENTS:
            break
    assert counts == sorted(counts)
    assert len(counts) > 3, "it was never interrupted"
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=SECONDS_MAX)
    assert hub.check(facts) == RUNS * EVENTS
    hub.start()
    assert hub.push(batch_of("old-0", 1, EVENTS)).duplicate_count == EVENTS


def hub_gone(hub: PrunedHub) -> int:
    """How many payloads are gone, looked at from outside."""
    with closing(apsw.Connection(str(hub.database))) as sql:
        sql.set_busy_timeout(1_000)
        (row,) = sql.execute("SELECT count(*) FROM event WHERE payload IS NULL")
    return int(row[0])
