"""Limits as a hub and an agent are shipped: who has too much is slowed and loses nothing; others go on."""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest, PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.integration.hub_process import HUB_PROJECT, HubProcess

AGENT: Final = (sys.executable, "-m", "runtime_agent")
SECONDS_MAX: Final = 90.0
PUSH_METHOD: Final = "/synchub.v1.SyncService/PushEvents"


@contextmanager
def running_hub(
    folder: Path, monkeypatch: pytest.MonkeyPatch, listen: str = "127.0.0.1:0", **limits: int
) -> Iterator[HubProcess]:
    """A hub with these limits, set as an operator sets them."""
    with monkeypatch.context() as environment:
        for name, value in limits.items():
            environment.setenv(f"SYNCHUB_LIMITS__{name.upper()}", str(value))
        hub = HubProcess(folder / "hub.db", listen, more=("--http", "127.0.0.1:0"))
    try:
        yield hub
    finally:
        hub.stop()


@contextmanager
def running_agent(folder: Path, address: str) -> Iterator[None]:
    data = ("--data", str(folder))
    named = ("--hub", address, "--hub-project", HUB_PROJECT, "--runtime-id", "runtime")
    process = subprocess.Popen(
        [*AGENT, "start", *named, *data], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() != b""
        yield
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def imported(folder: Path, count: int, run_id: str = "r") -> None:
    """Append so many events to the local log, each a line."""
    file = folder / f"{run_id}.log"
    file.write_text("".join(f"line {number}\n" for number in range(count)), encoding="utf-8")
    data = ("--data", str(folder / "agent"))
    subprocess.run([*AGENT, "import", str(file), "--project", "p", *data], check=True, capture_output=True)


def status(folder: Path) -> dict[str, object]:
    asked = [*AGENT, "status", "--json", "--data", str(folder / "agent")]
    told: dict[str, object] = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    return told


def event_count(address: str, run_id: str = "r") -> int:
    with grpc.insecure_channel(address) as channel:
        try:
            asked = GetRunRequest(hub_project=HUB_PROJECT, project_id="p", run_id=run_id)
            return SyncServiceStub(channel).GetRun(asked, timeout=10).run.event_count
        except grpc.RpcError:
            return 0


def until_stored(address: str, count: int, run_id: str = "r") -> None:
    end = time.monotonic() + SECONDS_MAX
    while event_count(address, run_id) < count:
        assert time.monotonic() < end, f"{event_count(address, run_id)} of {count} came"
        time.sleep(0.1)


def metric(hub: HubProcess, name: str, method: str = "") -> float:
    """The sum of a metric over its labels, or of those of a method."""
    with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[{{ ]", line) and method in line
    )


def test_an_agent_above_the_rate_is_slowed_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_hub(tmp_path, monkeypatch, hub_project_events_per_second=1_000) as hub:
        imported(tmp_path, 6_000)
        begin = time.monotonic()
        with running_agent(tmp_path / "agent", hub.address):
            until_stored(hub.address, 6_000)
            seconds = time.monotonic() - begin
            # All but what the bucket holds and one batch came at the rate.
            assert seconds >= (6_000 - 1_000 - 1_024) / 1_000 - 0.2
            assert metric(hub, "synchub_rate_delays_total") > 0
            # No call was ended over it: the stream of the beginning is the one that is open.
            assert metric(hub, "synchub_limits_reached_total") == 0
            assert metric(hub, "synchub_calls_total", method="PushEvents") == 0
            assert metric(hub, "synchub_calls_total", method="ReconcileRuns") > 0
            assert metric(hub, "synchub_events_total") == 6_000


def test_an_agent_of_a_full_hub_project_keeps_what_it_has_and_goes_on_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_hub(tmp_path, monkeypatch, hub_project_stored_bytes_max=20_000) as hub:
        address = hub.address
        imported(tmp_path, 1_000)
        with running_agent(tmp_path / "agent", address):
            end = time.monotonic() + SECONDS_MAX
            while "quota hub_project_stored_bytes_max of 20000" not in json.dumps(status(tmp_path)):
                assert time.monotonic() < end, status(tmp_path)
                time.sleep(0.2)
            imported(tmp_path, 10, "later")
            assert event_count(address) < 1_000
            hub.stop()
            with running_hub(tmp_path, monkeypatch, address) as roomy:
                until_stored(roomy.address, 1_000)
                until_stored(roomy.address, 10, "later")
                assert metric(roomy, "synchub_conflicts_total") == 0


# --- fairness ---

FLOOD_STREAMS: Final = 32
IN_FLIGHT: Final = 8
IN_FULL: Final = 2 * FLOOD_STREAMS * IN_FLIGHT
BATCH: Final = PushEventsRequest(
    events=[SyncEvent(sequence=n + 1, event_type="line", payload=b"x" * 250) for n in range(256)]
).SerializeToString()


def push_call(channel: grpc.aio.Channel) -> "grpc.aio.StreamStreamCall[bytes, bytes]":
    method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PUSH_METHOD)
    return method()


async def read_answer(call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> PushEventsResponse:
    raw = await call.read()
    assert isinstance(raw, bytes)
    return PushEventsResponse.FromString(raw)


class Flood:
    """Streams of one hub project that always have as many batches in flight as they can."""

    def __init__(self) -> None:
        self.answer_count = 0
        self.is_full = asyncio.Event()
        """Set once everything that may be in flight has been so twice."""

    async def push(self, channel: grpc.aio.Channel, stream: int) -> None:
        call = push_call(channel)
        room = asyncio.Semaphore(IN_FLIGHT)

        async def send() -> None:
            number = 0
            while True:
                await room.acquire()
                head = PushEventsRequest(
                    hub_project="flood", project_id="flood", run_id=f"{stream}-{number}", runtime_id="r"
                )
                # The two parts of the message, one after the other, are the message.
                await call.write(head.SerializeToString() + BATCH)
                number += 1

        sending = asyncio.create_task(send())
        try:
            while True:
                assert (await read_answer(call)).accepted_count == 256
                self.answer_count += 1
                if self.answer_count == IN_FULL:
                    self.is_full.set()
                room.release()
        finally:
            sending.cancel()
            call.cancel()


async def overtaken(channel: grpc.aio.Channel, flood: Flood, pushes: int) -> list[int]:
    """How many batches of the flood were answered while each single event of another waited."""
    call = push_call(channel)
    counts = []
    for number in range(1, pushes + 1):
        event = SyncEvent(sequence=number, event_type="line", payload=b"x")
        request = PushEventsRequest(
            hub_project="quiet", project_id="quiet", run_id="r", runtime_id="r", events=[event]
        )
        before = flood.answer_count
        await call.write(request.SerializeToString())
        assert (await read_answer(call)).cursor == number
        counts.append(flood.answer_count - before)
    await call.done_writing()
    return counts


async def test_a_flood_of_one_hub_project_does_not_hold_up_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_hub(tmp_path, monkeypatch) as hub:
        flood = Flood()
        async with (
            grpc.aio.insecure_channel(hub.address) as flooding,
            grpc.aio.insecure_channel(hub.address, options=[("grpc.use_local_subchannel_pool", 1)]) as quiet,
        ):
            streams = [asyncio.create_task(flood.push(flooding, stream)) for stream in range(FLOOD_STREAMS)]
            await flood.is_full.wait()
            counts = await overtaken(quiet, flood, 60)
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
        # First come, first served, it would be about all that was in flight before it.
        in_flight = FLOOD_STREAMS * IN_FLIGHT
        assert statistics.median(counts) <= in_flight / 4, counts
        assert sorted(counts)[-2] <= in_flight / 2, counts
