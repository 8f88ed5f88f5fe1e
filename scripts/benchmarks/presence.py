"""Presence: thousands of runtimes with a heartbeat each interval, alone, beside ingest, and beside a flood.

The runtimes are this process, a stream each, their heartbeats spread over the interval; the hub is another
process, and so is who pushes. A heartbeat is late by the time from when it was due until it was answered, so
that what keeps this process busy counts too.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import grpc.aio

from scripts.benchmarks.figures import Figures, p50_ms, p99_ms, progress
from scripts.benchmarks.flood import flooding
from scripts.benchmarks.hub_process import Server, running_hub
from synchub.channel import CHANNEL_OPTIONS
from synchub.v1.presence_service_pb2 import (
    RUNTIME_STATE_LOST,
    HeartbeatRequest,
    HeartbeatResponse,
    ListRuntimesRequest,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import RunKey

HUB_PROJECT = "bench"
FLOODING_HUB_PROJECT = "flood"
RUNTIMES = 10_000
RUNTIMES_QUICK = 500
INTERVAL_SECONDS = 10.0
INTERVAL_SECONDS_QUICK = 1.0
TTL_SECONDS = 30.0
LATE_SECONDS_GOAL = TTL_SECONDS / 3
INTERVALS = 4
"""How long each part takes, in intervals."""
STREAMS_PER_CONNECTION = 100
OPENED_AT_ONCE = 200
INGEST_STREAMS = 4
FLOOD_STREAMS = 32
ANSWER_SECONDS_MAX = 60.0
LOST_COUNTED_MAX = 1_000
HEARTBEAT_METHOD = "/synchub.v1.PresenceService/Heartbeat"


@dataclass(frozen=True, slots=True)
class BeatFigures:
    """Heartbeats of one part; times from when they were due until they were answered."""

    heartbeats_per_second: float
    p50_ms: float
    p99_ms: float
    late_max_seconds: float
    lost_runtimes: int
    pushed_events_per_second: float

    def __str__(self) -> str:
        beside = (
            f" beside {self.pushed_events_per_second:,.0f} events/s" if self.pushed_events_per_second else ""
        )
        return (
            f"{self.heartbeats_per_second:,.0f} heartbeats/s{beside} (p50 {self.p50_ms:.1f} ms,"
            f" p99 {self.p99_ms:.0f} ms, latest {self.late_max_seconds:.2f} s, {self.lost_runtimes} lost)"
        )


@dataclass(frozen=True, slots=True)
class PresenceFigures(Figures):
    """What streams and heartbeats cost the hub, and how late heartbeats were."""

    runtimes: int
    interval_seconds: float
    open_seconds: float
    kilobytes_per_stream: float
    processor_us_per_heartbeat: float
    alone: BeatFigures
    beside_ingest: BeatFigures
    beside_flood: BeatFigures
    ratio_late_to_third_of_ttl: float

    def figures_line(self) -> str:
        """Return what was measured, as one line."""
        return (
            f"figures: {self.runtimes:,} runtimes each {self.interval_seconds:g} s, opened in"
            f" {self.open_seconds:.1f} s: {self.kilobytes_per_stream:.1f} KB a stream,"
            f" {self.processor_us_per_heartbeat:.0f} µs of the hub's processor a heartbeat;"
            f" alone {self.alone}; in one hub project {self.beside_ingest};"
            f" another one flooding {self.beside_flood}"
        )

    def ratios_line(self) -> str:
        """Return what it means within this run, as one line with the goals."""
        return (
            f"ratios: the latest to a third of the TTL {self.ratio_late_to_third_of_ttl:.3f} (goal below 1);"
            " goals: 40 KB a stream, 100 µs a heartbeat, none lost"
        )


async def bench_presence(*, is_quick: bool) -> PresenceFigures:
    """Open a stream for each runtime, and measure alone, beside ingest and beside a flood."""
    runtimes = RUNTIMES_QUICK if is_quick else RUNTIMES
    interval = INTERVAL_SECONDS_QUICK if is_quick else INTERVAL_SECONDS
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="synchub-bench-")))
        hub = await stack.enter_async_context(running_hub(folder))
        crowd = Crowd(hub, interval_seconds=interval)
        idle_seconds = await processor_seconds_of(hub, asyncio.sleep(interval))
        progress(f"opening {runtimes:,} streams")
        bytes_before, begin = hub.resident_bytes(), time.perf_counter()
        await crowd.open(stack, runtimes)
        open_seconds = time.perf_counter() - begin
        bytes_each = (hub.resident_bytes() - bytes_before) / runtimes
        progress("heartbeats alone")
        used_seconds = await processor_seconds_of(hub, crowd.beat(INTERVALS))
        alone = await crowd.figures()
        heartbeats = len(crowd.late_seconds)
        progress("heartbeats beside ingest in the same hub project")
        async with flooding(hub.address, HUB_PROJECT, streams=INGEST_STREAMS) as ingest:
            await crowd.beat(INTERVALS)
        beside_ingest = await crowd.figures(ingest.events_per_second)
        progress("heartbeats beside another hub project's flood")
        async with flooding(hub.address, FLOODING_HUB_PROJECT, streams=FLOOD_STREAMS) as flood:
            await crowd.beat(INTERVALS)
        beside_flood = await crowd.figures(flood.events_per_second)
        crowd.leave()
    latest = max(alone.late_max_seconds, beside_ingest.late_max_seconds, beside_flood.late_max_seconds)
    return PresenceFigures(
        runtimes=runtimes,
        interval_seconds=interval,
        open_seconds=open_seconds,
        kilobytes_per_stream=bytes_each / 1_000,
        processor_us_per_heartbeat=(used_seconds - idle_seconds * INTERVALS) / heartbeats * 1e6,
        alone=alone,
        beside_ingest=beside_ingest,
        beside_flood=beside_flood,
        ratio_late_to_third_of_ttl=latest / LATE_SECONDS_GOAL,
    )


async def processor_seconds_of(hub: Server, work: Awaitable[None]) -> float:
    """Return how much processor time the hub used while something was done."""
    before = hub.processor_seconds()
    await work
    return hub.processor_seconds() - before


class Crowd:
    """The runtimes, each with a stream that stays open."""

    def __init__(self, hub: Server, *, interval_seconds: float) -> None:
        """Begin without any."""
        self._hub = hub
        self._interval_seconds = interval_seconds
        self._streams: list[HeartbeatStream] = []
        self._beat_seconds = 0.0
        self.late_seconds: list[float] = []
        """Of the heartbeats of the last part."""

    async def open(self, stack: AsyncExitStack, runtimes: int) -> None:
        """Open a stream for each, over many connections, and say the first heartbeat."""
        room = asyncio.Semaphore(OPENED_AT_ONCE)
        # Else gRPC would share one connection.
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(self._hub.address, options=options))
            for _ in range(ceil(runtimes / STREAMS_PER_CONNECTION))
        ]

        async def open_one(number: int) -> None:
            async with room:
                stream = HeartbeatStream(channels[number % len(channels)], number)
                await stream.beat()
                self._streams.append(stream)

        await asyncio.gather(*(open_one(number) for number in range(runtimes)))

    async def beat(self, intervals: int) -> None:
        """Have each runtime say a heartbeat in each interval, at a moment of its own."""
        self.late_seconds = []
        begin = time.perf_counter()

        async def beat_in_time(stream: HeartbeatStream) -> None:
            due = begin + random.random() * self._interval_seconds
            for _ in range(intervals):
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await stream.beat()
                self.late_seconds.append(time.perf_counter() - due)
                due += self._interval_seconds

        await asyncio.gather(*(beat_in_time(stream) for stream in self._streams))
        self._beat_seconds = time.perf_counter() - begin

    async def figures(self, pushed_events_per_second: float = 0.0) -> BeatFigures:
        """Return what the last part was like, and how many runtimes the hub takes for lost now."""
        async with grpc.aio.insecure_channel(self._hub.address) as channel:
            request = ListRuntimesRequest(
                hub_project=HUB_PROJECT, states=[RUNTIME_STATE_LOST], page_size=LOST_COUNTED_MAX
            )
            lost = len((await PresenceServiceStub(channel).ListRuntimes(request)).runtimes)
        return BeatFigures(
            heartbeats_per_second=len(self.late_seconds) / self._beat_seconds,
            p50_ms=p50_ms(self.late_seconds),
            p99_ms=p99_ms(self.late_seconds),
            late_max_seconds=max(self.late_seconds),
            lost_runtimes=lost,
            pushed_events_per_second=pushed_events_per_second,
        )

    def leave(self) -> None:
        """Leave all streams."""
        for stream in self._streams:
            stream.cancel()


class HeartbeatStream:
    """The stream of one runtime; what it says is serialised once."""

    def __init__(self, channel: grpc.aio.Channel, number: int) -> None:
        """Open it."""
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(HEARTBEAT_METHOD)
        self._call = method()
        self._heartbeat = HeartbeatRequest(
            hub_project=HUB_PROJECT,
            runtime_id=f"runtime-{number}",
            instance_id=f"instance-{number}",
            host="host.example",
            pid=number,
            version="1.0",
            labels={"region": "somewhere", "kind": "bench"},
            active_runs=[RunKey(project_id="bench", run_id=f"run-{number}")],
            unsynced_event_count=1,
        ).SerializeToString()

    async def beat(self) -> None:
        """Say a heartbeat and wait until it is answered."""
        await self._call.write(self._heartbeat)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answer = await self._call.read()
        if not isinstance(answer, bytes) or HeartbeatResponse.FromString(answer).HasField("error"):
            raise SystemExit(f"a heartbeat was not answered as expected: {answer!r}")

    def cancel(self) -> None:
        """Leave it."""
        self._call.cancel()
