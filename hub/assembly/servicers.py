"""The services of a hub: a servicer each over its use cases.

Belongs to the composition root (``hub.app``).
"""

import random
import secrets
import time
from importlib.metadata import version
from typing import Final

import grpc.aio

from hub.assembly.parts import HubParts
from hub.rpc.heartbeat_handler import HeartbeatHandler
from hub.rpc.hub_service import HubFacts, HubService
from hub.rpc.journal_service import JournalService
from hub.rpc.lease_service import LeaseService
from hub.rpc.operation_handlers import OperationHandlers
from hub.rpc.presence_service import PresenceService
from hub.rpc.prune_handler import PruneHandler
from hub.rpc.push_handler import PushHandler
from hub.rpc.read_handlers import ReadHandlers
from hub.rpc.renew_handler import RenewHandler
from hub.rpc.sync_service import SyncService
from hub.rpc.token_handlers import TokenHandlers
from hub.rpc.watch_handlers import WatchHandlers
from hub.service.backup import Backups
from hub.service.ingest import Ingest
from hub.service.projects import Projects
from hub.service.prune import Prune
from hub.service.reads import Reads
from hub.service.reconcile import Reconcile
from hub.service.tokens import Tokens
from hub.service.verify import Verifications
from synchub.v1.hub_service_pb2_grpc import add_HubServiceServicer_to_server
from synchub.v1.journal_service_pb2_grpc import add_JournalServiceServicer_to_server
from synchub.v1.lease_service_pb2_grpc import add_LeaseServiceServicer_to_server
from synchub.v1.presence_service_pb2_grpc import add_PresenceServiceServicer_to_server
from synchub.v1.sync_service_pb2_grpc import add_SyncServiceServicer_to_server

SERVICE_NAMES: Final = (
    "synchub.v1.SyncService",
    "synchub.v1.PresenceService",
    "synchub.v1.LeaseService",
    "synchub.v1.JournalService",
    "synchub.v1.HubService",
)
NONCE_BYTES: Final = 16
"""Random bytes in a nonce that the hub makes."""


def add_services(parts: HubParts, server: grpc.aio.Server) -> tuple[str, ...]:
    """Make the services of a hub and add them to its server; return their full names."""
    limits, streams = parts.limits, parts.streams
    reconcile = Reconcile(
        parts.async_writer, alert_book=parts.alert_book, guesses=parts.guesses, limits=limits
    )
    ingest = Ingest(
        parts.async_writer,
        alert_book=parts.alert_book,
        guesses=parts.guesses,
        limits=limits,
        instruments=parts.metrics,
        wall_nanos=time.time_ns,
        credential_nanos=parts.credential_nanos,
        tracer=parts.tracer,
    )
    sync_service = SyncService(
        push=PushHandler(
            ingest=ingest, reconcile=reconcile, rates=parts.rates, open_streams=streams, limits=limits
        ),
        reads=ReadHandlers(
            reads=Reads(parts.readers, limits=limits),
            alerts=parts.alert_watches,
            projects=Projects(parts.async_writer, parts.guesses),
            open_streams=streams,
            limits=limits,
        ),
        watches=WatchHandlers(
            watches=parts.watches, alerts=parts.alert_watches, open_streams=streams, limits=limits
        ),
    )
    heartbeat_handler = HeartbeatHandler(
        parts.presence,
        aborts=parts.leases.aborts,
        open_streams=streams,
        limits=limits,
        chance=random.SystemRandom(),
    )
    presence_service = PresenceService(parts.presence, heartbeat_handler, open_streams=streams, limits=limits)
    journal_service = JournalService(
        parts.journal,
        reads=parts.journal_reads,
        watches=parts.journal_watches,
        open_streams=streams,
        limits=limits,
    )
    add_SyncServiceServicer_to_server(sync_service, server)
    add_PresenceServiceServicer_to_server(presence_service, server)
    add_LeaseServiceServicer_to_server(_lease_service(parts), server)
    add_JournalServiceServicer_to_server(journal_service, server)
    add_HubServiceServicer_to_server(_hub_service(parts), server)
    return SERVICE_NAMES


def _lease_service(parts: HubParts) -> LeaseService:
    """Make the service of leases."""
    leases, limits, streams = parts.leases, parts.limits, parts.streams
    renew_handler = RenewHandler(
        leases.changes,
        aborts=leases.aborts,
        open_streams=streams,
        limits=limits,
        on_refused=parts.metrics.renewal_refused,
    )
    return LeaseService(
        leases.changes,
        renew_handler,
        reads=leases.reads,
        watches=leases.watches,
        open_streams=streams,
        limits=limits,
        new_nonce=lambda: secrets.token_urlsafe(NONCE_BYTES),
    )


def _hub_service(parts: HubParts) -> HubService:
    """Make the service of the hub itself."""
    limits = parts.limits
    facts = HubFacts(version("synchub"), parts.store.hub_generation, parts.store.engine)
    tokens = Tokens(
        parts.async_writer,
        parts.readers,
        limits=limits,
        credential_nanos=parts.credential_nanos,
        random_bytes=secrets.token_bytes,
    )
    operations = OperationHandlers(
        backups=Backups(parts.backup_maker, parts.backup_executor, now_nanos=parts.clock.now),
        verifications=Verifications(parts.readers, limits=limits),
        open_streams=parts.streams,
        limits=limits,
    )
    prune = Prune(
        parts.async_writer,
        parts.readers,
        limits=limits,
        bounds=parts.presence.bounds,
        now_nanos=parts.clock.now,
        wall_nanos=time.time_ns,
    )
    return HubService(
        facts,
        tokens=TokenHandlers(tokens, limits=limits),
        operations=operations,
        prune=PruneHandler(prune, open_streams=parts.streams, limits=limits),
        limits=limits,
        now_nanos=parts.clock.now,
    )
