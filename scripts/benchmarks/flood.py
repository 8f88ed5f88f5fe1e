"""A process that pushes to a hub as fast as it is answered, for benchmarks of what goes on beside.

    python -m scripts.benchmarks.flood ADDRESS HUB_PROJECT STREAMS

It begins at once, ends when its standard input does, and prints how many events were stored and in how
many seconds. Each batch is a run of its own, so that it is made of bytes that were serialised before.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import grpc.aio
import uvloop

from scripts.benchmarks.ingest import BATCH_EVENTS, event_of, push_call, read_answer
from synchub.channel import CHANNEL_OPTIONS
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse

BATCHES_IN_FLIGHT = 4
END_SECONDS_MAX = 60


class Flood:
    """A flood that goes on; ``events_per_second`` is known once it has ended."""

    def __init__(self) -> None:
        """Begin without a rate."""
        self.events_per_second = 0.0


@asynccontextmanager
async def flooding(address: str, hub_project: str, *, streams: int) -> AsyncIterator[Flood]:
    """Have another process flood a hub for the length of the block."""
    flood = Flood()
    command = [sys.executable, "-m", "scripts.benchmarks.flood", address, hub_project, str(streams)]
    # Starting it takes no time worth waiting for elsewhere.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        yield flood
        told, _ = await asyncio.to_thread(process.communicate, timeout=END_SECONDS_MAX)
        if process.returncode != 0:
            raise SystemExit("who floods the hub failed, so there is nothing to measure")
        events, seconds = told.split()
        flood.events_per_second = int(events) / float(seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


async def flood(address: str, hub_project: str, *, streams: int) -> tuple[int, float]:
    """Push on so many streams until standard input ends; return events stored and seconds."""
    ended = asyncio.Event()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read).add_done_callback(
        lambda _: ended.set()
    )
    events = PushEventsRequest(events=[event_of(n + 1) for n in range(BATCH_EVENTS)]).SerializeToString()
    stored = 0

    async def push(channel: grpc.aio.Channel, stream: int) -> None:
        nonlocal stored
        call = push_call(channel)
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT)

        async def send() -> None:
            for n in count():
                await room.acquire()
                if ended.is_set():
                    break
                head = PushEventsRequest(
                    hub_project=hub_project,
                    project_id=f"{hub_project}-flood",
                    run_id=f"{stream}-{n}-{time.time_ns()}",
                    runtime_id=f"flood-{stream}",
                )
                # Parts of a message may follow each other on the wire.
                await call.write(head.SerializeToString() + events)
            await call.done_writing()

        sending = asyncio.create_task(send())
        while (answer := await read_answer(call)) is not None:
            stored += PushEventsResponse.FromString(answer).accepted_count
            room.release()
        await sending

    begin = time.perf_counter()
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        await asyncio.gather(*(push(channel, stream) for stream in range(streams)))
    return stored, time.perf_counter() - begin


def main() -> None:
    """Flood, and say how much it was."""
    address, hub_project, streams = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stored, seconds = runner.run(flood(address, hub_project, streams=int(streams)))
    print(stored, seconds)


if __name__ == "__main__":
    main()
