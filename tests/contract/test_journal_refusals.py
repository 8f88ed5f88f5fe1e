"""Commits that are refused: every row of the decision table, its facts, and that nothing changed."""

import time
from collections.abc import Callable
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.lease_service_pb2 import (
    AcquireLeaseResponse,
    CheckLeaseRequest,
    FinishMaintenanceRequest,
    LeaseCredential,
)
from tests.contract.journal_scene import Scene
from tests.contract.journaling import TRACE_ID, commit, leased, new_event, new_message
from tests.contract.leasing import CALL_SECONDS_MAX, acquire_request, begin_request, nonce, release

TTL_SECONDS_MIN: Final = 0.05


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Leases may be short, so that an expiry is seen soon."""
    return Limits(lease_ttl_seconds_min=TTL_SECONDS_MIN)


# --- commits: row 2 -----------------------------------------------------------------------------------

Change = Callable[[messages.CommitRequest], object]

OTHER_CONTENTS: Final[dict[str, Change]] = {
    "stream": lambda request: request.MergeFrom(messages.CommitRequest(stream_id="other")),
    "revision": lambda request: request.MergeFrom(messages.CommitRequest(expected_revision=2)),
    "reply": lambda request: request.MergeFrom(messages.CommitRequest(reply=b"reply ")),
    "no reply": lambda request: request.ClearField("reply"),
    "event id": lambda request: request.events[0].MergeFrom(new_event("e9")),
    "event type": lambda request: request.events[0].MergeFrom(new_event("e1", "Noted")),
    "event payload": lambda request: request.events[0].MergeFrom(messages.NewJournalEvent(payload=b"One")),
    "event time": lambda request: request.events[0].event_time.FromSeconds(0),
    "correlation": lambda request: request.events[1].ClearField("correlation_id"),
    "causation": lambda request: request.events[0].MergeFrom(messages.NewJournalEvent(causation_id="c")),
    "trace": lambda request: request.events[0].MergeFrom(messages.NewJournalEvent(trace_id=TRACE_ID)),
    "one more event": lambda request: request.events.append(new_event("e9")),
    "one event less": lambda request: request.events.pop(),
    "events the other way": lambda request: request.events.reverse(),
    "outbox id": lambda request: request.outbox_messages[0].MergeFrom(new_message("o9")),
    "outbox event": lambda request: request.outbox_messages[0].MergeFrom(
        messages.NewOutboxMessage(event_id="e2")
    ),
    "destination": lambda request: request.outbox_messages[0].MergeFrom(
        messages.NewOutboxMessage(destination="Mail")
    ),
    "ordering key": lambda request: request.outbox_messages[0].MergeFrom(
        messages.NewOutboxMessage(ordering_key="k")
    ),
    "outbox payload": lambda request: request.outbox_messages[0].ClearField("payload"),
    "available time": lambda request: request.outbox_messages[0].available_time.FromSeconds(1),
    "one message less": lambda request: request.outbox_messages.pop(),
    "projection id": lambda request: request.projections[0].MergeFrom(
        messages.NewProjection(projection_id="p9")
    ),
    "projection value": lambda request: request.projections[0].MergeFrom(messages.NewProjection(value=b"w")),
    "no projection": lambda request: request.projections.pop(),
    "nothing but the name": lambda request: request.CopyFrom(
        messages.CommitRequest(
            hub_project=request.hub_project,
            message_id=request.message_id,
            stream_id=request.stream_id,
            credential=request.credential,
        )
    ),
}


@pytest.mark.parametrize("change", OTHER_CONTENTS.values(), ids=OTHER_CONTENTS.keys())
def test_a_message_id_with_other_content_is_a_conflict_and_changes_nothing(
    scene: Scene, change: Change
) -> None:
    request = messages.CommitRequest()
    request.CopyFrom(scene.first)
    change(request)
    assert request != scene.first
    refusal = scene.refused_commit(request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT")
    assert refusal.metadata == {"field": "message_id", "id": "m1"}
    assert commit(scene.journal, scene.first).recovered


def test_text_and_the_bytes_of_its_utf8_are_the_same_content(scene: Scene) -> None:
    request = messages.CommitRequest()
    request.CopyFrom(scene.first)
    request.events[0].text = "one"
    request.events[1].text = ""
    request.outbox_messages[0].text = "o1"
    assert commit(scene.journal, request).recovered


# --- commits: row 3 -----------------------------------------------------------------------------------


def _released(scene: Scene) -> LeaseCredential:
    release(scene.leases, scene.hub_project, AcquireLeaseResponse(credential=scene.credential))
    return scene.credential


def _superseded(scene: Scene) -> LeaseCredential:
    leased(scene.leases, scene.hub_project, secret="a2")
    return scene.credential


def _held_by_another(scene: Scene) -> LeaseCredential:
    _released(scene)
    leased(scene.leases, scene.hub_project, holder_id="b", secret="b1")
    return scene.credential


def _fenced(scene: Scene) -> LeaseCredential:
    scene.leases.BeginMaintenance(begin_request(scene.hub_project, "s"))
    return scene.credential


def _after_maintenance(scene: Scene) -> LeaseCredential:
    begun = scene.leases.BeginMaintenance(begin_request(scene.hub_project, "s"))
    finish = FinishMaintenanceRequest(hub_project=scene.hub_project, credential=begun.credential)
    scene.leases.FinishMaintenance(finish)
    return scene.credential


def _expired(scene: Scene) -> LeaseCredential:
    _released(scene)
    request = acquire_request(scene.hub_project, "s", secret="a3", ttl=TTL_SECONDS_MIN)
    credential = scene.leases.AcquireLease(request, timeout=CALL_SECONDS_MAX).credential
    check = CheckLeaseRequest(
        hub_project=scene.hub_project, resource="s", fencing_token=credential.fencing_token
    )
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while scene.leases.CheckLease(check).is_current:
        assert time.monotonic() < deadline
    return credential


def _with(**changes: str | int) -> Callable[[Scene], LeaseCredential]:
    def changed(scene: Scene) -> LeaseCredential:
        credential = LeaseCredential()
        credential.CopyFrom(scene.credential)
        for name, value in changes.items():
            setattr(credential, name, value)
        return credential

    return changed


STALE_CREDENTIALS: Final[dict[str, tuple[Callable[[Scene], LeaseCredential], str]]] = {
    "released": (_released, "LEASE_MISSING"),
    "superseded by its holder's next nonce": (_superseded, "LEASE_SUPERSEDED"),
    "held by another": (_held_by_another, "LEASE_SUPERSEDED"),
    "fenced by a maintenance": (_fenced, "LEASE_FENCED"),
    "fenced by one that is over": (_after_maintenance, "LEASE_FENCED"),
    "expired": (_expired, "LEASE_EXPIRED"),
    "of another stream": (lambda scene: scene.other, "OTHER_RESOURCE"),
    "with another nonce": (_with(nonce=nonce("wrong")), "LEASE_SUPERSEDED"),
    "with another holder": (_with(holder_id="b"), "LEASE_SUPERSEDED"),
    "with another runtime": (_with(runtime_id="elsewhere"), "LEASE_SUPERSEDED"),
    "with a token to come": (_with(fencing_token=2), "LEASE_SUPERSEDED"),
    "with the last token": (_with(fencing_token=2**63 - 1), "LEASE_SUPERSEDED"),
}


@pytest.mark.parametrize(("make", "cause"), STALE_CREDENTIALS.values(), ids=STALE_CREDENTIALS.keys())
def test_a_stale_credential_writes_nothing_and_reads_nothing(
    scene: Scene, *, make: Callable[[Scene], LeaseCredential], cause: str
) -> None:
    credential = make(scene)
    request = scene.next()
    request.credential.CopyFrom(credential)
    reading = messages.ListStreamEventsRequest(
        hub_project=scene.hub_project, stream_id="s", credential=credential
    )
    for refusal in (
        scene.refused_commit(request),
        scene.refused(lambda: scene.journal.ListStreamEvents(reading)),
    ):
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_LEASE")
        assert refusal.metadata == {
            "resource": "s",
            "streamId": "s",
            "fencingToken": str(credential.fencing_token),
            "cause": cause,
        }
        assert credential.nonce not in str(refusal)


def test_a_stream_that_was_never_leased_is_not_written(scene: Scene) -> None:
    request = scene.next()
    request.stream_id = request.credential.resource = "never"
    refusal = scene.refused_commit(request)
    assert (refusal.reason, refusal.metadata["cause"]) == ("STALE_LEASE", "LEASE_MISSING")


# --- commits: rows 4 and 5 ----------------------------------------------------------------------------


@pytest.mark.parametrize("expected_revision", [0, 1, 3, 2**63 - 1])
def test_another_revision_is_a_conflict_that_names_both(scene: Scene, expected_revision: int) -> None:
    request = scene.next()
    request.expected_revision = expected_revision
    refusal = scene.refused_commit(request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    assert refusal.metadata == {
        "streamId": "s",
        "expectedRevision": str(expected_revision),
        "actualRevision": "2",
    }


@pytest.mark.parametrize(
    ("change", "path", "name"),
    [
        (lambda request: request.events.append(new_event("e3")), "events[2].event_id", "e3"),
        (
            lambda request: request.outbox_messages.append(new_message("o3")),
            "outbox_messages[2].outbox_id",
            "o3",
        ),
        (
            lambda request: request.projections.append(messages.NewProjection(projection_id="p1")),
            "projections[2].projection_id",
            "p1",
        ),
        (
            lambda request: request.outbox_messages.append(new_message("o5", event_id="never")),
            "outbox_messages[2].event_id",
            "never",
        ),
    ],
    ids=["event id twice", "outbox id twice", "projection id twice", "no such event"],
)
def test_what_is_wrong_within_a_commit_is_invalid_and_names_field_and_id(
    scene: Scene, *, change: Change, path: str, name: str
) -> None:
    request = scene.next()
    change(request)
    refusal = scene.refused_commit(request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.metadata == {"field": path, "id": name}
    assert [each.field for each in refusal.violations] == [path]


@pytest.mark.parametrize(
    ("change", "path", "name"),
    [
        (lambda request: request.events.append(new_event("e1")), "events[2].event_id", "e1"),
        (lambda request: request.events.append(new_event("x1")), "events[2].event_id", "x1"),
        (
            lambda request: request.outbox_messages.append(new_message("o1")),
            "outbox_messages[2].outbox_id",
            "o1",
        ),
        (
            lambda request: request.outbox_messages.append(new_message("ox")),
            "outbox_messages[2].outbox_id",
            "ox",
        ),
        (
            lambda request: request.projections.append(messages.NewProjection(projection_id="px")),
            "projections[2].projection_id",
            "px",
        ),
    ],
    ids=["event id", "event id of another stream", "outbox id", "outbox id of another stream", "projection"],
)
def test_a_name_that_was_used_is_a_conflict_and_names_field_and_id(
    scene: Scene, *, change: Change, path: str, name: str
) -> None:
    request = scene.next()
    change(request)
    refusal = scene.refused_commit(request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT")
    assert refusal.metadata == {"field": path, "id": name}


def test_the_first_row_that_holds_is_the_outcome(scene: Scene) -> None:
    request = scene.next()
    request.events.append(new_event("e3"))  # row 5
    request.outbox_messages.append(new_message("o1"))
    assert scene.refused_commit(request).reason == "INVALID_REQUEST"
    request.expected_revision = 1  # row 4
    assert scene.refused_commit(request).reason == "REVISION_CONFLICT"
    request.credential.nonce = nonce("wrong")  # row 3
    assert scene.refused_commit(request).reason == "STALE_LEASE"
    request.message_id = "m1"  # row 2
    assert scene.refused_commit(request).reason == "IDEMPOTENCY_CONFLICT"
    scene.first.credential.nonce = nonce("wrong")  # row 1
    assert commit(scene.journal, scene.first).recovered


def test_what_was_refused_may_be_sent_again_and_is_then_new(scene: Scene) -> None:
    request = scene.next()
    request.expected_revision = 1
    assert scene.refused_commit(request).reason == "REVISION_CONFLICT"
    # A refusal binds nothing: neither the message id nor the other names in it.
    request.expected_revision = 2
    answer = commit(scene.journal, request)
    assert (answer.recovered, answer.revision, list(answer.positions)) == (False, 4, [4, 5])


def test_all_that_is_wrong_with_a_commit_is_told_at_once(scene: Scene) -> None:
    request = scene.next()
    request.events[1].event_type = ""
    request.outbox_messages[0].destination = "\n"
    request.projections[1].projection_id = ""
    refusal = scene.refused_commit(request)
    assert [each.field for each in refusal.violations] == [
        "events[1].event_type",
        "outbox_messages[0].destination",
        "projections[1].projection_id",
    ]
