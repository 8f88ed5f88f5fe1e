"""LeaseService: who may act on what. Each call is checked, handed to a use case, and answered."""

from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TypeVar

import grpc.aio

from hub.core.errors import NotFound
from hub.core.lease_errors import LeaseExpired, LeaseFenced, LeaseMissing, LeaseSuperseded
from hub.core.limits import Limits
from hub.core.selection import LeasePlace
from hub.core.tenure import hash_of_nonce
from hub.core.values import ResourceName
from hub.rpc.codec_lease import (
    abort_reason_from_proto,
    claim_from_proto,
    credential_from_proto,
    credential_to_proto,
    granted_to_proto,
    lease_to_proto,
    next_holder_from_proto,
    repeat_from_proto,
    stale_cause_to_proto,
    ttl_from_proto,
    wait_from_proto,
    waiter_to_proto,
)
from hub.rpc.codec_time import nanos_to_duration, timestamp_to_proto
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.renew_handler import RenewContext, RenewHandler
from hub.rpc.requests import RequestCheck, page_token_after
from hub.rpc.streams import WatchStream, write_answer
from hub.service.lease_reads import LeaseReads
from hub.service.lease_watch import LeaseWatches
from hub.service.leases import Leases
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceServicer

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]
WatchContext = Context[messages.WatchLeasesRequest, messages.WatchLeasesResponse]


