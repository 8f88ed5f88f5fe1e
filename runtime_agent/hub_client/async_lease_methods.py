"""The lease calls of ``AsyncHubClient``: those of ``lease_methods.py``, where each one is explained."""

from collections.abc import AsyncIterator, Callable, Mapping

import grpc.aio

from runtime_agent import limits
from runtime_agent.core.lease import AbortReason
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client import lease_codec as codec
from runtime_agent.hub_client.async_lease import AsyncLease
from runtime_agent.hub_client.client_base import AwaitedClientBase
from runtime_agent.hub_client.lease_names import turn_resource
from runtime_agent.hub_client.lease_values import (
    LeaseCheck,
    LeaseCredential,
    LeaseUpdate,
    LeaseView,
    MaintenanceState,
    OpenedTenure,
    ResourceState,
)
from runtime_agent.hub_client.maintenance import AsyncMaintenance
from runtime_agent.hub_client.process_lease import AsyncProcessLease
from runtime_agent.hub_client.turn_lease import AsyncTurn, token_of_turn
from synchub.channel import UNARY_SECONDS_MAX, HubAddress
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven
from synchub.v1 import lease_service_pb2 as pb
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub


class AsyncLeaseMethods(AwaitedClientBase):
    """What a client does with leases."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        hub_project: str,
        addresses: tuple[HubAddress, ...],
        credentials: CredentialsGiven = NO_CREDENTIALS,
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            channel,
            hub_project=hub_project,
            addresses=addresses,
            credentials=credentials,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )
        self._leases = LeaseServiceStub(channel)

    # --- what is held ---

    def lease(
        self,
        resource: str,
        *,
        runtime_id: str = "",
        holder_id: str = "",
        holder_display_name: str = "",
        ttl_seconds: float = limits.LEASE_TTL_SECONDS,
        labels: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        margin_seconds: float = limits.LEASE_MARGIN_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> AsyncLease:
        """Return a lease of a resource, to be acquired by ``async with`` or ``acquire``.

        ``on_lost`` is called once for each loss, on the loop. Raises: UsageError. The arguments are those
        of ``HubClient.lease``.
        """
        wish = self._maker.wish(
            resource,
            runtime_id=runtime_id,
            holder_id=holder_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
            labels=labels,
        )
        core = self._maker.lease(wish, wait_seconds=wait_seconds, margin_seconds=margin_seconds)
        return AsyncLease(core, on_lost)

    def turn(
        self,
        topic: str,
        *,
        query_id: str,
        origin: str,
        runtime_id: str = "",
        owner: str = "",
        owner_display_name: str = "",
        ttl_seconds: float = limits.LEASE_TTL_SECONDS,
        labels: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        margin_seconds: float = limits.LEASE_MARGIN_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> AsyncTurn:
        """Return a query's turn on a topic, to be acquired by ``async with`` or ``acquire``."""
        wish = self._maker.wish(
            "",
            runtime_id=runtime_id,
            holder_id=owner,
            holder_display_name=owner_display_name,
            ttl_seconds=ttl_seconds,
            labels=labels,
        )
        core = self._maker.turn(
            wish,
            topic=topic,
            query_id=query_id,
            origin=origin,
            wait_seconds=wait_seconds,
            margin_seconds=margin_seconds,
        )
        return AsyncTurn(core, on_lost)

    def process_lease(
        self,
        role: str,
        *,
        runtime_id: str = "",
        owner: str = "",
        owner_display_name: str = "",
        ttl_seconds: float = limits.HUB_PROCESS_TTL_SECONDS,
        labels: Mapping[str, str] | None = None,
        wait_seconds: float = limits.HUB_PROCESS_WAIT_SECONDS,
        margin_seconds: float = limits.LEASE_MARGIN_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> AsyncProcessLease:
        """Return a role to be acquired by ``async with`` or ``acquire``."""
        wish = self._maker.wish(
            "",
            runtime_id=runtime_id,
            holder_id=owner,
            holder_display_name=owner_display_name,
            ttl_seconds=ttl_seconds,
            labels=labels,
        )
        core = self._maker.process(wish, role=role, wait_seconds=wait_seconds, margin_seconds=margin_seconds)
        return AsyncProcessLease(core, on_lost)

    def maintenance(
        self,
        resource: str,
        *,
        runtime_id: str = "",
        holder_id: str = "",
        holder_display_name: str = "",
        ttl_seconds: float = limits.MAINTENANCE_TTL_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> AsyncMaintenance:
        """Return a maintenance, begun by ``async with`` or ``begin``."""
        wish = self._maker.wish(
            resource,
            runtime_id=runtime_id,
            holder_id=holder_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        return AsyncMaintenance(self._maker.maintenance(wish), on_lost)

    # --- single calls ---

    async def abort_lease(
        self, resource: str, *, reason: AbortReason = AbortReason.EXTERNAL, fencing_token: int = 0
    ) -> LeaseView:
        """Ask the holder of a live lease to stop; with a token that tenure and no later one."""
        request = pb.AbortLeaseRequest(
            hub_project=self._hub_project,
            resource=resource,
            fencing_token=fencing_token,
            reason=codec.abort_reason_to_proto(reason),
        )
        with self._translated():
            response = await self._leases.AbortLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.lease_from_proto(response.lease)

    async def abort_turn(
        self, topic: str, *, query_id: str = "", reason: AbortReason = AbortReason.EXTERNAL
    ) -> LeaseView:
        """Ask the query that has the turn on a topic to stop; with a query id that one and no later one."""
        resource = turn_resource(topic)
        turn = (await self.resource_state(resource)).lease
        fencing_token = token_of_turn(turn, resource=resource, query_id=query_id)
        return await self.abort_lease(resource, reason=reason, fencing_token=fencing_token)

    async def check_lease(self, resource: str, *, fencing_token: int, nonce: str = "") -> LeaseCheck:
        """Ask the hub whether a token is current, for display and early refusal only."""
        request = pb.CheckLeaseRequest(
            hub_project=self._hub_project, resource=resource, fencing_token=fencing_token, nonce=nonce
        )
        with self._translated():
            response = await self._leases.CheckLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.check_from_proto(response)

    async def get_lease(self, resource: str) -> LeaseView:
        """Return the last lease of a resource, live or ended; the reason is NOT_FOUND without one."""
        request = pb.GetLeaseRequest(hub_project=self._hub_project, resource=resource)
        with self._translated():
            response = await self._leases.GetLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.lease_from_proto(response.lease)

    async def list_leases(self, *, include_ended: bool = False) -> AsyncIterator[LeaseView]:
        """Yield live leases and maintenances, or also the last ended ones, ascending by resource."""
        request = pb.ListLeasesRequest(hub_project=self._hub_project, include_ended=include_ended)

        async def load(page_token: str) -> pb.ListLeasesResponse:
            request.page_token = page_token
            return await self._leases.ListLeases(request, timeout=UNARY_SECONDS_MAX)

        async for page in self._pages(load):
            for each in page.leases:
                yield codec.lease_from_proto(each)

    async def watch_leases(self) -> AsyncIterator[LeaseUpdate]:
        """Yield the live leases, then the newest state of each that changes, without end."""
        with self._translated():
            call = self._leases.WatchLeases(pb.WatchLeasesRequest(hub_project=self._hub_project))
            try:
                async for response in call:
                    yield codec.lease_update_from_proto(response)
            finally:
                call.cancel()

    async def resource_state(self, resource: str) -> ResourceState:
        """Return all that is known of a resource: token, epoch, who has it, who waits at this hub."""
        request = pb.GetResourceStateRequest(hub_project=self._hub_project, resource=resource)
        with self._translated():
            response = await self._leases.GetResourceState(request, timeout=UNARY_SECONDS_MAX)
        return codec.resource_state_from_proto(response)

    # --- a maintenance that outlives its process ---

    async def begin_maintenance(
        self,
        resource: str,
        *,
        runtime_id: str = "",
        holder_id: str = "",
        holder_display_name: str = "",
        ttl_seconds: float = limits.MAINTENANCE_TTL_SECONDS,
    ) -> OpenedTenure:
        """Take a resource out of use until it is finished or the TTL passes; keep the credential secret."""
        wish = self._maker.wish(
            resource,
            runtime_id=runtime_id,
            holder_id=holder_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        request = codec.begin_maintenance_request(self._hub_project, wish, nonce=codec.new_nonce())
        with self._translated():
            response = await self._leases.BeginMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return codec.begun_from_proto(response)

    async def renew_maintenance(
        self, credential: LeaseCredential, *, ttl_seconds: float | None = None
    ) -> MaintenanceState:
        """Extend a maintenance from now on, by the TTL granted before where none is given."""
        request = codec.renew_maintenance_request(self._hub_project, credential, ttl_seconds=ttl_seconds)
        with self._translated():
            response = await self._leases.RenewMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return codec.maintenance_from_proto(response)

    async def finish_maintenance(self, credential: LeaseCredential, *, delete_state: bool = False) -> int:
        """Give a resource free, also after the maintenance expired; return its epoch."""
        request = codec.finish_maintenance_request(self._hub_project, credential, delete_state=delete_state)
        with self._translated():
            response = await self._leases.FinishMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return response.epoch
