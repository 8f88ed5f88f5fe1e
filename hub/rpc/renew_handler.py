"""The stream on which many leases are renewed: a request at a time, each answered in its turn.

An abort is pushed to the stream on which its lease was last renewed. What a stream remembers for that is
bounded.
"""

from collections.abc import Callable

import grpc.aio

from hub.core.errors import HubStopping, Refusal
from hub.core.limits import Limits
from hub.core.tenure import Credential, Tenure
from hub.core.values import Caller, HubProject, ResourceName
from hub.rpc.codec_lease import abort_to_proto, credential_from_proto, renewal_to_proto, ttl_from_proto
from hub.rpc.identity import caller_of, refuse_mismatch
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import BidirectionalStream
from hub.service.lease_aborts import AbortNotice, LeaseAborts
from hub.service.leases import Leases
from synchub.v1.lease_service_pb2 import RenewLeasesRequest, RenewLeasesResponse

RenewContext = grpc.aio.ServicerContext[RenewLeasesRequest, RenewLeasesResponse]
RenewStream = BidirectionalStream[RenewLeasesRequest, RenewLeasesResponse]
Renewal = tuple[Credential, int | None]
"""A tenure, and for how long from now on in nanoseconds; None: as granted before."""


class RenewHandler:
    """Serves RenewLeases."""

    def __init__(
        self,
        leases: Leases,
        *,
        aborts: LeaseAborts,
        open_streams: OpenStreams,
        limits: Limits,
        on_refused: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """Bind the use cases; ``on_refused`` is told the reason of each renewal that is refused."""
        self.on_refused = on_refused
        self.leases = leases
        self.aborts = aborts
        self.limits = limits
        self._open_streams = open_streams
        self._last_renewed: dict[tuple[HubProject, ResourceName], _RenewStream] = {}

    async def renew_leases(self, context: RenewContext) -> None:
        """Serve one stream to its end."""
        stream: RenewStream = BidirectionalStream(
            self._open_streams,
            context,
            method="RenewLeases",
            error_response=lambda status: RenewLeasesResponse(error=status),
            first_message_seconds_max=self.limits.first_message_seconds_max,
        )
        async with stream:
            await _RenewStream(self, stream, context).serve()

    def move(self, hub_project: HubProject, resource: ResourceName, *, to: "_RenewStream") -> None:
        """Note that a lease was renewed on a stream; where it was renewed before, it is forgotten."""
        before = self._last_renewed.get((hub_project, resource))
        if before is not None and before is not to:
            before.forget(resource)
        self._last_renewed[hub_project, resource] = to

    def drop(self, hub_project: HubProject, resource: ResourceName) -> None:
        """Note that a stream does not remember a lease any more."""
        del self._last_renewed[hub_project, resource]


class _RenewStream:
    """One open stream, and the leases that were last renewed on it."""

    def __init__(self, handler: RenewHandler, stream: RenewStream, context: RenewContext) -> None:
        self._handler = handler
        self._stream = stream
        self._context = context
        self._hub_project: HubProject | None = None
        self._heard: dict[ResourceName, tuple[int, Callable[[], None]]] = {}
        """The token that was last renewed here, and what stops listening to its aborts; oldest first."""
        self._news: dict[ResourceName, AbortNotice] = {}
        """Aborts that are to be pushed, the last of each resource."""
        self._is_answering = False
        self._is_draining = False
        stream.on_drain = self._drain

    async def serve(self) -> None:
        """Answer each request until the client ends or is gone, or a refusal ends the stream."""
        try:
            while (request := await self._stream.read()) is not None:
                self._is_answering = True
                caller, renewals = self._decoded(request)
                outcomes = await self._handler.leases.renew_many(caller, renewals)
                await self._stream.write(self._answer(caller, renewals, outcomes=outcomes))
                self._is_answering = False
                if self._is_draining:
                    self._stream.end(HubStopping())
        finally:
            for resource in tuple(self._heard):
                self.forget(resource)

    def forget(self, resource: ResourceName) -> None:
        """Tell nothing more of a lease here."""
        heard = self._heard.pop(resource, None)
        if heard is not None and self._hub_project is not None:
            _, stop_listening = heard
            stop_listening()
            self._handler.drop(self._hub_project, resource)

    def _tell_abort(self, notice: AbortNotice) -> None:
        """Push an abort of a lease that was renewed here; however many come at once are told together."""
        if self._is_heard(notice.resource, notice.fencing_token) and not self._stream.is_ending:
            if not self._news:
                self._stream.write_soon(self._news_response)
            self._news[notice.resource] = notice

    def _news_response(self) -> RenewLeasesResponse:
        news, self._news = self._news, {}
        return RenewLeasesResponse(aborts=map(abort_to_proto, news.values()))

    def _decoded(self, request: RenewLeasesRequest) -> tuple[Caller, list[Renewal]]:
        """Return what a request wants, checked.

        Raises: InvalidRequest.
        """
        limits = self._handler.limits
        check = RequestCheck(limits)
        caller = caller_of(self._context, request.hub_project, check=check)
        for renewal in request.renewals:
            refuse_mismatch(caller, runtime_id=renewal.credential.runtime_id)
        if self._hub_project not in (None, caller.hub_project):
            check.add("hub_project", "is another than before on this stream; open a stream of its own")
        count = len(request.renewals)
        if not 1 <= count <= limits.lease_renewals_max:
            check.add("renewals", f"has {count} entries; 1 to {limits.lease_renewals_max} are needed")
        check.refuse_violations()
        renewals: list[Renewal] = []
        for index, renewal in enumerate(request.renewals):
            field = f"renewals[{index}]"
            credential = credential_from_proto(renewal.credential, check, field=f"{field}.credential")
            ttl_nanos = ttl_from_proto(renewal.ttl, limits, check=check, field=f"{field}.ttl")
            renewals.append((credential, ttl_nanos))
        check.refuse_violations()
        self._hub_project = caller.hub_project
        return caller, renewals

    def _answer(
        self, caller: Caller, renewals: list[Renewal], *, outcomes: list[Tenure | Refusal]
    ) -> RenewLeasesResponse:
        """Return the answer to a request, and remember what was renewed by it."""
        response = RenewLeasesResponse()
        new: dict[ResourceName, Tenure] = {}
        for (credential, _), outcome in zip(renewals, outcomes, strict=True):
            response.results.append(renewal_to_proto(credential, outcome))
            if isinstance(outcome, Refusal):
                self._handler.on_refused(outcome.reason)
                if self._is_heard(credential.resource, credential.fencing_token):
                    self.forget(credential.resource)
            else:
                if not self._is_heard(outcome.resource, outcome.fencing_token):
                    new[outcome.resource] = outcome
                self._remember(caller.hub_project, outcome)
        # An abort between a first renewal and now was pushed to nobody.
        for runtime_id in {tenure.holder.runtime_id for tenure in new.values()}:
            for notice in self._handler.aborts.of_runtime(caller.hub_project, runtime_id):
                tenure = new.get(notice.resource)
                if tenure is None or tenure.fencing_token != notice.fencing_token:
                    continue  # of a tenure that was not renewed here
                if tenure.abort_reason is not notice.reason:
                    response.aborts.append(abort_to_proto(notice))
        return response

    def _is_heard(self, resource: ResourceName, fencing_token: int) -> bool:
        """Whether this tenure was last renewed here."""
        heard = self._heard.get(resource)
        return heard is not None and heard[0] == fencing_token

    def _remember(self, hub_project: HubProject, tenure: Tenure) -> None:
        """Note that a lease was renewed here, the newest last; the oldest makes room."""
        resource = tenure.resource
        heard = self._heard.pop(resource, None)
        if heard is not None:
            _, stop_listening = heard
        else:
            stop_listening = self._handler.aborts.listen_to_resource(
                hub_project, resource, listener=self._tell_abort
            )
        self._heard[resource] = (tenure.fencing_token, stop_listening)
        self._handler.move(hub_project, resource, to=self)
        if len(self._heard) > self._handler.limits.lease_renewals_remembered_max:
            self.forget(next(iter(self._heard)))

    def _drain(self) -> None:
        """Answer what was read, then end the stream because the hub stops."""
        self._is_draining = True
        if not self._is_answering:
            self._stream.end(HubStopping())
