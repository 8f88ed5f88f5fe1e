"""Every stream that is open: counted, bounded, looked at again while it is open, ended together at a stop.

How one is read and answered is ``hub.rpc.streams``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from google.rpc import status_pb2

from hub.core.errors import HubStopping, LimitReached, Refusal
from hub.core.limits import Limits
from hub.rpc.identity import Call, current_call

WRITES_CHECKED_SECONDS: Final = 1.0
"""How often it is looked whether a write waits for too long."""


class ErrorReporter(Protocol):
    """Turns what a handler raised into what the client is told."""

    def status_of(self, error: Exception, *, method: str) -> status_pb2.Status:
        """Return the status; a fault of the hub is logged."""


class OpenStream(Protocol):
    """A stream that can be asked to end, because the hub stops or its credential has ended."""

    def drain(self) -> None:
        """Answer what can still be answered, then end. Returns at once."""

    def end(self, refusal: Refusal) -> None:
        """End with a refusal, and take nothing more. Returns at once."""

    def cut_if_unread(self, before_seconds: float) -> None:
        """Give up a write that began before this moment of the loop's clock. Returns at once."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is known of an open stream."""

    kind: str
    call: Call


class OpenStreams:
    """Every stream that is open: how many of each kind, bounded, and ended together at a stop."""

    def __init__(self, *, limits: Limits, reporter: ErrorReporter) -> None:
        """Begin with none."""
        self.limits = limits
        self.reporter = reporter
        self._streams: dict[OpenStream, _Entry] = {}
        self._counts: dict[str, int] = {}
        self._by_credential: dict[str, set[OpenStream]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def counts(self) -> Mapping[str, int]:
        """Return how many streams of each kind are open."""
        return self._counts

    def add(self, stream: OpenStream, *, kind: str) -> None:
        """Count a stream of the running task's call in.

        Raises: Unauthenticated, PermissionDenied where the call is refused; HubStopping once the hub
        drains; LimitReached where too many are open, of all or of its credential.
        """
        call = current_call()
        fault = call.fault()
        if fault is not None:
            raise fault
        if self._is_draining:
            raise HubStopping
        if len(self._streams) >= self.limits.open_streams_max:
            raise LimitReached("open_streams_max", self.limits.open_streams_max)
        if call.credential_key:
            of_credential = self._by_credential.setdefault(call.credential_key, set())
            if len(of_credential) >= self.limits.credential_streams_max:
                raise LimitReached("credential_streams_max", self.limits.credential_streams_max)
            of_credential.add(stream)
        self._streams[stream] = _Entry(kind, call)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._all_ended.clear()

    def remove(self, stream: OpenStream) -> None:
        """Count a stream out."""
        entry = self._streams.pop(stream)
        self._counts[entry.kind] -= 1
        of_credential = self._by_credential.get(entry.call.credential_key)
        if of_credential is not None:
            of_credential.discard(stream)
            if not of_credential:
                del self._by_credential[entry.call.credential_key]
        if not self._streams:
            self._all_ended.set()

    def end_where_credential_ended(self) -> None:
        """End the streams whose credentials do not count any more. Returns at once."""
        for streams in tuple(self._by_credential.values()):
            # Those of one credential end together.
            fault = self._streams[next(iter(streams))].call.fault()
            if fault is not None:
                for stream in tuple(streams):
                    stream.end(fault)

    async def watch_credentials(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """End the streams whose credentials have ended, again and again until cancelled."""
        while True:
            await sleep(self.limits.credential_check_seconds)
            self.end_where_credential_ended()

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def watch_writes(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Cut the streams whose answers nobody reads, until cancelled.

        One look at all of them now and then: a timer for each write would cost more than the write.
        """
        seconds_max = self.limits.unread_answer_seconds_max
        while True:
            await sleep(min(WRITES_CHECKED_SECONDS, seconds_max / 4))
            before = asyncio.get_running_loop().time() - seconds_max
            for stream in tuple(self._streams):
                stream.cut_if_unread(before)

    async def drain(self, seconds_max: float) -> bool:
        """Take no new streams and ask all to end; return whether they did within that time."""
        self._is_draining = True
        for stream in tuple(self._streams):
            stream.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._all_ended.wait()
        return not self._streams
