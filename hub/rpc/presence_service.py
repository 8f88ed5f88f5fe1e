"""PresenceService: heartbeats, and who is alive."""

from contextlib import aclosing

import grpc.aio

from hub.core.limits import Limits
from hub.core.values import RuntimeId
from hub.rpc.codec_presence import runtime_to_proto, states_from_proto
from hub.rpc.heartbeat_handler import HeartbeatContext, HeartbeatHandler
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck, page_token_after
from hub.rpc.streams import WatchStream, write_answer
from hub.service.presence import Presence
from synchub.v1.presence_service_pb2 import (
    GetRuntimeRequest,
    GetRuntimeResponse,
    ListRuntimesRequest,
    ListRuntimesResponse,
    WatchRuntimesRequest,
    WatchRuntimesResponse,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceServicer

WatchContext = grpc.aio.ServicerContext[WatchRuntimesRequest, WatchRuntimesResponse]


class PresenceService(PresenceServiceServicer):
    """Serves the calls of the service."""

    def __init__(
        self,
        presence: Presence,
        heartbeat_handler: HeartbeatHandler,
        *,
        open_streams: OpenStreams,
        limits: Limits,
    ) -> None:
        """Bind the use cases."""
        self._presence = presence
        self._heartbeat_handler = heartbeat_handler
        self._open_streams = open_streams
        self._limits = limits

    # The generated base class knows only handlers that are generators.
    async def Heartbeat(  # type: ignore[override]  # noqa: N802
        self, request_iterator: object, context: HeartbeatContext
    ) -> None:
        """Take heartbeats of one runtime."""
        await self._heartbeat_handler.heartbeat(context)

    async def GetRuntime(  # noqa: N802
        self,
        request: GetRuntimeRequest,
        context: grpc.aio.ServicerContext[GetRuntimeRequest, GetRuntimeResponse],
    ) -> GetRuntimeResponse:
        """Return one runtime."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("runtime_id", request.runtime_id)
        check.refuse_violations()
        seen = await self._presence.runtime(caller, RuntimeId(request.runtime_id))
        return GetRuntimeResponse(runtime=runtime_to_proto(seen, caller))

    async def ListRuntimes(  # noqa: N802
        self,
        request: ListRuntimesRequest,
        context: grpc.aio.ServicerContext[ListRuntimesRequest, ListRuntimesResponse],
    ) -> ListRuntimesResponse:
        """List runtimes."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        states = states_from_proto(request.states, check)
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=1)
        check.refuse_violations()
        page = await self._presence.runtimes(
            caller,
            states=states,
            after=None if key is None else RuntimeId(key[0]),
            entries_max=entries_max,
        )
        response = ListRuntimesResponse()
        bytes_sum = 0
        next_after = page.next_after
        for seen in page.runtimes:
            message = runtime_to_proto(seen, caller)
            bytes_sum += message.ByteSize()
            if response.runtimes and bytes_sum > self._limits.page_bytes_max:
                next_after = RuntimeId(response.runtimes[-1].runtime_id)
                break
            response.runtimes.append(message)
        if next_after is not None:
            response.next_page_token = page_token_after(request, next_after)
        return response

    async def WatchRuntimes(  # type: ignore[override]  # noqa: N802
        self, request: WatchRuntimesRequest, context: WatchContext
    ) -> None:
        """Stream runtimes as they change."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.refuse_violations()
        with WatchStream(self._open_streams, method="WatchRuntimes"):
            async with aclosing(self._presence.watch(caller)) as all_news:
                async for news in all_news:
                    response = WatchRuntimesResponse(is_snapshot_complete=news.is_snapshot_complete)
                    bytes_sum = 0
                    for seen in news.runtimes:
                        message = runtime_to_proto(seen, caller)
                        bytes_sum += message.ByteSize()
                        if response.runtimes and bytes_sum > self._limits.page_bytes_max:
                            await write_answer(context, response, limits=self._limits)
                            response = WatchRuntimesResponse()
                            bytes_sum = message.ByteSize()
                        response.runtimes.append(message)
                    await write_answer(context, response, limits=self._limits)
