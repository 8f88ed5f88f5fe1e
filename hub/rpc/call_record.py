"""What is known of a call while it runs: its request id, who makes it, and how it ended.

The record is the running task's and of those that it begins, so each line that is logged for a call can
say which one it was (``facts_of_call``). A request id is the client's where it sent one that may stand in a
log, else a new one; the answer names it.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.rpc import status_pb2

from hub.core.errors import Refusal
from hub.rpc.error_table import INTERNAL_REASON, STATUS_CODES, grpc_status
from hub.rpc.identity import OWN_METHODS_PREFIX, Call
from hub.service.traces import Span

Request = TypeVar("Request")
Response = TypeVar("Response")

REQUEST_ID_KEY: Final = "x-request-id"
"""In the metadata of a call, and in what follows its answer."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
OK: Final = grpc.StatusCode.OK.name
CANCELLED: Final = grpc.StatusCode.CANCELLED.name


class CallRecord:
    """One call. ``code`` is how it would have ended, were it over now."""

    __slots__ = ("begin_seconds", "call", "code", "limit", "method", "reason", "request_id", "span")

    def __init__(self, method: str, request_id: str, *, begin_seconds: float) -> None:
        """Begin; ``method`` is the full path of the call."""
        self.method = method
        self.request_id = request_id
        self.begin_seconds = begin_seconds
        self.call: Call | None = None
        self.code = CANCELLED
        self.reason: str | None = None
        """The reason of the refusal that ended it, or of a fault; None where there was neither."""
        self.limit: str | None = None
        """The limit that the refusal names."""
        self.span: Span | None = None

    def ended_by(self, error: Exception) -> None:
        """Note what ends the call; the first one counts."""
        if self.reason is not None:
            return
        if isinstance(error, Refusal):
            self.code, self.reason = STATUS_CODES[error.reason].name, error.reason
            self.limit = error.metadata().get("limit")
        else:
            self.code, self.reason = grpc.StatusCode.INTERNAL.name, INTERNAL_REASON

    def succeeded(self) -> None:
        """Note that the handler has done its work, unless something has ended the call already."""
        if self.reason is None:
            self.code = OK


@dataclass(frozen=True, slots=True)
class ClosingStatus(grpc.Status):
    """A status in the form that ``abort_with_status`` takes."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


def closing_status(
    status: status_pb2.Status, context: grpc.aio.ServicerContext[Request, Response]
) -> ClosingStatus:
    """Return the status that ends a call, with what was to follow its answer: the request id."""
    ending = grpc_status(status)
    own = context.trailing_metadata() or ()
    return ClosingStatus(ending.code, ending.details, (*own, *(ending.trailing_metadata or ())))


_RECORD: ContextVar[CallRecord | None] = ContextVar("call_record", default=None)


def set_current(record: CallRecord) -> None:
    """Make a record the running task's."""
    _RECORD.set(record)


def current_record() -> CallRecord | None:
    """Return the record of the call that the running task serves, None where it serves none."""
    return _RECORD.get()


def sent_request_id(values: list[str]) -> str | None:
    """Return the request id among what a client sent under its key; None where none may be used."""
    if len(values) != 1 or _REQUEST_ID.fullmatch(values[0]) is None:
        return None
    return values[0]


def short_method(method: str) -> str:
    """Return the name of a method of the hub's own, or of another service with its path."""
    return method.rpartition("/")[2] if method.startswith(OWN_METHODS_PREFIX) else method.lstrip("/")


def facts_of_call() -> dict[str, str]:
    """Return what a line of the log says of the call that it is about; nothing where it is about none."""
    record = _RECORD.get()
    if record is None:
        return {}
    facts = {"request_id": record.request_id, "method": short_method(record.method)}
    call = record.call
    if call is not None:
        facts["peer"] = call.peer
        if call.caller is not None:
            facts["hub_project"] = call.caller.hub_project
            facts["credential"] = call.caller.credential_name
    return facts
