"""Measures the hub on this machine, in ratios within one run: one line of figures, one of ratios.

Here belongs what drives a real hub process over loopback and what it is compared with, on the same
disk, in turn. It judges nothing and is no test: machines are noisy, so quote the ratios.

    scripts/bench.py ingest [--quick] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import apsw
import grpc.aio

from hub.store.sqlite.file import connect, prepare
from synchub.channel import CHANNEL_OPTIONS
from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse

STREAMS = 4
BATCH_EVENTS = 256
PAYLOAD_BYTES = 250
RAW_GROUP_ROWS = 1_024
IN_FLIGHT_PER_STREAM = 8
SINGLE_RUNTIMES = 64
PUSH_METHOD = "/synchub.v1.SyncService/PushEvents"
STOP_SECONDS_MAX = 20
ANSWER_SECONDS_MAX = 60
RAW_INSERT = """
INSERT INTO event (run_key, sequence, hub_project_key, position, receive_nanos, event_type,
                   event_time_nanos, attributes, is_final, payload, content_hash, was_pushed_dropped)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


@dataclass(frozen=True, slots=True)
class IngestFigures:
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


def main() -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ingest = commands.add_parser(
        "ingest",
        help="first sending, sending again, and single events, against raw SQLite and bare syncs of the disk",
    )
    ingest.add_argument("--quick", action="store_true", help="fewer events and rounds; for a first look")
    ingest.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    arguments = parser.parse_args()
    figures = asyncio.run(bench_ingest(is_quick=arguments.quick))
    print_figures(figures)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(figures), indent=2) + "\n", encoding="utf-8")


def print_figures(figures: IngestFigures) -> None:
    """Print one line of figures and one of ratios."""
    print(
        f"figures: raw SQLite {figures.raw_sqlite_rows_per_second:,.0f} rows/s,"
        f" ingest {figures.ingest_events_per_second:,.0f} events/s,"
        f" again {figures.duplicate_events_per_second:,.0f} events/s,"
        f" {SINGLE_RUNTIMES} runtimes one by one {figures.single_events_per_second:,.0f} events/s"
        f" (p50 {figures.single_p50_ms:.1f} ms, p99 {figures.single_p99_ms:.1f} ms),"
        f" disk {figures.disk_syncs_per_second:,.0f} syncs/s"
    )
    print(
        f"ratios: ingest to raw SQLite {figures.ratio_to_raw_sqlite:.2f} (goal 0.60),"
        f" again to first {figures.ratio_duplicates_to_first:.2f} (goal 1.00),"
        f" one by one to disk syncs {figures.ratio_singles_to_disk_syncs:.2f} (goal above 1.00)"
    )


async def bench_ingest(*, is_quick: bool) -> IngestFigures:
    """Measure raw SQLite, first sending and sending again in turn, then single events."""
    rounds = 2 if is_quick else 5
    batches = (20 if is_quick else 100) * STREAMS
    raw_rates, first_rates, again_rates = [], [], []
    with tempfile.TemporaryDirectory(prefix="synchub-bench-") as folder_name:
        folder = Path(folder_name)
        async with running_hub(folder) as address:
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                streams = [
                    run_requests(f"run-{number}-{index}", batches // STREAMS) for index in range(STREAMS)
                ]
                raw_rates.append(raw_sqlite_rate(folder / f"raw-{number}.db", streams))
                first_rates.append(await push_rate(address, streams, are_new=True))
                again_rates.append(await push_rate(address, streams, are_new=False))
            progress("single events")
            latencies, seconds = await push_singles(address, per_runtime=20 if is_quick else 200)
        syncs = disk_sync_rate(folder / "sync", count=500 if is_quick else 3_000)
    progress("")
    singles = len(latencies) / seconds
    return IngestFigures(
        rounds=rounds,
        events_per_round=batches * BATCH_EVENTS,
        raw_sqlite_rows_per_second=statistics.median(raw_rates),
        ingest_events_per_second=statistics.median(first_rates),
        duplicate_events_per_second=statistics.median(again_rates),
        disk_syncs_per_second=syncs,
        single_events_per_second=singles,
        single_p50_ms=statistics.median(latencies) * 1_000,
        single_p99_ms=statistics.quantiles(latencies, n=100)[98] * 1_000,
        ratio_to_raw_sqlite=median_ratio(first_rates, raw_rates),
        ratio_duplicates_to_first=median_ratio(again_rates, first_rates),
        ratio_singles_to_disk_syncs=singles / syncs,
    )


def median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios round by round, so that a drifting machine does not count."""
    return statistics.median(rate / other for rate, other in zip(rates, others, strict=True))


def progress(text: str) -> None:
    """Show what is being measured, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


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


# --- the hub --------------------------------------------------------------------------------------------


@asynccontextmanager
async def running_hub(folder: Path) -> AsyncIterator[str]:
    """Run a hub process on a store in the folder; give its address."""
    command = [sys.executable, "-m", "hub", "serve", "--db", str(folder / "hub.db")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with (folder / "hub.log").open("wb") as log:
        # Starting it takes no time worth waiting for elsewhere.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        if not line.startswith("listening on "):
            raise SystemExit(f"the hub did not start: {(folder / 'hub.log').read_text()}")
        yield line.split()[2]
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.stdout is not None:
            process.stdout.close()


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


# --- what it is compared with ---------------------------------------------------------------------------


def raw_sqlite_rate(database: Path, streams: list[list[PushEventsRequest]]) -> float:
    """Store the same rows by hand in groups of 1,024, hashes given; return rows a second.

    Same schema and pragmas as the hub's store; no rules, no network.
    """
    prepare(database, busy_timeout_seconds=5)
    with closing_connection(database) as connection:
        connection.execute("INSERT INTO hub_project VALUES (1, 'bench', 0)")
        connection.execute("INSERT INTO project VALUES ('bench', 1, 0)")
        for run_key, requests in enumerate(streams, 1):
            connection.execute(
                "INSERT INTO run VALUES (?, 1, 'bench', ?, 'bench-runtime', 0, ?, 0, 0, NULL, 0, 0)",
                (run_key, requests[0].run_id, bytes(32)),
            )
        rows = [
            (run_key, event.sequence, 1, position, 0, *columns_of(event))
            for position, (run_key, event) in enumerate(interleaved(streams), 1)
        ]
        begin = time.perf_counter()
        for first in range(0, len(rows), RAW_GROUP_ROWS):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(RAW_INSERT, rows[first : first + RAW_GROUP_ROWS])
            connection.execute("COMMIT")
        return len(rows) / (time.perf_counter() - begin)


def columns_of(event: SyncEvent) -> tuple[str, int, None, bool, bytes, bytes, bool]:
    """Return what an event brings to its row."""
    nanos = event.event_time.ToNanoseconds()
    return event.event_type, nanos, None, False, event.payload, event.content_hash, False


def interleaved(streams: list[list[PushEventsRequest]]) -> Iterator[tuple[int, SyncEvent]]:
    """Give (run key, event) in the order in which parallel streams bring them."""
    for batches in zip(*streams, strict=True):
        for run_key, request in enumerate(batches, 1):
            for event in request.events:
                yield run_key, event


@contextmanager
def closing_connection(database: Path) -> Iterator[apsw.Connection]:
    """Open a connection like the hub's writer does."""
    connection = connect(database, busy_timeout_seconds=5, is_writer=True)
    try:
        yield connection
    finally:
        connection.close(True)


def disk_sync_rate(path: Path, *, count: int) -> float:
    """Append a page and sync it, again and again; return how often a second."""
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(count):
            file.write(bytes(4_096))
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
