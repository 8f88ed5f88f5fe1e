"""A hub killed at random moments while many commit to shared streams under leases that change hands.

Each commit is there whole or not at all, its messages are delivered, the projections are what the events
make of them. (Like every SIGKILL this says nothing about the disk's syncs.)
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.robustness.journal_checker import History, check_journal
from tests.robustness.journal_load import Caller, Dispatcher, JournalHub, LastDispatcher, Worker, stored_in

KILLS: Final = 6
KILLS_LONG: Final = 100
WORKERS: Final = 4
DISPATCHERS: Final = 2
STREAMS: Final = ("s1", "s2", "s3")
COMMITS_MIN: Final = 50
END_SECONDS_MAX: Final = 60.0
SEEN_SECONDS_MAX: Final = 60.0
RARE: Final = (
    "recovered",
    "unknown",
    "taken over",
    "LEASE_EXPIRED",
    "REVISION_CONFLICT",
    "repeated",
    "DONE",
    "ALREADY_DELIVERED",
    "CLAIM_LOST",
    "given back",
    "forgotten",
)
"""What the callers have to have seen: a run without one of these tested nothing of it."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[JournalHub]:
    hub = JournalHub(tmp_path)
    hub.start()
    yield hub
    hub.stop()


def counts_of(callers: Iterable[Caller]) -> Counter[str]:
    """What all of them saw so far."""
    counts: Counter[str] = Counter()
    for caller in callers:
        counts.update(dict(caller.counts))  # a copy at once: the caller goes on
    return counts


def let_all_be_seen(callers: Iterable[Caller]) -> None:
    """Wait until all that is rare was seen, instead of trusting the machine's speed."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while True:
        counts = counts_of(callers)
        if all(counts[name] for name in RARE) and counts["committed"] >= COMMITS_MIN:
            return
        assert time.monotonic() < deadline, counts
        time.sleep(0.1)


def end(callers: Iterable[Caller]) -> None:
    """Let all end what they do."""
    for caller in callers:
        caller.is_ending.set()
    for caller in callers:
        caller.join(END_SECONDS_MAX)
        assert caller.has_ended_well, caller.name


@pytest.mark.timeout(1800)
def test_commits_are_whole_or_not_at_all_and_no_message_is_lost_whenever_the_hub_dies(
    hub: JournalHub, rng: random.Random, *, long_run: bool
) -> None:
    callers: list[Caller] = [
        Worker(f"worker-{n}", hub.address, random.Random(rng.random()), streams=STREAMS)
        for n in range(WORKERS)
    ]
    callers += [
        Dispatcher(f"dispatcher-{n}", hub.address, random.Random(rng.random())) for n in range(DISPATCHERS)
    ]
    for caller in callers:
        caller.start()
    for _ in range(KILLS_LONG if long_run else KILLS):
        time.sleep(rng.uniform(0.1, 0.8))
        hub.kill()
        time.sleep(rng.uniform(0, 0.2))
        hub.start()
    let_all_be_seen(callers)
    end(callers)
    last = LastDispatcher("last", hub.address, random.Random(rng.random()))
    last.start()
    last.join(END_SECONDS_MAX)
    assert last.has_ended_well

    history = History()
    for caller in (*callers, last):
        history.attempts += caller.history.attempts
        history.deliveries += caller.history.deliveries
        history.acknowledgements += caller.history.acknowledgements
    stored = stored_in(hub.address)
    assert check_journal(history, stored) == []
