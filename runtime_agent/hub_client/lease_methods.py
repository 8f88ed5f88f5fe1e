"""The lease calls of ``HubClient``; ``async_lease_methods.py`` has their twins.

A refusal of a single call is a ``HubCallError`` with the hub's reason; what is held raises the errors of
``core/lease_errors.py``.
"""

from collections.abc import Callable, Iterator, Mapping

import grpc

from runtime_agent import limits
from runtime_agent.core.lease import AbortReason
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client import lease_codec as codec
from runtime_agent.hub_client.client_base import BlockingClientBase
from runtime_agent.hub_client.lease import Lease
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
from runtime_agent.hub_client.maintenance import Maintenance
from runtime_agent.hub_client.process_lease import ProcessLease
from runtime_agent.hub_client.turn_lease import Turn, token_of_turn
from synchub.channel import UNARY_SECONDS_MAX, HubAddress
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven
from synchub.v1 import lease_service_pb2 as pb
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub


class LeaseMethods(BlockingClientBase):
    """What a client does with leases."""

    def __init__(
        self,
        channel: grpc.Channel,
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
    ) -> Lease:
        """Return a lease of a resource, to be acquired by ``with`` or ``acquire``.

        - ``holder_id``: who holds it within its runtime; this client's instance by default. A holder that
          acquires again supersedes itself: two leases of one resource with one holder id do not exclude
          each other, the second ends the first. So threads and programs that are to take turns need ids of
          their own, and a program that was started anew gets its lease back at once by a fixed one.
        - ``ttl_seconds``: how long a renewal lasts, and others wait after this program died; 1 s to 1 h.
        - ``labels``: facts for people, at most 16 pairs.
        - ``wait_seconds``: how long to queue where another holds it, at most 10 minutes. A maintenance is
          not waited for: ``ResourceUnderMaintenance`` is raised at once.
        - ``margin_seconds``: how long before the hub's expire time this side stops.
        - ``on_lost``: called once for each loss, on the thread that renews.

        Raises: UsageError. See ``lease.py``.
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
        return Lease(core, on_lost)

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
    ) -> Turn:
        """Return a query's turn on a topic, to be acquired by ``with`` or ``acquire``; see ``turn_lease.py``.

        ``owner`` is who claims turns, this client's instance by default. Raises: UsageError.
        """
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
        return Turn(core, on_lost)

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
    ) -> ProcessLease:
        """Return a role to be acquired by ``with`` or ``acquire``; see ``process_lease.py``.

        ``owner`` is which process it is, this client's instance by default; it is unique within the hub
        project. Raises: UsageError.
        """
        wish = self._maker.wish(
            "",
            runtime_id=runtime_id,
            holder_id=owner,
            holder_display_name=owner_display_name,
            ttl_seconds=ttl_seconds,
            labels=labels,
        )
        core = self._maker.process(wish, role=role, wait_seconds=wait_seconds, margin_seconds=margin_seconds)
        return ProcessLease(core, on_lost)

    def maintenance(
        self,
        resource: str,
        *,
        runtime_id: str = "",
        holder_id: str = "",
        holder_display_name: str = "",
        ttl_seconds: float = limits.MAINTENANCE_TTL_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> Maintenance:
        """Return a maintenance, begun by ``with`` or ``begin``; see ``maintenance.py``."""
        wish = self._maker.wish(
            resource,
            runtime_id=runtime_id,
            holder_id=holder_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        return Maintenance(self._maker.maintenance(wish), on_lost)

    # --- single calls ---

    def abort_lease(
        self, resource: str, *, reason: AbortReason = AbortReason.EXTERNAL, fencing_token: int = 0
    ) -> LeaseView:
        """Ask the holder of a live lease to stop; with a token that tenure and no later one.

        The holder sees it in ``abort_requested``. EXTERNAL is never overwritten by INTERNAL.
        """
        request = pb.AbortLeaseRequest(
            hub_project=self._hub_project,
            resource=resource,
            fencing_token=fencing_token,
            reason=codec.abort_reason_to_proto(reason),
        )
        with self._translated():
            response = self._leases.AbortLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.lease_from_proto(response.lease)

    def abort_turn(
        self, topic: str, *, query_id: str = "", reason: AbortReason = AbortReason.EXTERNAL
    ) -> LeaseView:
        """Ask the query that has the turn on a topic to stop; with a query id that one and no later one.

        Raises: LeaseNotHeld where it does not have the turn, HubCallError, UsageError.
        """
        resource = turn_resource(topic)
        turn = (self.resource_state(resource)).lease
        fencing_token = token_of_turn(turn, resource=resource, query_id=query_id)
        return self.abort_lease(resource, reason=reason, fencing_token=fencing_token)

    def check_lease(self, resource: str, *, fencing_token: int, nonce: str = "") -> LeaseCheck:
        """Ask the hub whether a token is current, for display and early refusal only."""
        request = pb.CheckLeaseRequest(
            hub_project=self._hub_project, resource=resource, fencing_token=fencing_token, nonce=nonce
        )
        with self._translated():
            response = self._leases.CheckLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.check_from_proto(response)

    def get_lease(self, resource: str) -> LeaseView:
        """Return the last lease of a resource, live or ended; the reason is NOT_FOUND without one."""
        request = pb.GetLeaseRequest(hub_project=self._hub_project, resource=resource)
        with self._translated():
            response = self._leases.GetLease(request, timeout=UNARY_SECONDS_MAX)
        return codec.lease_from_proto(response.lease)

    def list_leases(self, *, include_ended: bool = False) -> Iterator[LeaseView]:
        """Yield live leases and maintenances, or also the last ended ones, ascending by resource."""
        request = pb.ListLeasesRequest(hub_project=self._hub_project, include_ended=include_ended)

        def load(page_token: str) -> pb.ListLeasesResponse:
            request.page_token = page_token
            return self._leases.ListLeases(request, timeout=UNARY_SECONDS_MAX)

        for page in self._pages(load):
            yield from map(codec.lease_from_proto, page.leases)

    def watch_leases(self) -> Iterator[LeaseUpdate]:
        """Yield the live leases, then the newest state of each that changes, without end.

        States in between may be left out; they show as a token that jumped.
        """
        with self._translated():
            call = self._leases.WatchLeases(pb.WatchLeasesRequest(hub_project=self._hub_project))
            try:
                for response in call:
                    yield codec.lease_update_from_proto(response)
            finally:
                call.cancel()

    def resource_state(self, resource: str) -> ResourceState:
        """Return all that is known of a resource: token, epoch, who has it, who waits at this hub."""
        request = pb.GetResourceStateRequest(hub_project=self._hub_project, resource=resource)
        with self._translated():
            response = self._leases.GetResourceState(request, timeout=UNARY_SECONDS_MAX)
        return codec.resource_state_from_proto(response)

    # --- a maintenance that outlives its process ---

    def begin_maintenance(
        self,
        resource: str,
        *,
        runtime_id: str = "",
        holder_id: str = "",
        holder_display_name: str = "",
        ttl_seconds: float = limits.MAINTENANCE_TTL_SECONDS,
    ) -> OpenedTenure:
        """Take a resource out of use until it is finished or the TTL passes; keep the credential secret.

        Where the answer is lost it is unknown whether it began; then it ends with its TTL.
        """
        wish = self._maker.wish(
            resource,
            runtime_id=runtime_id,
            holder_id=holder_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        request = codec.begin_maintenance_request(self._hub_project, wish, nonce=codec.new_nonce())
        with self._translated():
            response = self._leases.BeginMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return codec.begun_from_proto(response)

    def renew_maintenance(
        self, credential: LeaseCredential, *, ttl_seconds: float | None = None
    ) -> MaintenanceState:
        """Extend a maintenance from now on, by the TTL granted before where none is given."""
        request = codec.renew_maintenance_request(self._hub_project, credential, ttl_seconds=ttl_seconds)
        with self._translated():
            response = self._leases.RenewMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return codec.maintenance_from_proto(response)

    def finish_maintenance(self, credential: LeaseCredential, *, delete_state: bool = False) -> int:
        """Give a resource free, also after the maintenance expired; return its epoch."""
        request = codec.finish_maintenance_request(self._hub_project, credential, delete_state=delete_state)
        with self._translated():
            response = self._leases.FinishMaintenance(request, timeout=UNARY_SECONDS_MAX)
        return response.epoch
