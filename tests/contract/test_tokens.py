"""CreateToken, ListTokens and RevokeToken: who may give what to whom, and what is kept of it."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from hub.core.limits import Limits
from synchub.channel import Refusal
from synchub.v1 import hub_service_pb2 as messages
from synchub.v1.hub_service_pb2 import (
    ROLE_ADMIN,
    ROLE_OPERATOR,
    ROLE_READER,
    ROLE_RUNTIME,
    CreateTokenRequest,
    CreateTokenResponse,
    GetHubInfoRequest,
    ListTokensRequest,
    RevokeTokenRequest,
)
from synchub.v1.sync_service_pb2 import ListAlertsRequest
from tests.contract.conftest import settings_in
from tests.contract.conversation import refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.leasing import seconds
from tests.contract.secured import SecuredHub, Stubs, running_secured_hub


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    return Limits(tokens_max=60, page_bytes_max=64 * 1024)


def create(
    stubs: Stubs, role: messages.Role.ValueType = ROLE_READER, **fields: object
) -> CreateTokenResponse:
    """Make a token; what is not said is the least."""
    request = CreateTokenRequest(role=role, display_name=str(fields.pop("display_name", "n")))
    for name, value in fields.items():
        if name == "ttl":
            request.ttl.CopyFrom(value)  # type: ignore[arg-type]  # a Duration
        elif name == "project_id_prefixes":
            request.project_id_prefixes.extend(value)  # type: ignore[arg-type]  # texts
        else:
            setattr(request, name, value)
    return stubs.hub.CreateToken(request)


def tokens_of(stubs: Stubs, hub_project: str = "") -> list[messages.Token]:
    """All tokens that a caller sees, page by page."""
    return list(itertools.chain.from_iterable(pages_of(stubs, hub_project)))


def pages_of(stubs: Stubs, hub_project: str = "", *, page_size: int = 7) -> Iterator[list[messages.Token]]:
    request = ListTokensRequest(hub_project=hub_project, page_size=page_size)
    while True:
        page = stubs.hub.ListTokens(request)
        yield list(page.tokens)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def told(refusal: Refusal) -> tuple[grpc.StatusCode, str]:
    return refusal.code, refusal.reason


DENIED = (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
MISMATCH = (grpc.StatusCode.PERMISSION_DENIED, "IDENTITY_MISMATCH")
INVALID = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


def test_a_new_token_lets_its_bearer_in_at_once(secured_hub: SecuredHub) -> None:
    made = create(secured_hub.stubs("one/operator"), display_name="dashboard", ttl=seconds(3_600))
    token = made.token
    assert (token.hub_project, token.display_name, token.role) == ("one", "dashboard", ROLE_READER)
    assert token.expire_time.ToNanoseconds() - token.create_time.ToNanoseconds() == pytest.approx(
        3_600e9, abs=60e9
    )
    assert not token.HasField("revoke_time")
    assert made.bearer_token.split("_")[:2] == ["synchub", token.token_id]
    assert secured_hub.stubs_showing(made.bearer_token).hub.GetHubInfo(GetHubInfoRequest()).version
    assert token in tokens_of(secured_hub.stubs("one/operator"))


def test_of_a_secret_only_its_hash_is_kept(secured_hub: SecuredHub) -> None:
    made = create(secured_hub.stubs("one/operator"))
    secret = made.bearer_token.split("_")[2]
    assert len(bytes.fromhex(secret)) == 32
    stored = b"".join(
        each.read_bytes() for each in sorted(secured_hub.database.parent.iterdir()) if each.is_file()
    )
    assert hashlib.sha256(bytes.fromhex(secret)).digest() in stored
    for kept in (secret.encode(), bytes.fromhex(secret)):
        assert kept not in stored


def test_tokens_are_listed_by_their_ids_page_by_page(secured_hub: SecuredHub) -> None:
    pages = list(pages_of(secured_hub.stubs("two/operator"), page_size=3))
    assert [len(page) for page in pages[:-1]] == [3] * (len(pages) - 1)
    ids = [token.token_id for page in pages for token in page]
    assert ids == sorted(ids)
    kept = {name: each for name, each in secured_hub.bearers.items() if name.startswith("two/")}
    assert {each.token.token_id for each in kept.values()} <= set(ids)
    (revoked,) = [
        each for each in tokens_of(secured_hub.stubs("two/admin")) if each.display_name == "revoked"
    ]
    assert revoked.HasField("revoke_time")


def test_a_revoked_token_is_refused_at_once_and_stays_as_it_is(secured_hub: SecuredHub) -> None:
    operator = secured_hub.stubs("one/operator")
    made = create(operator)
    bearer = secured_hub.stubs_showing(made.bearer_token)
    bearer.hub.GetHubInfo(GetHubInfoRequest())
    request = RevokeTokenRequest(token_id=made.token.token_id)
    revoked = operator.hub.RevokeToken(request).token
    assert revoked.HasField("revoke_time")
    refusal = refusal_of(lambda: bearer.hub.GetHubInfo(GetHubInfoRequest()))
    assert told(refusal) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REVOKED")
    assert operator.hub.RevokeToken(request).token == revoked
    assert revoked in tokens_of(operator)


def test_a_token_that_is_not_there_is_not_found(secured_hub: SecuredHub) -> None:
    request = RevokeTokenRequest(token_id="f" * 20)
    refusal = refusal_of(lambda: secured_hub.stubs("one/admin").hub.RevokeToken(request))
    assert told(refusal) == NOT_FOUND
    assert refusal.metadata == {"tokenId": "f" * 20}


def test_another_hub_projects_token_is_as_if_it_were_not_there(secured_hub: SecuredHub) -> None:
    theirs = secured_hub.bearers["two/reader"]
    request = RevokeTokenRequest(token_id=theirs.token.token_id)
    for name in ("one/operator", "one/admin"):
        refusal = refusal_of(lambda name=name: secured_hub.stubs(name).hub.RevokeToken(request))  # type: ignore[misc]
        assert told(refusal) == NOT_FOUND
    assert secured_hub.stubs("two/reader").hub.GetHubInfo(GetHubInfoRequest()).version
    assert {token.hub_project for token in tokens_of(secured_hub.stubs("one/admin"))} == {"one"}


def test_an_admin_makes_lists_and_revokes_tokens_of_any_hub_project(secured_hub: SecuredHub) -> None:
    admin = secured_hub.stubs("one/admin")
    made = create(admin, ROLE_ADMIN, hub_project="two", display_name="second admin")
    assert made.token.hub_project == "two"
    assert made.token in tokens_of(admin, "two")
    request = RevokeTokenRequest(hub_project="two", token_id=made.token.token_id)
    assert admin.hub.RevokeToken(request).token.HasField("revoke_time")


def test_an_operator_makes_no_admin_and_revokes_none(secured_hub: SecuredHub) -> None:
    operator = secured_hub.stubs("one/operator")
    before = tokens_of(operator)
    assert told(refusal_of(lambda: create(operator, ROLE_ADMIN))) == DENIED
    request = RevokeTokenRequest(token_id=secured_hub.bearers["one/admin"].token.token_id)
    assert told(refusal_of(lambda: operator.hub.RevokeToken(request))) == DENIED
    assert tokens_of(operator) == before
    assert secured_hub.stubs("one/admin").hub.GetHubInfo(GetHubInfoRequest()).version


def test_an_operator_acts_on_its_own_hub_project_only(secured_hub: SecuredHub) -> None:
    operator = secured_hub.stubs("one/operator")
    theirs = RevokeTokenRequest(hub_project="two", token_id=secured_hub.bearers["two/reader"].token.token_id)
    before = tokens_of(secured_hub.stubs("two/admin"))
    assert told(refusal_of(lambda: create(operator, hub_project="two"))) == MISMATCH
    assert told(refusal_of(lambda: operator.hub.RevokeToken(theirs))) == MISMATCH
    assert told(refusal_of(lambda: tokens_of(operator, "two"))) == MISMATCH
    assert tokens_of(secured_hub.stubs("two/admin")) == before


@pytest.mark.parametrize("name", ["one/runtime", "one/reader", "one/free", "one/bound"])
def test_who_is_no_operator_makes_lists_and_revokes_nothing(secured_hub: SecuredHub, name: str) -> None:
    caller = secured_hub.stubs(name)
    before = tokens_of(secured_hub.stubs("one/admin"))
    own = RevokeTokenRequest(token_id=secured_hub.bearers[name].token.token_id)
    assert told(refusal_of(lambda: create(caller))) == DENIED
    assert told(refusal_of(lambda: tokens_of(caller))) == DENIED
    assert told(refusal_of(lambda: caller.hub.RevokeToken(own))) == DENIED
    assert tokens_of(secured_hub.stubs("one/admin")) == before


def test_a_runtimes_token_needs_prefixes_where_there_is_another_hub_project(secured_hub: SecuredHub) -> None:
    operator = secured_hub.stubs("one/operator")
    before = tokens_of(operator)
    refusal = refusal_of(lambda: create(operator, ROLE_RUNTIME))
    assert told(refusal) == INVALID
    assert refusal.metadata["field"] == "project_id_prefixes"
    assert tokens_of(operator) == before
    made = create(operator, ROLE_RUNTIME, project_id_prefixes=["one-"], runtime_id="r1")
    assert (list(made.token.project_id_prefixes), made.token.runtime_id) == (["one-"], "r1")


def test_an_operator_with_prefixes_gives_and_takes_only_within_them(secured_hub: SecuredHub) -> None:
    operator, prefixed = secured_hub.stubs("one/operator"), secured_hub.stubs("one/prefixed-operator")
    before = tokens_of(operator)
    for prefixes in ([], ["one-"], ["one-c"], ["one-a1", "one-c"]):
        refusal = refusal_of(lambda prefixes=prefixes: create(prefixed, project_id_prefixes=prefixes))  # type: ignore[misc]
        assert told(refusal) == DENIED
    seen = {token.display_name for token in tokens_of(prefixed)}
    assert seen == {"prefixed-reader", "prefixed-operator"}
    not_seen = RevokeTokenRequest(token_id=secured_hub.bearers["one/reader"].token.token_id)
    assert told(refusal_of(lambda: prefixed.hub.RevokeToken(not_seen))) == NOT_FOUND
    assert tokens_of(operator) == before
    made = create(prefixed, ROLE_OPERATOR, project_id_prefixes=["one-a1", "one-b"])
    revoked = prefixed.hub.RevokeToken(RevokeTokenRequest(token_id=made.token.token_id)).token
    assert revoked.HasField("revoke_time")


def test_reaching_beyond_ones_prefixes_is_alerted_to_ones_own_hub_project(secured_hub: SecuredHub) -> None:
    refusal_of(lambda: create(secured_hub.stubs("two/prefixed-operator"), project_id_prefixes=["else"]))
    alerts = secured_hub.stubs("two/reader").sync.ListAlerts(ListAlertsRequest()).alerts
    assert "else" in [alert.project_id for alert in alerts]
    of_one = secured_hub.stubs("one/reader").sync.ListAlerts(ListAlertsRequest()).alerts
    assert "else" not in [alert.project_id for alert in of_one]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("display_name", {"display_name": ""}),
        ("display_name", {"display_name": " a"}),
        ("display_name", {"display_name": "a" * 257}),
        ("role", {"role": 0}),
        ("role", {"role": 9}),
        ("runtime_id", {"role": ROLE_RUNTIME, "runtime_id": "\n", "project_id_prefixes": ["one-"]}),
        ("runtime_id", {"runtime_id": "r"}),
        ("project_id_prefixes[0]", {"project_id_prefixes": [""]}),
        ("project_id_prefixes[1]", {"project_id_prefixes": ["a", "b\0"]}),
        ("project_id_prefixes[0]", {"project_id_prefixes": ["é" * 129]}),
        ("project_id_prefixes", {"project_id_prefixes": ["a"] * 17}),
        ("project_id_prefixes", {"role": ROLE_ADMIN, "project_id_prefixes": ["a"]}),
        ("ttl", {"ttl": seconds(0)}),
        ("ttl", {"ttl": seconds(0.999_999_999)}),
        ("ttl", {"ttl": seconds(-1)}),
        ("ttl", {"ttl": seconds(101 * 366 * 86_400)}),
        ("hub_project", {"hub_project": "\n"}),
    ],
)
def test_what_is_wrong_with_a_token_that_is_wanted_is_named(
    secured_hub: SecuredHub, field: str, fields: dict[str, object]
) -> None:
    admin = secured_hub.stubs("one/admin")
    before = tokens_of(admin)
    refusal = refusal_of(lambda: create(admin, **fields))  # type: ignore[arg-type]  # of all kinds
    assert told(refusal) == INVALID
    assert refusal.metadata["field"] == field
    assert tokens_of(admin) == before


@pytest.mark.parametrize(("limit", "value"), [("tokens_max", 22), ("hub_project_tokens_max", 12)])
def test_only_so_many_tokens_are_kept(
    tmp_path_factory: pytest.TempPathFactory, limit: str, value: int
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("few"), replace(Limits(), **{limit: value}))
    with running_secured_hub(settings) as secured:
        admin = secured.stubs("one/admin")
        made = [create(admin) for _ in range(2)]
        last = made[-1]
        admin.hub.RevokeToken(RevokeTokenRequest(token_id=last.token.token_id))
        before = tokens_of(admin)
        refusal = refusal_of(lambda: create(admin))
        assert told(refusal) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert refusal.metadata == {"limit": limit, "limitValue": str(value)}
        assert tokens_of(admin) == before
        is_full = limit == "tokens_max"
        other = secured.stubs("two/admin")
        assert told(refusal_of(lambda: create(other))) == told(refusal) if is_full else create(other)


def test_tokens_keep_over_a_restart_and_the_first_one_closes_the_hub(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("first"))
    with HubInThread(settings) as hub, SecuredHub(hub, {}, settings.database) as secured:
        anybody = secured.stubs_sending()
        first = create(anybody, ROLE_ADMIN, hub_project="p")
        # Alone on the hub, a runtime needs no prefixes.
        second = create(anybody, ROLE_RUNTIME, hub_project="p")
        assert anybody.hub.GetHubInfo(GetHubInfoRequest()).version
    with HubInThread(settings) as hub, SecuredHub(hub, {}, settings.database) as secured:
        refusal = refusal_of(lambda: secured.stubs_sending().hub.GetHubInfo(GetHubInfoRequest()))
        assert told(refusal) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_MISSING")
        admin = secured.stubs_showing(first.bearer_token)
        kept = sorted((first.token, second.token), key=lambda token: token.token_id)
        assert tokens_of(admin) == kept
