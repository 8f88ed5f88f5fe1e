"""A store with something of everything in it, made by a real hub that has stopped; and ways to alter one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw
import grpc

from hub.core.limits import Limits
from hub.core.verify import Finding
from hub.store.sqlite.verify import verify_store
from synchub.v1.hub_service_pb2 import ROLE_READER, CreateTokenRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import BeginMaintenanceRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journal_scene import Scene
from tests.contract.leasing import CALL_SECONDS_MAX, acquire_request, nonce, seconds
from tests.contract.pushing import events, push

TENANT: Final = "tenant"
OTHER: Final = "other tenant"
EVENT_COUNT: Final = 7 + 3 + 2 + 4
LIVE_TENURE_COUNT: Final = 5
"""The leases on two streams and two resources, and a maintenance."""
TTL_SECONDS: Final = 600.0


def make_full_store(folder: Path, *, long_run_events: int = 7) -> Path:
    """Run a hub over a new store and give it runs, a journal, leases, a maintenance, receipts and tokens."""
    with HubInThread(settings_in(folder)) as hub, grpc.insecure_channel(hub.address) as channel:
        sync, leases = SyncServiceStub(channel), LeaseServiceStub(channel)
        for first in range(1, long_run_events + 1, 1000):
            last = min(first + 999, long_run_events)
            batch = events(first, last, is_final=last == long_run_events)
            push(sync, TENANT, run_id="complete", batch=batch)
        gap = [SyncEvent(sequence=n, event_type="line", text=f"{n}") for n in (1, 2, 5)]
        gap[0].attributes.update({"é": "1", "a": "2"})
        gap[1].event_time.FromNanoseconds(1_700_000_000_123_456_789)
        push(sync, TENANT, run_id="gap", batch=gap)
        dropped = SyncEvent(sequence=2, event_type="line", content_hash=b"h" * 32, payload_dropped=True)
        push(sync, TENANT, project_id="q", run_id="dropped", batch=[*events(1, 1), dropped])
        push(sync, OTHER, project_id="o", batch=events(1, 4))
        Scene(JournalServiceStub(channel), leases, TENANT, folder / "hub.db")
        request = acquire_request(TENANT, "held", ttl=TTL_SECONDS, request_id="request")
        leases.AcquireLease(request, timeout=CALL_SECONDS_MAX)
        leases.AcquireLease(acquire_request(OTHER, "held", ttl=TTL_SECONDS), timeout=CALL_SECONDS_MAX)
        maintenance = BeginMaintenanceRequest(
            hub_project=TENANT,
            resource="maintained",
            runtime_id="runtime",
            holder_id="m",
            nonce=nonce("m1"),
            ttl=seconds(TTL_SECONDS),
        )
        leases.BeginMaintenance(maintenance, timeout=CALL_SECONDS_MAX)
        for name in ("one", "two"):
            token = CreateTokenRequest(hub_project=TENANT, display_name=name, role=ROLE_READER)
            HubServiceStub(channel).CreateToken(token, timeout=CALL_SECONDS_MAX)
    return folder / "hub.db"


def alter(database: Path, *statements: str) -> None:
    """Do to a store what no hub does: without its triggers and checks, which are put back."""
    connection = apsw.Connection(str(database))
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    connection.execute("PRAGMA ignore_check_constraints = ON")
    with connection:
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
            assert connection.changes() > 0, statement
        for _, sql in triggers:
            connection.execute(str(sql))
    connection.close()


def findings_in(database: Path, *, is_quiet: bool = True) -> list[Finding]:
    """All that the verification of a file finds."""
    steps = verify_store(database, limits=Limits(), is_quiet=is_quiet)
    return [finding for progress in steps for finding in progress.findings]


def rows_of(database: Path, query: str) -> Sequence[tuple[object, ...]]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [tuple(row) for row in connection.execute(query)]
    finally:
        connection.close()
