"""Who is let in: credentials that are missing, wrong, over, taken back; what is told apart, and what not."""

from typing import Final

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hub.core.permissions import PERMISSIONS
from hub.core.values import Role
from synchub.channel import Refusal, refusal_from_error, refusal_from_status
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.presence_service_pb2 import (
    GetRuntimeRequest,
    HeartbeatRequest,
    ListRuntimesRequest,
    Runtime,
    WatchRuntimesRequest,
)
from synchub.v1.sync_event_pb2 import RunKey
from synchub.v1.sync_service_pb2 import ListAlertsRequest, ListRunsRequest, PushEventsRequest
from tests.contract.conversation import STREAM_SECONDS_MAX, Conversation, refusal_of
from tests.contract.every_method import METHODS, Method
from tests.contract.pushing import events, push
from tests.contract.secured import HUB_PROJECTS, SecuredHub, Stubs

UNAUTHENTICATED: Final = grpc.StatusCode.UNAUTHENTICATED
WRONG: Final = "CREDENTIAL_INVALID"
MISSING: Final = "CREDENTIAL_MISSING"


def refusal_showing(hub: SecuredHub, *metadata: tuple[str, str | bytes]) -> Refusal:
    """How a call with this metadata is refused."""
    stubs = hub.stubs_sending(*metadata)
    return refusal_of(lambda: stubs.hub.GetHubInfo(GetHubInfoRequest()))


def token_of(hub: SecuredHub, name: str = "one/runtime") -> str:
    return hub.bearers[name].bearer_token


def end_of(stubs: Stubs, method: Method) -> Refusal | None:
    """How a call with an empty request ends, said in band or by the status; None where it is answered."""
    call = Conversation[bytes, bytes](
        stubs.channel.stream_stream(  # all kinds of calls look alike on the wire
            method.path, request_serializer=bytes, response_deserializer=bytes
        )
    )
    with call:
        call.send(b"")
        call.half_close()
        try:
            answer = next(call.call, None)
        except grpc.RpcError as error:
            return refusal_from_error(error)
    if answer is None:
        return None
    response = method.response_class.FromString(answer)
    is_error = method.is_request_stream and response.HasField("error")
    return refusal_from_status(response.error) if is_error else None  # type: ignore[attr-defined]  # of streams


@pytest.mark.parametrize("name", ["one/runtime", "one/reader", "two/operator", "two/admin"])
def test_who_has_a_token_is_let_in(secured_hub: SecuredHub, name: str) -> None:
    info = secured_hub.stubs(name).hub.GetHubInfo(GetHubInfoRequest())
    assert len(info.hub_generation) == 32


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_is_read_in_any_case(secured_hub: SecuredHub, scheme: str) -> None:
    stubs = secured_hub.stubs_sending(("authorization", f"{scheme} {token_of(secured_hub)}"))
    assert stubs.hub.GetHubInfo(GetHubInfoRequest()).version


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ([], MISSING),
        ([("authorization-bin", b"Bearer {}")], MISSING),
        ([("proxy-authorization", "Bearer {}")], MISSING),
        ([("x-authorization", "Bearer {}")], MISSING),
        ([("token", "{}")], MISSING),
        ([("authorization", "")], WRONG),
        ([("authorization", "Bearer")], WRONG),
        ([("authorization", "Bearer ")], WRONG),
        ([("authorization", "{}")], WRONG),
        ([("authorization", "Basic {}")], WRONG),
        ([("authorization", "Bearer: {}")], WRONG),
        ([("authorization", "Bearer  {}")], WRONG),
        ([("authorization", "Bearer {} ")], WRONG),
        ([("authorization", " Bearer {}")], WRONG),
        ([("authorization", "Bearer {},")], WRONG),
        ([("authorization", "Bearer {}0")], WRONG),
        ([("authorization", "Bearer {} {}")], WRONG),
        ([("authorization", "Bearer {}, Bearer {}")], WRONG),
        ([("authorization", "Bearer {}"), ("authorization", "Bearer {}")], WRONG),
        ([("authorization", "Bearer {}"), ("authorization", "Bearer x")], WRONG),
        ([("authorization", "Bearer x"), ("authorization", "Bearer {}")], WRONG),
        ([("authorization", "Bearer " + "a" * 6_000)], WRONG),
    ],
)
def test_nothing_else_is_taken_for_a_token(
    secured_hub: SecuredHub, metadata: list[tuple[str, str | bytes]], reason: str
) -> None:
    token = token_of(secured_hub)
    filled = [
        (key, value.replace("{}", token) if isinstance(value, str) else value) for key, value in metadata
    ]
    refusal = refusal_showing(secured_hub, *filled)
    assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)
    assert token.split("_")[2] not in refusal.message


def test_metadata_that_is_too_long_for_grpc_opens_nothing(secured_hub: SecuredHub) -> None:
    refusal = refusal_showing(secured_hub, ("authorization", "Bearer " + "a" * 100_000))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert secured_hub.stubs("one/reader").hub.GetHubInfo(GetHubInfoRequest()).version


@pytest.mark.parametrize(
    ("name", "reason"), [("one/expired", "CREDENTIAL_EXPIRED"), ("one/revoked", "CREDENTIAL_REVOKED")]
)
def test_what_was_right_once_is_told_apart(secured_hub: SecuredHub, name: str, reason: str) -> None:
    refusal = refusal_of(lambda: secured_hub.stubs(name).hub.GetHubInfo(GetHubInfoRequest()))
    assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)


