"""Hub and agent killed at random moments under load: what was acknowledged is there, once.

A SIGKILL says nothing about the disk's syncs; it proves that nothing is ever half done, and that both
programs go on from wherever they were.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.core.errors import AgentUnreachableError, LogError
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import SocketLog
from tests.robustness.checker import OnHub, Run, check, check_prefix
from tests.robustness.programs import Programs, running_programs, whole

KILLS: Final = 24
KILLS_LONG: Final = 300
READS: Final = 4
"""How often all is read between the kills, whatever their number."""
RUNS: Final = 4
EVENTS_PER_APPEND_MAX: Final = 40
ANSWER_SECONDS_MAX: Final = 30.0


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with running_programs(tmp_path) as programs:
        yield programs


class Appender(threading.Thread):
    """Appends to its runs until told to stop; repeats what was not answered, under its name."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(name="appender", daemon=True)
        self._folder = folder
        self._rng = rng
        self.is_ending = threading.Event()
        self.acknowledged: dict[Run, list[bytes]] = {("p", f"run-{n}"): [] for n in range(RUNS)}
        self.repeated_count = 0
        self.known_count = 0
        self._log: SocketLog | None = None
        self.has_ended_well = False

    def run(self) -> None:
        try:
            self._append_until_told_to_end()
        finally:
            self.has_ended_well = self.is_ending.is_set()
            if self._log is not None:
                self._log.close()

    def _append_until_told_to_end(self) -> None:
        number = 0
        while not self.is_ending.is_set():
            number += 1
            run = self._rng.choice(list(self.acknowledged))
            size = self._rng.randint(1, EVENTS_PER_APPEND_MAX)
            payloads = [self._rng.randbytes(self._rng.randint(0, 400)) for _ in range(size)]
            self._append_until_answered(run, payloads, append_id=f"append-{number}")

    def _append_until_answered(self, run: Run, payloads: list[bytes], *, append_id: str) -> None:
        events = tuple(NewEvent("load", payload) for payload in payloads)
        request = AppendRequest(RunKey(*run), events, append_id=append_id)
        appended = None
        while appended is None:
            # Only by way of the agent, so that it is the agent that is killed while it writes.
            self._log = self._log or SocketLog.connect(str(self._folder))
            try:
                if self._log is not None:
                    appended = self._log.append_soon(request).result(ANSWER_SECONDS_MAX)
                    continue
            except (AgentUnreachableError, LogError):
                self.repeated_count += 1
                if self._log is not None:
                    self._log.close()
                self._log = None
            time.sleep(0.02)
        assert appended.first_sequence == len(self.acknowledged[run]) + 1
        self.known_count += appended.is_repeat
        self.acknowledged[run].extend(payloads)


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_kills_of_hub_and_agent_once_each(
    programs: Programs, rng: random.Random, *, long_run: bool
) -> None:
    appender = Appender(programs.data, random.Random(rng.random()))
    appender.start()
    killed = {"hub": 0, "agent": 0}
    reads: list[list[OnHub]] = []
    kills = KILLS_LONG if long_run else KILLS
    for number in range(1, kills + 1):
        time.sleep(rng.uniform(0.05, 0.4))
        name = rng.choice(["hub", "agent"])
        killed[name] += 1
        victim = programs.hub if name == "hub" else programs.agent
        victim.kill()
        time.sleep(rng.uniform(0, 0.2))
        victim.start()
        if number % (kills // READS) == 0:
            reads.append(programs.watched())
    appender.is_ending.set()
    appender.join(60)
    assert appender.has_ended_well
    programs.wait_until_synced()

    watched = programs.watched()
    verdict = check(appender.acknowledged, watched, cursors=programs.cursors())
    assert verdict.faults == []
    assert [check_prefix(earlier, watched) for earlier in reads] == [[]] * READS
    # Types, times and all the rest besides, as they lie in the log of the agent.
    assert check(programs.logged(), programs.watched(whole)).faults == []
    # The rare states were reached at all: a zero here means that nothing was tested.
    assert min(killed.values()) > 0
    assert min(len(read) for read in reads) > 0
    assert verdict.acknowledged_count > 100
    assert appender.repeated_count > 0
