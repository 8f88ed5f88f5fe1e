"""Leases between protobuf and the hub's values: every check of a field, and what never shows."""

from dataclasses import replace
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration

from hub.core.errors import InvalidRequest, Violation
from hub.core.lease_errors import LeaseExpired, LeaseFenced, LeaseMissing, LeaseSuperseded
from hub.core.limits import Limits
from hub.core.tenure import (
    AbortReason,
    Claim,
    Credential,
    Holder,
    Tenure,
    TenureEnd,
    TenureState,
    hash_of_nonce,
)
from hub.core.values import HolderId, ResourceName, RuntimeId
from hub.rpc.codec_lease import (
    ClaimRequest,
    RepeatableRequest,
    abort_reason_from_proto,
    claim_from_proto,
    credential_from_proto,
    granted_to_proto,
    lease_to_proto,
    renewal_to_proto,
    repeat_from_proto,
    stale_cause_to_proto,
    ttl_from_proto,
    ttl_within_bounds,
    wait_from_proto,
)
from hub.rpc.requests import RequestCheck
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import lease_service_pb2 as messages

LIMITS: Final = Limits()
NONCE: Final = "n" * 22
SECOND: Final = NANOS_PER_SECOND
NAME: Final = ResourceName("r")
TENURE: Final = Tenure(
    resource=NAME,
    holder=Holder(RuntimeId("runtime"), HolderId("a"), "Ada"),
    fencing_token=7,
    epoch=2,
    ttl_nanos=1_500_000_000,
    acquire_nanos=1 * SECOND,
    renew_nanos=2 * SECOND,
    expire_nanos=3_500_000_000,
    nonce_hash=hash_of_nonce(NONCE),
    labels={"pid": "1"},
)


def violations_of(check: RequestCheck) -> list[Violation]:
    with pytest.raises(InvalidRequest) as caught:
        check.refuse_violations()
    return caught.value.violations


def credential(**changes: str | int) -> messages.LeaseCredential:
    made = messages.LeaseCredential(
        resource="r", runtime_id="runtime", holder_id="a", fencing_token=1, nonce=NONCE
    )
    for field, value in changes.items():
        setattr(made, field, value)
    return made


# --- credentials and nonces ---


def test_a_credential_holds_the_hash_of_its_nonce_alone() -> None:
    check = RequestCheck(LIMITS)
    read = credential_from_proto(credential(fencing_token=2**63 - 1), check)
    check.refuse_violations()
    assert read == Credential(NAME, RuntimeId("runtime"), HolderId("a"), 2**63 - 1, hash_of_nonce(NONCE))
    assert NONCE not in repr(read)


@pytest.mark.parametrize(
    ("field", "value", "description"),
    [
        ("resource", "", "is empty; 1 to 256 bytes are needed"),
        ("resource", "r" * 257, "has 257 bytes; at most 256 are allowed"),
        ("runtime_id", "", "is empty; 1 to 256 bytes are needed"),
        ("holder_id", "a\n", "has the control code point U+000A, which is not allowed"),
        ("fencing_token", 0, "is 0; 1 or more is needed"),
        ("fencing_token", -1, "is -1; 1 or more is needed"),
        ("nonce", "", "has 0 characters; 22 to 128 are needed, at random"),
        ("nonce", "x" * 21, "has 21 characters; 22 to 128 are needed, at random"),
        ("nonce", "x" * 129, "has 129 characters; 22 to 128 are needed, at random"),
        ("nonce", "x" * 21 + "+", "has a character other than A-Z a-z 0-9 _ -"),
        ("nonce", "é" * 22, "has a character other than A-Z a-z 0-9 _ -"),
    ],
)
def test_each_fault_of_a_credential_is_named_under_its_field(
    field: str, value: str | int, description: str
) -> None:
    check = RequestCheck(LIMITS)
    credential_from_proto(credential(**{field: value}), check, field="renewals[3].credential")
    assert violations_of(check) == [Violation(f"renewals[3].credential.{field}", description)]


def test_a_credential_that_is_not_there_is_one_fault() -> None:
    check = RequestCheck(LIMITS)
    credential_from_proto(messages.RenewLeaseRequest().credential, check)
    assert violations_of(check) == [Violation("credential", "is missing")]


