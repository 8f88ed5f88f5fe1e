"""A read model's runner and its hub killed at random points while commits go on.

After each kill the file is what a rebuild from the first event up to its checkpoint gives.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import JournalEvent
from tests.robustness import read_model
from tests.robustness.client_load import Committer, client_program
from tests.robustness.journal_load import JournalHub
from tests.robustness.programs import HUB_PROJECT, Program
from tests.robustness.read_model import Model

KILLS: Final = 10
KILLS_LONG: Final = 200
COMMITTERS: Final = 3
SEEN_SECONDS_MAX: Final = 60.0
MIDWAY_MIN: Final = 2
"""So many kills of the runner have to fall into one of its transactions."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[JournalHub]:
    hub = JournalHub(tmp_path)
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "model.db"


@pytest.fixture
def runner(hub: JournalHub, database: Path, *, tmp_path: Path) -> Iterator[Program]:
    program = client_program("read_model", hub.address, str(database), log=tmp_path / "runner.log")
    program.start()
    yield program
    program.kill()


class Kills:
    """Ends the two programs and starts them again, and keeps what the file held each time."""

    def __init__(self, hub: JournalHub, runner: Program, *, database: Path, rng: random.Random) -> None:
        self._hub = hub
        self._runner = runner
        self._database = database
        self._rng = rng
        self.found: list[Model] = []
        self.midway_count = 0
        self.hub_count = 0

    def kill_hub(self) -> None:
        self._hub.kill()
        self.hub_count += 1
        time.sleep(self._rng.uniform(0, 0.3))
        self._hub.start()

    def kill_runner(self) -> None:
        self._runner.kill()
        # SQLite's rollback journal is there as long as a transaction is under way.
        journal = self._database.with_name(self._database.name + "-journal")
        self.midway_count += journal.exists() and journal.stat().st_size > 0
        if self._database.exists() and (model := read_model.stored(self._database)) is not None:
            self.found.append(model)
        self._runner.start()


def journal_of(address: str) -> list[JournalEvent]:
    """All events of the hub, by position."""
    with HubClient.connect(address, hub_project=HUB_PROJECT) as hub:
        return [event for page in hub.list_journal() for event in page.events]


@pytest.mark.timeout(1800)
def test_a_read_model_equals_its_rebuild_wherever_its_runner_or_the_hub_died(
    hub: JournalHub, runner: Program, *, database: Path, tmp_path: Path, rng: random.Random, long_run: bool
) -> None:
    committers = [
        Committer(hub.address, f"stream-{n}", rng=random.Random(rng.random())) for n in range(COMMITTERS)
    ]
    for committer in committers:
        committer.start()
    kills = Kills(hub, runner, database=database, rng=rng)
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    number = 0
    while number < (KILLS_LONG if long_run else KILLS) or kills.midway_count < MIDWAY_MIN:
        number += 1
        assert number < KILLS or long_run or time.monotonic() < deadline, kills.midway_count
        time.sleep(rng.uniform(0.3, 0.9))
        if number % 4 == 0:
            kills.kill_hub()
        else:
            kills.kill_runner()
    for committer in committers:
        committer.is_ending.set()
    for committer in committers:
        committer.join(SEEN_SECONDS_MAX)
        assert committer.has_ended_well, committer.name
    kills.kill_runner()

    events = journal_of(hub.address)
    assert sorted(event.event_id for event in events) == sorted(
        each for committer in committers for each in committer.event_ids
    )
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    positions = [model.position for model in kills.found]
    assert positions == sorted(positions)
    assert len(set(positions)) > 3
    expected = read_model.rebuilt(events, [*positions, len(events)])
    for model in kills.found:
        assert model.rows == expected[model.position]

    with HubClient.connect(hub.address, hub_project=HUB_PROJECT) as client:
        read_model.runner(client, tmp_path / "anew.db").catch_up()
        read_model.runner(client, database).catch_up()
    last = Model(len(events), expected[len(events)])
    assert read_model.stored(database) == read_model.stored(tmp_path / "anew.db") == last
