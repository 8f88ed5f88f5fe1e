"""Watching the journal: each event once and in order, whatever becomes of connections and hubs meanwhile.

Where a stream breaks, the watch connects again on a fresh connection and goes on from the last answer's
position under its generation; so it does where the hub ended it because its reader was slow or paused,
because the hub is full, or because its token is over and another one has taken its place since. What it
raises is final: PositionLost where the hub was restored to before the position, HubCallError for other
refusals.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import grpc
import grpc.aio

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.core.watch_place import WatchPlace
from runtime_agent.hub_client import journal_codec as codec
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import translated
from runtime_agent.hub_client.journal_calls import JournalCalls
from runtime_agent.hub_client.journal_values import JournalUpdate
from runtime_agent.hub_client.lease_channel import LeaseChannel
from runtime_agent.hub_client.lease_steps import asked_wait_seconds, may_repeat
from synchub.channel import HubAddress, Refusal, dial_aio
from synchub.v1 import journal_service_pb2 as pb
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub

_LIMIT_REACHED = "LIMIT_REACHED"
"""The hub is full at the moment, or did not want to wait for a reader that was slow or paused."""

_CREDENTIAL_OVER: Final = frozenset(("CREDENTIAL_EXPIRED", "CREDENTIAL_REVOKED"))
"""What was shown when the stream was opened counts no more."""


class _Watch:
    """What a watch knows, whether its program blocks or not."""

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        calls: JournalCalls,
        *,
        event_types: Sequence[str],
        place: WatchPlace,
    ) -> None:
        self._addresses = addresses
        self._credentials = calls.channel.credentials
        self._shown = self._credentials.current()
        self._hub_project = calls.hub_project
        self._event_types = tuple(event_types)
        self._place = place
        self._backoff = Backoff(
            limits.JOURNAL_RETRY_SECONDS_FIRST, limits.JOURNAL_RETRY_SECONDS_MAX, calls.chance
        )

    @property
    def hub_generation(self) -> str:
        """The generation of the last answer; what was given at first until there is one."""
        return self._place.hub_generation

    @property
    def position(self) -> int:
        """Up to where the answers until now go."""
        return self._place.position

    def _request(self) -> pb.WatchJournalRequest:
        return codec.watch_request(
            self._hub_project,
            self._event_types,
            after_position=self._place.position,
            hub_generation=self._place.hub_generation,
            from_now=self._place.from_now,
        )

    def _heard(self, response: pb.WatchJournalResponse) -> JournalUpdate:
        update = codec.journal_update_from_proto(response)
        self._place.heard(hub_generation=update.hub_generation, progress_position=update.progress_position)
        self._backoff.reset()
        return update

    def _seconds_until_next_try(self, error: HubCallError) -> float:
        """Return how long to wait before connecting again. Raises: what the failure means, if it is final."""
        is_replaced = error.reason in _CREDENTIAL_OVER and self._credentials.refreshed() != self._shown
        if may_repeat(error) or error.reason == _LIMIT_REACHED or is_replaced:
            return max(self._backoff.next_wait_seconds(), asked_wait_seconds(error))
        meant = codec.journal_refusal(error)
        if meant is error:
            raise error
        raise meant from error


class JournalWatch(_Watch):
    """Updates for a program that blocks; ends once it, or its client, is closed, from any thread."""

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        calls: JournalCalls,
        *,
        event_types: Sequence[str],
        place: WatchPlace,
    ) -> None:
        super().__init__(addresses, calls, event_types=event_types, place=place)
        self._channel = LeaseChannel(addresses, credentials=self._credentials)
        self._closed = threading.Event()
        self._responses: Iterator[pb.WatchJournalResponse] | None = None

    def close(self) -> None:
        """End the stream and the iteration, also one that waits in another thread. Idempotent."""
        self._closed.set()
        self._channel.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> JournalUpdate:
        """Return the next events or progress, waiting for them. Raises: PositionLost, HubCallError."""
        while not self._closed.is_set():
            self._responses = self._responses or self._stream()
            try:
                return self._heard(next(self._responses))
            except HubCallError as error:
                self._responses = None
                if not self._closed.is_set():
                    self._closed.wait(self._seconds_until_next_try(error))
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _stream(self) -> Iterator[pb.WatchJournalResponse]:
        """Yield what one stream answers; it ends with HubCallError and in no other way."""
        with self._channel.lent() as stubs:
            self._shown = self._credentials.current()
            call = stubs.journal.WatchJournal(self._request())
            try:
                yield from call
            finally:
                call.cancel()
        raise HubCallError(Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the stream"), self._addresses)


class AsyncJournalWatch(_Watch):
    """Updates for an event loop; ends once it, or its client, is closed.

    An iteration that is cancelled while it waits loses nothing: the next one goes on.
    """

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        calls: JournalCalls,
        *,
        event_types: Sequence[str],
        place: WatchPlace,
    ) -> None:
        super().__init__(addresses, calls, event_types=event_types, place=place)
        self._closed = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None
        self._call: grpc.aio.UnaryStreamCall[pb.WatchJournalRequest, pb.WatchJournalResponse] | None = None

    async def close(self) -> None:
        """End the stream and the iteration, also one that waits in another task. Idempotent."""
        self._closed.set()
        await self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JournalUpdate:
        """Return the next events or progress, waiting for them. Raises: PositionLost, HubCallError."""
        while not self._closed.is_set():
            try:
                return self._heard(await self._next_response())
            except HubCallError as error:
                await self._disconnect()
                if not self._closed.is_set():
                    await self._wait(self._seconds_until_next_try(error))
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _next_response(self) -> pb.WatchJournalResponse:
        if self._channel is None:
            self._channel = await dial_aio(self._addresses, credentials=self._credentials)
        with translated(self._addresses):
            if self._call is None:
                self._shown = self._credentials.current()
                self._call = JournalServiceStub(self._channel).WatchJournal(self._request())
            try:
                response = await self._call.read()
            except asyncio.CancelledError:
                # What cancels the waiting cancels the call: the next iteration opens another one.
                self._call = None
                raise
        if isinstance(response, pb.WatchJournalResponse):
            return response
        raise HubCallError(Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the stream"), self._addresses)

    async def _disconnect(self) -> None:
        call, self._call = self._call, None
        channel, self._channel = self._channel, None
        if call is not None:
            call.cancel()
        if channel is not None:
            await channel.close()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