def test_no_refusal_of_a_nonce_holds_it() -> None:
    secret = "tell-nobody!"
    check = RequestCheck(LIMITS)
    credential_from_proto(credential(nonce=secret), check)
    claim_from_proto(messages.AcquireLeaseRequest(nonce=secret), LIMITS, nonce=secret, check=check)
    with pytest.raises(InvalidRequest) as caught:
        check.refuse_violations()
    assert secret not in repr(caught.value) + str(caught.value) + str(caught.value.metadata())


# --- claims ---


def test_a_claim_is_read_as_it_is_asked_for() -> None:
    check = RequestCheck(LIMITS)
    request = messages.AcquireLeaseRequest(
        resource="r",
        runtime_id="runtime",
        holder_id="a",
        holder_display_name="Ada",
        nonce=NONCE,
        ttl=Duration(seconds=4, nanos=5),
        labels={"pid": "1", "empty": ""},
    )
    claim = claim_from_proto(request, LIMITS, nonce=NONCE, check=check)
    check.refuse_violations()
    holder = Holder(RuntimeId("runtime"), HolderId("a"), "Ada")
    labels = {"pid": "1", "empty": ""}
    assert claim == Claim(holder, hash_of_nonce(NONCE), 4 * SECOND + 5, labels)


@pytest.mark.parametrize(
    ("make_request", "expected_seconds"),
    [
        (messages.AcquireLeaseRequest, 10),
        (messages.TakeoverLeaseRequest, 10),
        (messages.BeginMaintenanceRequest, 30),
    ],
)
def test_a_claim_without_a_ttl_or_with_0_has_the_default(
    make_request: type[ClaimRequest], expected_seconds: int
) -> None:
    for ttl in (None, Duration()):
        check = RequestCheck(LIMITS)
        request = make_request(runtime_id="runtime", holder_id="a", ttl=ttl)
        claim = claim_from_proto(request, LIMITS, nonce=NONCE, check=check)
        check.refuse_violations()
        assert claim.ttl_nanos == expected_seconds * SECOND


def test_every_fault_of_a_claim_is_named() -> None:
    check = RequestCheck(LIMITS)
    request = messages.AcquireLeaseRequest(
        holder_display_name=" x", nonce="short", ttl=Duration(seconds=-1), labels={"": ""}
    )
    claim_from_proto(request, LIMITS, nonce=request.nonce, check=check)
    assert [each.field for each in violations_of(check)] == [
        "runtime_id",
        "holder_id",
        "holder_display_name",
        "nonce",
        "labels",
        "ttl",
    ]


# --- spans ---


@pytest.mark.parametrize(
    ("asked_nanos", "granted_nanos"),
    [
        (1, 1 * SECOND),
        (1 * SECOND - 1, 1 * SECOND),
        (1 * SECOND, 1 * SECOND),
        (1 * SECOND + 1, 1 * SECOND + 1),
        (3_600 * SECOND, 3_600 * SECOND),
        (3_600 * SECOND + 1, 3_600 * SECOND),
        (2**63, 3_600 * SECOND),
    ],
)
def test_a_ttl_is_brought_within_its_bounds(asked_nanos: int, granted_nanos: int) -> None:
    assert ttl_within_bounds(asked_nanos, LIMITS) == granted_nanos


@pytest.mark.parametrize(
    ("span", "description"),
    [
        (Duration(seconds=-1), "is negative; 0 or more is needed"),
        (Duration(nanos=-1), "is negative; 0 or more is needed"),
        (
            Duration(seconds=1, nanos=1_000_000_000),
            "has 1000000000 nanos; -999,999,999 to 999,999,999 are allowed",
        ),
        (
            Duration(nanos=-1_000_000_000),
            "has -1000000000 nanos; -999,999,999 to 999,999,999 are allowed",
        ),
        (Duration(seconds=1, nanos=-1), "has 1 seconds and -1 nanos; their signs must be the same"),
        (Duration(seconds=-1, nanos=1), "has -1 seconds and 1 nanos; their signs must be the same"),
        (
            Duration(seconds=315_576_000_001),
            "has 315576000001 seconds; at most 315576000000 are allowed",
        ),
    ],
)
def test_what_is_no_span_of_0_or_more_is_refused(span: Duration, description: str) -> None:
    check = RequestCheck(LIMITS)
    assert ttl_from_proto(span, LIMITS, check=check, field="renewals[0].ttl") is None
    wait_from_proto(span, LIMITS, check=check)
    assert violations_of(check) == [
        Violation("renewals[0].ttl", description),
        Violation("wait_timeout", description),
    ]


