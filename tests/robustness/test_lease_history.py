"""Many clients want few leases of a hub that is killed, paused and told wrong times: what became of it.

Everything that was asked and answered is recorded and held against the rules. Of a run with a fault the
history is kept; the failure says where.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.robustness.lease_calls import LeaseCalls
from tests.robustness.lease_checker import check_history
from tests.robustness.lease_history import Recorder, write_history
from tests.robustness.lease_hub import LeaseHub
from tests.robustness.lease_load import Handed, LeaseClient, Surroundings

CLIENTS: Final = 24
RESOURCES: Final = ("a", "b", "c", "d")
OPERATIONS: Final = 1_500
OPERATIONS_LONG: Final = 10_000
SECONDS_MAX: Final = 1_500.0
FAULTS_AFTER_SECONDS: Final = (0.4, 1.6)
WALL_CLOCK_STEPS: Final = tuple(int(seconds * 1e9) for seconds in (0.7, 3, 40, 3600))
FAULTS_MIN: Final = 7
"""Each kind once."""
PAUSE_SECONDS: Final = (0.3, 1.8)
"""Up to longer than the shortest lease."""

MUST_REACH: Final = (
    "takeover ok",
    "taken after expiry",
    "waits granted",
    "unknown",
    "unknown that took effect",
    "replayed",
    "renewed by acquire",
    "superseded by itself",
    "transfer claimed",
    "ended by a maintenance",
    "finish_maintenance ok",
    "renew_maintenance ok",
    "refused for its nonce",
    "abort seen by a renewal",
    "renew LEASE_FENCED",
    "renew LEASE_SUPERSEDED",
    "renew LEASE_MISSING",
    "renew LEASE_EXPIRED",
    "LEASE_HELD",
    "RESOURCE_UNDER_MAINTENANCE",
    "hub started",
    "hub ended",
    "hub paused",
    "hub wall_clock_set",
)


class Faults:
    """What is done to the hub, in a random order in which each kind comes once before it comes again."""

    def __init__(self, hub: LeaseHub, *, rng: random.Random) -> None:
        self._hub = hub
        self._rng = rng
        self._deck: list[Callable[[], None]] = []

    def do_one(self) -> None:
        if not self._deck:
            self._deck = [
                self._kill,
                self._pause,
                self._step_clock_forward,
                self._step_clock_back,
                self._kill_while_paused,
                self._restart_later,
                self._restart_earlier,
            ]
            self._rng.shuffle(self._deck)
        self._deck.pop()()

    def _kill(self) -> None:
        self._hub.kill()
        time.sleep(self._rng.uniform(0, 0.3))
        self._hub.start()

    def _kill_while_paused(self) -> None:
        self._hub.pause()
        time.sleep(self._rng.uniform(*PAUSE_SECONDS))
        self._kill()

    def _pause(self) -> None:
        self._hub.pause()
        time.sleep(self._rng.uniform(*PAUSE_SECONDS))
        self._hub.resume()

    def _restart_later(self) -> None:
        self._hub.stop()
        self._step_clock_forward()
        self._hub.start()

    def _restart_earlier(self) -> None:
        self._hub.kill()
        self._step_clock_back()
        self._hub.start()

    def _step_clock_forward(self) -> None:
        self._hub.set_wall_clock(self._rng.choice(WALL_CLOCK_STEPS))

    def _step_clock_back(self) -> None:
        self._hub.set_wall_clock(-self._rng.choice(WALL_CLOCK_STEPS))


@pytest.mark.timeout(1800)
def test_every_history_of_leases_is_one_that_the_rules_allow(
    tmp_path: Path, rng: random.Random, *, long_run: bool
) -> None:
    operations_wanted = OPERATIONS_LONG if long_run else OPERATIONS
    recorder = Recorder()
    hub = LeaseHub(tmp_path, recorder=recorder)
    hub.start()
    try:
        _run(hub, recorder, operations_wanted=operations_wanted, rng=rng)
    finally:
        hub.stop()
        history = recorder.history()
        kept = tmp_path / "lease_history.jsonl"
        write_history(history, kept)

    verdict = check_history(history, must_reach=MUST_REACH)
    print(f"{len(history.operations)} operations, {verdict.steps} steps: {dict(verdict.counts)}")
    assert verdict.faults == [], f"the history is kept in {kept}"
    strange = {each.reason for each in history.operations} & {"INTERNAL", "INVALID_REQUEST", "UNIMPLEMENTED"}
    assert strange == set(), f"the history is kept in {kept}"
    assert len(history.operations) >= operations_wanted


def _run(hub: LeaseHub, recorder: Recorder, *, operations_wanted: int, rng: random.Random) -> None:
    """Let all clients call while the hub has its faults, then read what there is in the end."""
    names = [f"client-{number}" for number in range(CLIENTS)]
    ending = threading.Event()
    surroundings = Surroundings(hub.address, recorder, RESOURCES, names, Handed(), ending)
    clients = [LeaseClient(name, surroundings, rng=random.Random(rng.random())) for name in names]
    faults = Faults(hub, rng=rng)
    for client in clients:
        client.start()
    deadline = time.monotonic() + SECONDS_MAX
    faults_count = 0
    try:
        while recorder.operation_count < operations_wanted or faults_count < FAULTS_MIN:
            assert time.monotonic() < deadline, recorder.operation_count
            time.sleep(rng.uniform(*FAULTS_AFTER_SECONDS))
            faults.do_one()
            faults_count += 1
    finally:
        ending.set()
        for client in clients:
            client.join(60)
    assert all(client.has_ended_well for client in clients)
    reader = LeaseCalls("reader", hub.address, recorder=recorder)
    reader.seconds_max = 20.0
    for resource in RESOURCES:
        reader.state(resource)
    reader.close()
