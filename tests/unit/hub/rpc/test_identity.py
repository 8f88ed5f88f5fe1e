"""Who calls: found by what gRPC says of the call, and held against what its requests say."""

import contextvars
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar, cast

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.core.credential import caller_of_token
from hub.core.errors import InvalidRequest, RateLimited, Refusal
from hub.core.identity_errors import (
    CredentialExpired,
    CredentialInvalid,
    CredentialMissing,
    CredentialRevoked,
    IdentityMismatch,
    PermissionDenied,
)
from hub.core.limits import Limits
from hub.core.values import Caller, HubProject, Role, RuntimeId
from hub.rpc.identity import Admission, Call, caller_of, hub_caller_of, refuse_mismatch
from hub.rpc.requests import RequestCheck
from hub.service import readers
from hub.service.instruments import NoInstruments
from hub.service.rates import HubRates
from hub.service.token_book import TokenBook
from hub.store.contract import Changes
from tests.contract.secured import KINDS, Bearer, new_bearer

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[object, object]
Metadata = Sequence[tuple[str, str | bytes]]

PEER: Final = "ipv4:10.0.0.7:1234"
URI: Final = "spiffe://example.org/hub-project/one/runtime/r7"
READ: Final = "/synchub.v1.SyncService/GetRun"
PUSH: Final = "/synchub.v1.SyncService/PushEvents"
CREATE: Final = "/synchub.v1.HubService/CreateToken"
BEARERS: Final[Mapping[str, Bearer]] = {
    name: new_bearer("one", kind, display_name=name, now_nanos=1_000) for name, kind in KINDS.items()
}


class IncomingCall:
    """What gRPC says of a call."""

    def __init__(self, metadata: Metadata = (), *, uris: Sequence[bytes] = ()) -> None:
        self._metadata = metadata
        self._uris = uris

    def peer(self) -> str:
        return PEER

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return {"peer_uri": self._uris} if self._uris else {}


class Observed:
    """Keeps what is observed."""

    def __init__(self) -> None:
        self.mismatches: list[tuple[Caller, str, str, str]] = []

    def observe_mismatch(self, caller: Caller, *, project_id: str, run_id: str, runtime_id: str) -> None:
        self.mismatches.append((caller, project_id, run_id, runtime_id))


class Gate:
    """An admission with its tokens, observed."""

    def __init__(
        self, *, are_required: bool = True, trust_domain: str | None = None, limits: Limits | None = None
    ) -> None:
        self.now_nanos = 2_000
        self.book = TokenBook(credential_nanos=lambda: self.now_nanos)
        tokens = {name: each.token for name, each in BEARERS.items()}
        tokens["expired"] = replace(tokens["expired"], expire_nanos=2_000)
        tokens["revoked"] = replace(tokens["revoked"], revoke_nanos=1_500)
        self.book.announce(Changes(tokens={token.token_id: token for token in tokens.values()}))
        self.observed = Observed()
        self.admission = Admission(
            self.book,
            observer=self.observed,
            rates=HubRates(
                limits=limits or Limits(), instruments=NoInstruments(), monotonic_seconds=lambda: 0.0
            ),
            are_credentials_required=are_required,
            trust_domain=trust_domain,
        )

    def begin(self, metadata: Metadata = (), *, method: str = READ, uris: Sequence[bytes] = ()) -> Call:
        return self.admission.begin(cast(Context, IncomingCall(metadata, uris=uris)), method)

    def within(self, name: str | None, work: Callable[[Context], Result], *, method: str = READ) -> Result:
        """Do something within a call of a token's bearer."""
        context = cast(Context, IncomingCall(() if name is None else showing(name)))

        def call() -> Result:
            self.admission.begin(context, method)
            return work(context)

        return contextvars.copy_context().run(call)


def showing(name: str, scheme: str = "Bearer ") -> Metadata:
    return [("authorization", f"{scheme}{BEARERS[name].bearer_token}")]


