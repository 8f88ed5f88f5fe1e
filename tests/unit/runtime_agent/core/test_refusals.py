"""What the agent does about each refusal."""

import pytest

from runtime_agent.core.refusals import RefusalAction, decide_refusal


def decide(
    reason: str,
    code: str = "UNKNOWN",
    *,
    is_in_band: bool = True,
    project_id: str = "",
    limit: str = "",
    violated_fields: tuple[str, ...] = (),
) -> RefusalAction:
    return decide_refusal(
        reason=reason,
        code=code,
        is_in_band=is_in_band,
        project_id=project_id,
        limit=limit,
        violated_fields=violated_fields,
    )


def test_a_duplicated_runtime_begins_anew() -> None:
    assert decide("RUNTIME_DUPLICATED") is RefusalAction.BEGIN_ANEW
    assert decide("RUNTIME_DUPLICATED", is_in_band=False) is RefusalAction.BEGIN_ANEW


@pytest.mark.parametrize(
    "reason",
    [
        "CREDENTIAL_MISSING",
        "CREDENTIAL_INVALID",
        "CREDENTIAL_EXPIRED",
        "CREDENTIAL_REVOKED",
        "IDENTITY_MISMATCH",
        "QUOTA_EXCEEDED",
    ],
)
@pytest.mark.parametrize("is_in_band", [True, False])
@pytest.mark.parametrize("project_id", ["", "p"])
def test_credentials_and_quotas_are_tried_again_later(reason: str, is_in_band: bool, project_id: str) -> None:
    assert decide(reason, is_in_band=is_in_band, project_id=project_id) is RefusalAction.READ_CREDENTIALS


def test_a_permission_refusal_holds_the_project_that_it_names() -> None:
    assert decide("PERMISSION_DENIED", project_id="p") is RefusalAction.HOLD_PROJECT
    assert decide("PERMISSION_DENIED", is_in_band=False, project_id="p") is RefusalAction.HOLD_PROJECT
    assert decide("PERMISSION_DENIED") is RefusalAction.RECONNECT


def test_an_invalid_request_in_band_quarantines_the_run_of_the_oldest_batch() -> None:
    invalid = decide("INVALID_REQUEST", violated_fields=("events[3].event_type",))
    assert invalid is RefusalAction.QUARANTINE_RUN


def test_an_invalid_request_as_a_status_answers_no_batch() -> None:
    """What is not said in band may be about any unanswered batch: all of them are unknown."""
    status = decide("INVALID_REQUEST", is_in_band=False, violated_fields=("events[3].event_type",))
    assert status is RefusalAction.RECONNECT


@pytest.mark.parametrize("field", ["hub_project", "runtime_id", "instance_id"])
def test_an_invalid_identity_is_no_runs_fault(field: str) -> None:
    assert decide("INVALID_REQUEST", violated_fields=(field,)) is RefusalAction.RECONNECT


def test_batches_that_are_too_large_shrink() -> None:
    assert decide("", "RESOURCE_EXHAUSTED", is_in_band=False) is RefusalAction.SHRINK_BATCHES
    assert decide("LIMIT_REACHED", limit="batch_bytes_max") is RefusalAction.SHRINK_BATCHES
    assert decide("INVALID_REQUEST", violated_fields=("events",)) is RefusalAction.SHRINK_BATCHES


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("", "UNAVAILABLE"),
        ("", "INTERNAL"),
        ("", "CANCELLED"),
        ("", "UNKNOWN"),
        ("", "DEADLINE_EXCEEDED"),
        ("STORAGE_UNAVAILABLE", "UNAVAILABLE"),
        ("HUB_STOPPING", "UNAVAILABLE"),
        ("RATE_LIMITED", "RESOURCE_EXHAUSTED"),
        ("A_REASON_OF_A_NEWER_HUB", "FAILED_PRECONDITION"),
    ],
)
def test_everything_else_reconnects(reason: str, code: str) -> None:
    assert decide(reason, code) is RefusalAction.RECONNECT
