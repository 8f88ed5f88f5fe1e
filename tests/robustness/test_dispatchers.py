"""Competing dispatchers, frozen and killed at random, on a hub that is killed too.

No two of them have a message within its visibility time, a late answer changes nothing, nothing is lost.
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import OutboxState
from tests.robustness.client_load import ROOT, Committer
from tests.robustness.dispatching import VISIBILITY_SECONDS, Handling, handlings_in
from tests.robustness.journal_load import JournalHub
from tests.robustness.programs import HUB_PROJECT

DISPATCHERS: Final = 3
COMMITTERS: Final = 2
DISTURBANCES: Final = 8
DISTURBANCES_LONG: Final = 150
COMMIT_PAUSE_SECONDS_MAX: Final = 0.1
"""So that the dispatchers keep up: what waits says nothing new."""
SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.1


class DispatcherProcess:
    """A dispatcher in a process, which says into a file what it does."""

    def __init__(self, address: str, name: str, *, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.robustness.dispatching", address, name]
        self._said = folder / f"{name}.jsonl"
        self._log = folder / f"{name}.log"
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._said.open("ab") as said, self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=said, stderr=log, cwd=ROOT)

    def send(self, number: signal.Signals) -> None:
        assert self._process.poll() is None, self._log.read_text()
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS_MAX)

    def start_again(self) -> None:
        # What the kill cut off ends here, so that it does not run into the next line.
        with self._said.open("ab") as said:
            said.write(b"\n")
        self._process = self._started()

    def said(self) -> list[Handling]:
        return handlings_in(self._said.read_text(encoding="utf-8"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[JournalHub]:
    hub = JournalHub(tmp_path)
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture
def dispatchers(hub: JournalHub, tmp_path: Path) -> Iterator[list[DispatcherProcess]]:
    started = [DispatcherProcess(hub.address, f"d{n}", folder=tmp_path) for n in range(DISPATCHERS)]
    yield started
    for each in started:
        each.kill()


def faults_in(handlings: list[Handling]) -> list[str]:
    """What breaks the rules: two have a message at once, or it is delivered twice by what the hub says."""
    tries: dict[str, list[Handling]] = defaultdict(list)
    for each in sorted(handlings, key=lambda each: each.begun_at):
        tries[each.outbox_id].append(each)
    faults = []
    for outbox_id, ones in tries.items():
        for earlier, later in pairwise(ones):
            free_at = min(earlier.hidden_until, earlier.answered_at)
            if later.begun_at < free_at:
                faults.append(f"{outbox_id}: {later.name} has it while {earlier.name} does")
        done = [each for each in ones if each.outcome == "DONE" and not each.has_failed]
        if len(done) > 1:
            faults.append(f"{outbox_id}: delivered by {[each.name for each in done]}")
        if done and any(each.begun_at > done[0].answered_at for each in ones):
            after = [each for each in ones if each.begun_at > done[0].answered_at]
            faults.append(f"{outbox_id}: tried {len(after)} times after it was delivered")
    return faults


def disturb(hub: JournalHub, victim: DispatcherProcess, *, rng: random.Random) -> str:
    """Freeze or kill something for a while; return what was done."""
    what = rng.choice(["frozen", "frozen", "dispatcher killed", "hub killed"])
    match what:
        case "frozen":
            victim.send(signal.SIGSTOP)
            time.sleep(VISIBILITY_SECONDS * rng.uniform(1.2, 2.0))
            victim.send(signal.SIGCONT)
        case "dispatcher killed":
            victim.kill()
            victim.start_again()
        case _:
            hub.kill()
            time.sleep(rng.uniform(0, 0.3))
            hub.start()
    return what


def deliver_all(address: str, outbox_ids: list[str]) -> None:
    """Wait until all are delivered; what died of its tries is released first."""
    deadline = time.monotonic() + SECONDS_MAX
    with HubClient.connect(address, hub_project=HUB_PROJECT) as hub:
        while waiting := list(hub.list_outbox()):
            assert time.monotonic() < deadline, waiting
            for message in waiting:
                if message.state is OutboxState.DEAD:
                    hub.release_outbox(message.outbox_id)
            time.sleep(LOOK_SECONDS)
        delivered = [each.outbox_id for each in hub.list_outbox(state=OutboxState.DELIVERED)]
    assert sorted(delivered) == sorted(outbox_ids)


@pytest.mark.timeout(1800)
def test_no_two_dispatchers_have_a_message_at_once_and_none_is_lost(
    hub: JournalHub, dispatchers: list[DispatcherProcess], rng: random.Random, *, long_run: bool
) -> None:
    committers = [
        Committer(
            hub.address,
            f"stream-{n}",
            rng=random.Random(rng.random()),
            pause_seconds_max=COMMIT_PAUSE_SECONDS_MAX,
        )
        for n in range(COMMITTERS)
    ]
    for committer in committers:
        committer.start()
    done: Counter[str] = Counter()
    for number in range(DISTURBANCES_LONG if long_run else DISTURBANCES):
        time.sleep(rng.uniform(0.3, 1.0))
        done[disturb(hub, dispatchers[number % DISPATCHERS], rng=rng)] += 1
    for committer in committers:
        committer.is_ending.set()
    for committer in committers:
        committer.join(SECONDS_MAX)
        assert committer.has_ended_well, committer.name
    outbox_ids = [each for committer in committers for each in committer.outbox_ids]
    deliver_all(hub.address, outbox_ids)
    time.sleep(VISIBILITY_SECONDS)  # for the last lines to be said

    handlings = [each for dispatcher in dispatchers for each in dispatcher.said()]
    assert faults_in(handlings) == []
    outcomes = Counter(each.outcome for each in handlings)
    # A run in which none of these was seen tested nothing of it.
    assert outcomes["DONE"] > len(outbox_ids) / 2, (outcomes, done)
    assert outcomes["CLAIM_LOST"] + outcomes["ALREADY_DELIVERED"] > 0, (outcomes, done)
    assert len({each.name for each in handlings}) == DISPATCHERS
    for each in handlings:
        if each.answered_at > each.hidden_until + VISIBILITY_SECONDS:
            # Later than its claim can have lasted by any clock: it changed nothing.
            assert each.outcome != "DONE", each


def test_the_check_of_dispatchers_finds_what_it_looks_for() -> None:
    def handling(name: str, begun_at: float, answered_at: float, outcome: str = "DONE") -> Handling:
        return Handling(name, "o", 1, begun_at, begun_at + 10, answered_at, has_failed=False, outcome=outcome)

    assert faults_in([handling("a", 0, 5)]) == []
    assert faults_in([handling("a", 0, 20, "CLAIM_LOST"), handling("b", 11, 12)]) == []
    assert faults_in([handling("a", 0, 8, ""), handling("b", 7, 9)]) == ["o: b has it while a does"]
    assert "o: delivered by ['a', 'b']" in faults_in([handling("a", 0, 5), handling("b", 6, 7)])
    again = faults_in([handling("a", 0, 5), handling("b", 6, 7, "CLAIM_LOST")])
    assert again == ["o: tried 1 times after it was delivered"]
