"""Between the values of leases and the messages of the wire."""

import secrets
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.lease import AbortReason, LossReason, loss_of
from runtime_agent.core.lease_errors import LeaseHeld, LeaseLost, ResourceUnderMaintenance
from runtime_agent.hub_client.codec import seconds_from_proto, time_nanos_from_proto
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_values import (
    LeaseCheck,
    LeaseCredential,
    LeaseState,
    LeaseUpdate,
    LeaseView,
    LeaseWish,
    MaintenanceState,
    OpenedTenure,
    RenewedTenure,
    ResourceState,
    WaiterView,
)
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import lease_service_pb2 as pb

_NONCE_BYTES: Final = 24
"""Random bytes of a nonce: 32 characters, 192 bits."""

_STATES: Final = {
    pb.LEASE_STATE_LIVE: LeaseState.LIVE,
    pb.LEASE_STATE_UNCLAIMED: LeaseState.UNCLAIMED,
    pb.LEASE_STATE_EXPIRED: LeaseState.EXPIRED,
    pb.LEASE_STATE_RELEASED: LeaseState.RELEASED,
    pb.LEASE_STATE_FENCED: LeaseState.FENCED,
}
_ABORT_REASONS: Final = {
    AbortReason.INTERNAL: pb.ABORT_REASON_INTERNAL,
    AbortReason.EXTERNAL: pb.ABORT_REASON_EXTERNAL,
}
_LOSSES: Final = {
    pb.STALE_CAUSE_LEASE_FENCED: LossReason.FENCED,
    pb.STALE_CAUSE_LEASE_MISSING: LossReason.MISSING,
    pb.STALE_CAUSE_LEASE_SUPERSEDED: LossReason.SUPERSEDED,
    pb.STALE_CAUSE_LEASE_EXPIRED: LossReason.EXPIRED,
}


def duration_to_proto(seconds: float) -> Duration:
    """Return a span, to the nanosecond."""
    duration = Duration()
    duration.FromNanoseconds(round(seconds * NANOS_PER_SECOND))
    return duration


def abort_reason_to_proto(reason: AbortReason) -> pb.AbortReason.ValueType:
    """Return the reason as it is on the wire."""
    return _ABORT_REASONS[reason]


# --- answers ----------------------------------------------------------------------------------------


def lease_from_proto(lease: pb.Lease) -> LeaseView:
    """Return a lease or maintenance as it was told."""
    return LeaseView(
        resource=lease.resource,
        runtime_id=lease.runtime_id,
        holder_id=lease.holder_id,
        holder_display_name=lease.holder_display_name,
        fencing_token=lease.fencing_token,
        epoch=lease.epoch,
        ttl_seconds=seconds_from_proto(lease.ttl),
        acquire_time_nanos=_time(lease, "acquire_time", time=lease.acquire_time),
        renew_time_nanos=_time(lease, "renew_time", time=lease.renew_time),
        expire_time_nanos=_time(lease, "expire_time", time=lease.expire_time),
        labels=dict(lease.labels),
        abort_reason=_abort_reason(lease),
        state=_STATES.get(lease.state, LeaseState.UNKNOWN),
        is_maintenance=lease.is_maintenance,
    )


def opened_from_proto(response: pb.AcquireLeaseResponse | pb.TakeoverLeaseResponse) -> OpenedTenure:
    """Return the tenure that a call opened or found."""
    return OpenedTenure(
        credential=credential_from_proto(response.credential),
        epoch=response.lease.epoch,
        ttl_seconds=seconds_from_proto(response.lease.ttl),
        waited_seconds=seconds_from_proto(response.waited),
        is_replayed=response.replayed,
        abort_reason=_abort_reason(response.lease),
    )


def begun_from_proto(response: pb.BeginMaintenanceResponse) -> OpenedTenure:
    """Return the maintenance that a call began or found."""
    return OpenedTenure(
        credential=credential_from_proto(response.credential),
        epoch=response.epoch,
        ttl_seconds=seconds_from_proto(response.ttl),
        waited_seconds=0.0,
        is_replayed=response.replayed,
        abort_reason=None,
    )


def renewed_from_proto(response: pb.RenewLeaseResponse) -> RenewedTenure:
    """Return what a renewal was answered."""
    return RenewedTenure(seconds_from_proto(response.lease.ttl), _abort_reason(response.lease))


def maintenance_from_proto(response: pb.RenewMaintenanceResponse) -> MaintenanceState:
    """Return a renewed maintenance."""
    return MaintenanceState(
        epoch=response.epoch,
        ttl_seconds=seconds_from_proto(response.ttl),
        expire_time_nanos=_time(response, "expire_time", time=response.expire_time),
    )


def check_from_proto(response: pb.CheckLeaseResponse) -> LeaseCheck:
    """Return whether a token is current."""
    return LeaseCheck(
        is_current=response.is_current,
        loss=_LOSSES.get(response.reason),
        expire_time_nanos=_time(response, "expire_time", time=response.expire_time),
    )


def resource_state_from_proto(response: pb.GetResourceStateResponse) -> ResourceState:
    """Return all that is known of a resource."""
    return ResourceState(
        fencing_token=response.fencing_token,
        epoch=response.epoch,
        lease=lease_from_proto(response.lease) if response.HasField("lease") else None,
        maintenance=lease_from_proto(response.maintenance) if response.HasField("maintenance") else None,
        waiters=tuple(
            WaiterView(
                runtime_id=each.runtime_id,
                holder_id=each.holder_id,
                holder_display_name=each.holder_display_name,
                wait_begin_time_nanos=_time(each, "wait_begin_time", time=each.wait_begin_time),
            )
            for each in response.waiters
        ),
        waiter_count=response.waiter_count,
    )


