"""From the crash of a holder to its successor: never before the expire time, at most a second after it."""

import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.robustness import lease_holder
from tests.robustness.lease_calls import LeaseCalls
from tests.robustness.lease_checker import check_history
from tests.robustness.lease_history import (
    Answer,
    Arguments,
    Call,
    Operation,
    Outcome,
    Recorder,
    client_nanos,
    entry_of,
    write_history,
)
from tests.robustness.lease_hub import LeaseHub

ROOT: Final = Path(__file__).resolve().parents[2]
SECOND: Final = 1_000_000_000
WAITED_FOR: Final = ("waited-1", "waited-2", "waited-3", "waited-4")
POLLED: Final = ("polled-1", "polled-2", "polled-3", "polled-4")
POLL_SECONDS: Final = 0.05
LATE_NANOS_MAX: Final = SECOND
SUCCESSION_SECONDS_MAX: Final = 30.0
HOUR: Final = 3600 * SECOND

Meanwhile = Callable[[LeaseHub], None]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def hub(tmp_path: Path, recorder: Recorder) -> Iterator[LeaseHub]:
    hub = LeaseHub(tmp_path, recorder=recorder)
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def nothing(_hub: LeaseHub) -> None:
    pass


def the_hub_is_killed(hub: LeaseHub) -> None:
    hub.kill()
    hub.start()


def the_hub_comes_back_an_hour_before(hub: LeaseHub) -> None:
    hub.kill()
    hub.set_wall_clock(-HOUR)
    hub.start()


@pytest.mark.parametrize(
    "meanwhile",
    [nothing, pytest.param(the_hub_is_killed, marks=pytest.mark.long), the_hub_comes_back_an_hour_before],
)
def test_a_successor_comes_within_a_second_after_the_expire_time_and_never_before(
    meanwhile: Meanwhile, hub: LeaseHub, recorder: Recorder, tmp_path: Path, rng: random.Random
) -> None:
    kill_a_holder(hub.address, recorder, after_seconds=rng.uniform(1.0, 2.2))
    reader = LeaseCalls("reader", hub.address, recorder=recorder)
    expires = {resource: reader.state(resource).answer.expire_nanos for resource in (*WAITED_FOR, *POLLED)}
    successors = [
        *(Successor(resource, hub.address, recorder=recorder, succeed=wait) for resource in WAITED_FOR),
        *(Successor(resource, hub.address, recorder=recorder, succeed=take_over) for resource in POLLED),
    ]
    for successor in successors:
        successor.start()
    meanwhile(hub)
    for successor in successors:
        successor.join(SUCCESSION_SECONDS_MAX)
    reader.close()
    kept = tmp_path / "lease_history.jsonl"
    write_history(recorder.history(), kept)

    late: dict[str, list[float]] = defaultdict(list)
    for successor in successors:
        expire_nanos = expires[successor.resource]
        assert expire_nanos is not None
        assert successor.granted_nanos is not None
        assert successor.known_nanos is not None
        assert successor.granted_nanos >= expire_nanos, successor.resource
        assert successor.known_nanos <= expire_nanos + LATE_NANOS_MAX, successor.resource
        kind = "waiter" if successor.resource in WAITED_FOR else "poller"
        late[f"{kind} granted"].append((successor.granted_nanos - expire_nanos) / 1e6)
        late[f"{kind} knows"].append((successor.known_nanos - expire_nanos) / 1e6)
    for what, numbers in sorted(late.items()):
        print(f"{what}: median {statistics.median(numbers):.1f} ms, at most {max(numbers):.1f} ms late")
    assert check_history(recorder.history()).faults == [], f"the history is kept in {kept}"


class Successor(threading.Thread):
    """Wants a resource until it has it."""

    def __init__(
        self,
        resource: str,
        address: str,
        *,
        recorder: Recorder,
        succeed: Callable[[LeaseCalls, str, Arguments], Operation],
    ) -> None:
        super().__init__(name=resource, daemon=True)
        self.resource = resource
        self._calls = LeaseCalls(f"successor-of-{resource}", address, recorder=recorder)
        self._succeed = succeed
        self.granted_nanos: int | None = None
        """Hub time at which it was granted."""
        self.known_nanos: int | None = None
        """Hub time at which the successor knew."""

    def run(self) -> None:
        number = 0
        while self.granted_nanos is None:
            number += 1
            nonce = f"nonce-{number:06}-of-the-successor"
            asked = Arguments("successor-runtime", self.name, nonce, ttl_nanos=60 * SECOND)
            operation = self._succeed(self._calls, self.resource, asked)
            if operation.outcome == Outcome.OK:
                self.known_nanos = self._calls.hub_time().answer.hub_nanos
                self.granted_nanos = operation.answer.acquire_nanos
        self._calls.close()


def wait(calls: LeaseCalls, resource: str, asked: Arguments) -> Operation:
    return calls.acquire(resource, replace(asked, wait_nanos=20 * SECOND))


def take_over(calls: LeaseCalls, resource: str, asked: Arguments) -> Operation:
    operation = calls.takeover(resource, asked)
    if operation.outcome != Outcome.OK:
        time.sleep(POLL_SECONDS)
    return operation


def kill_a_holder(address: str, recorder: Recorder, *, after_seconds: float) -> None:
    """Let a program hold all the resources for a while, and kill it; what it said is recorded."""
    resources = (*WAITED_FOR, *POLLED)
    command = [sys.executable, "-m", lease_holder.__name__, address, *resources]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            said = [holder.stdout.readline() for _ in resources]
            time.sleep(after_seconds)
        finally:
            holder.kill()
        said += holder.stdout.readlines()
    killed_nanos = client_nanos()
    operations = [
        entry for line in said if line.endswith(b"\n") and isinstance(entry := entry_of(line), Operation)
    ]
    assert len(operations) >= len(resources)
    for operation in operations:
        recorder.add(replace(operation, number=recorder.next_number()))
    # A renewal may have been under way, of which it said nothing any more.
    for last in {operation.resource: operation for operation in operations}.values():
        recorder.add(
            replace(
                last,
                number=recorder.next_number(),
                call=Call.RENEW,
                arguments=replace(
                    last.arguments, token=last.answer.token or last.arguments.token, ttl_nanos=0
                ),
                invoke_nanos=last.return_nanos,
                return_nanos=killed_nanos,
                outcome=Outcome.UNKNOWN,
                answer=Answer(),
            )
        )
