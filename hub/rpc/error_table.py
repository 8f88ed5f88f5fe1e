"""How a refusal looks on the wire: one status a reason, with details that every gRPC language reads.

The code, a sentence for people, and ``google.rpc`` details: always ErrorInfo (domain ``synchub``, the
reason, facts for programs), and BadRequest, ResourceInfo or RetryInfo where they apply. Details travel
in metadata, which is limited to about 8 KiB, so a status is kept below 4 KiB.
"""

from collections.abc import Mapping
from typing import Final, NewType

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from hub.core.errors import InvalidRequest, NotFound, QuotaExceeded, Reason, Refusal
from hub.core.lease_errors import LeaseHeld, ResourceUnderMaintenance
from hub.rpc.codec_time import duration_to_proto
from synchub.channel import ERROR_DOMAIN

STATUS_CODES: Final[Mapping[Reason, grpc.StatusCode]] = {
    Reason.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.CREDENTIAL_MISSING: grpc.StatusCode.UNAUTHENTICATED,
    Reason.CREDENTIAL_INVALID: grpc.StatusCode.UNAUTHENTICATED,
    Reason.CREDENTIAL_EXPIRED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.CREDENTIAL_REVOKED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.IDENTITY_MISMATCH: grpc.StatusCode.PERMISSION_DENIED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RUNTIME_DUPLICATED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.GENERATION_CHANGED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.POSITION_AHEAD: grpc.StatusCode.OUT_OF_RANGE,
    Reason.LEASE_HELD: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LEASE_FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LEASE_MISSING: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LEASE_SUPERSEDED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LEASE_EXPIRED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RESOURCE_UNDER_MAINTENANCE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STALE_LEASE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.REVISION_CONFLICT: grpc.StatusCode.ABORTED,
    Reason.IDEMPOTENCY_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.LIMIT_REACHED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.STORAGE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.HUB_STOPPING: grpc.StatusCode.UNAVAILABLE,
}
"""The one status of each reason."""

RETRY_SECONDS: Final[Mapping[Reason, float]] = {
    Reason.STORAGE_UNAVAILABLE: 1.0,
    Reason.RATE_LIMITED: 1.0,
    Reason.HUB_STOPPING: 1.0,
}
"""How long to wait before trying again, where the reason alone says that trying again may help."""

INTERNAL_REASON: Final = "INTERNAL"
"""The ``ErrorInfo.reason`` of a fault of the hub itself; its metadata has the ``reference``."""

STATUS_BYTES_MAX: Final = 4 * 1024 - 1
"""Largest status, serialised."""
TEXT_BYTES_MAX: Final = 512
"""Longest sentence or value in a status, in bytes of UTF-8."""
_CUT_MARK: Final = "…"

Reference = NewType("Reference", str)
"""Names one fault in what a client is told and in the hub's log."""


def status_from_refusal(refusal: Refusal) -> status_pb2.Status:
    """Return a refusal as the status that ends a call, and that a stream says in band first."""
    info = error_details_pb2.ErrorInfo(reason=refusal.reason, domain=ERROR_DOMAIN)
    for key, value in refusal.metadata().items():
        info.metadata[key] = _cut(value)
    return _status(STATUS_CODES[refusal.reason], str(refusal), details=[info, *_details(refusal)])


def status_of_fault(reference: Reference) -> status_pb2.Status:
    """Return the status for a fault of the hub: nothing of what went wrong, but where to look."""
    info = error_details_pb2.ErrorInfo(reason=INTERNAL_REASON, domain=ERROR_DOMAIN)
    info.metadata["reference"] = reference
    sentence = f"something is wrong inside the hub; its log has the details under {reference}"
    return _status(grpc.StatusCode.INTERNAL, sentence, details=[info])


def grpc_status(status: status_pb2.Status) -> grpc.Status:
    """Return a status in the form that ``abort_with_status`` takes."""
    return rpc_status.to_status(status)


def _details(refusal: Refusal) -> list[Message]:
    """Return the details beside ErrorInfo."""
    details: list[Message] = []
    if isinstance(refusal, InvalidRequest):
        violations = [
            error_details_pb2.BadRequest.FieldViolation(
                field=_cut(each.field), description=_cut(each.description)
            )
            for each in refusal.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if isinstance(refusal, NotFound):
        name = "/".join(refusal.ids.values())
        details.append(error_details_pb2.ResourceInfo(resource_type=refusal.what, resource_name=_cut(name)))
    if isinstance(refusal, QuotaExceeded):
        violation = error_details_pb2.QuotaFailure.Violation(subject=refusal.limit, description=str(refusal))
        details.append(error_details_pb2.QuotaFailure(violations=[violation]))
    if isinstance(refusal, LeaseHeld | ResourceUnderMaintenance):
        details.append(
            error_details_pb2.ResourceInfo(
                resource_type="resource",
                resource_name=_cut(refusal.resource),
                owner=_cut(refusal.holder_name),
            )
        )
    seconds = refusal.retry_seconds()
    if seconds is None:
        seconds = RETRY_SECONDS.get(refusal.reason)
    if seconds is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_to_proto(seconds)))
    return details


def _status(code: grpc.StatusCode, sentence: str, *, details: list[Message]) -> status_pb2.Status:
    """Return a status; what makes it too large is left out, from the end."""
    status = status_pb2.Status(code=code.value[0], message=_cut(sentence))
    for detail in details:
        while isinstance(detail, error_details_pb2.BadRequest) and len(detail.field_violations) > 1:
            if status.ByteSize() + detail.ByteSize() < STATUS_BYTES_MAX - TEXT_BYTES_MAX:
                break
            detail.field_violations.pop()
        status.details.add().Pack(detail)
        if status.ByteSize() > STATUS_BYTES_MAX:
            status.details.pop()
    return status


def _cut(text: str) -> str:
    """Return a text that is not too long for a status, its end left out where it is."""
    encoded = text.encode()
    if len(encoded) <= TEXT_BYTES_MAX:
        return text
    kept = encoded[: TEXT_BYTES_MAX - len(_CUT_MARK.encode())].decode(errors="ignore")
    return kept + _CUT_MARK
