"""What callers read at once: each handler checks its request, asks a use case, and answers."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import grpc.aio
from google.protobuf.message import Message

from hub.core.limits import Limits
from hub.core.selection import EventScope, RunFilter, RunPlace
from hub.core.values import AlertId, ProjectId, RunId, RuntimeId
from hub.rpc.codec_read import add_events_to_proto, alert_to_proto, project_to_proto, run_to_proto
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck, page_token_after
from hub.rpc.streams import WatchStream, write_answer
from hub.service.alert_watch import AlertWatches
from hub.service.projects import Projects
from hub.service.reads import EventQuery, Reads
from synchub.v1 import sync_service_pb2 as messages

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Context = grpc.aio.ServicerContext[Request, Response]


class ReadHandlers:
    """Serves the unary reads, the export, and what operators do to alerts and projects."""

    def __init__(
        self,
        *,
        reads: Reads,
        alerts: AlertWatches,
        projects: Projects,
        open_streams: OpenStreams,
        limits: Limits,
    ) -> None:
        """Bind the use cases."""
        self._reads = reads
        self._alerts = alerts
        self._projects = projects
        self._open_streams = open_streams
        self._limits = limits

    async def get_run(
        self,
        request: messages.GetRunRequest,
        context: Context[messages.GetRunRequest, messages.GetRunResponse],
    ) -> messages.GetRunResponse:
        """Return one run."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        check.identifier("project_id", request.project_id)
        check.identifier("run_id", request.run_id)
        check.refuse_violations()
        run = await self._reads.run(caller, ProjectId(request.project_id), run_id=RunId(request.run_id))
        return messages.GetRunResponse(run=run_to_proto(run))

    async def list_runs(
        self,
        request: messages.ListRunsRequest,
        context: Context[messages.ListRunsRequest, messages.ListRunsResponse],
    ) -> messages.ListRunsResponse:
        """Return a page of runs."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        check.optional_identifier("project_id", request.project_id)
        check.optional_identifier("runtime_id", request.runtime_id)
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=2)
        check.refuse_violations()
        run_filter = RunFilter(
            ProjectId(request.project_id) if request.project_id else None,
            RuntimeId(request.runtime_id) if request.runtime_id else None,
            request.is_complete if request.HasField("is_complete") else None,
        )
        after = None if key is None else RunPlace(ProjectId(key[0]), RunId(key[1]))
        # One too many, so that the last page is known as such.
        runs = await self._reads.runs(caller, run_filter, after=after, entries_max=entries_max + 1)
        response = messages.ListRunsResponse(runs=map(run_to_proto, runs[:entries_max]))
        if len(runs) > entries_max:
            last = response.runs[-1]
            response.next_page_token = page_token_after(request, last.project_id, last.run_id)
        return response

    async def list_events(
        self,
        request: messages.ListEventsRequest,
        context: Context[messages.ListEventsRequest, messages.ListEventsResponse],
    ) -> messages.ListEventsResponse:
        """Return a page of events of a run, or its newest ones."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        check.identifier("project_id", request.project_id)
        check.identifier("run_id", request.run_id)
        check.not_negative("after_sequence", request.after_sequence)
        check.not_negative("newest_count", request.newest_count)
        check_event_types(check, request.event_types, limits=self._limits)
        entries_max = check.event_page_size(request.page_size)
        after_sequence = check.number_page_key(request, request.page_token)
        if request.newest_count and request.page_token:
            check.add("newest_count", "is given with a page token; the newest events have no further page")
        check.refuse_violations()
        query = EventQuery(
            ProjectId(request.project_id),
            RunId(request.run_id),
            after_sequence=request.after_sequence if after_sequence is None else after_sequence,
            event_types=tuple(request.event_types),
        )
        response = messages.ListEventsResponse()
        if request.newest_count:
            page_size = entries_max if request.page_size else self._limits.event_page_entries_max
            newest_max = min(request.newest_count, page_size)
            newest = await self._reads.newest_events(caller, query, entries_max=newest_max)
            add_events_to_proto(response.events, newest, payload_as_text=request.payload_as_text)
            return response
        found = await self._reads.events(caller, query, entries_max=entries_max)
        add_events_to_proto(response.events, found.events, payload_as_text=request.payload_as_text)
        if found.is_cut:
            response.next_page_token = page_token_after(request, found.events[-1].sequence)
        return response

    async def export_events(
        self,
        request: messages.ExportEventsRequest,
        context: Context[messages.ExportEventsRequest, messages.ExportEventsResponse],
    ) -> None:
        """Stream all events of a scope by run."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        scope = checked_scope(check, request.project_id, run_id=request.run_id)
        check.refuse_violations()
        with WatchStream(self._open_streams, method="ExportEvents"):
            async with aclosing(self._reads.export(caller, scope)) as pages:
                async for events in pages:
                    response = messages.ExportEventsResponse()
                    add_events_to_proto(response.events, events)
                    await write_answer(context, response, limits=self._limits)

    async def list_alerts(
        self,
        request: messages.ListAlertsRequest,
        context: Context[messages.ListAlertsRequest, messages.ListAlertsResponse],
    ) -> messages.ListAlertsResponse:
        """Return a page of alerts."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id="")
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=1)
        check.refuse_violations()
        alerts = await self._alerts.alerts(
            caller,
            exclude_acknowledged=request.exclude_acknowledged,
            after=None if key is None else AlertId(key[0]),
            entries_max=entries_max + 1,
        )
        response = messages.ListAlertsResponse()
        bytes_sum = 0
        for alert in map(alert_to_proto, alerts):
            bytes_sum += alert.ByteSize()
            is_full = len(response.alerts) == entries_max or bytes_sum > self._limits.page_bytes_max
            if response.alerts and is_full:
                response.next_page_token = page_token_after(request, response.alerts[-1].alert_id)
                break
            response.alerts.append(alert)
        return response

    async def acknowledge_alert(
        self,
        request: messages.AcknowledgeAlertRequest,
        context: Context[messages.AcknowledgeAlertRequest, messages.AcknowledgeAlertResponse],
    ) -> messages.AcknowledgeAlertResponse:
        """Mark an alert as seen."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id="")
        check.identifier("alert_id", request.alert_id)
        check.refuse_violations()
        alert = await self._alerts.acknowledge(caller, AlertId(request.alert_id))
        return messages.AcknowledgeAlertResponse(alert=alert_to_proto(alert))

    async def bind_project(
        self,
        request: messages.BindProjectRequest,
        context: Context[messages.BindProjectRequest, messages.BindProjectResponse],
    ) -> messages.BindProjectResponse:
        """Bind a project to the hub project."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        check.identifier("project_id", request.project_id)
        check.refuse_violations()
        project = await self._projects.bind(caller, ProjectId(request.project_id))
        return messages.BindProjectResponse(project=project_to_proto(project))

    async def release_project(
        self,
        request: messages.ReleaseProjectRequest,
        context: Context[messages.ReleaseProjectRequest, messages.ReleaseProjectResponse],
    ) -> messages.ReleaseProjectResponse:
        """Take back a binding."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id=request.project_id)
        check.identifier("project_id", request.project_id)
        check.refuse_violations()
        await self._projects.release(caller, ProjectId(request.project_id))
        return messages.ReleaseProjectResponse()

    async def list_projects(
        self,
        request: messages.ListProjectsRequest,
        context: Context[messages.ListProjectsRequest, messages.ListProjectsResponse],
    ) -> messages.ListProjectsResponse:
        """Return a page of projects."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, project_id="")
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=1)
        check.refuse_violations()
        after = None if key is None else ProjectId(key[0])
        projects = await self._reads.projects(caller, after=after, entries_max=entries_max + 1)
        response = messages.ListProjectsResponse(projects=map(project_to_proto, projects[:entries_max]))
        if len(projects) > entries_max:
            response.next_page_token = page_token_after(request, response.projects[-1].project_id)
        return response


def checked_scope(check: RequestCheck, project_id: str, *, run_id: str) -> EventScope:
    """Return the scope that a request names; what is wrong with it is noted in ``check``."""
    check.optional_identifier("project_id", project_id)
    check.optional_identifier("run_id", run_id)
    if run_id and not project_id:
        check.add("project_id", "is empty; a run is named with its project")
    return EventScope(
        ProjectId(project_id) if project_id else None,
        RunId(run_id) if run_id else None,
    )


def check_event_types(check: RequestCheck, event_types: Sequence[str], *, limits: Limits) -> None:
    """Note what is wrong with the event types that a request names."""
    check.at_most("event_types", len(event_types), count_max=limits.filter_event_types_max)
    if check.is_clean:
        for index, event_type in enumerate(event_types):
            check.event_type(f"event_types[{index}]", event_type)
