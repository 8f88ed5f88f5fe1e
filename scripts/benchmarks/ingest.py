"""Ingest: first sending, sending again and single events, against raw SQLite and bare syncs of the disk.

The client is this process, the hub another one; requests are made and serialised before the clock
runs, so that the client costs the two cores little.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from scripts.benchmarks.disk import disk_sync_rate
from scripts.benchmarks.figures import Figures, median_ratio, p50_ms, p99_ms, progress
from scripts.benchmarks.hub_process import running_hub
from scripts.benchmarks.raw_sqlite import raw_sqlite_rate
from synchub.channel import CHANNEL_OPTIONS
from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse

STREAMS = 4
BATCH_EVENTS = 256
PAYLOAD_BYTES = 250
IN_FLIGHT_PER_STREAM = 8
SINGLE_RUNTIMES = 64
PUSH_METHOD = "/synchub.v1.SyncService/PushEvents"
ANSWER_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class IngestFigures(Figures):
    """Medians over the rounds; rates in rows or events a second, times in milliseconds."""

    rounds: int
    events_per_round: int
    raw_sqlite_rows_per_second: float
    ingest_events_per_second: float
    duplicate_events_per_second: float
    disk_syncs_per_second: float
    single_events_per_second: float
    single_p50_ms: float
    single_p99_ms: float
    ratio_to_raw_sqlite: float
    ratio_duplicates_to_first: float
    ratio_singles_to_disk_syncs: float

    def figures_line(self) -> str:
        """Return what was measured, as one line."""
        return (
            f"figures: raw SQLite {self.raw_sqlite_rows_per_second:,.0f} rows/s,"
            f" ingest {self.ingest_events_per_second:,.0f} events/s,"
            f" again {self.duplicate_events_per_second:,.0f} events/s,"
            f" {SINGLE_RUNTIMES} runtimes one by one {self.single_events_per_second:,.0f} events/s"
            f" (p50 {self.single_p50_ms:.1f} ms, p99 {self.single_p99_ms:.1f} ms),"
            f" disk {self.disk_syncs_per_second:,.0f} syncs/s"
        )

    def ratios_line(self) -> str:
        """Return what it means within this run, as one line with the goals."""
        return (
            f"ratios: ingest to raw SQLite {self.ratio_to_raw_sqlite:.2f} (goal 0.60),"
            f" again to first {self.ratio_duplicates_to_first:.2f} (goal 1.00),"
            f" one by one to disk syncs {self.ratio_singles_to_disk_syncs:.2f} (goal above 1.00)"
        )


async def bench_ingest(*, is_quick: bool) -> IngestFigures:
    """Measure raw SQLite, first sending and sending again in turn, then single events."""
    rounds = 2 if is_quick else 5
    batches = (20 if is_quick else 100) * STREAMS
    raw_rates, first_rates, again_rates = [], [], []
    with tempfile.TemporaryDirectory(prefix="synchub-bench-") as folder_name:
        folder = Path(folder_name)
        async with running_hub(folder) as hub:
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                streams = [
                    run_requests(f"run-{number}-{index}", batches // STREAMS) for index in range(STREAMS)
                ]
                raw_rates.append(raw_sqlite_rate(folder / f"raw-{number}.db", streams))
                first_rates.append(await push_rate(hub.address, streams, are_new=True))
                again_rates.append(await push_rate(hub.address, streams, are_new=False))
            progress("single events")
            latencies, seconds = await push_singles(hub.address, per_runtime=20 if is_quick else 200)
        syncs = disk_sync_rate(folder / "sync", count=500 if is_quick else 3_000)
    singles = len(latencies) / seconds
    return IngestFigures(
        rounds=rounds,
        events_per_round=batches * BATCH_EVENTS,
        raw_sqlite_rows_per_second=statistics.median(raw_rates),
        ingest_events_per_second=statistics.median(first_rates),
        duplicate_events_per_second=statistics.median(again_rates),
        disk_syncs_per_second=syncs,
        single_events_per_second=singles,
        single_p50_ms=p50_ms(latencies),
        single_p99_ms=p99_ms(latencies),
        ratio_to_raw_sqlite=median_ratio(first_rates, raw_rates),
        ratio_duplicates_to_first=median_ratio(again_rates, first_rates),
        ratio_singles_to_disk_syncs=singles / syncs,
    )


# --- what is sent ---------------------------------------------------------------------------------------


def run_requests(run_id: str, batches: int) -> list[PushEventsRequest]:
    """Return the batches of one run, with content hashes and proofs, as an agent sends them."""
    requests = []
    chain_hash = chain_hash_at_start("bench", run_id)
    for batch in range(batches):
        events = [event_of(batch * BATCH_EVENTS + offset + 1) for offset in range(BATCH_EVENTS)]
        requests.append(
            PushEventsRequest(
                hub_project="bench",
                project_id="bench",
                run_id=run_id,
                runtime_id="bench-runtime",
                previous_chain_hash=chain_hash,
                events=events,
            )
        )
        chain_hash = chain_hash_after(chain_hash, (event.content_hash for event in events))
    return requests


def event_of(sequence: int) -> SyncEvent:
    """Return an event with a payload of chance."""
    event = SyncEvent(sequence=sequence, event_type="step.done", payload=os.urandom(PAYLOAD_BYTES))
    nanos = 1_700_000_000_000_000_000 + sequence
    event.event_time.FromNanoseconds(nanos)
    event.content_hash = content_hash(
        event.event_type, nanos, is_final=False, attributes={}, payload=event.payload
    )
    return event


# --- how it is sent --------------------------------------------------------------------------------------


async def push_rate(address: str, streams: list[list[PushEventsRequest]], *, are_new: bool) -> float:
    """Push all batches on parallel streams; return events a second until all are acknowledged.

    The requests are serialised before, so that the client costs the two cores little.
    """
    raw_streams = [[request.SerializeToString() for request in requests] for requests in streams]
    events = sum(len(request.events) for requests in streams for request in requests)
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        begin = time.perf_counter()
        answers = await asyncio.gather(*(push_stream(channel, raws) for raws in raw_streams))
        seconds = time.perf_counter() - begin
    responses = [PushEventsResponse.FromString(raw) for raws in answers for raw in raws]
    counted = sum(each.accepted_count if are_new else each.duplicate_count for each in responses)
    if counted != events:
        raise SystemExit(f"{counted} of {events} events were acknowledged as expected: nothing to measure")
    return events / seconds


async def push_stream(channel: grpc.aio.Channel, raws: Sequence[bytes]) -> list[bytes]:
    """Push batches on one stream with some in flight; return the answers."""
    call = push_call(channel)
    window = asyncio.Semaphore(IN_FLIGHT_PER_STREAM)

    async def send() -> None:
        for raw in raws:
            await window.acquire()
            await call.write(raw)
        await call.done_writing()

    sending = asyncio.create_task(send())
    answers: list[bytes] = []
    while (answer := await read_answer(call)) is not None:
        answers.append(answer)
        window.release()
    await sending
    return answers


def push_call(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    """Open a push stream of bytes, so that nothing is serialised while the clock runs."""
    method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PUSH_METHOD)
    return method()


async def read_answer(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> bytes | None:
    """Return the next answer, None at the end of the stream."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        answer = await call.read()
    return answer if isinstance(answer, bytes) else None


async def push_singles(address: str, *, per_runtime: int) -> tuple[list[float], float]:
    """Let many runtimes push one event at a time and wait; return seconds of each, and of all."""
    latencies: list[float] = []

    async def runtime(channel: grpc.aio.Channel, number: int) -> None:
        raws = [single_request(number, sequence) for sequence in range(1, per_runtime + 1)]
        call = push_call(channel)
        for raw in raws:
            begin = time.perf_counter()
            await call.write(raw)
            answer = PushEventsResponse.FromString(await read_answer(call) or b"")
            latencies.append(time.perf_counter() - begin)
            if answer.accepted_count != 1:
                raise SystemExit(f"an event was not accepted: {answer}")
        await call.done_writing()
        await call.read()

    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        begin = time.perf_counter()
        await asyncio.gather(*(runtime(channel, number) for number in range(SINGLE_RUNTIMES)))
        return latencies, time.perf_counter() - begin


def single_request(number: int, sequence: int) -> bytes:
    """Return a request with one event of a runtime's own run."""
    request = PushEventsRequest(
        hub_project="bench",
        project_id="bench",
        run_id=f"single-{number}",
        runtime_id=f"runtime-{number}",
        events=[event_of(sequence)],
    )
    return request.SerializeToString()
