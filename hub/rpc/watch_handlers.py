"""What callers watch: events by position, and alerts as they change."""

from contextlib import aclosing

import grpc.aio

from hub.core.limits import Limits
from hub.rpc.codec_read import alert_to_proto, watch_answer_to_proto
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.read_handlers import check_event_types, checked_scope
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import WatchStream, write_answer
from hub.service.alert_watch import AlertWatches
from hub.service.watch import Watches, WatchQuery
from synchub.v1 import sync_service_pb2 as messages

WatchEventsContext = grpc.aio.ServicerContext[messages.WatchEventsRequest, messages.WatchEventsResponse]
WatchAlertsContext = grpc.aio.ServicerContext[messages.WatchAlertsRequest, messages.WatchAlertsResponse]


class WatchHandlers:
    """Serves the watches. A watcher that does not read its answers is ended, and slows only itself."""

    def __init__(
        self, *, watches: Watches, alerts: AlertWatches, open_streams: OpenStreams, limits: Limits
    ) -> None:
        """Bind the use cases."""
        self._watches = watches
        self._alerts = alerts
        self._open_streams = open_streams
        self._limits = limits

    async def watch_events(self, request: messages.WatchEventsRequest, context: WatchEventsContext) -> None:
        """Stream events by position, stored ones and live ones."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        scope = checked_scope(check, request.project_id, run_id=request.run_id)
        check.optional_identifier("hub_generation", request.hub_generation)
        check.not_negative("after_position", request.after_position)
        check_event_types(check, request.event_types, limits=self._limits)
        is_from_now = request.WhichOneof("start") == "from_now"
        if is_from_now and not request.from_now:
            check.add("from_now", "is false; leave it out to begin with the first event")
        check.refuse_violations()
        query = WatchQuery(
            scope,
            event_types=tuple(request.event_types),
            hub_generation=request.hub_generation,
            after_position=request.after_position,
            is_from_now=is_from_now,
        )
        with WatchStream(self._open_streams, method="WatchEvents"):
            async with self._watches.watching(caller, query) as watch:
                while True:
                    answer = await watch.next_answer()
                    response = watch_answer_to_proto(answer, watch.hub_generation)
                    await write_answer(context, response, limits=self._limits)

    async def watch_alerts(self, request: messages.WatchAlertsRequest, context: WatchAlertsContext) -> None:
        """Stream alerts as they change."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id="")
        check.refuse_violations()
        with WatchStream(self._open_streams, method="WatchAlerts"):
            async with aclosing(self._alerts.watch(caller)) as all_news:
                async for news in all_news:
                    response = messages.WatchAlertsResponse(is_snapshot_complete=news.is_snapshot_complete)
                    bytes_sum = 0
                    for alert in map(alert_to_proto, news.alerts):
                        bytes_sum += alert.ByteSize()
                        if response.alerts and bytes_sum > self._limits.watch_page_bytes_max:
                            await write_answer(context, response, limits=self._limits)
                            response = messages.WatchAlertsResponse()
                            bytes_sum = alert.ByteSize()
                        response.alerts.append(alert)
                    await write_answer(context, response, limits=self._limits)
