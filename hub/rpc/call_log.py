"""Every call, from its beginning to its end: named, counted, traced where that is asked for, and logged.

A call that is refused for want of a credential or of permission is a line in the log, as an operator wants
to see who tries; of a flood of them only so many a second are. Other refusals are lines at level debug.
"""

import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import grpc
import grpc.aio
import structlog

from hub.core.limits import Limits
from hub.rpc.call_record import REQUEST_ID_KEY, CallRecord, sent_request_id, set_current, short_method
from hub.service.traces import TRACEPARENT, Tracer

log = structlog.get_logger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")

REQUEST_ID_BYTES: Final = 6
"""Random bytes in a request id that the hub makes."""
UNKNOWN_METHOD: Final = "other"
"""The label of all methods that the hub does not have."""
_DENIED_CODES: Final = frozenset(
    (grpc.StatusCode.UNAUTHENTICATED.name, grpc.StatusCode.PERMISSION_DENIED.name)
)


class CallObserver(Protocol):
    """Counts calls."""

    def call_ended(self, method: str, *, code: str, seconds: float | None) -> None:
        """A call ended; ``seconds`` is None for a stream."""

    def call_refused(self, reason: str, *, code: str, limit: str | None) -> None:
        """A call ended by a refusal or a fault."""

    def refusal_unlogged(self) -> None:
        """There were too many refusals for each to be logged."""


class CallLog:
    """Begins and ends the records of calls. Used on the event loop only."""

    def __init__(
        self,
        observer: CallObserver | None = None,
        *,
        limits: Limits | None = None,
        tracer: Tracer | None = None,
        monotonic_seconds: Callable[[], float] = time.monotonic,
        new_request_id: Callable[[], str] = lambda: secrets.token_hex(REQUEST_ID_BYTES),
    ) -> None:
        """Bind what counts, and what traces."""
        self._observer = observer
        self._tracer = tracer
        self._monotonic_seconds = monotonic_seconds
        self._new_request_id = new_request_id
        self._logged_per_second_max = (limits or Limits()).refusals_logged_per_second
        self._second = 0
        self._logged_count = 0
        self._unlogged_count = 0

    def begin(self, context: grpc.aio.ServicerContext[Request, Response], method: str) -> CallRecord:
        """Return the record of a call that begins, which is the running task's from now on."""
        request_ids: list[str] = []
        traceparents: list[str] = []
        for key, value in context.invocation_metadata() or ():
            if key == REQUEST_ID_KEY:
                request_ids.append(str(value))
            elif key == TRACEPARENT:
                traceparents.append(str(value))
        request_id = sent_request_id(request_ids) or self._new_request_id()
        record = CallRecord(method, request_id, begin_seconds=self._monotonic_seconds())
        set_current(record)
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
        if self._tracer is not None and len(traceparents) == 1:
            record.span = self._tracer.begin_call(short_method(method), traceparents[0])
        return record

    def end(self, record: CallRecord, *, is_stream: bool) -> None:
        """Count and log how a call ended."""
        method = short_method(record.method)
        if self._observer is not None:
            seconds = None if is_stream else self._monotonic_seconds() - record.begin_seconds
            self._observer.call_ended(method, code=record.code, seconds=seconds)
        if record.span is not None:
            facts = {"rpc.method": method, "synchub.request_id": record.request_id}
            record.span.end(facts, error=record.reason)
        if record.reason is not None:
            self._refused(record, record.reason)

    def unserved(self) -> None:
        """Count a call of a method that the hub does not have."""
        if self._observer is not None:
            code = grpc.StatusCode.UNIMPLEMENTED.name
            self._observer.call_ended(UNKNOWN_METHOD, code=code, seconds=None)

    def _refused(self, record: CallRecord, reason: str) -> None:
        if self._observer is not None:
            self._observer.call_refused(reason, code=record.code, limit=record.limit)
        if record.code not in _DENIED_CODES:
            log.debug("call_refused", reason=reason, code=record.code, limit=record.limit)
            return
        second = int(self._monotonic_seconds())
        if second != self._second:
            self._second, self._logged_count = second, 0
        if self._logged_count >= self._logged_per_second_max:
            self._unlogged_count += 1
            if self._observer is not None:
                self._observer.refusal_unlogged()
            return
        self._logged_count += 1
        unlogged_count, self._unlogged_count = self._unlogged_count, 0
        log.warning("call_refused", reason=reason, code=record.code, unlogged_before_count=unlogged_count)
