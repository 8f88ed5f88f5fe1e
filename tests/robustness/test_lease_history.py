"""Many clients want few leases of a hub that is killed, paused and told wrong times: what became of it.

Everything that was asked and answered is recorded and held against the rules. Of a run with a fault the
history is kept; the failure says where.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.robustness.lease_calls import LeaseCalls
from tests.robustness.lease_checker import NOT_REACHED, Verdict, check_history
from tests.robustness.lease_front import CLIENT, RecordingFront
from tests.robustness.lease_history import Call, Outcome, Recorder, write_history
from tests.robustness.lease_hub import LeaseHub
from tests.robustness.lease_library_load import LibraryClient
from tests.robustness.lease_load import Handed, LeaseClient, Surroundings
from tests.robustness.tcp_proxy import TcpProxy

CLIENTS: Final = 24
CLIENTS_BEHIND_PROXY: Final = 8
LIBRARY_CLIENTS: Final = 3
"""Besides the others."""
RESOURCES: Final = ("a", "b", "c", "d")
OPERATIONS: Final = 1_500
OPERATIONS_LONG: Final = 10_000
ROUND_FAULTS: Final = 8
"""In a round, each kind once."""
ROUND_OPERATIONS: Final = 1_500
ROUNDS_MAX: Final = 3
"""One is enough but where a rare state was not reached by chance."""
ROUNDS_MAX_LONG: Final = 12
SECONDS_MAX: Final = 300.0
FAULTS_AFTER_SECONDS: Final = (0.4, 1.6)
WALL_CLOCK_STEPS: Final = tuple(int(seconds * 1e9) for seconds in (0.7, 3, 40, 3600))
PAUSE_SECONDS: Final = (0.3, 1.8)
"""Up to longer than the shortest lease."""
LOSE_SECONDS: Final = (0.2, 0.6)
DELAY_SECONDS_MAX: Final = 0.004

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
    "hub time ahead at a start",
)


class Faults:
    """What is done to the hub, in a random order in which each kind comes once before it comes again."""

    def __init__(self, hub: LeaseHub, proxy: TcpProxy, *, rng: random.Random) -> None:
        self._hub = hub
        self._proxy = proxy
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
                self._lose_answers,
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

    def _lose_answers(self) -> None:
        """Let the hub do what clients behind the proxy ask, and none of them hear of it."""
        self._proxy.drops_answers = True
        time.sleep(self._rng.uniform(*LOSE_SECONDS))
        self._proxy.cut_all()
        self._proxy.drops_answers = False

    def _step_clock_forward(self) -> None:
        self._hub.set_wall_clock(self._rng.choice(WALL_CLOCK_STEPS))

    def _step_clock_back(self) -> None:
        self._hub.set_wall_clock(-self._rng.choice(WALL_CLOCK_STEPS))


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


@pytest.mark.timeout(1800)
def test_every_history_of_leases_is_one_that_the_rules_allow(
    hub: LeaseHub, recorder: Recorder, tmp_path: Path, rng: random.Random, *, long_run: bool
) -> None:
    wanted = OPERATIONS_LONG if long_run else OPERATIONS
    kept = tmp_path / "lease_history.jsonl"
    verdict = Verdict()
    for number in range(ROUNDS_MAX_LONG if long_run else ROUNDS_MAX):
        try:
            go_one_round(hub, recorder, number=number, rng=rng)
        finally:
            write_history(recorder.history(), kept)
        if recorder.operation_count < wanted:
            continue
        verdict = check_history(recorder.history(), must_reach=MUST_REACH)
        if verdict.kinds != {NOT_REACHED}:
            break
    counts = dict(sorted(verdict.counts.items()))
    print(f"{recorder.operation_count} operations, {verdict.steps} steps of the search: {counts}")
    assert verdict.faults == [], f"the history is kept in {kept}"
    assert recorder.operation_count >= wanted
    library_calls = {
        (each.call, each.outcome) for each in recorder.history().operations if each.client == CLIENT
    }
    assert {(Call.ACQUIRE, Outcome.OK), (Call.RENEW, Outcome.OK), (Call.RELEASE, Outcome.OK)} <= library_calls
    reasons = {each.reason for each in recorder.history().operations}
    assert reasons & {"INTERNAL", "INVALID_REQUEST", "UNIMPLEMENTED"} == set(), f"in {kept}"


def go_one_round(hub: LeaseHub, recorder: Recorder, *, number: int, rng: random.Random) -> None:
    """Let all clients call while the hub has its faults, then read what there is in the end."""
    rngs = (random.Random(rng.random()) for _ in range(CLIENTS + LIBRARY_CLIENTS + 1))
    names = [f"client-{number}-{place}" for place in range(CLIENTS)]
    ending, handed = threading.Event(), Handed()
    first = recorder.operation_count
    deadline = time.monotonic() + SECONDS_MAX
    with TcpProxy(hub.address, next(rngs)) as proxy, RecordingFront(hub.address, recorder=recorder) as front:
        proxy.delay_seconds_max = DELAY_SECONDS_MAX
        near, far, in_front = (
            Surroundings(address, recorder, RESOURCES, names, handed, ending)
            for address in (hub.address, proxy.address, front.address)
        )
        clients: list[LeaseClient | LibraryClient] = [
            LeaseClient(name, far if place < CLIENTS_BEHIND_PROXY else near, rng=next(rngs))
            for place, name in enumerate(names)
        ]
        clients += [
            LibraryClient(f"library-{number}-{place}", in_front, rng=next(rngs))
            for place in range(LIBRARY_CLIENTS)
        ]
        for client in clients:
            client.start()
        faults = Faults(hub, proxy, rng=rng)
        faults_count = 0
        try:
            while recorder.operation_count < first + ROUND_OPERATIONS or faults_count < ROUND_FAULTS:
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
    for resource in RESOURCES:
        reader.state(resource)
    reader.close()
