"""A TCP proxy of the tests: delays, cuts and half-opens connections, and drops the answers of a hub.

It runs on a thread of its own with its own event loop. What it does to the bytes is set by attributes
that any thread may change at any moment; they count for open connections too.
"""

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

CHUNK_BYTES: Final = 16 * 1024
STOP_SECONDS_MAX: Final = 10.0


class TcpProxy:
    """Listens on loopback and carries what it gets to a hub; a context manager."""

    def __init__(self, hub_address: str, rng: random.Random) -> None:
        host, _, port = hub_address.rpartition(":")
        self._hub = (host, int(port))
        self._rng = rng
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.connection_count = 0
        self.dropped_answer_bytes = 0
        self.drops_answers = False
        """Requests still reach the hub; its answers are swallowed."""
        self.delay_seconds_max = 0.0
        """Each piece of bytes waits for a random time up to this."""
        self.cuts_after_bytes_max = 0
        """A new connection is cut after so many bytes at most, at a random one; 0: never."""
        self._frozen_through = 0
        self._is_over = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(STOP_SECONDS_MAX)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(STOP_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS_MAX)
        self._loop.close()

    def cut_all(self) -> None:
        """Reset every open connection."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def half_open_all(self) -> None:
        """Carry nothing any more on the connections open now, and tell neither side."""
        self._frozen_through = self.connection_count

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        self._is_over.set()
        self._abort_all()
        await asyncio.gather(*self._tasks)

    def _abort_all(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        number = self.connection_count
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        left = self._rng.randint(1, self.cuts_after_bytes_max) if self.cuts_after_bytes_max else None
        try:
            hub_reader, hub_writer = await asyncio.open_connection(*self._hub)
            self._open.add(hub_writer)
            connection = _Connection(left, lambda: number <= self._frozen_through)
            pumps = (
                asyncio.create_task(self._pump(reader, hub_writer, connection=connection, is_answer=False)),
                asyncio.create_task(self._pump(hub_reader, writer, connection=connection, is_answer=True)),
            )
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                self._open.discard(hub_writer)
                hub_writer.transport.abort()
        except OSError:
            pass  # no hub: the client sees its connection reset
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        connection: "_Connection",
        is_answer: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self.delay_seconds_max:
                    await asyncio.sleep(self._rng.uniform(0, self.delay_seconds_max))
                if connection.is_frozen():
                    await self._is_over.wait()
                    return
                if is_answer and self.drops_answers:
                    self.dropped_answer_bytes += len(data)
                    continue
                kept = connection.take(data)
                writer.write(kept)
                await writer.drain()
                if len(kept) < len(data):
                    return


class _Connection:
    """How much one connection may still carry, both ways together."""

    def __init__(self, bytes_left: int | None, is_frozen: Callable[[], bool]) -> None:
        self._bytes_left = bytes_left
        self.is_frozen = is_frozen

    def take(self, data: bytes) -> bytes:
        """Return what of these bytes is still carried."""
        if self._bytes_left is None:
            return data
        kept = data[: self._bytes_left]
        self._bytes_left -= len(kept)
        return kept