def test_a_wait_is_at_most_as_long_as_the_limit_that_is_named() -> None:
    check = RequestCheck(LIMITS)
    assert wait_from_proto(Duration(seconds=600), LIMITS, check=check) == 600 * SECOND
    check.refuse_violations()
    wait_from_proto(Duration(seconds=600, nanos=1), LIMITS, check=check)
    (violation,) = violations_of(check)
    assert violation.field == "wait_timeout"
    assert "lease_wait_seconds_max = 600 s" in violation.description


# --- reasons ---


def test_a_reason_to_abort_is_internal_or_external_and_nothing_else() -> None:
    check = RequestCheck(LIMITS)
    assert abort_reason_from_proto(messages.ABORT_REASON_INTERNAL, check) is AbortReason.INTERNAL
    assert abort_reason_from_proto(messages.ABORT_REASON_EXTERNAL, check) is AbortReason.EXTERNAL
    check.refuse_violations()
    for number in (messages.ABORT_REASON_UNSPECIFIED, 3, -1):
        abort_reason_from_proto(number, check)
    assert [each.field for each in violations_of(check)] == ["reason", "reason", "reason"]


def test_each_cause_of_a_stale_token_has_its_own_word() -> None:
    causes = [
        stale_cause_to_proto(refusal)
        for refusal in (
            LeaseFenced(NAME, 1, 2),
            LeaseMissing(NAME, 1),
            LeaseSuperseded(NAME, 1),
            LeaseExpired(NAME, 1, 2),
        )
    ]
    assert causes == sorted(set(messages.StaleCause.values()) - {messages.STALE_CAUSE_UNSPECIFIED})


# --- repeats ---

REQUESTS: Final[list[RepeatableRequest]] = [
    messages.AcquireLeaseRequest(nonce=NONCE),
    messages.TakeoverLeaseRequest(nonce=NONCE),
    messages.BeginMaintenanceRequest(nonce=NONCE),
    messages.ReleaseLeaseRequest(),
    messages.TransferLeaseRequest(),
    messages.AbortLeaseRequest(),
    messages.FinishMaintenanceRequest(),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_call_without_a_request_id_is_not_repeatable(request_: RepeatableRequest) -> None:
    check = RequestCheck(LIMITS)
    assert repeat_from_proto(request_, check) is None
    assert check.is_clean


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_repeat_names_its_call(request_: RepeatableRequest) -> None:
    check = RequestCheck(LIMITS)
    asked = type(request_)()
    asked.MergeFrom(request_)  # type: ignore[arg-type]  # both are of one type
    asked.request_id = "q"
    repeat = repeat_from_proto(asked, check)
    assert check.is_clean
    assert repeat is not None
    assert f"{repeat.method}Request" == type(request_).__name__
    assert (repeat.request_id, len(repeat.parameters_hash)) == ("q", 32)


@pytest.mark.parametrize(
    "make_request",
    [
        messages.AcquireLeaseRequest,
        messages.TakeoverLeaseRequest,
        messages.BeginMaintenanceRequest,
    ],
)
def test_a_request_id_needs_a_nonce(make_request: type[ClaimRequest]) -> None:
    check = RequestCheck(LIMITS)
    repeat_from_proto(make_request(request_id="q"), check)
    assert [each.field for each in violations_of(check)] == ["nonce"]


def test_a_request_id_is_an_identifier() -> None:
    check = RequestCheck(LIMITS)
    repeat_from_proto(messages.ReleaseLeaseRequest(request_id="q" * 257), check)
    assert [each.field for each in violations_of(check)] == ["request_id"]


def hash_with(**changes: object) -> bytes:
    parameters: dict[str, object] = {
        "request_id": "q",
        "hub_project": "h",
        "resource": "r",
        "nonce": NONCE,
        "labels": {"b": "1", "a": "2"},
    }
    request = messages.AcquireLeaseRequest(**{**parameters, **changes})  # type: ignore[arg-type]
    repeat = repeat_from_proto(request, RequestCheck(LIMITS))
    assert repeat is not None
    return repeat.parameters_hash


@pytest.mark.parametrize(
    "changes",
    [
        {"request_id": "other"},
        {"hub_project": "other"},
        {"wait_timeout": Duration(seconds=5)},
        {"labels": {"a": "2", "b": "1"}},
    ],
)
def test_what_may_differ_in_a_repeat_is_not_compared(changes: dict[str, object]) -> None:
    assert hash_with(**changes) == hash_with()


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": "other"},
        {"holder_id": "other"},
        {"holder_display_name": "other"},
        {"nonce": "o" * 22},
        {"ttl": Duration(seconds=5)},
        {"labels": {"a": "2"}},
    ],
)
def test_another_parameter_is_another_call(changes: dict[str, object]) -> None:
    assert hash_with(**changes) != hash_with()