def caller(name: str) -> Caller:
    return caller_of_token(BEARERS[name].token, PEER)


def check() -> RequestCheck:
    return RequestCheck(Limits())


# --- who calls ---


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER "])
def test_a_token_says_who_calls(scheme: str) -> None:
    call = Gate().begin(showing("reader", scheme))
    assert (call.caller, call.refusal, call.fault()) == (caller("reader"), None, None)
    assert (call.peer, call.credential_key) == (PEER, BEARERS["reader"].token.token_id)


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ((), CredentialMissing),
        ([("authorization", "")], CredentialInvalid),
        ([("authorization", "Bearer")], CredentialInvalid),
        ([*showing("reader"), *showing("reader")], CredentialInvalid),
        ([*showing("reader"), ("authorization", "")], CredentialInvalid),
        (showing("reader", "Bearer  "), CredentialInvalid),
        (showing("expired"), CredentialExpired),
        (showing("revoked"), CredentialRevoked),
        ([("authorization-bin", b"Bearer x")], CredentialMissing),
    ],
)
def test_who_shows_nothing_that_counts_is_refused(metadata: Metadata, fault: type[Refusal]) -> None:
    call = Gate().begin(metadata)
    assert type(call.refusal) is fault
    assert call.fault() is call.refusal
    assert (call.caller, call.credential_key) == (None, "")


def test_guesses_of_tokens_count_for_their_host_and_end_nobody_elses_calls() -> None:
    gate = Gate(limits=Limits(credential_requests_per_second=1, credential_requests_burst=3))
    guesses = [gate.begin([("authorization", "Bearer guess")]).refusal for _ in range(5)]
    assert [type(each) for each in guesses[:3]] == [CredentialInvalid] * 3
    assert {type(each) for each in guesses[3:]} <= {CredentialInvalid, RateLimited}
    assert isinstance(guesses[-1], RateLimited)
    assert gate.begin(showing("reader")).refusal is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["authorization", "authorization-bin", "x", "user-agent"]),
            st.one_of(
                st.text(max_size=20),
                st.sampled_from(["Bearer ", "bearer", " ", "Basic "]).map(
                    lambda scheme: scheme + BEARERS["reader"].bearer_token
                ),
                st.sampled_from(["", "0", " ", "\n", "\0"]).map(
                    lambda end: f"Bearer {BEARERS['reader'].bearer_token}{end}"
                ),
            ),
        ),
        max_size=4,
    )
)
def test_one_whole_token_lets_in_and_nothing_else(metadata: list[tuple[str, str]]) -> None:
    sent = [value for key, value in metadata if key == "authorization"]
    is_right = sent == [f"Bearer {BEARERS['reader'].bearer_token}"]
    call = Gate().begin(metadata)
    assert (call.caller == caller("reader")) is is_right
    assert (call.refusal is None) is is_right


def test_a_hub_that_wants_no_credentials_takes_none_but_right_ones() -> None:
    gate = Gate(are_required=False)
    assert gate.begin() == Call(PEER, None, None, gate.admission)
    assert gate.begin(showing("reader")).caller == caller("reader")
    assert isinstance(gate.begin(showing("revoked")).refusal, CredentialRevoked)
    assert isinstance(gate.begin([("authorization", "Bearer x")]).refusal, CredentialInvalid)


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (READ, {"runtime", "reader", "operator", "admin"}),
        (PUSH, {"runtime"}),
        (CREATE, {"operator", "admin"}),
        ("/grpc.channelz.v1.Channelz/GetServers", {"admin"}),
        ("/grpc.something.New/Call", {"admin"}),
        ("/synchub.v1.SyncService/NoSuchCall", set()),
        ("/synchub.v2.SyncService/GetRun", {"admin"}),
    ],
)
def test_the_role_decides_which_calls_are_made(method: str, names: set[str]) -> None:
    gate = Gate()
    let_in = {
        name
        for name in ("runtime", "reader", "operator", "admin")
        if gate.begin(showing(name), method=method).refusal is None
    }
    assert let_in == names
    assert isinstance(gate.begin(method=method).refusal, CredentialMissing)


