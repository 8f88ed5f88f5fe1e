"""What a request says of itself must agree with the credential: else it is refused, alerted to the caller's
own hub project, and nothing of it is stored.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import apsw
import grpc
import pytest
from google.protobuf.message import Message

from hub.core.permissions import PERMISSIONS
from hub.core.values import Role
from synchub.channel import Refusal, refusal_from_error, refusal_from_status
from synchub.contract import chain_hash_at_start
from synchub.v1.alert_pb2 import ALERT_REASON_IDENTITY_MISMATCH, Alert
from synchub.v1.lease_service_pb2 import LeaseCredential, LeaseRenewal, RenewLeasesRequest
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.sync_service_pb2 import (
    RECONCILE_STATE_PERMISSION_DENIED,
    BindProjectRequest,
    ListAlertsRequest,
    ListProjectsRequest,
    PushEventsRequest,
    ReconcileRun,
    ReconcileRunsRequest,
)
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.every_method import METHODS, Method, method_named
from tests.contract.leasing import nonce
from tests.contract.pushing import events, push
from tests.contract.secured import BOUND_RUNTIME, SecuredHub, Stubs

DENIED: Final = grpc.StatusCode.PERMISSION_DENIED
SAYING_WHO: Final = (
    "SyncService/PushEvents",
    "SyncService/ReconcileRuns",
    "PresenceService/Heartbeat",
    "LeaseService/AcquireLease",
    "LeaseService/TakeoverLease",
    "LeaseService/BeginMaintenance",
    "LeaseService/RenewLease",
    "LeaseService/RenewLeases",
    "LeaseService/ReleaseLease",
    "LeaseService/TransferLease",
    "LeaseService/RenewMaintenance",
    "LeaseService/FinishMaintenance",
    "JournalService/Commit",
    "JournalService/ListStreamEvents",
)
"""Calls whose requests say which runtime acts."""
ABOUT_A_RUNTIME: Final = (
    "SyncService/ListRuns",
    "PresenceService/GetRuntime",
    "HubService/CreateToken",
)
"""Calls whose requests name a runtime that need not be the caller."""
ABOUT_A_PROJECT: Final = (
    "SyncService/PushEvents",
    "SyncService/GetRun",
    "SyncService/ListRuns",
    "SyncService/ListEvents",
    "SyncService/ExportEvents",
    "SyncService/WatchEvents",
    "SyncService/BindProject",
    "SyncService/ReleaseProject",
    "HubService/PruneEvents",
    "HubService/VerifyEvents",
)
"""Calls whose requests name a project."""
OVER_ALL_PROJECTS: Final = (
    "SyncService/ListRuns",
    "SyncService/ExportEvents",
    "SyncService/WatchEvents",
    "SyncService/ListAlerts",
    "SyncService/WatchAlerts",
    "SyncService/AcknowledgeAlert",
    "SyncService/ListProjects",
    "HubService/PruneEvents",
    "HubService/VerifyEvents",
)
"""Calls that are over all projects where none is named."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A refusal, and the alerts that there were not before it, by hub project."""

    refusal: Refusal
    new_alerts: list[Alert]


