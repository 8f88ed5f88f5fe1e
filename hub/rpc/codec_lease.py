"""Leases, credentials, claims and aborts between protobuf and the hub's values.

A nonce comes in here and goes out in a credential; further in there is only its hash.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from typing import Final

from google.protobuf.duration_pb2 import Duration

from hub.core.errors import Refusal
from hub.core.lease_errors import LeaseExpired, LeaseFenced, LeaseMissing, LeaseSuperseded
from hub.core.limits import Limits
from hub.core.receipt import Repeat
from hub.core.tenure import AbortReason, Claim, Credential, Holder, Tenure, TenureState, hash_of_nonce
from hub.core.values import HolderId, ResourceName, RuntimeId
from hub.rpc.codec_time import nanos_to_duration, timestamp_to_proto
from hub.rpc.error_table import status_from_refusal
from hub.rpc.requests import RequestCheck
from hub.service.lease_aborts import AbortNotice
from hub.service.lease_reads import Waiting
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import lease_service_pb2 as messages

ClaimRequest = messages.AcquireLeaseRequest | messages.TakeoverLeaseRequest | messages.BeginMaintenanceRequest
"""What asks for a tenure."""
RepeatableRequest = (
    ClaimRequest
    | messages.ReleaseLeaseRequest
    | messages.TransferLeaseRequest
    | messages.AbortLeaseRequest
    | messages.FinishMaintenanceRequest
)
"""What may carry a ``request_id``."""

_STATES: Final = {state: messages.LeaseState.Value(f"LEASE_STATE_{state}") for state in TenureState}
_ABORTS_TO_PROTO: Final = {
    reason: messages.AbortReason.Value(f"ABORT_REASON_{reason}") for reason in AbortReason
}
_ABORTS_FROM_PROTO: Final[Mapping[int, AbortReason]] = {
    number: reason for reason, number in _ABORTS_TO_PROTO.items()
}
_UNCOMPARED_FIELDS: Final = ("request_id", "hub_project", "wait_timeout")
"""What may differ between a call and its repeat; the hub project is part of the receipt's key."""

StaleLease = LeaseFenced | LeaseMissing | LeaseSuperseded | LeaseExpired
"""Why a token is not current: what CheckLease answers in band."""


# --- what comes in ----------------------------------------------------------------------------------


def credential_from_proto(
    credential: messages.LeaseCredential, check: RequestCheck, *, field: str = "credential"
) -> Credential:
    """Return a credential, its nonce hashed; what is wrong with it is noted in ``check``."""
    if not credential.ByteSize():
        check.add(field, "is missing")
    else:
        check.identifier(f"{field}.resource", credential.resource)
        check.identifier(f"{field}.runtime_id", credential.runtime_id)
        check.identifier(f"{field}.holder_id", credential.holder_id)
        check.positive(f"{field}.fencing_token", credential.fencing_token)
        check.nonce(f"{field}.nonce", credential.nonce)
    return Credential(
        resource=ResourceName(credential.resource),
        runtime_id=RuntimeId(credential.runtime_id),
        holder_id=HolderId(credential.holder_id),
        fencing_token=credential.fencing_token,
        nonce_hash=hash_of_nonce(credential.nonce),
    )


def claim_from_proto(request: ClaimRequest, limits: Limits, *, nonce: str, check: RequestCheck) -> Claim:
    """Return who wants a tenure and for how long; what is wrong is noted in ``check``.

    ``nonce`` is the request's, or one that was made where the request has none.
    """
    check.identifier("runtime_id", request.runtime_id)
    check.identifier("holder_id", request.holder_id)
    check.optional_identifier("holder_display_name", request.holder_display_name)
    check.optional_nonce("nonce", request.nonce)
    if isinstance(request, messages.BeginMaintenanceRequest):
        labels: dict[str, str] = {}
        default_seconds = limits.maintenance_ttl_seconds_default
    else:
        labels = dict(request.labels)
        check.attributes("labels", labels)
        default_seconds = limits.lease_ttl_seconds_default
    ttl_nanos = ttl_from_proto(request.ttl, limits, check=check)
    return Claim(
        holder=Holder(
            RuntimeId(request.runtime_id), HolderId(request.holder_id), request.holder_display_name
        ),
        nonce_hash=hash_of_nonce(nonce),
        ttl_nanos=round(default_seconds * NANOS_PER_SECOND) if ttl_nanos is None else ttl_nanos,
        labels=labels,
    )


def next_holder_from_proto(request: messages.TransferLeaseRequest, check: RequestCheck) -> Holder:
    """Return who is to have a lease next; what is wrong is noted in ``check``."""
    check.identifier("next_runtime_id", request.next_runtime_id)
    check.identifier("next_holder_id", request.next_holder_id)
    check.optional_identifier("next_holder_display_name", request.next_holder_display_name)
    return Holder(
        RuntimeId(request.next_runtime_id),
        HolderId(request.next_holder_id),
        request.next_holder_display_name,
    )


def ttl_from_proto(ttl: Duration, limits: Limits, *, check: RequestCheck, field: str = "ttl") -> int | None:
    """Return a TTL in nanoseconds, brought within the bounds; None where it is absent or 0."""
    nanos = check.span_nanos(field, ttl)
    return ttl_within_bounds(nanos, limits) if nanos else None


def ttl_within_bounds(ttl_nanos: int, limits: Limits) -> int:
    """Return the TTL that is granted where this one is asked for."""
    nanos_min = round(limits.lease_ttl_seconds_min * NANOS_PER_SECOND)
    nanos_max = round(limits.lease_ttl_seconds_max * NANOS_PER_SECOND)
    return min(max(ttl_nanos, nanos_min), nanos_max)


