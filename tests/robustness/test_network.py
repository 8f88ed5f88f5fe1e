"""A network between agent and hub that loses answers, cuts, delays and goes silent: nothing is doubled."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.local_client import SocketLog
from tests.robustness.checker import Run, check
from tests.robustness.programs import Programs
from tests.robustness.tcp_proxy import TcpProxy

SECONDS_MAX: Final = 60.0
RUNS: Final[tuple[Run, ...]] = (("p", "a"), ("p", "b"), ("q", "a"))
LOST_ANSWERS: Final = 4
LOST_ANSWERS_LONG: Final = 100
CUT_SECONDS: Final = 6.0
CUT_SECONDS_LONG: Final = 300.0
CUT_BYTES_MAX: Final = 40_000
CONNECTIONS_MIN: Final = 6
"""Else nothing was cut, and nothing tested."""
SILENCE_NOTICED_SECONDS_MAX: Final = 55.0
"""A hub that went silent is noticed by the unanswered batch after 30 s, or by a ping; then a backoff."""


class Load:
    """Appends to a few runs by way of the agent and remembers what was acknowledged."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        log = SocketLog.connect(str(folder))
        assert log is not None
        self._log = log
        self._rng = rng
        self.acknowledged: dict[Run, list[bytes]] = {run: [] for run in RUNS}

    def append(self) -> None:
        run = self._rng.choice(RUNS)
        payloads = [self._rng.randbytes(self._rng.randint(0, 2000)) for _ in range(self._rng.randint(1, 30))]
        request = AppendRequest(RunKey(*run), tuple(NewEvent("load", payload) for payload in payloads))
        self._log.append_soon(request).result(SECONDS_MAX)
        self.acknowledged[run].extend(payloads)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def close(self) -> None:
        self._log.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    programs.start()
    programs.agent.stop()
    yield programs
    programs.hub.stop()


@pytest.fixture
def proxy(programs: Programs, rng: random.Random) -> Iterator[TcpProxy]:
    """A proxy before the hub, and an agent that knows the hub by it only."""
    with TcpProxy(programs.address, random.Random(rng.random())) as proxy:
        agent = programs.agent_in(programs.data, hub_address=proxy.address)
        agent.start()
        yield proxy
        agent.stop()


@pytest.fixture
def load(programs: Programs, proxy: TcpProxy, rng: random.Random) -> Iterator[Load]:
    load = Load(programs.data, random.Random(rng.random()))
    yield load
    load.close()


def assert_all_there_once(programs: Programs, load: Load) -> None:
    programs.wait_until_synced()
    verdict = check(load.acknowledged, programs.watched())
    assert verdict.faults == []
    assert verdict.acknowledged_count == load.count > 0


@pytest.mark.timeout(900)
def test_answers_that_are_lost_after_the_commit_double_nothing(
    programs: Programs, proxy: TcpProxy, load: Load, *, long_run: bool
) -> None:
    load.append()
    programs.wait_until_synced()
    for _ in range(LOST_ANSWERS_LONG if long_run else LOST_ANSWERS):
        proxy.drops_answers = True
        before = len(programs.watched())
        for _ in range(5):
            load.append()
        deadline = time.monotonic() + SECONDS_MAX
        while len(programs.watched()) == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # The hub has committed what the agent can never have heard of.
        assert programs.unsynced_count() > 0
        proxy.cut_all()
        proxy.drops_answers = False
        assert_all_there_once(programs, load)
    assert proxy.dropped_answer_bytes > 0


@pytest.mark.timeout(900)
def test_connections_that_are_slow_and_cut_at_any_byte_lose_and_double_nothing(
    programs: Programs, proxy: TcpProxy, load: Load, *, long_run: bool
) -> None:
    proxy.delay_seconds_max = 0.01
    proxy.cuts_after_bytes_max = CUT_BYTES_MAX
    proxy.cut_all()
    end = time.monotonic() + (CUT_SECONDS_LONG if long_run else CUT_SECONDS)
    deadline = end + SECONDS_MAX
    while time.monotonic() < end or proxy.connection_count < CONNECTIONS_MIN:
        load.append()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    proxy.cuts_after_bytes_max = 0
    proxy.cut_all()
    assert_all_there_once(programs, load)


@pytest.mark.timeout(240)
def test_a_connection_that_went_silent_is_given_up_for_a_new_one(
    programs: Programs, proxy: TcpProxy, load: Load
) -> None:
    load.append()
    programs.wait_until_synced()
    proxy.half_open_all()
    begin = time.monotonic()
    # Nobody is told: the agent finds out, and appends go on meanwhile.
    for _ in range(20):
        load.append()
    assert programs.unsynced_count() > 0
    assert_all_there_once(programs, load)
    assert time.monotonic() - begin < SILENCE_NOTICED_SECONDS_MAX
