"""SyncService: pushing, reconciling, reading and watching; each call is handed to its handler."""

from typing import TypeVar

import grpc.aio

from hub.rpc.push_handler import PushHandler
from hub.rpc.read_handlers import ReadHandlers
from hub.rpc.watch_handlers import WatchHandlers
from synchub.v1 import sync_service_pb2 as messages
from synchub.v1.sync_service_pb2_grpc import SyncServiceServicer

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]


class SyncService(SyncServiceServicer):
    """Serves the calls of the service. The generated base class knows only handlers that are generators."""

    def __init__(self, *, push: PushHandler, reads: ReadHandlers, watches: WatchHandlers) -> None:
        """Compose the service of its handlers."""
        self._push = push
        self._reads = reads
        self._watches = watches

    async def PushEvents(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: object,
        context: Context[messages.PushEventsRequest, messages.PushEventsResponse],
    ) -> None:
        """Store batches of events."""
        await self._push.push_events(context)

    async def ReconcileRuns(  # noqa: N802
        self,
        request: messages.ReconcileRunsRequest,
        context: Context[messages.ReconcileRunsRequest, messages.ReconcileRunsResponse],
    ) -> messages.ReconcileRunsResponse:
        """Say for each run who is behind."""
        return await self._push.reconcile_runs(request, context)

    async def GetRun(  # noqa: N802
        self,
        request: messages.GetRunRequest,
        context: Context[messages.GetRunRequest, messages.GetRunResponse],
    ) -> messages.GetRunResponse:
        """Return one run."""
        return await self._reads.get_run(request, context)

    async def ListRuns(  # noqa: N802
        self,
        request: messages.ListRunsRequest,
        context: Context[messages.ListRunsRequest, messages.ListRunsResponse],
    ) -> messages.ListRunsResponse:
        """List runs."""
        return await self._reads.list_runs(request, context)

    async def ListEvents(  # noqa: N802
        self,
        request: messages.ListEventsRequest,
        context: Context[messages.ListEventsRequest, messages.ListEventsResponse],
    ) -> messages.ListEventsResponse:
        """List events of one run."""
        return await self._reads.list_events(request, context)

    async def ExportEvents(  # type: ignore[override]  # noqa: N802
        self,
        request: messages.ExportEventsRequest,
        context: Context[messages.ExportEventsRequest, messages.ExportEventsResponse],
    ) -> None:
        """Stream stored events by run."""
        await self._reads.export_events(request, context)

    async def WatchEvents(  # type: ignore[override]  # noqa: N802
        self,
        request: messages.WatchEventsRequest,
        context: Context[messages.WatchEventsRequest, messages.WatchEventsResponse],
    ) -> None:
        """Stream events by position, stored ones and live ones."""
        await self._watches.watch_events(request, context)

    async def ListAlerts(  # noqa: N802
        self,
        request: messages.ListAlertsRequest,
        context: Context[messages.ListAlertsRequest, messages.ListAlertsResponse],
    ) -> messages.ListAlertsResponse:
        """List alerts."""
        return await self._reads.list_alerts(request, context)

    async def WatchAlerts(  # type: ignore[override]  # noqa: N802
        self,
        request: messages.WatchAlertsRequest,
        context: Context[messages.WatchAlertsRequest, messages.WatchAlertsResponse],
    ) -> None:
        """Stream alerts as they change."""
        await self._watches.watch_alerts(request, context)

    async def AcknowledgeAlert(  # noqa: N802
        self,
        request: messages.AcknowledgeAlertRequest,
        context: Context[messages.AcknowledgeAlertRequest, messages.AcknowledgeAlertResponse],
    ) -> messages.AcknowledgeAlertResponse:
        """Mark an alert as seen."""
        return await self._reads.acknowledge_alert(request, context)

    async def BindProject(  # noqa: N802
        self,
        request: messages.BindProjectRequest,
        context: Context[messages.BindProjectRequest, messages.BindProjectResponse],
    ) -> messages.BindProjectResponse:
        """Bind a project to the hub project."""
        return await self._reads.bind_project(request, context)

    async def ReleaseProject(  # noqa: N802
        self,
        request: messages.ReleaseProjectRequest,
        context: Context[messages.ReleaseProjectRequest, messages.ReleaseProjectResponse],
    ) -> messages.ReleaseProjectResponse:
        """Take back a binding."""
        return await self._reads.release_project(request, context)

    async def ListProjects(  # noqa: N802
        self,
        request: messages.ListProjectsRequest,
        context: Context[messages.ListProjectsRequest, messages.ListProjectsResponse],
    ) -> messages.ListProjectsResponse:
        """List the projects of the hub project."""
        return await self._reads.list_projects(request, context)
