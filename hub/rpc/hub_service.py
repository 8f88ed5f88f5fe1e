"""HubService: the hub about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
import grpc.aio

from hub.core.limits import Limits
from hub.core.values import HubGeneration
from hub.rpc.codec_time import duration_to_proto, timestamp_to_proto
from hub.rpc.operation_handlers import OperationHandlers
from hub.rpc.prune_handler import PruneHandler
from hub.rpc.token_handlers import TokenHandlers
from synchub.v1 import hub_service_pb2 as messages
from synchub.v1.hub_service_pb2 import GetHubInfoRequest, GetHubInfoResponse, HubLimits
from synchub.v1.hub_service_pb2_grpc import HubServiceServicer

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]


@dataclass(frozen=True, slots=True)
class HubFacts:
    """What does not change while a hub runs; ``engine`` is "sqlite" or "postgresql"."""

    version: str
    hub_generation: HubGeneration
    engine: str
    features: tuple[str, ...] = ()


class HubService(HubServiceServicer):
    """Serves the calls of the service."""

    def __init__(
        self,
        facts: HubFacts,
        *,
        tokens: TokenHandlers,
        operations: OperationHandlers,
        prune: PruneHandler,
        limits: Limits,
        now_nanos: Callable[[], int],
    ) -> None:
        """Keep the facts and the handlers; ``now_nanos`` gives hub time."""
        self._facts = facts
        self._tokens = tokens
        self._operations = operations
        self._prune = prune
        self._limits = limits_to_proto(limits)
        self._now_nanos = now_nanos

    async def GetHubInfo(  # noqa: N802
        self,
        request: GetHubInfoRequest,
        context: grpc.aio.ServicerContext[GetHubInfoRequest, GetHubInfoResponse],
    ) -> GetHubInfoResponse:
        """Return version, generation, limits and hub time."""
        return GetHubInfoResponse(
            version=self._facts.version,
            hub_generation=self._facts.hub_generation,
            engine=self._facts.engine,
            limits=self._limits,
            features=sorted(self._facts.features),
            hub_time=timestamp_to_proto(self._now_nanos()),
        )

    async def CreateToken(  # noqa: N802
        self,
        request: messages.CreateTokenRequest,
        context: Context[messages.CreateTokenRequest, messages.CreateTokenResponse],
    ) -> messages.CreateTokenResponse:
        """Make a token."""
        return await self._tokens.create_token(request, context)

    async def ListTokens(  # noqa: N802
        self,
        request: messages.ListTokensRequest,
        context: Context[messages.ListTokensRequest, messages.ListTokensResponse],
    ) -> messages.ListTokensResponse:
        """List tokens."""
        return await self._tokens.list_tokens(request, context)

    async def RevokeToken(  # noqa: N802
        self,
        request: messages.RevokeTokenRequest,
        context: Context[messages.RevokeTokenRequest, messages.RevokeTokenResponse],
    ) -> messages.RevokeTokenResponse:
        """Take a token back."""
        return await self._tokens.revoke_token(request, context)

    async def BackupHub(  # type: ignore[override]  # noqa: N802  # it writes its answers by hand
        self,
        request: messages.BackupHubRequest,
        context: Context[messages.BackupHubRequest, messages.BackupHubResponse],
    ) -> None:
        """Take a backup."""
        await self._operations.backup_hub(request, context)

    async def PruneEvents(  # type: ignore[override]  # noqa: N802  # it writes its answers by hand
        self,
        request: messages.PruneEventsRequest,
        context: Context[messages.PruneEventsRequest, messages.PruneEventsResponse],
    ) -> None:
        """Prune."""
        await self._prune.prune_events(request, context)

    async def VerifyEvents(  # type: ignore[override]  # noqa: N802  # it writes its answers by hand
        self,
        request: messages.VerifyEventsRequest,
        context: Context[messages.VerifyEventsRequest, messages.VerifyEventsResponse],
    ) -> None:
        """Verify events."""
        await self._operations.verify_events(request, context)


def limits_to_proto(limits: Limits) -> HubLimits:
    """Return the bounds that a client needs to know."""
    return HubLimits(
        identifier_bytes_max=limits.identifier_bytes_max,
        event_type_bytes_max=limits.event_type_bytes_max,
        payload_bytes_max=limits.payload_bytes_max,
        attribute_count_max=limits.attribute_count_max,
        attribute_key_bytes_max=limits.attribute_key_bytes_max,
        attributes_bytes_max=limits.attributes_bytes_max,
        batch_events_max=limits.batch_events_max,
        batch_bytes_max=limits.batch_bytes_max,
        message_bytes_max=limits.message_bytes_max,
        reconcile_runs_max=limits.reconcile_runs_max,
        active_runs_max=limits.active_runs_max,
        heartbeat_interval=duration_to_proto(limits.heartbeat_interval_seconds),
        presence_ttl=duration_to_proto(limits.presence_ttl_seconds),
        lease_ttl_min=duration_to_proto(limits.lease_ttl_seconds_min),
        lease_ttl_max=duration_to_proto(limits.lease_ttl_seconds_max),
        lease_ttl_default=duration_to_proto(limits.lease_ttl_seconds_default),
        maintenance_ttl_default=duration_to_proto(limits.maintenance_ttl_seconds_default),
        lease_wait_max=duration_to_proto(limits.lease_wait_seconds_max),
        lease_waiters_max=limits.lease_waiters_max,
        lease_renewals_max=limits.lease_renewals_max,
        commit_events_max=limits.commit_events_max,
        commit_outbox_messages_max=limits.commit_outbox_messages_max,
        commit_projections_max=limits.commit_projections_max,
        commit_bytes_max=limits.commit_bytes_max,
        journal_page_entries_max=limits.journal_page_entries_max,
        outbox_claim_messages_max=limits.outbox_claim_messages_max,
        outbox_visibility_default=duration_to_proto(limits.outbox_visibility_seconds_default),
        outbox_visibility_max=duration_to_proto(limits.outbox_visibility_seconds_max),
        outbox_return_delay_max=duration_to_proto(limits.outbox_return_delay_seconds_max),
        outbox_tries_max=limits.outbox_tries_max,
    )
