"""The streams on which holders renew and hear of aborts: RenewLeases and Heartbeat."""

from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from hub.core.limits import Limits
from synchub.channel import refusal_from_status
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest, HeartbeatResponse
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.leasing import acquire, acquire_request, begin_request, nonce, release, seconds, state_of

Renewals = Conversation[messages.RenewLeasesRequest, messages.RenewLeasesResponse]
Heartbeats = Conversation[HeartbeatRequest, HeartbeatResponse]
INTERNAL: Final = messages.ABORT_REASON_INTERNAL
EXTERNAL: Final = messages.ABORT_REASON_EXTERNAL
RENEWALS_MAX: Final = 5
REMEMBERED_MAX: Final = 3


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Few leases a request and a stream, so that the bounds are reached."""
    return Limits(
        lease_renewals_max=RENEWALS_MAX,
        lease_renewals_remembered_max=REMEMBERED_MAX,
        lease_abort_notices_max=2,
        first_message_seconds_max=0.5,
        half_close_wait_seconds=0.3,
    )


def renewals(
    hub_project: str, *held: messages.AcquireLeaseResponse, ttl: Duration | None = None
) -> messages.RenewLeasesRequest:
    return messages.RenewLeasesRequest(
        hub_project=hub_project,
        renewals=[messages.LeaseRenewal(credential=each.credential, ttl=ttl) for each in held],
    )


def abort(stub: LeaseServiceStub, hub_project: str, resource: str = "r", reason: int = INTERNAL) -> None:
    request = messages.AbortLeaseRequest(hub_project=hub_project, resource=resource)
    request.reason = reason  # type: ignore[assignment]  # a plain number is taken too
    stub.AbortLease(request)


def told(response: messages.RenewLeasesResponse) -> list[tuple[str, int, int]]:
    return [(each.resource, each.fencing_token, each.reason) for each in response.aborts]


# --- RenewLeases ---


def test_renewals_are_answered_in_the_order_of_the_request(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = [acquire(lease_stub, hub_project, resource) for resource in "cab"]
    with Renewals(lease_stub.RenewLeases) as stream:
        answer = stream.ask(renewals(hub_project, *held, ttl=seconds(4)))
    assert [(each.resource, each.fencing_token) for each in answer.results] == [("c", 1), ("a", 1), ("b", 1)]
    assert not answer.aborts
    for before, result in zip(held, answer.results, strict=True):
        lease = state_of(lease_stub, hub_project, result.resource).lease
        assert result.lease == lease
        assert lease.ttl == seconds(4)
        assert lease.renew_time.ToNanoseconds() > before.lease.renew_time.ToNanoseconds()


def test_a_renewal_without_a_ttl_keeps_the_one_granted(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = lease_stub.AcquireLease(acquire_request(hub_project, ttl=7))
    with Renewals(lease_stub.RenewLeases) as stream:
        (result,) = stream.ask(renewals(hub_project, held)).results
    assert result.lease.ttl == seconds(7)


def test_requests_sent_at_once_are_answered_one_by_one_in_order(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = [acquire(lease_stub, hub_project, f"r{number}") for number in range(20)]
    with Renewals(lease_stub.RenewLeases) as stream:
        for each in held:
            stream.send(renewals(hub_project, each))
        stream.half_close()
        answers = stream.read_all()
    assert [[result.resource for result in answer.results] for answer in answers] == [
        [each.lease.resource] for each in held
    ]


def test_a_refused_renewal_does_not_disturb_the_others(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    lost, released, good = (acquire(lease_stub, hub_project, resource) for resource in ("l", "r", "g"))
    acquire(lease_stub, hub_project, "l", secret="a2")
    release(lease_stub, hub_project, released)
    with Renewals(lease_stub.RenewLeases) as stream:
        answer = stream.ask(renewals(hub_project, lost, released, good))
        again = stream.ask(renewals(hub_project, good))
    outcomes = [each.WhichOneof("outcome") for each in (*answer.results, *again.results)]
    assert outcomes == ["refusal", "refusal", "lease", "lease"]
    refusals = [refusal_from_status(each.refusal) for each in answer.results[:2]]
    assert [(each.code, each.reason, each.metadata) for each in refusals] == [
        (
            grpc.StatusCode.FAILED_PRECONDITION,
            "LEASE_SUPERSEDED",
            {"resource": "l", "fencingToken": "1"},
        ),
        (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_MISSING", {"resource": "r", "fencingToken": "1"}),
    ]
    assert not any(nonce("a1") in str(each) for each in answer.results)


def test_an_abort_is_pushed_to_the_stream_that_renewed_last(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    with Renewals(lease_stub.RenewLeases) as before, Renewals(lease_stub.RenewLeases) as last:
        before.ask(renewals(hub_project, held))
        last.ask(renewals(hub_project, held))
        abort(lease_stub, hub_project)
        pushed = last.read()
        assert (told(pushed), len(pushed.results)) == ([("r", 1, INTERNAL)], 0)
        abort(lease_stub, hub_project, reason=EXTERNAL)
        assert told(last.read()) == [("r", 1, EXTERNAL)]
        (result,) = last.ask(renewals(hub_project, held)).results
        assert (result.lease.is_abort_requested, result.lease.abort_reason) == (True, EXTERNAL)
        before.half_close()
        assert before.read_all() == []


def test_a_lease_that_came_back_to_a_stream_is_told_there(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    with Renewals(lease_stub.RenewLeases) as stays, Renewals(lease_stub.RenewLeases) as leaves:
        stays.ask(renewals(hub_project, held))
        leaves.ask(renewals(hub_project, held))
        leaves.half_close()
        leaves.read_all()
        stays.ask(renewals(hub_project, held))
        abort(lease_stub, hub_project)
        assert told(stays.read()) == [("r", 1, INTERNAL)]


def test_an_abort_of_a_tenure_that_was_not_renewed_here_is_not_pushed(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project, "r")
    other = acquire(lease_stub, hub_project, "s")
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.ask(renewals(hub_project, held, other))
        acquire(lease_stub, hub_project, "r", secret="a2")
        abort(lease_stub, hub_project, "r")
        abort(lease_stub, hub_project, "s")
        assert told(stream.read()) == [("s", 1, INTERNAL)]


def test_a_stream_remembers_the_newest_of_its_leases(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    held = [acquire(lease_stub, hub_project, f"r{number}") for number in range(REMEMBERED_MAX + 1)]
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.ask(renewals(hub_project, *held))
        for each in held:
            abort(lease_stub, hub_project, each.lease.resource)
        pushed = [told(stream.read())[0][0] for _ in range(REMEMBERED_MAX)]
        stream.half_close()
        assert stream.read_all() == []
    assert pushed == [each.lease.resource for each in held[1:]]


def test_a_stream_that_names_another_hub_project_is_refused_in_band_and_then_ends(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.ask(renewals(hub_project, held))
        in_band = refusal_from_status(stream.ask(renewals(f"{hub_project}-other", held)).error)
        refusal = stream.refusal()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert [each.field for each in refusal.violations] == ["hub_project"]
    assert in_band == refusal


@pytest.mark.parametrize("count", [0, RENEWALS_MAX + 1])
def test_a_request_has_at_least_one_renewal_and_not_too_many(
    lease_stub: LeaseServiceStub, hub_project: str, count: int
) -> None:
    held = acquire(lease_stub, hub_project)
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.send(renewals(hub_project, *[held] * count))
        refusal = stream.refusal()
    assert [(each.field, each.description) for each in refusal.violations] == [
        ("renewals", f"has {count} entries; 1 to {RENEWALS_MAX} are needed")
    ]
    assert state_of(lease_stub, hub_project).lease == held.lease


def test_a_bad_field_of_a_renewal_is_named_with_its_place(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    request = renewals(hub_project, held, held, ttl=Duration(seconds=-1))
    request.renewals[1].credential.nonce = "secret-but-short"
    request.renewals.add()
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.send(request)
        refusal = stream.refusal()
    assert [each.field for each in refusal.violations] == [
        "renewals[0].ttl",
        "renewals[1].credential.nonce",
        "renewals[1].ttl",
        "renewals[2].credential",
    ]
    assert "secret-but-short" not in repr(refusal)
    assert state_of(lease_stub, hub_project).lease == held.lease


def test_what_was_asked_before_a_bad_request_is_answered(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    with Renewals(lease_stub.RenewLeases) as stream:
        stream.send(renewals(hub_project, held))
        stream.send(renewals(hub_project))
        stream.send(renewals(hub_project, held))
        stream.half_close()
        answers = stream.read_all()
    assert [(len(answer.results), answer.HasField("error")) for answer in answers] == [(1, False), (0, True)]


def test_a_renewing_stream_that_says_nothing_ends(lease_stub: LeaseServiceStub) -> None:
    with Renewals(lease_stub.RenewLeases) as stream:
        refusal = stream.refusal()
    assert (refusal.reason, refusal.metadata["limit"]) == ("LIMIT_REACHED", "first_message_seconds_max")


# --- Heartbeat ---


def heartbeat(hub_project: str, runtime_id: str = "runtime") -> HeartbeatRequest:
    return HeartbeatRequest(hub_project=hub_project, runtime_id=runtime_id, instance_id="one")


def aborts_in(answer: HeartbeatResponse) -> list[tuple[str, int, int]]:
    notices = [each.lease_abort for each in answer.notices if each.WhichOneof("notice") == "lease_abort"]
    return [(each.resource, each.fencing_token, each.reason) for each in notices]


def test_an_abort_is_pushed_to_the_runtime_and_said_with_each_answer_until_the_lease_ends(
    lease_stub: LeaseServiceStub, presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project)
    with Heartbeats(presence_stub.Heartbeat) as stream:
        assert aborts_in(stream.ask(heartbeat(hub_project))) == []
        abort(lease_stub, hub_project)
        pushed = stream.read()
        assert (aborts_in(pushed), pushed.HasField("hub_time")) == ([("r", 1, INTERNAL)], False)
        abort(lease_stub, hub_project, reason=EXTERNAL)
        assert aborts_in(stream.read()) == [("r", 1, EXTERNAL)]
        for _ in range(2):
            assert aborts_in(stream.ask(heartbeat(hub_project))) == [("r", 1, EXTERNAL)]
        release(lease_stub, hub_project, held)
        answer = stream.ask(heartbeat(hub_project))
    assert (len(answer.notices), answer.HasField("hub_time")) == (0, True)


def test_a_runtime_that_connects_later_is_told_of_the_aborts_that_stand(
    lease_stub: LeaseServiceStub, presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    acquire(lease_stub, hub_project)
    abort(lease_stub, hub_project, reason=EXTERNAL)
    with Heartbeats(presence_stub.Heartbeat) as stream:
        assert aborts_in(stream.ask(heartbeat(hub_project))) == [("r", 1, EXTERNAL)]


@pytest.mark.parametrize("ending", ["another nonce", "maintenance"])
def test_an_abort_ends_with_its_tenure(
    lease_stub: LeaseServiceStub, presence_stub: PresenceServiceStub, hub_project: str, ending: str
) -> None:
    acquire(lease_stub, hub_project)
    abort(lease_stub, hub_project)
    if ending == "maintenance":
        lease_stub.BeginMaintenance(begin_request(hub_project))
    else:
        acquire(lease_stub, hub_project, secret="a2")
    with Heartbeats(presence_stub.Heartbeat) as stream:
        assert aborts_in(stream.ask(heartbeat(hub_project))) == []


def test_an_abort_is_told_to_its_own_runtime_alone(
    lease_stub: LeaseServiceStub, presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    acquire(lease_stub, hub_project)
    other_project = f"{hub_project}-other"
    with (
        Heartbeats(presence_stub.Heartbeat) as another_runtime,
        Heartbeats(presence_stub.Heartbeat) as another_hub_project,
    ):
        another_runtime.ask(heartbeat(hub_project, "another"))
        another_hub_project.ask(heartbeat(other_project))
        abort(lease_stub, hub_project)
        answers = [
            another_runtime.ask(heartbeat(hub_project, "another")),
            another_hub_project.ask(heartbeat(other_project)),
        ]
        assert [aborts_in(answer) for answer in answers] == [[], []]
        assert all(answer.HasField("hub_time") for answer in answers)


def test_one_answer_tells_of_so_many_aborts_at_most(
    lease_stub: LeaseServiceStub, presence_stub: PresenceServiceStub, hub_project: str
) -> None:
    for resource in "abc":
        acquire(lease_stub, hub_project, resource)
        abort(lease_stub, hub_project, resource)
    with Heartbeats(presence_stub.Heartbeat) as stream:
        assert len(aborts_in(stream.ask(heartbeat(hub_project)))) == 2


def test_an_abort_of_nothing_is_refused(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    assert refusal_of(lambda: abort(lease_stub, hub_project)).reason == "LEASE_MISSING"