def wait_from_proto(wait_timeout: Duration, limits: Limits, *, check: RequestCheck) -> int:
    """Return how long to wait in nanoseconds; longer than allowed is noted in ``check``."""
    nanos = check.span_nanos("wait_timeout", wait_timeout)
    seconds_max = limits.lease_wait_seconds_max
    if nanos > round(seconds_max * NANOS_PER_SECOND):
        description = f"is {nanos / NANOS_PER_SECOND:g} s; at most lease_wait_seconds_max = {seconds_max:g} s"
        check.add("wait_timeout", description)
    return nanos


def abort_reason_from_proto(number: int, check: RequestCheck) -> AbortReason:
    """Return why a holder is to stop; what is no reason is noted in ``check``."""
    reason = _ABORTS_FROM_PROTO.get(number)
    if reason is None:
        check.add("reason", f"is {number}; ABORT_REASON_INTERNAL or ABORT_REASON_EXTERNAL is needed")
        return AbortReason.INTERNAL
    return reason


def repeat_from_proto(request: RepeatableRequest, check: RequestCheck) -> Repeat | None:
    """Return what makes the call repeatable, None without ``request_id``.

    A stored answer has no nonce: where a call could leave the choice to the hub, a repeatable one must
    bring its own.
    """
    if not request.request_id:
        return None
    check.identifier("request_id", request.request_id)
    if isinstance(request, ClaimRequest) and not request.nonce:
        check.add("nonce", "is empty; a call with request_id brings one, so that its repeat knows it too")
    parameters = deepcopy(request)
    parameters.DiscardUnknownFields()
    for field in _UNCOMPARED_FIELDS:
        if field in request.DESCRIPTOR.fields_by_name:
            parameters.ClearField(field)  # type: ignore[arg-type]
    return Repeat(
        request_id=request.request_id,
        method=request.DESCRIPTOR.name.removesuffix("Request"),
        parameters_hash=sha256(parameters.SerializeToString(deterministic=True)).digest(),
    )


# --- what goes out ----------------------------------------------------------------------------------


def lease_to_proto(tenure: Tenure, now_nanos: int) -> messages.Lease:
    """Return a tenure as it stands at a moment."""
    holder, reason = tenure.holder, tenure.abort_reason
    return messages.Lease(
        resource=tenure.resource,
        runtime_id=holder.runtime_id,
        holder_id=holder.holder_id,
        holder_display_name=holder.display_name,
        fencing_token=tenure.fencing_token,
        epoch=tenure.epoch,
        ttl=nanos_to_duration(tenure.ttl_nanos),
        acquire_time=timestamp_to_proto(tenure.acquire_nanos),
        renew_time=timestamp_to_proto(tenure.renew_nanos),
        expire_time=timestamp_to_proto(tenure.expire_nanos),
        labels=tenure.labels,
        is_abort_requested=reason is not None,
        abort_reason=messages.ABORT_REASON_UNSPECIFIED if reason is None else _ABORTS_TO_PROTO[reason],
        state=_STATES[tenure.state(now_nanos)],
        is_maintenance=tenure.is_maintenance,
    )


def granted_to_proto(tenure: Tenure, *, is_claimed: bool = False) -> messages.Lease:
    """Return a tenure as it stood when it was granted or renewed; a stored answer stays as it was.

    ``is_claimed`` says that it had a nonce, which a stored answer does not know any more.
    """
    if is_claimed and tenure.nonce_hash is None:
        tenure = replace(tenure, nonce_hash=b"")
    return lease_to_proto(tenure, tenure.renew_nanos)


def credential_to_proto(tenure: Tenure, nonce: str) -> messages.LeaseCredential:
    """Return what proves a tenure; the nonce is the one that opened it."""
    return messages.LeaseCredential(
        resource=tenure.resource,
        runtime_id=tenure.holder.runtime_id,
        holder_id=tenure.holder.holder_id,
        fencing_token=tenure.fencing_token,
        nonce=nonce,
    )


def renewal_to_proto(credential: Credential, outcome: Tenure | Refusal) -> messages.LeaseRenewalResult:
    """Return what became of the renewal of one lease among many."""
    result = messages.LeaseRenewalResult(resource=credential.resource, fencing_token=credential.fencing_token)
    if isinstance(outcome, Refusal):
        result.refusal.CopyFrom(status_from_refusal(outcome))
    else:
        result.lease.CopyFrom(granted_to_proto(outcome))
    return result


def stale_cause_to_proto(refusal: StaleLease) -> "messages.StaleCause.ValueType":
    """Return why a token is not current."""
    return messages.StaleCause.Value(f"STALE_CAUSE_{refusal.reason}")


def abort_to_proto(notice: AbortNotice) -> messages.LeaseAbort:
    """Return that a holder is asked to stop."""
    return messages.LeaseAbort(
        resource=notice.resource,
        fencing_token=notice.fencing_token,
        reason=_ABORTS_TO_PROTO[notice.reason],
    )


def waiter_to_proto(waiting: Waiting) -> messages.LeaseWaiter:
    """Return somebody who waits for a resource."""
    holder = waiting.holder
    return messages.LeaseWaiter(
        runtime_id=holder.runtime_id,
        holder_id=holder.holder_id,
        holder_display_name=holder.display_name,
        wait_begin_time=timestamp_to_proto(waiting.begin_nanos),
    )