def test_to_who_does_not_know_the_secret_all_tokens_are_alike(secured_hub: SecuredHub) -> None:
    names = ["one/runtime", "one/expired", "one/revoked", "two/admin"]
    ids = [*(secured_hub.bearers[name].token.token_id for name in names), "0" * 20]
    refusals = {
        (refusal.code, refusal.reason, refusal.message, *refusal.metadata.items())
        for refusal in (
            refusal_showing(secured_hub, ("authorization", f"Bearer synchub_{token_id}_{'0' * 64}"))
            for token_id in ids
        )
    }
    assert refusals == {(UNAUTHENTICATED, WRONG, "the token is none of this hub's")}


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, MISSING),
        ("wrong", WRONG),
        ("one/expired", "CREDENTIAL_EXPIRED"),
        ("one/revoked", "CREDENTIAL_REVOKED"),
    ],
)
def test_no_call_is_made_without_a_credential_that_counts(
    secured_hub: SecuredHub, method: Method, name: str | None, reason: str
) -> None:
    if name is None:
        stubs = secured_hub.stubs_sending()
    elif name == "wrong":
        stubs = secured_hub.stubs_showing(f"{token_of(secured_hub)[:-64]}{'0' * 64}")
    else:
        stubs = secured_hub.stubs(name)
    refusal = end_of(stubs, method)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_call_is_denied_to_the_roles_that_may_not_make_it(secured_hub: SecuredHub, method: Method) -> None:
    for name in ("runtime", "reader", "operator", "admin"):
        if Role(name) in PERMISSIONS[method.name]:
            continue  # others are tested with requests that mean something
        refusal = end_of(secured_hub.stubs(f"one/{name}"), method)
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
        assert refusal.message == f"the role {name} may not call {method.name}"


# A watch that stays open is no answer to an empty request.
@pytest.mark.parametrize(
    "method", [each for each in METHODS if each.is_request_stream or not each.is_response_stream], ids=str
)
def test_a_call_is_not_denied_to_the_roles_that_may_make_it(secured_hub: SecuredHub, method: Method) -> None:
    for name in ("runtime", "reader", "operator", "admin"):
        if Role(name) in PERMISSIONS[method.name]:
            refusal = end_of(secured_hub.stubs(f"one/{name}"), method)
            assert refusal is None or "may not call" not in refusal.message


def test_a_refused_push_says_why_in_band_and_stores_nothing(secured_hub: SecuredHub) -> None:
    request = PushEventsRequest(project_id="one-p", run_id="r", runtime_id="r", events=events(1, 2))
    with Conversation(secured_hub.stubs("one/revoked").sync.PushEvents) as stream:
        said = refusal_from_status(stream.ask(request).error)
        assert (said.code, said.reason) == (UNAUTHENTICATED, "CREDENTIAL_REVOKED")
        stream.half_close()
        assert stream.refusal().reason == "CREDENTIAL_REVOKED"
    assert not secured_hub.stubs("one/reader").sync.ListRuns(ListRunsRequest(project_id="one-p")).runs


def test_health_and_reflection_are_open_to_everybody(secured_hub: SecuredHub) -> None:
    for stubs in (secured_hub.stubs_sending(), secured_hub.stubs("one/revoked")):
        check = stubs.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        assert check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        reflect = stubs.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (listed,) = reflect(iter([request]), timeout=STREAM_SECONDS_MAX)
        assert listed.list_services_response.service


def test_a_request_that_names_no_hub_project_is_about_the_credentials_own(secured_hub: SecuredHub) -> None:
    for hub_project in HUB_PROJECTS:
        pushed = push(
            secured_hub.stubs(f"{hub_project}/runtime").sync,
            "",
            project_id=f"{hub_project}-own",
            batch=events(1, 2),
        )
        assert pushed.accepted_count == 2
        reader = secured_hub.stubs(f"{hub_project}/reader").sync
        for named in ("", hub_project):
            request = ListRunsRequest(hub_project=named, project_id=f"{hub_project}-own")
            assert [run.cursor for run in reader.ListRuns(request).runs] == [2]


def test_who_is_not_let_in_raises_no_alert(secured_hub: SecuredHub) -> None:
    readers = [secured_hub.stubs(f"{hub_project}/reader").sync for hub_project in HUB_PROJECTS]
    before = [reader.ListAlerts(ListAlertsRequest()).alerts for reader in readers]
    refusal_showing(secured_hub, ("authorization", f"Bearer {token_of(secured_hub)}0"))
    refusal_of(lambda: secured_hub.stubs("one/revoked").sync.ListRuns(ListRunsRequest(hub_project="two")))
    assert [reader.ListAlerts(ListAlertsRequest()).alerts for reader in readers] == before


def test_presence_tells_of_no_run_of_a_project_that_the_credential_is_not_for(
    secured_hub: SecuredHub,
) -> None:
    runs = [RunKey(project_id="one-a", run_id="r"), RunKey(project_id="one-z", run_id="r")]
    beat = HeartbeatRequest(runtime_id="of many", instance_id="i", active_runs=runs)
    with Conversation(secured_hub.stubs("one/free").presence.Heartbeat) as stream:
        stream.ask(beat)
        for name, expected in (("reader", runs), ("prefixed-reader", runs[:1])):
            told = runtimes_told(secured_hub.stubs(f"one/{name}"), "of many")
            assert [list(runtime.active_runs) for runtime in told] == [expected] * 3


def runtimes_told(stubs: Stubs, runtime_id: str) -> list[Runtime]:
    """A runtime as each call tells of it."""
    got = stubs.presence.GetRuntime(GetRuntimeRequest(runtime_id=runtime_id)).runtime
    listed = stubs.presence.ListRuntimes(ListRuntimesRequest()).runtimes
    watch = stubs.presence.WatchRuntimes(WatchRuntimesRequest(), timeout=STREAM_SECONDS_MAX)
    watched = next(watch).runtimes
    watch.cancel()
    return [got, *(each for each in (*listed, *watched) if each.runtime_id == runtime_id)]