def lease_update_from_proto(response: pb.WatchLeasesResponse) -> LeaseUpdate:
    """Return what a watch tells."""
    return LeaseUpdate(tuple(map(lease_from_proto, response.leases)), response.is_snapshot_complete)


# --- credentials ------------------------------------------------------------------------------------


def credential_from_proto(credential: pb.LeaseCredential) -> LeaseCredential:
    """Return what proves a tenure."""
    return LeaseCredential(
        resource=credential.resource,
        runtime_id=credential.runtime_id,
        holder_id=credential.holder_id,
        fencing_token=credential.fencing_token,
        nonce=credential.nonce,
    )


def credential_to_proto(credential: LeaseCredential) -> pb.LeaseCredential:
    """Return the same as a message."""
    return pb.LeaseCredential(
        resource=credential.resource,
        runtime_id=credential.runtime_id,
        holder_id=credential.holder_id,
        fencing_token=credential.fencing_token,
        nonce=credential.nonce,
    )


def new_nonce() -> str:
    """Return the secret half of a new tenure's credential."""
    return secrets.token_urlsafe(_NONCE_BYTES)


# --- requests that open a tenure --------------------------------------------------------------------


def acquire_request(
    hub_project: str, wish: LeaseWish, *, nonce: str, wait_seconds: float
) -> pb.AcquireLeaseRequest:
    """Return the request for a lease.

    It has no request id: the same nonce finds the same tenure, with a deadline of its own.
    """
    return pb.AcquireLeaseRequest(
        hub_project=hub_project,
        resource=wish.resource,
        runtime_id=wish.runtime_id,
        holder_id=wish.holder_id,
        holder_display_name=wish.holder_display_name,
        nonce=nonce,
        ttl=duration_to_proto(wish.ttl_seconds),
        labels=wish.labels,
        wait_timeout=duration_to_proto(wait_seconds) if wait_seconds > 0 else None,
    )


def takeover_request(
    hub_project: str, wish: LeaseWish, *, nonce: str, request_id: str
) -> pb.TakeoverLeaseRequest:
    """Return the request for a lease that expired."""
    return pb.TakeoverLeaseRequest(
        request_id=request_id,
        hub_project=hub_project,
        resource=wish.resource,
        runtime_id=wish.runtime_id,
        holder_id=wish.holder_id,
        holder_display_name=wish.holder_display_name,
        nonce=nonce,
        ttl=duration_to_proto(wish.ttl_seconds),
        labels=wish.labels,
    )


def begin_maintenance_request(hub_project: str, wish: LeaseWish, *, nonce: str) -> pb.BeginMaintenanceRequest:
    """Return the request for a maintenance; the same nonce finds the same one."""
    return pb.BeginMaintenanceRequest(
        hub_project=hub_project,
        resource=wish.resource,
        runtime_id=wish.runtime_id,
        holder_id=wish.holder_id,
        holder_display_name=wish.holder_display_name,
        nonce=nonce,
        ttl=duration_to_proto(wish.ttl_seconds),
    )


# --- requests about a maintenance -------------------------------------------------------------------


def renew_maintenance_request(
    hub_project: str, credential: LeaseCredential, *, ttl_seconds: float | None
) -> pb.RenewMaintenanceRequest:
    """Return the request that extends a maintenance; without a TTL by the one granted before."""
    return pb.RenewMaintenanceRequest(
        hub_project=hub_project,
        credential=credential_to_proto(credential),
        ttl=None if ttl_seconds is None else duration_to_proto(ttl_seconds),
    )


def finish_maintenance_request(
    hub_project: str, credential: LeaseCredential, *, delete_state: bool
) -> pb.FinishMaintenanceRequest:
    """Return the request that ends a maintenance."""
    return pb.FinishMaintenanceRequest(
        hub_project=hub_project, credential=credential_to_proto(credential), delete_state=delete_state
    )


# --- refusals ---------------------------------------------------------------------------------------


def lease_refusal(error: HubCallError, resource: str) -> RuntimeAgentError:
    """Return what a refused lease call means to its caller; where it is nothing of leases, ``error``.

    LEASE_MISSING is a loss only where a token was shown; a takeover shows none.
    """
    metadata = error.refusal.metadata
    holder, until = metadata.get("holderDisplayName", ""), _expire_nanos(metadata.get("expireTime", ""))
    match error.reason:
        case "LEASE_HELD":
            return LeaseHeld(resource, holder, until)
        case "RESOURCE_UNDER_MAINTENANCE":
            return ResourceUnderMaintenance(resource, holder, until)
    loss, fencing_token = loss_of(error.reason), _number(metadata.get("fencingToken", ""))
    if loss is None or (loss is LossReason.MISSING and not fencing_token):
        return error
    return LeaseLost(resource, fencing_token, reason=loss)


def _expire_nanos(text: str) -> int | None:
    if not text:
        return None
    moment = Timestamp()
    try:
        moment.FromJsonString(text)
    except ValueError:  # a hub of another version may say it otherwise
        return None
    return time_nanos_from_proto(moment)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _abort_reason(lease: pb.Lease) -> AbortReason | None:
    if not lease.is_abort_requested:
        return None
    if lease.abort_reason == pb.ABORT_REASON_EXTERNAL:
        return AbortReason.EXTERNAL
    # A reason that this version does not know asks to stop like any other.
    return AbortReason.INTERNAL


def _time(message: Message, name: str, *, time: Timestamp) -> int | None:
    return time_nanos_from_proto(time) if message.HasField(name) else None