@pytest.mark.parametrize(
    "method",
    [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_health_and_reflection_ask_nobody(method: str) -> None:
    for metadata in ((), showing("revoked"), [("authorization", "Bearer x")]):
        call = Gate().begin(metadata, method=method)
        assert (call.caller, call.refusal) == (None, None)


def test_a_call_hears_when_its_token_ends() -> None:
    gate = Gate()
    call = gate.begin(showing("reader"))
    token = BEARERS["reader"].token
    gate.book.announce(Changes(tokens={token.token_id: replace(token, expire_nanos=3_000)}))
    assert call.fault() is None
    gate.now_nanos = 3_000
    assert isinstance(call.fault(), CredentialExpired)
    gate.book.announce(Changes(tokens={token.token_id: replace(token, revoke_nanos=1)}))
    assert isinstance(call.fault(), CredentialRevoked)


# --- certificates ---


def test_a_certificate_says_who_calls_where_they_are_asked_for() -> None:
    uris = [URI.encode()]
    call = Gate(trust_domain="example.org").begin(uris=uris, method=PUSH)
    assert call.refusal is None
    assert call.caller is not None
    assert (call.caller.hub_project, call.caller.runtime_id, call.caller.role) == ("one", "r7", Role.RUNTIME)
    assert (call.credential_key, call.caller.is_certificate) == (URI, True)
    assert isinstance(Gate().begin(uris=uris).refusal, CredentialMissing)


@pytest.mark.parametrize(
    "uris",
    [
        [URI.encode(), URI.encode()],
        [URI.encode(), b"https://example.org"],
        [b"https://example.org"],
        [URI.replace("example.org", "example.com").encode()],
        [URI.replace("one", "\xff").encode("latin-1")],
    ],
)
def test_a_certificate_with_another_name_is_refused_with_a_token_too(uris: Sequence[bytes]) -> None:
    gate = Gate(trust_domain="example.org")
    for metadata in ((), showing("reader")):
        assert isinstance(gate.begin(metadata, uris=uris).refusal, CredentialInvalid)


def test_beside_a_certificate_the_token_says_what_its_bearer_may() -> None:
    call = Gate(trust_domain="example.org").begin(showing("operator"), uris=[URI.encode()], method=CREATE)
    assert (call.refusal, call.caller) == (None, caller("operator"))


@pytest.mark.parametrize(
    ("uri", "field"),
    [
        (URI.replace("/one/", "/two/"), "certificate hub_project"),
        (URI, "certificate runtime_id"),  # the token is for the runtime "bound" alone
    ],
)
def test_a_token_and_a_certificate_of_two_are_refused_and_alerted(uri: str, field: str) -> None:
    gate = Gate(trust_domain="example.org")
    refusal = gate.begin(showing("bound"), uris=[uri.encode()]).refusal
    assert isinstance(refusal, IdentityMismatch)
    assert refusal.field == field
    assert gate.observed.mismatches == [(caller("bound"), "", "", "r7")]


# --- what a request says of itself ---


@pytest.mark.parametrize("hub_project", ["", "one"])
def test_a_request_without_a_hub_project_is_about_the_credentials(hub_project: str) -> None:
    violations = check()
    found = Gate().within(
        "bound", lambda context: caller_of(context, hub_project, check=violations, runtime_id="bound")
    )
    assert found == caller("bound")
    violations.refuse_violations()


@pytest.mark.parametrize(
    ("name", "claims", "refusal", "observed"),
    [
        ("reader", {"hub_project": "two"}, IdentityMismatch, ("", "", "")),
        ("bound", {"runtime_id": "else"}, IdentityMismatch, ("", "", "else")),
        ("runtime", {"project_id": "two-p", "run_id": "r"}, PermissionDenied, ("two-p", "r", "")),
        ("runtime", {"project_id": ""}, PermissionDenied, ("", "", "")),
    ],
)
def test_what_does_not_agree_is_refused_and_alerted(
    name: str, claims: dict[str, str], refusal: type[Refusal], observed: tuple[str, str, str]
) -> None:
    gate = Gate()
    rest = {key: value for key, value in claims.items() if key != "hub_project"}

    def ask(context: Context) -> Caller:
        return caller_of(context, claims.get("hub_project", ""), check=check(), **rest)

    with pytest.raises(refusal):
        gate.within(name, ask)
    assert gate.observed.mismatches == [(caller(name), *observed)]


def test_what_agrees_is_neither_refused_nor_alerted() -> None:
    gate = Gate()
    for name, claims in (
        ("bound", {"runtime_id": "bound", "project_id": "one-p"}),
        ("bound", {"runtime_id": ""}),  # what is empty is refused for that, by whoever needs it
        ("runtime", {"runtime_id": "any", "project_id": "one-"}),
        ("free", {"project_id": ""}),
        ("reader", {"project_id": "whatever"}),
    ):
        found = gate.within(
            name,
            lambda context, claims=claims: caller_of(context, "one", check=check(), **claims),  # type: ignore[misc]
        )
        assert found == caller(name)
    assert gate.observed.mismatches == []


def test_without_credentials_the_request_names_its_hub_project() -> None:
    gate = Gate(are_required=False)
    found = gate.within(None, lambda context: caller_of(context, "any", check=check(), project_id=""))
    assert found == Caller(HubProject("any"), None, Role.ANONYMOUS, PEER, "")
    violations = check()
    gate.within(None, lambda context: caller_of(context, "", check=violations))
    with pytest.raises(InvalidRequest, match="hub_project"):
        violations.refuse_violations()


def test_a_request_of_a_token_that_ended_since_the_call_began_is_refused() -> None:
    gate = Gate()
    token = BEARERS["reader"].token

    def ask(context: Context) -> Caller:
        gate.book.announce(Changes(tokens={token.token_id: replace(token, revoke_nanos=1)}))
        return caller_of(context, "", check=check())

    with pytest.raises(CredentialRevoked):
        gate.within("reader", ask)


def test_an_admin_alone_may_ask_about_any_hub_project() -> None:
    gate = Gate()

    def ask(context: Context) -> Caller:
        return hub_caller_of(context, "two", check=check())

    assert gate.within("admin", ask) == replace(caller("admin"), hub_project=HubProject("two"))
    with pytest.raises(IdentityMismatch):
        gate.within("operator", ask)
    assert gate.within("admin", lambda context: hub_caller_of(context, "", check=check())) == caller("admin")
    violations = check()
    gate.within("admin", lambda context: hub_caller_of(context, "\n", check=violations))
    with pytest.raises(InvalidRequest, match="hub_project"):
        violations.refuse_violations()


def test_renewals_of_another_runtime_are_refused_one_by_one() -> None:
    gate = Gate()

    def renew(context: Context) -> None:
        caller = caller_of(context, "", check=check())
        refuse_mismatch(caller, runtime_id="bound")
        refuse_mismatch(caller, runtime_id=RuntimeId("else"))

    with pytest.raises(IdentityMismatch):
        gate.within("bound", renew)
    assert [runtime_id for *_, runtime_id in gate.observed.mismatches] == ["else"]


def test_what_a_call_reads_waits_in_the_turn_of_the_callers_hub_project() -> None:
    def turn_of(context: Context, hub_project: str) -> str:
        caller_of(context, hub_project, check=check())
        return readers._TURN.get()

    assert Gate().within("reader", lambda context: turn_of(context, "")) == "one"
    gate = Gate(are_required=False)
    assert gate.within(None, lambda context: turn_of(context, "named")) == "named"
