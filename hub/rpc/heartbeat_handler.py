"""The stream on which a runtime says that it lives; open for as long as it does.

There are thousands of these, so a stream is one task, and a heartbeat that says the same as the one
before is not looked at twice.
"""

from collections.abc import Callable
from typing import Protocol

import grpc.aio

from hub.core.errors import HubStopping
from hub.core.limits import Limits
from hub.core.presence import Heartbeat
from hub.core.values import Caller, InstanceId
from hub.rpc.codec_lease import abort_to_proto
from hub.rpc.codec_presence import heartbeat_from_proto
from hub.rpc.codec_time import duration_to_proto, timestamp_to_proto
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import BidirectionalStream
from hub.service.lease_aborts import AbortNotice, LeaseAborts
from hub.service.presence import Presence
from synchub.v1.presence_service_pb2 import (
    DrainNotice,
    DuplicateInstanceNotice,
    HeartbeatNotice,
    HeartbeatRequest,
    HeartbeatResponse,
)

HeartbeatContext = grpc.aio.ServicerContext[HeartbeatRequest, HeartbeatResponse]


class Chance(Protocol):
    """Where jitter comes from."""

    def uniform(self, a: float, b: float) -> float:
        """Return a number between the two, each as likely."""


class HeartbeatHandler:
    """Serves Heartbeat."""

    def __init__(
        self,
        presence: Presence,
        *,
        aborts: LeaseAborts,
        open_streams: OpenStreams,
        limits: Limits,
        chance: Chance,
    ) -> None:
        """Bind the use cases; ``chance`` spreads those that come back after a stop."""
        self.presence = presence
        self.aborts = aborts
        self.open_streams = open_streams
        self.limits = limits
        self.chance = chance
        self.interval = duration_to_proto(limits.heartbeat_interval_seconds)

    async def heartbeat(self, context: HeartbeatContext) -> None:
        """Serve one stream to its end."""
        stream = BidirectionalStream(
            self.open_streams,
            context,
            method="Heartbeat",
            error_response=lambda status: HeartbeatResponse(error=status),
            first_message_seconds_max=self.limits.first_message_seconds_max,
        )
        async with stream:
            await _HeartbeatStream(self, stream, context).serve()


class _HeartbeatStream:
    """One open stream; the ear of the runtime that is heard on it."""

    __slots__ = (
        "_caller",
        "_context",
        "_handler",
        "_heartbeat",
        "_last",
        "_news",
        "_stop_listening",
        "_stream",
    )

    def __init__(
        self,
        handler: HeartbeatHandler,
        stream: BidirectionalStream[HeartbeatRequest, HeartbeatResponse],
        context: HeartbeatContext,
    ) -> None:
        self._handler = handler
        self._stream = stream
        self._context = context
        self._caller: Caller | None = None
        self._heartbeat: Heartbeat | None = None
        self._last: HeartbeatRequest | None = None
        self._news: tuple[AbortNotice, ...] = ()
        self._stop_listening: Callable[[], None] | None = None
        stream.on_drain = self._drain

    def tell_duplicate(self, current_instance_id: InstanceId) -> None:
        """Tell the runtime that another instance was heard, now rather than at its next heartbeat."""
        if not self._stream.is_ending:
            notice = HeartbeatNotice(
                duplicate_instance=DuplicateInstanceNotice(current_instance_id=current_instance_id)
            )
            self._stream.write_soon(lambda: HeartbeatResponse(notices=[notice]))

    async def serve(self) -> None:
        """Answer each heartbeat until the client ends or is gone, or a refusal ends the stream."""
        handler = self._handler
        try:
            while (request := await self._stream.read()) is not None:
                is_first = self._last is None
                caller, heartbeat = self._decoded(request)
                nanos = await handler.presence.hear(caller, heartbeat, ear=self, is_first=is_first)
                if self._stop_listening is None:
                    self._stop_listening = handler.aborts.listen_to_runtime(
                        caller.hub_project, heartbeat.runtime_id, listener=self._tell_abort
                    )
                response = HeartbeatResponse(
                    hub_time=timestamp_to_proto(nanos), heartbeat_interval=handler.interval
                )
                aborts = handler.aborts.of_runtime(caller.hub_project, heartbeat.runtime_id)
                response.notices.extend(
                    map(_abort_notice_to_proto, aborts[: handler.limits.lease_abort_notices_max])
                )
                await self._stream.write(response)
        finally:
            if self._stop_listening is not None:
                self._stop_listening()
            if self._caller is not None and self._heartbeat is not None:
                handler.presence.stream_broke(self._caller.hub_project, self._heartbeat.runtime_id, ear=self)

    def _decoded(self, request: HeartbeatRequest) -> tuple[Caller, Heartbeat]:
        """Return what a request says, checked.

        Raises: InvalidRequest.
        """
        if request == self._last and self._caller is not None and self._heartbeat is not None:
            return self._caller, self._heartbeat
        check = RequestCheck(self._handler.limits)
        caller = caller_of(self._context, request.hub_project, check=check, runtime_id=request.runtime_id)
        heartbeat = heartbeat_from_proto(request, self._handler.limits, check=check)
        if self._last is not None:
            for field in ("hub_project", "runtime_id", "instance_id"):
                if getattr(request, field) != getattr(self._last, field):
                    check.add(field, "is another than before on this stream; open a stream of its own")
        check.refuse_violations()
        self._last, self._caller, self._heartbeat = request, caller, heartbeat
        return caller, heartbeat

    def _tell_abort(self, abort: AbortNotice) -> None:
        """Tell the runtime of an abort, now rather than at its next heartbeat.

        However many come at once are told together; those that do not fit are said with the next answer.
        """
        if len(self._news) < self._handler.limits.lease_abort_notices_max:
            self._news = (*self._news, abort)
        if len(self._news) == 1:
            self._stream.write_soon(self._news_response)

    def _news_response(self) -> HeartbeatResponse:
        news, self._news = self._news, ()
        return HeartbeatResponse(notices=map(_abort_notice_to_proto, news))

    def _drain(self) -> None:
        """End the stream because the hub stops; say when to come back, each at another moment."""
        seconds_max = self._handler.limits.drain_reconnect_seconds_max
        delay = duration_to_proto(self._handler.chance.uniform(0.0, seconds_max))
        notice = HeartbeatNotice(drain=DrainNotice(reconnect_delay=delay))
        self._stream.farewell = lambda: HeartbeatResponse(notices=[notice])
        self._stream.end(HubStopping())


def _abort_notice_to_proto(abort: AbortNotice) -> HeartbeatNotice:
    return HeartbeatNotice(lease_abort=abort_to_proto(abort))
