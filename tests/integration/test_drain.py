"""A hub that is asked to stop while 200 streams of all kinds are busy: in time, with nothing lost."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from synchub.channel import CHANNEL_OPTIONS
from synchub.v1.journal_service_pb2 import ListStreamsRequest
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.sync_service_pb2 import ListRunsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.sending import until_settled
from tests.integration.draining import STREAMS, Crowd
from tests.integration.hub_process import HUB_PROJECT, SYNCHUB, HubProcess
from tests.robustness.programs import running_programs

GRACE_SECONDS: Final = 10.0
A_LITTLE_SECONDS: Final = 3.0
AT_ONCE_SECONDS: Final = 4.0
"""On a busy machine."""
SECONDS_MAX: Final = 40.0
LOOK_SECONDS: Final = 0.05
"""How often it is looked whether everybody is at work."""


class Hub:
    """A hub process that can be sent signals."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.database = folder / "hub.db"
        self._log = (folder / "hub.log").open("wb")
        command = [
            str(SYNCHUB),
            "serve",
            "--db",
            str(self.database),
            "--listen",
            "127.0.0.1:0",
            "--http",
            "none",
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env={**os.environ, **variables}
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[2]

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait for the end."""
        return self.process.wait(SECONDS_MAX)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    started = Hub(tmp_path)
    yield started
    started.end()


@pytest.fixture
def patient_hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that waits for long until a client closes its side."""
    started = Hub(tmp_path, SYNCHUB_LIMITS__HALF_CLOSE_WAIT_SECONDS="60")
    yield started
    started.end()


async def test_200_busy_streams_are_ended_within_the_grace_time_and_nothing_acknowledged_is_lost(
    hub: Hub,
) -> None:
    async with grpc.aio.insecure_channel(hub.address, options=CHANNEL_OPTIONS) as channel:
        crowd = Crowd(channel)
        crowd.begin()
        await until_at_work(crowd)
        begin = time.monotonic()
        hub.ask_to_stop()
        async with asyncio.timeout(SECONDS_MAX):
            await crowd.wait()
        assert await asyncio.to_thread(hub.exit_code) == 0
        took = time.monotonic() - begin
    assert took <= GRACE_SECONDS + A_LITTLE_SECONDS
    # Whoever had a stream was told why; a call that came after the port was closed found nobody.
    assert crowd.ends["HUB_STOPPING"] >= STREAMS - 5, crowd.ends
    assert set(crowd.ends) <= {"HUB_STOPPING", "UNAVAILABLE", "CANCELLED"}, crowd.ends
    again = await asyncio.to_thread(HubProcess, hub.database)
    try:
        cursors, revisions = await asyncio.to_thread(stored, again.address)
    finally:
        await asyncio.to_thread(again.stop)
    assert {run for run, told in crowd.acknowledged.items() if cursors[run] < told} == set()
    assert {stream for stream, told in crowd.committed.items() if revisions[stream] < told} == set()


async def until_at_work(crowd: Crowd) -> None:
    """Wait until everybody is at work: who comes after the stop began is another matter."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await crowd.is_at_work():  # noqa: ASYNC110 - the hub is asked
            await asyncio.sleep(LOOK_SECONDS)


def stored(address: str) -> tuple[dict[str, int], dict[str, int]]:
    """The cursors of all runs and the revisions of all streams."""
    with grpc.insecure_channel(address) as channel:
        runs = SyncServiceStub(channel).ListRuns(
            ListRunsRequest(hub_project=HUB_PROJECT, page_size=1_000), timeout=SECONDS_MAX
        )
        streams = JournalServiceStub(channel).ListStreams(
            ListStreamsRequest(hub_project=HUB_PROJECT, page_size=500), timeout=SECONDS_MAX
        )
    return {run.run_id: run.cursor for run in runs.runs}, {
        stream.stream_id: stream.revision for stream in streams.streams
    }


def test_an_agent_goes_on_after_its_hub_was_stopped_and_started(tmp_path: Path) -> None:
    with running_programs(tmp_path) as programs:
        for n in range(6):
            programs.agent_command(
                "append", "--project", "p", "--run", "r", "--type", "line", "--text", str(n)
            )
            if n == 1:
                assert programs.hub.stop() == 0
            if n == 3:
                programs.hub.start()
        programs.wait_until_synced()
        assert programs.cursors() == {("p", "r"): 6}


async def open_and_keep(hub: Hub, channel: grpc.aio.Channel) -> Crowd:
    """Have clients on streams that never close their side."""
    crowd = Crowd(channel)
    crowd.is_stubborn = True
    crowd.begin()
    await until_at_work(crowd)
    return crowd


@pytest.mark.parametrize(
    ("signals", "seconds_max"), [(1, GRACE_SECONDS + A_LITTLE_SECONDS), (2, AT_ONCE_SECONDS)]
)
async def test_clients_that_never_leave_are_cut_after_the_grace_time_and_at_once_by_a_second_signal(
    patient_hub: Hub, signals: int, seconds_max: float
) -> None:
    async with grpc.aio.insecure_channel(patient_hub.address, options=CHANNEL_OPTIONS) as channel:
        crowd = await open_and_keep(patient_hub, channel)
        begin = time.monotonic()
        patient_hub.ask_to_stop()
        await until_settled(lambda: crowd.told_in_band > 0)
        assert patient_hub.process.poll() is None, "it waits for them"
        if signals == 2:
            patient_hub.ask_to_stop()
        assert await asyncio.to_thread(patient_hub.exit_code) == 0
        took = time.monotonic() - begin
        async with asyncio.timeout(SECONDS_MAX):
            await crowd.wait()
    assert took <= seconds_max
    assert signals == 2 or took > AT_ONCE_SECONDS
