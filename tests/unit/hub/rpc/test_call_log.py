"""A call has a request id, ends once in the counts, and is a line in the log where it was denied."""

import pytest
import structlog
from structlog.testing import capture_logs

from hub.core.errors import LimitReached, NotFound, QuotaExceeded
from hub.core.identity_errors import CredentialMissing
from hub.core.limits import Limits
from hub.rpc.call_log import CallLog
from hub.rpc.call_record import (
    CallRecord,
    current_record,
    facts_of_call,
    sent_request_id,
    set_current,
    short_method,
)


class Counted:
    """What was told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float | None]] = []
        self.refusals: list[tuple[str, str, str | None]] = []
        self.unlogged = 0

    def call_ended(self, method: str, *, code: str, seconds: float | None) -> None:
        self.calls.append((method, code, seconds))

    def call_refused(self, reason: str, *, code: str, limit: str | None) -> None:
        self.refusals.append((reason, code, limit))

    def refusal_unlogged(self) -> None:
        self.unlogged += 1


class Calls:
    """A log of calls over a clock that is moved by hand."""

    def __init__(self, **limits: int) -> None:
        self.seconds = 1_000.0
        self.counted = Counted()
        self.log = CallLog(self.counted, limits=Limits(**limits), monotonic_seconds=lambda: self.seconds)

    def denied(self) -> None:
        record = CallRecord("/synchub.v1.SyncService/GetRun", "id", begin_seconds=self.seconds)
        record.ended_by(CredentialMissing())
        self.log.end(record, is_stream=False)


@pytest.mark.parametrize("text", ["a", "A-z_0.9", "x" * 64])
def test_a_request_id_that_may_stand_in_a_log_is_taken(text: str) -> None:
    assert sent_request_id([text]) == text


@pytest.mark.parametrize(
    "sent", [[], [""], ["x" * 65], ["a b"], ["a\n"], ["ä"], ['a"'], ["{}"], ["a", "a"], ["a/b"]]
)
def test_any_other_is_not(sent: list[str]) -> None:
    assert sent_request_id(sent) is None


def test_the_first_cause_of_an_end_counts() -> None:
    record = CallRecord("/synchub.v1.SyncService/GetRun", "id", begin_seconds=0.0)
    assert (record.code, record.reason) == ("CANCELLED", None)
    record.ended_by(QuotaExceeded("hub_project_stored_bytes_max", 5))
    record.ended_by(NotFound("run", {"runId": "r"}))
    record.succeeded()
    assert (record.code, record.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
    assert record.limit == "hub_project_stored_bytes_max"


def test_a_fault_ends_a_call_as_internal() -> None:
    record = CallRecord("/synchub.v1.SyncService/GetRun", "id", begin_seconds=0.0)
    record.ended_by(ValueError("secret"))
    assert (record.code, record.reason, record.limit) == ("INTERNAL", "INTERNAL", None)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("/synchub.v1.LeaseService/RenewLease", "RenewLease"),
        ("/grpc.health.v1.Health/Watch", "grpc.health.v1.Health/Watch"),
    ],
)
def test_a_method_of_the_hub_has_a_short_name(method: str, name: str) -> None:
    assert short_method(method) == name


def test_a_call_is_counted_with_its_length_and_a_stream_without() -> None:
    calls = Calls()
    for is_stream in (False, True):
        record = CallRecord("/synchub.v1.SyncService/GetRun", "id", begin_seconds=calls.seconds)
        record.succeeded()
        calls.seconds += 0.5
        calls.log.end(record, is_stream=is_stream)
    calls.log.unserved()
    assert calls.counted.calls == [
        ("GetRun", "OK", 0.5),
        ("GetRun", "OK", None),
        ("other", "UNIMPLEMENTED", None),
    ]
    assert calls.counted.refusals == []


def test_of_a_flood_of_denied_calls_so_many_a_second_are_logged_and_the_others_counted() -> None:
    calls = Calls(refusals_logged_per_second=2)
    with capture_logs() as lines:
        for _ in range(5):
            calls.denied()
        calls.seconds += 1.0
        calls.denied()
    assert [(line["log_level"], line["reason"], line["unlogged_before_count"]) for line in lines] == [
        ("warning", "CREDENTIAL_MISSING", 0),
        ("warning", "CREDENTIAL_MISSING", 0),
        ("warning", "CREDENTIAL_MISSING", 3),
    ]
    assert calls.counted.unlogged == 3
    assert calls.counted.refusals == [("CREDENTIAL_MISSING", "UNAUTHENTICATED", None)] * 6


def test_another_refusal_is_no_warning() -> None:
    calls = Calls()
    record = CallRecord("/synchub.v1.SyncService/GetRun", "id", begin_seconds=0.0)
    record.ended_by(LimitReached("open_streams_max", 1))
    with capture_logs() as lines:
        calls.log.end(record, is_stream=True)
    assert [line["log_level"] for line in lines] == ["debug"]
    assert calls.counted.refusals == [("LIMIT_REACHED", "RESOURCE_EXHAUSTED", "open_streams_max")]


async def test_a_line_says_which_call_it_is_about() -> None:
    assert (current_record(), facts_of_call()) == (None, {})
    set_current(CallRecord("/synchub.v1.SyncService/GetRun", "id-1", begin_seconds=0.0))
    assert facts_of_call() == {"request_id": "id-1", "method": "GetRun"}
    structlog.contextvars.clear_contextvars()