class LeaseService(LeaseServiceServicer):
    """Serves the calls of the service."""

    def __init__(
        self,
        leases: Leases,
        renew_handler: RenewHandler,
        *,
        reads: LeaseReads,
        watches: LeaseWatches,
        open_streams: OpenStreams,
        limits: Limits,
        new_nonce: Callable[[], str],
    ) -> None:
        """Bind the use cases; ``new_nonce`` makes one at random where a caller brings none."""
        self._leases = leases
        self._renew_handler = renew_handler
        self._reads = reads
        self._watches = watches
        self._open_streams = open_streams
        self._limits = limits
        self._new_nonce = new_nonce

    # --- leases ---

    async def AcquireLease(  # noqa: N802
        self,
        request: messages.AcquireLeaseRequest,
        context: Context[messages.AcquireLeaseRequest, messages.AcquireLeaseResponse],
    ) -> messages.AcquireLeaseResponse:
        """Grant a lease, at once or in its turn."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, runtime_id=request.runtime_id)
        check.identifier("resource", request.resource)
        nonce = request.nonce or self._new_nonce()
        claim = claim_from_proto(request, self._limits, nonce=nonce, check=check)
        repeat = repeat_from_proto(request, check)
        wait_nanos = wait_from_proto(request.wait_timeout, self._limits, check=check)
        check.refuse_violations()
        with self._waiting("AcquireLease", is_waiting=wait_nanos > 0):
            answer = await self._leases.acquire(
                caller, ResourceName(request.resource), claim=claim, repeat=repeat, wait_nanos=wait_nanos
            )
        return messages.AcquireLeaseResponse(
            lease=granted_to_proto(answer.tenure, is_claimed=True),
            credential=credential_to_proto(answer.tenure, nonce),
            renewed=answer.is_renewed,
            waited=nanos_to_duration(answer.waited_nanos),
            replayed=answer.is_replayed,
        )

    async def RenewLease(  # noqa: N802
        self,
        request: messages.RenewLeaseRequest,
        context: Context[messages.RenewLeaseRequest, messages.RenewLeaseResponse],
    ) -> messages.RenewLeaseResponse:
        """Extend a lease."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        credential = credential_from_proto(request.credential, check)
        ttl_nanos = ttl_from_proto(request.ttl, self._limits, check=check)
        check.refuse_violations()
        tenure = await self._leases.renew(caller, credential, ttl_nanos=ttl_nanos)
        return messages.RenewLeaseResponse(lease=granted_to_proto(tenure))

    # The generated base class knows only handlers that are generators.
    async def RenewLeases(  # type: ignore[override]  # noqa: N802
        self, request_iterator: object, context: RenewContext
    ) -> None:
        """Extend many leases."""
        await self._renew_handler.renew_leases(context)

    async def ReleaseLease(  # noqa: N802
        self,
        request: messages.ReleaseLeaseRequest,
        context: Context[messages.ReleaseLeaseRequest, messages.ReleaseLeaseResponse],
    ) -> messages.ReleaseLeaseResponse:
        """Take a lease back."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        credential = credential_from_proto(request.credential, check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.release(caller, credential, repeat=repeat)
        return messages.ReleaseLeaseResponse(replayed=answer.is_replayed)

    async def TransferLease(  # noqa: N802
        self,
        request: messages.TransferLeaseRequest,
        context: Context[messages.TransferLeaseRequest, messages.TransferLeaseResponse],
    ) -> messages.TransferLeaseResponse:
        """Hand a lease on."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        credential = credential_from_proto(request.credential, check)
        next_holder = next_holder_from_proto(request, check)
        ttl_nanos = ttl_from_proto(request.ttl, self._limits, check=check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.transfer(
            caller, credential, next_holder=next_holder, ttl_nanos=ttl_nanos, repeat=repeat
        )
        return messages.TransferLeaseResponse(
            lease=granted_to_proto(answer.tenure), replayed=answer.is_replayed
        )

    async def TakeoverLease(  # noqa: N802
        self,
        request: messages.TakeoverLeaseRequest,
        context: Context[messages.TakeoverLeaseRequest, messages.TakeoverLeaseResponse],
    ) -> messages.TakeoverLeaseResponse:
        """Grant a lease whose holder let it expire."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, runtime_id=request.runtime_id)
        check.identifier("resource", request.resource)
        nonce = request.nonce or self._new_nonce()
        claim = claim_from_proto(request, self._limits, nonce=nonce, check=check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.takeover(
            caller, ResourceName(request.resource), claim=claim, repeat=repeat
        )
        return messages.TakeoverLeaseResponse(
            lease=granted_to_proto(answer.tenure, is_claimed=True),
            credential=credential_to_proto(answer.tenure, nonce),
            waited=nanos_to_duration(answer.waited_nanos),
            replayed=answer.is_replayed,
        )

    async def AbortLease(  # noqa: N802
        self,
        request: messages.AbortLeaseRequest,
        context: Context[messages.AbortLeaseRequest, messages.AbortLeaseResponse],
    ) -> messages.AbortLeaseResponse:
        """Ask a holder to stop."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("resource", request.resource)
        check.not_negative("fencing_token", request.fencing_token)
        reason = abort_reason_from_proto(request.reason, check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.abort(
            caller,
            ResourceName(request.resource),
            fencing_token=request.fencing_token or None,
            reason=reason,
            repeat=repeat,
        )
        lease = granted_to_proto(answer.tenure, is_claimed=answer.is_replayed)
        return messages.AbortLeaseResponse(lease=lease, replayed=answer.is_replayed)

    # --- maintenance ---

    async def BeginMaintenance(  # noqa: N802
        self,
        request: messages.BeginMaintenanceRequest,
        context: Context[messages.BeginMaintenanceRequest, messages.BeginMaintenanceResponse],
    ) -> messages.BeginMaintenanceResponse:
        """Take a resource out of use."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, runtime_id=request.runtime_id)
        check.identifier("resource", request.resource)
        nonce = request.nonce or self._new_nonce()
        claim = claim_from_proto(request, self._limits, nonce=nonce, check=check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.begin_maintenance(
            caller, ResourceName(request.resource), claim=claim, repeat=repeat
        )
        tenure = answer.tenure
        return messages.BeginMaintenanceResponse(
            credential=credential_to_proto(tenure, nonce),
            epoch=tenure.epoch,
            ttl=nanos_to_duration(tenure.ttl_nanos),
            expire_time=timestamp_to_proto(tenure.expire_nanos),
            replayed=answer.is_replayed,
        )

    async def RenewMaintenance(  # noqa: N802
        self,
        request: messages.RenewMaintenanceRequest,
        context: Context[messages.RenewMaintenanceRequest, messages.RenewMaintenanceResponse],
    ) -> messages.RenewMaintenanceResponse:
        """Extend a maintenance."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        credential = credential_from_proto(request.credential, check)
        ttl_nanos = ttl_from_proto(request.ttl, self._limits, check=check)
        check.refuse_violations()
        tenure = await self._leases.renew_maintenance(caller, credential, ttl_nanos=ttl_nanos)
        return messages.RenewMaintenanceResponse(
            epoch=tenure.epoch,
            ttl=nanos_to_duration(tenure.ttl_nanos),
            expire_time=timestamp_to_proto(tenure.expire_nanos),
        )

    async def FinishMaintenance(  # noqa: N802
        self,
        request: messages.FinishMaintenanceRequest,
        context: Context[messages.FinishMaintenanceRequest, messages.FinishMaintenanceResponse],
    ) -> messages.FinishMaintenanceResponse:
        """Give a resource free again."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        credential = credential_from_proto(request.credential, check)
        repeat = repeat_from_proto(request, check)
        check.refuse_violations()
        answer = await self._leases.finish_maintenance(
            caller, credential, is_state_deleted=request.delete_state, repeat=repeat
        )
        return messages.FinishMaintenanceResponse(epoch=answer.tenure.epoch, replayed=answer.is_replayed)

    # --- reads ---

    async def CheckLease(  # noqa: N802
        self,
        request: messages.CheckLeaseRequest,
        context: Context[messages.CheckLeaseRequest, messages.CheckLeaseResponse],
    ) -> messages.CheckLeaseResponse:
        """Say whether a token is the current one; that it is not is an answer, no refusal."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("resource", request.resource)
        check.positive("fencing_token", request.fencing_token)
        check.optional_nonce("nonce", request.nonce)
        check.refuse_violations()
        try:
            tenure = await self._reads.check(
                caller,
                ResourceName(request.resource),
                fencing_token=request.fencing_token,
                nonce_hash=hash_of_nonce(request.nonce) if request.nonce else None,
            )
        except (LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired) as stale:
            return messages.CheckLeaseResponse(reason=stale_cause_to_proto(stale))
        return messages.CheckLeaseResponse(
            is_current=True, expire_time=timestamp_to_proto(tenure.expire_nanos)
        )

    async def GetLease(  # noqa: N802
        self,
        request: messages.GetLeaseRequest,
        context: Context[messages.GetLeaseRequest, messages.GetLeaseResponse],
    ) -> messages.GetLeaseResponse:
        """Return the last lease of a resource."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("resource", request.resource)
        check.refuse_violations()
        view = await self._reads.resource(caller, ResourceName(request.resource))
        if view.resource.lease is None:
            raise NotFound("lease", {"resource": request.resource})
        return messages.GetLeaseResponse(lease=lease_to_proto(view.resource.lease, view.now_nanos))

    async def ListLeases(  # noqa: N802
        self,
        request: messages.ListLeasesRequest,
        context: Context[messages.ListLeasesRequest, messages.ListLeasesResponse],
    ) -> messages.ListLeasesResponse:
        """Return a page of leases and maintenances."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=2)
        check.refuse_violations()
        # One too many, so that the last page is known as such.
        page = await self._reads.leases(
            caller,
            include_ended=request.include_ended,
            after=None if key is None else LeasePlace(ResourceName(key[0]), bool(key[1])),
            entries_max=entries_max + 1,
        )
        response = messages.ListLeasesResponse()
        bytes_sum = 0
        for tenure in page.tenures:
            lease = lease_to_proto(tenure, page.now_nanos)
            bytes_sum += lease.ByteSize()
            is_full = len(response.leases) == entries_max or bytes_sum > self._limits.page_bytes_max
            if response.leases and is_full:
                last = response.leases[-1]
                kind = "maintenance" if last.is_maintenance else ""
                response.next_page_token = page_token_after(request, last.resource, kind)
                break
            response.leases.append(lease)
        return response

    async def WatchLeases(  # type: ignore[override]  # noqa: N802
        self, request: messages.WatchLeasesRequest, context: WatchContext
    ) -> None:
        """Stream leases and maintenances as they change."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.refuse_violations()
        with WatchStream(self._open_streams, method="WatchLeases"):
            async with aclosing(self._watches.watch(caller)) as all_news:
                async for news in all_news:
                    response = messages.WatchLeasesResponse()
                    bytes_sum = 0
                    for tenure in news.tenures:
                        lease = lease_to_proto(tenure, news.now_nanos)
                        bytes_sum += lease.ByteSize()
                        if response.leases and bytes_sum > self._limits.watch_page_bytes_max:
                            await write_answer(context, response, limits=self._limits)
                            response = messages.WatchLeasesResponse()
                            bytes_sum = lease.ByteSize()
                        response.leases.append(lease)
                    response.is_snapshot_complete = news.is_snapshot_complete
                    await write_answer(context, response, limits=self._limits)

    async def GetResourceState(  # noqa: N802
        self,
        request: messages.GetResourceStateRequest,
        context: Context[messages.GetResourceStateRequest, messages.GetResourceStateResponse],
    ) -> messages.GetResourceStateResponse:
        """Return everything that is known of a resource."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("resource", request.resource)
        check.refuse_violations()
        view = await self._reads.resource(caller, ResourceName(request.resource))
        resource, now_nanos = view.resource, view.now_nanos
        response = messages.GetResourceStateResponse(
            fencing_token=resource.fencing_token,
            epoch=resource.epoch,
            waiters=map(waiter_to_proto, view.waiters),
            waiter_count=view.waiter_count,
        )
        if resource.lease is not None:
            response.lease.CopyFrom(lease_to_proto(resource.lease, now_nanos))
        if resource.maintenance is not None:
            response.maintenance.CopyFrom(lease_to_proto(resource.maintenance, now_nanos))
        return response

    def _waiting(self, method: str, *, is_waiting: bool) -> AbstractContextManager[object]:
        """Return what ends a call that waits when the hub stops; others are too short for it."""
        return WatchStream(self._open_streams, method=method) if is_waiting else nullcontext()