# --- what goes out ---


def test_a_lease_shows_everything_but_its_nonce() -> None:
    lease = lease_to_proto(replace(TENURE, abort_reason=AbortReason.EXTERNAL), now_nanos=3 * SECOND)
    expected = messages.Lease(
        resource="r",
        runtime_id="runtime",
        holder_id="a",
        holder_display_name="Ada",
        fencing_token=7,
        epoch=2,
        labels={"pid": "1"},
        is_abort_requested=True,
        abort_reason=messages.ABORT_REASON_EXTERNAL,
        state=messages.LEASE_STATE_LIVE,
    )
    expected.ttl.FromMilliseconds(1_500)
    expected.acquire_time.FromSeconds(1)
    expected.renew_time.FromSeconds(2)
    expected.expire_time.FromMilliseconds(3_500)
    assert lease == expected


def test_the_state_of_a_lease_is_that_of_the_moment() -> None:
    released = replace(TENURE, end=TenureEnd(TenureState.RELEASED, 3 * SECOND))
    fenced = replace(TENURE, end=TenureEnd(TenureState.FENCED, 3 * SECOND))
    unclaimed = replace(TENURE, nonce_hash=None)
    states = [
        lease_to_proto(tenure, now_nanos).state
        for tenure, now_nanos in (
            (TENURE, TENURE.expire_nanos - 1),
            (unclaimed, TENURE.expire_nanos - 1),
            (TENURE, TENURE.expire_nanos),
            (released, TENURE.expire_nanos),
            (fenced, TENURE.expire_nanos),
        )
    ]
    assert states == [
        messages.LEASE_STATE_LIVE,
        messages.LEASE_STATE_UNCLAIMED,
        messages.LEASE_STATE_EXPIRED,
        messages.LEASE_STATE_RELEASED,
        messages.LEASE_STATE_FENCED,
    ]


def test_a_stored_answer_shows_the_lease_as_it_was_granted() -> None:
    stored = replace(TENURE, nonce_hash=None)
    assert granted_to_proto(stored, is_claimed=True) == granted_to_proto(TENURE)
    assert granted_to_proto(stored).state == messages.LEASE_STATE_UNCLAIMED
    assert granted_to_proto(TENURE).state == messages.LEASE_STATE_LIVE


def test_a_renewal_among_many_is_answered_with_its_lease_or_why_not() -> None:
    shown = Credential(NAME, RuntimeId("runtime"), HolderId("a"), 7, hash_of_nonce(NONCE))
    renewed = renewal_to_proto(shown, TENURE)
    assert renewed == messages.LeaseRenewalResult(
        resource="r", fencing_token=7, lease=granted_to_proto(TENURE)
    )
    refused = renewal_to_proto(shown, LeaseSuperseded(NAME, 7))
    assert (refused.resource, refused.fencing_token) == ("r", 7)
    assert refused.WhichOneof("outcome") == "refusal"
    assert "superseded" in refused.refusal.message