class Prosecution:
    """Makes calls that must be refused; nothing may come of them but an alert to their hub project."""

    def __init__(self, hub: SecuredHub) -> None:
        self.hub = hub

    def denied(self, name: str, method: Method, request: Message) -> Denied:
        """How the call of a bearer is refused."""
        own, other = ("one", "two") if name.startswith("one/") else ("two", "one")
        before, others = self.alerts(own), self.alerts(other)
        with self.unchanged():
            refusal = ended(self.hub.stubs(name), method, request)
        assert refusal is not None, f"{method} was answered"
        assert self.alerts(other) == others
        seen = {alert.alert_id: alert.seen_count for alert in before}
        new = [alert for alert in self.alerts(own) if alert.seen_count != seen.get(alert.alert_id, 0)]
        return Denied(refusal, new)

    def alerts(self, hub_project: str) -> list[Alert]:
        return list(self.hub.stubs(f"{hub_project}/reader").sync.ListAlerts(ListAlertsRequest()).alerts)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing may be stored within the block but alerts."""
        before = self._rows()
        yield
        assert self._rows() == before

    def _rows(self) -> dict[str, list[object]]:
        connection = apsw.Connection(str(self.hub.database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            names = [str(name) for (name,) in tables if name not in ("alert", "hub")]
            assert {"event", "project", "tenure", "runtime", "token", "journal_event"} <= set(names)
            return {name: list(connection.execute(f"SELECT * FROM {name}")) for name in names}
        finally:
            connection.close()


@pytest.fixture
def prosecution(secured_hub: SecuredHub) -> Prosecution:
    return Prosecution(secured_hub)


def ended(stubs: Stubs, method: Method, request: Message) -> Refusal | None:
    """How a call ends, said in band or by the status; None where it is answered."""
    multicallable = stubs.channel.stream_stream(  # all kinds of calls look alike on the wire
        method.path,
        request_serializer=method.request_class.SerializeToString,
        response_deserializer=method.response_class.FromString,
    )
    with Conversation[Message, Message](multicallable) as call:
        call.send(request)
        call.half_close()
        try:
            for response in call.call:
                if method.is_request_stream and response.HasField("error"):
                    return refusal_from_status(response.error)  # type: ignore[attr-defined]  # of streams
                return None
        except grpc.RpcError as error:
            return refusal_from_error(error)
    return None


def who_may(method: Method, *names: str) -> str:
    """The first of these kinds of tokens of hub project one whose bearer may make the call."""
    (name, *_) = [name for name in names if Role(name.removeprefix("prefixed-")) in PERMISSIONS[method.name]]
    return f"one/{name}"


def fields(method: Method) -> Sequence[str]:
    return list(method.request_class.DESCRIPTOR.fields_by_name)


def acting_as(method: Method, runtime_id: str, **others: str) -> Message:
    """A request that says of itself that it comes from a runtime."""
    request = method.request_class(**others)
    credential = LeaseCredential(
        resource="r", runtime_id=runtime_id, holder_id="h", fencing_token=1, nonce=nonce("n")
    )
    if isinstance(request, RenewLeasesRequest):
        own = LeaseCredential(resource="r", runtime_id=BOUND_RUNTIME, holder_id="h")
        request.renewals.extend([LeaseRenewal(credential=own), LeaseRenewal(credential=credential)])
    elif "credential" in fields(method):
        request.credential.CopyFrom(credential)  # type: ignore[attr-defined]  # looked at
    else:
        request.runtime_id = runtime_id  # type: ignore[attr-defined]  # one of SAYING_WHO
    return request


def test_the_lists_of_this_module_leave_nothing_out() -> None:
    naming_a_runtime = {
        method.name for method in METHODS if {"runtime_id", "credential", "renewals"} & set(fields(method))
    }
    assert naming_a_runtime == {*SAYING_WHO, *ABOUT_A_RUNTIME}
    naming_a_project = {method.name for method in METHODS if "project_id" in fields(method)}
    assert naming_a_project == set(ABOUT_A_PROJECT)


@pytest.mark.parametrize("method", [each for each in METHODS if "hub_project" in fields(each)], ids=str)
def test_a_request_for_another_hub_project_is_refused_and_alerted_to_ones_own(
    prosecution: Prosecution, method: Method
) -> None:
    name = who_may(method, "operator", "runtime", "reader")
    denied = prosecution.denied(name, method, method.request_class(hub_project="two"))
    assert (denied.refusal.code, denied.refusal.reason) == (DENIED, "IDENTITY_MISMATCH")
    assert denied.refusal.metadata == {"field": "hub_project", "id": "two"}
    (alert,) = denied.new_alerts
    assert alert.reason == ALERT_REASON_IDENTITY_MISMATCH
    assert alert.samples
    assert {sample.credential_name for sample in alert.samples} <= {"operator", "runtime", "reader"}
    assert all(sample.peer for sample in alert.samples)


@pytest.mark.parametrize("hub_project", ["nobody's", "ONE", "one ", " one", "one\0", "é"])
def test_whether_there_is_such_a_hub_project_is_not_told(prosecution: Prosecution, hub_project: str) -> None:
    method = method_named("SyncService/ListRuns")
    denied = prosecution.denied("one/reader", method, method.request_class(hub_project=hub_project))
    of_two = prosecution.denied("one/reader", method, method.request_class(hub_project="two"))
    assert denied.refusal.message.replace(repr(hub_project), "…") == of_two.refusal.message.replace(
        repr("two"), "…"
    )
    assert len(denied.new_alerts) == 1


@pytest.mark.parametrize("method", [method_named(name) for name in SAYING_WHO], ids=str)
def test_a_request_as_another_runtime_is_refused_and_alerted(
    prosecution: Prosecution, method: Method
) -> None:
    denied = prosecution.denied("one/bound", method, acting_as(method, "somebody-else"))
    assert (denied.refusal.code, denied.refusal.reason) == (DENIED, "IDENTITY_MISMATCH")
    assert denied.refusal.metadata == {"field": "runtime_id", "id": "somebody-else"}
    (alert,) = denied.new_alerts
    assert (alert.reason, alert.runtime_id) == (ALERT_REASON_IDENTITY_MISMATCH, "somebody-else")
    assert alert.samples[-1].credential_name == "bound"


@pytest.mark.parametrize("method", [method_named(name) for name in SAYING_WHO], ids=str)
def test_a_request_as_oneself_is_not_refused_for_it(secured_hub: SecuredHub, method: Method) -> None:
    for name, runtime_id in (("one/bound", BOUND_RUNTIME), ("one/runtime", BOUND_RUNTIME)):
        refusal = ended(secured_hub.stubs(name), method, acting_as(method, runtime_id, hub_project="one"))
        assert refusal is None or refusal.reason not in ("IDENTITY_MISMATCH", "CREDENTIAL_INVALID")


def test_a_valid_push_as_another_runtime_stores_nothing(prosecution: Prosecution) -> None:
    method = method_named("SyncService/PushEvents")
    request = PushEventsRequest(project_id="one-p", run_id="run", runtime_id="somebody", events=events(1, 3))
    denied = prosecution.denied("one/bound", method, request)
    (alert,) = denied.new_alerts
    assert (alert.project_id, alert.run_id, alert.runtime_id) == ("one-p", "run", "somebody")


def test_what_was_pushed_before_a_mismatch_is_answered_and_what_follows_is_not_stored(
    secured_hub: SecuredHub,
) -> None:
    stubs = secured_hub.stubs("one/bound")

    def request(run_id: str, runtime_id: str) -> PushEventsRequest:
        return PushEventsRequest(
            project_id="one-m", run_id=run_id, runtime_id=runtime_id, events=events(1, 1)
        )

    with Conversation(stubs.sync.PushEvents) as stream:
        for sent in (("a", BOUND_RUNTIME), ("b", "else"), ("c", BOUND_RUNTIME)):
            stream.send(request(*sent))
        stream.half_close()
        answers = stream.read_all()
    assert [answer.run_id for answer in answers[:-1]] == ["a"]
    assert refusal_from_status(answers[-1].error).reason == "IDENTITY_MISMATCH"
    runs = secured_hub.stubs("one/reader").sync.ListRuns(
        method_named("SyncService/ListRuns").request_class(project_id="one-m")  # type: ignore[arg-type]  # is one
    )
    assert [run.run_id for run in runs.runs] == ["a"]


# --- projects ---


@pytest.mark.parametrize("method", [method_named(name) for name in ABOUT_A_PROJECT], ids=str)
def test_a_project_that_the_prefixes_do_not_cover_is_refused_and_alerted(
    prosecution: Prosecution, method: Method
) -> None:
    name = who_may(method, "prefixed-reader", "prefixed-operator", "runtime")
    for project_id in ("other", "one", "ONE-a", "xone-a", "two-a"):
        denied = prosecution.denied(name, method, method.request_class(project_id=project_id))
        assert (denied.refusal.code, denied.refusal.reason) == (DENIED, "PERMISSION_DENIED")
        assert denied.refusal.metadata == {"projectId": project_id}
        (alert,) = denied.new_alerts
        assert (alert.reason, alert.project_id) == (ALERT_REASON_IDENTITY_MISMATCH, project_id)


@pytest.mark.parametrize("method", [method_named(name) for name in OVER_ALL_PROJECTS], ids=str)
def test_who_acts_on_some_projects_makes_no_call_over_all(prosecution: Prosecution, method: Method) -> None:
    name = who_may(method, "prefixed-reader", "prefixed-operator")
    denied = prosecution.denied(name, method, method.request_class())
    assert (denied.refusal.code, denied.refusal.reason) == (DENIED, "PERMISSION_DENIED")
    assert "name one of them" in denied.refusal.message
    assert denied.refusal.metadata == {}
    assert len(denied.new_alerts) == 1


@pytest.mark.parametrize("method", [method_named(name) for name in ABOUT_A_PROJECT], ids=str)
def test_a_project_that_a_prefix_covers_is_not_refused_for_it(
    secured_hub: SecuredHub, method: Method
) -> None:
    name = who_may(method, "prefixed-reader", "prefixed-operator", "runtime")
    request = method.request_class(project_id="one-a\n")  # covered, and refused for something else
    refusal = ended(secured_hub.stubs(name), method, request)
    assert refusal is not None
    assert refusal.reason == "INVALID_REQUEST"


def test_a_project_is_bound_by_an_event_only_where_the_prefixes_cover_it(
    prosecution: Prosecution, secured_hub: SecuredHub
) -> None:
    method = method_named("SyncService/PushEvents")
    request = PushEventsRequest(project_id="free", run_id="r", runtime_id="r", events=events(1, 1))
    prosecution.denied("one/runtime", method, request)
    runtime = secured_hub.stubs("one/runtime").sync
    assert push(runtime, "", project_id="one-bound", batch=events(1, 1)).accepted_count == 1
    bound = secured_hub.stubs("one/operator").sync.ListProjects(ListProjectsRequest()).projects
    assert "one-bound" in [project.project_id for project in bound]
    assert "free" not in [project.project_id for project in bound]
    # Who has no prefixes covers all, and so takes it.
    assert push(secured_hub.stubs("two/free").sync, "", project_id="free", batch=events(1, 1)).accepted_count


def test_of_a_project_that_is_taken_nothing_else_is_told(secured_hub: SecuredHub) -> None:
    owner, stranger = secured_hub.stubs("two/free").sync, secured_hub.stubs("one/free").sync
    push(owner, "", project_id="shared-name", run_id="there", batch=events(1, 2))
    answers = [
        push(stranger, "", project_id="shared-name", run_id=run_id, batch=events(1, 2))
        for run_id in ("there", "not-there")
    ]
    for answer in answers:
        answer.ClearField("run_id")
    assert answers[0] == answers[1]
    assert answers[0].cursor == 0
    operator = secured_hub.stubs("one/operator").sync
    refusal = refusal_of(lambda: operator.BindProject(BindProjectRequest(project_id="shared-name")))
    assert (refusal.code, refusal.reason) == (DENIED, "PERMISSION_DENIED")
    assert "two" not in refusal.message


def test_a_reconcile_says_it_run_by_run_and_alerts(prosecution: Prosecution, secured_hub: SecuredHub) -> None:
    before = prosecution.alerts("one")
    runs = [
        ReconcileRun(
            project_id=project_id, run_id="r", sequence=0, chain_hash=chain_hash_at_start(project_id, "r")
        )
        for project_id in ("one-p", "other", "two-p")
    ]
    request = ReconcileRunsRequest(runtime_id="reconciling", instance_id="i", runs=runs)
    answered = secured_hub.stubs("one/runtime").sync.ReconcileRuns(request).runs
    assert [run.state == RECONCILE_STATE_PERMISSION_DENIED for run in answered] == [False, True, True]
    assert all(not run.chain_hash and not run.cursor for run in answered[1:])
    known = {alert.alert_id for alert in before}
    new = [alert for alert in prosecution.alerts("one") if alert.alert_id not in known]
    assert sorted((alert.project_id, alert.runtime_id) for alert in new) == [
        ("other", "reconciling"),
        ("two-p", "reconciling"),
    ]


# --- streams ---


def test_a_heartbeat_that_names_no_hub_project_is_heard_in_the_credentials_own(
    secured_hub: SecuredHub,
) -> None:
    with Conversation(secured_hub.stubs("two/runtime").presence.Heartbeat) as stream:
        answer = stream.ask(HeartbeatRequest(runtime_id="alive", instance_id="i"))
        assert not answer.HasField("error")
        get = method_named("PresenceService/GetRuntime")
        assert ended(secured_hub.stubs("two/reader"), get, get.request_class(runtime_id="alive")) is None
        of_one = ended(secured_hub.stubs("one/reader"), get, get.request_class(runtime_id="alive"))
        assert of_one is not None
        assert of_one.reason == "NOT_FOUND"


def test_a_stream_may_leave_its_hub_project_out_or_say_it(secured_hub: SecuredHub) -> None:
    credential = LeaseCredential(
        resource="r", runtime_id="x", holder_id="h", fencing_token=1, nonce=nonce("n")
    )
    with Conversation(secured_hub.stubs("one/runtime").lease.RenewLeases) as stream:
        for hub_project in ("", "one", ""):
            request = RenewLeasesRequest(
                hub_project=hub_project, renewals=[LeaseRenewal(credential=credential)]
            )
            (result,) = stream.ask(request).results
            assert result.HasField("refusal")
        said = stream.ask(RenewLeasesRequest(hub_project="two", renewals=[LeaseRenewal()]))
        assert refusal_from_status(said.error).reason == "IDENTITY_MISMATCH"
