"""Who may see the metrics beyond loopback."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from starlette.requests import Request
from starlette.types import Scope

from hub.core.credential import Token
from hub.core.identity_errors import CredentialExpired, CredentialInvalid
from hub.http.metrics_guard import UNKNOWN_CALLER, WRONG_ROLE, MetricsGuard
from tests.contract.secured import KINDS, new_bearer

BEARERS: Final = {
    name: new_bearer("one", kind, display_name=name, now_nanos=0) for name, kind in KINDS.items()
}
TOKENS: Final[Mapping[str, Token]] = {bearer.bearer_token: bearer.token for bearer in BEARERS.values()}


def authenticate(sent: str) -> Token:
    if sent == BEARERS["expired"].bearer_token:
        raise CredentialExpired
    if sent not in TOKENS:
        raise CredentialInvalid
    return TOKENS[sent]


def answer(*sent: str) -> tuple[int, str] | None:
    """The answer to a request with these authorization headers, None where it may go on."""
    headers: Sequence[tuple[bytes, bytes]] = [(b"authorization", each.encode("latin-1")) for each in sent]
    scope: Scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": headers}
    refusal = MetricsGuard(authenticate).refusal_of(Request(scope))
    if refusal is None:
        return None
    assert refusal.headers.get("www-authenticate") == ("Bearer" if refusal.status_code == 401 else None)
    return refusal.status_code, bytes(refusal.body).decode()


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   "])
def test_an_admin_may_see_them(scheme: str) -> None:
    assert answer(f"{scheme}{BEARERS['admin'].bearer_token}") is None


@pytest.mark.parametrize("kind", ["runtime", "free", "reader", "operator", "prefixed-operator"])
def test_no_other_role_may(kind: str) -> None:
    assert answer(f"Bearer {BEARERS[kind].bearer_token}") == (403, WRONG_ROLE)


@pytest.mark.parametrize(
    "sent",
    [
        (),
        ("",),
        ("Bearer",),
        ("Bearer ",),
        (f"Basic {BEARERS['admin'].bearer_token}",),
        (BEARERS["admin"].bearer_token,),
        (f"Bearer {BEARERS['expired'].bearer_token}",),
        (f"Bearer synchub_{'0' * 20}_{secrets.token_hex(32)}",),
        (f"Bearer {BEARERS['admin'].bearer_token} x",),
        ("Bearer \xff",),
        (f"Bearer {BEARERS['admin'].bearer_token}",) * 2,
    ],
)
def test_what_is_no_right_token_is_answered_alike(sent: Sequence[str]) -> None:
    assert answer(*sent) == (401, UNKNOWN_CALLER)
