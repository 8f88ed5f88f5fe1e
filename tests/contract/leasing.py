"""Short ways to take, hold and look at leases over the wire."""

import time
from collections.abc import Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration

from synchub.v1.lease_service_pb2 import (
    LEASE_STATE_EXPIRED,
    AcquireLeaseRequest,
    AcquireLeaseResponse,
    BeginMaintenanceRequest,
    GetResourceStateRequest,
    GetResourceStateResponse,
    ReleaseLeaseRequest,
    TakeoverLeaseRequest,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

CALL_SECONDS_MAX: Final = 20.0
"""Deadline of a call, so that a test that waits in vain ends."""


def nonce(name: str) -> str:
    """A nonce of the right form that a test can tell from another; a real one is random."""
    return f"{name:0<22}"


def seconds(count: float) -> Duration:
    span = Duration()
    span.FromNanoseconds(round(count * 1_000_000_000))
    return span


def acquire_request(
    hub_project: str,
    resource: str = "r",
    *,
    holder_id: str = "a",
    secret: str = "a1",
    runtime_id: str = "runtime",
    request_id: str = "",
    ttl: float = 0,
    wait: float = 0,
    display_name: str = "",
    labels: Mapping[str, str] | None = None,
) -> AcquireLeaseRequest:
    """A request of a holder; ``secret`` names its nonce, empty for none."""
    return AcquireLeaseRequest(
        request_id=request_id,
        hub_project=hub_project,
        resource=resource,
        runtime_id=runtime_id,
        holder_id=holder_id,
        holder_display_name=display_name,
        nonce=nonce(secret) if secret else "",
        ttl=seconds(ttl) if ttl else None,
        wait_timeout=seconds(wait) if wait else None,
        labels=labels,
    )


def acquire(
    stub: LeaseServiceStub, hub_project: str, resource: str = "r", *, holder_id: str = "a", secret: str = "a1"
) -> AcquireLeaseResponse:
    request = acquire_request(hub_project, resource, holder_id=holder_id, secret=secret)
    return stub.AcquireLease(request, timeout=CALL_SECONDS_MAX)


def takeover_request(
    hub_project: str, resource: str = "r", *, holder_id: str = "b", secret: str = "b1", request_id: str = ""
) -> TakeoverLeaseRequest:
    return TakeoverLeaseRequest(
        request_id=request_id,
        hub_project=hub_project,
        resource=resource,
        runtime_id="runtime",
        holder_id=holder_id,
        nonce=nonce(secret) if secret else "",
    )


def begin_request(
    hub_project: str, resource: str = "r", *, holder_id: str = "m", secret: str = "m1", request_id: str = ""
) -> BeginMaintenanceRequest:
    return BeginMaintenanceRequest(
        request_id=request_id,
        hub_project=hub_project,
        resource=resource,
        runtime_id="operator",
        holder_id=holder_id,
        nonce=nonce(secret) if secret else "",
    )


def release(stub: LeaseServiceStub, hub_project: str, held: AcquireLeaseResponse) -> None:
    request = ReleaseLeaseRequest(hub_project=hub_project, credential=held.credential)
    stub.ReleaseLease(request, timeout=CALL_SECONDS_MAX)


def expired(stub: LeaseServiceStub, hub_project: str, resource: str = "r") -> AcquireLeaseResponse:
    """A lease of the shortest TTL that the hub grants, once it has expired."""
    held = stub.AcquireLease(acquire_request(hub_project, resource, ttl=0.001), timeout=CALL_SECONDS_MAX)
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while state_of(stub, hub_project, resource).lease.state != LEASE_STATE_EXPIRED:
        assert time.monotonic() < deadline, "it still lives"
    return held


def state_of(stub: LeaseServiceStub, hub_project: str, resource: str = "r") -> GetResourceStateResponse:
    request = GetResourceStateRequest(hub_project=hub_project, resource=resource)
    return stub.GetResourceState(request, timeout=CALL_SECONDS_MAX)
