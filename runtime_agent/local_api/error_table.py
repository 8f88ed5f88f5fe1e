"""Every error of the agent as a ``google.rpc.Status``, and back.

The service sends the one, the local client reads it into the same class again, so that a program
sees the same errors whether it goes through the agent or writes the log itself.
"""

from collections.abc import Mapping
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from runtime_agent.core.errors import (
    AgentUnreachableError,
    AppendIdReusedError,
    EventInvalidError,
    LogFullError,
    LogOutcomeUnknownError,
    LogQueueFullError,
    LogStoppedError,
    LogStorageError,
    NothingToCopyError,
    RunExistsError,
    RunFinalError,
    RunNotQuarantinedError,
    RuntimeAgentError,
    RunUnknownError,
    SequenceExhaustedError,
    WrongSequenceError,
)
from synchub.channel import ERROR_DOMAIN, Refusal

_CODES: Final[Mapping[str, grpc.StatusCode]] = {
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "REVISION_CONFLICT": grpc.StatusCode.ABORTED,
    "IDEMPOTENCY_CONFLICT": grpc.StatusCode.ALREADY_EXISTS,
    "RUN_COMPLETE": grpc.StatusCode.FAILED_PRECONDITION,
    "LIMIT_REACHED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STORAGE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
}
"""Each reason that the local service gives, with its one code."""


def status_from_error(error: RuntimeAgentError) -> status_pb2.Status:
    """Return the status that says the error, with what ``error_from_refusal`` needs to read it."""
    reason, metadata = _facts(error)
    details = [
        error_details_pb2.ErrorInfo(
            reason=reason, domain=ERROR_DOMAIN, metadata={**metadata, "cause": type(error).__name__}
        )
    ]
    status = status_pb2.Status(code=_CODES[reason].value[0], message=str(error))
    for detail in details:
        status.details.append(_packed(detail))
    if isinstance(error, EventInvalidError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.fault)
        status.details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


def internal_status(reference: str) -> status_pb2.Status:
    """Return the status of a mistake of ours; ``reference`` is also in the log."""
    return status_pb2.Status(
        code=grpc.StatusCode.INTERNAL.value[0],
        message=f"the agent made a mistake; its log says more under reference {reference}",
    )


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def _facts(error: RuntimeAgentError) -> tuple[str, dict[str, str]]:
    """Return reason and metadata of an error."""
    match error:
        case EventInvalidError():
            return "INVALID_REQUEST", {"field": error.field}
        case WrongSequenceError():
            return "REVISION_CONFLICT", {
                "expectedRevision": str(error.expected_sequence),
                "actualRevision": str(error.next_sequence),
            }
        case AppendIdReusedError():
            return "IDEMPOTENCY_CONFLICT", {
                "id": error.append_id,
                "sequence": str(error.first_sequence),
                "lastSequence": str(error.last_sequence),
            }
        case RunFinalError():
            return "RUN_COMPLETE", {"runId": error.run_id, "sequence": str(error.final_sequence)}
        case LogFullError():
            return "LIMIT_REACHED", {
                "limit": "log_bytes_max",
                "limitValue": str(error.log_bytes_max),
                "logBytes": str(error.log_bytes),
            }
        case SequenceExhaustedError():
            return "LIMIT_REACHED", {"limit": error.what}
        case RunUnknownError() | RunNotQuarantinedError():
            return "NOT_FOUND", {"projectId": error.project_id, "runId": error.run_id}
        case RunExistsError():
            return "INVALID_REQUEST", {"projectId": error.project_id, "runId": error.run_id}
        case NothingToCopyError():
            return "INVALID_REQUEST", {"runId": error.run_id, "sequence": str(error.sequence)}
        case _:
            # A failing or stopping log; what else there is happens before the service runs.
            return "STORAGE_UNAVAILABLE", {}


def error_from_refusal(refusal: Refusal, socket: str) -> RuntimeAgentError:
    """Return the error behind a refusal of the agent at ``socket``, of the class that it raised."""
    facts = refusal.metadata
    try:
        match facts.get("cause", ""):
            case EventInvalidError.__name__ if refusal.violations:
                return EventInvalidError(refusal.violations[0].field, refusal.violations[0].description)
            case WrongSequenceError.__name__:
                return WrongSequenceError(int(facts["expectedRevision"]), int(facts["actualRevision"]))
            case AppendIdReusedError.__name__:
                return AppendIdReusedError(facts["id"], int(facts["sequence"]), int(facts["lastSequence"]))
            case RunFinalError.__name__:
                return RunFinalError(facts["runId"], int(facts["sequence"]))
            case LogFullError.__name__:
                return LogFullError(int(facts["logBytes"]), int(facts["limitValue"]))
            case SequenceExhaustedError.__name__:
                return SequenceExhaustedError(facts["limit"])
            case RunUnknownError.__name__:
                return RunUnknownError(facts["projectId"], facts["runId"])
            case RunNotQuarantinedError.__name__:
                return RunNotQuarantinedError(facts["projectId"], facts["runId"])
            case RunExistsError.__name__:
                return RunExistsError(facts["projectId"], facts["runId"])
            case NothingToCopyError.__name__:
                return NothingToCopyError(facts["runId"], int(facts["sequence"]))
            case LogStoppedError.__name__:
                return LogStoppedError()
            case LogQueueFullError.__name__:
                return LogQueueFullError()
            case LogOutcomeUnknownError.__name__:
                return LogOutcomeUnknownError(socket, refusal.message)
            case LogStorageError.__name__:
                return LogStorageError(socket, refusal.message)
            case _:
                return AgentUnreachableError(socket, refusal.message or refusal.code.name)
    except (KeyError, ValueError):
        # An agent of another version says it with other facts: its sentence is still true.
        return AgentUnreachableError(socket, refusal.message)
