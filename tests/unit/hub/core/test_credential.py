"""Bearer tokens: their form, and which of them count."""

import hashlib
from dataclasses import replace
from hmac import compare_digest
from typing import Final

import pytest

from hub.core.credential import (
    Token,
    bearer_token,
    caller_of_token,
    check_token,
    hash_of_secret,
    parse_bearer_token,
    token_fault,
)
from hub.core.identity_errors import (
    CredentialExpired,
    CredentialInvalid,
    CredentialRevoked,
    Unauthenticated,
)
from hub.core.values import Caller, HubProject, Role, RuntimeId, TokenId

SECRET: Final = bytes(range(32))
ID: Final = TokenId("0123456789abcdef0123")
TOKEN: Final = Token(
    token_id=ID,
    secret_hash=hash_of_secret(SECRET),
    hub_project=HubProject("p"),
    display_name="name",
    role=Role.RUNTIME,
    runtime_id=RuntimeId("r"),
    project_id_prefixes=("a-", "b-"),
    create_nanos=100,
    expire_nanos=200,
    revoke_nanos=None,
)
WHOLE: Final = bearer_token(ID, SECRET)


def test_a_token_is_its_id_and_its_secret() -> None:
    assert f"synchub_0123456789abcdef0123_{SECRET.hex()}" == WHOLE
    assert parse_bearer_token(WHOLE) == (ID, hashlib.sha256(SECRET).digest())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "synchub_",
        WHOLE[:-1],
        f"{WHOLE}0",
        f"{WHOLE} ",
        f" {WHOLE}",
        f"{WHOLE}\n",
        f"{WHOLE}\0",
        WHOLE.upper(),
        WHOLE.replace("synchub", "Synchub"),
        WHOLE.replace("_", "-"),
        WHOLE.replace("0123456789abcdef0123", "0123456789ABCDEF0123"),
        WHOLE.replace("0123456789abcdef0123", "٠123456789abcdef0123"),
        WHOLE[:-2] + "0g",
        WHOLE + "_" + "0" * 64,
        "synchub_" * 10_000,
    ],
)
def test_what_has_another_form_is_none(text: str) -> None:
    with pytest.raises(CredentialInvalid) as caught:
        parse_bearer_token(text)
    # It may be a token with a slip in it, so it is not repeated.
    assert len(text) < 9 or text.strip() not in str(caught.value)


def test_a_token_counts_until_it_expires() -> None:
    for now_nanos in (0, 199):
        assert check_token(TOKEN, hash_of_secret(SECRET), now_nanos=now_nanos) is TOKEN
    for now_nanos in (200, 10**18):
        with pytest.raises(CredentialExpired):
            check_token(TOKEN, hash_of_secret(SECRET), now_nanos=now_nanos)


def test_a_token_without_an_end_counts_for_good() -> None:
    endless = replace(TOKEN, expire_nanos=None)
    assert check_token(endless, hash_of_secret(SECRET), now_nanos=2**63 - 1) is endless


def test_a_revoked_token_does_not_count_whatever_the_time() -> None:
    revoked = replace(TOKEN, revoke_nanos=150)
    for now_nanos in (0, 149, 250):
        assert isinstance(token_fault(revoked, now_nanos), CredentialRevoked)
        with pytest.raises(CredentialRevoked):
            check_token(revoked, hash_of_secret(SECRET), now_nanos=now_nanos)


@pytest.mark.parametrize(
    "token", [None, TOKEN, replace(TOKEN, revoke_nanos=1), replace(TOKEN, expire_nanos=1)]
)
def test_who_does_not_know_the_secret_is_told_the_same_whatever_there_is(token: Token | None) -> None:
    with pytest.raises(CredentialInvalid) as caught:
        check_token(token, hash_of_secret(b"another"), now_nanos=150)
    assert str(caught.value) == str(CredentialInvalid())


@pytest.mark.parametrize("token", [None, TOKEN])
def test_hashes_are_compared_in_constant_time_where_there_is_no_token_too(
    token: Token | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return compare_digest(a, b)

    monkeypatch.setattr("hub.core.credential.hmac.compare_digest", compare)
    with pytest.raises(Unauthenticated):
        check_token(token, hash_of_secret(b"another"), now_nanos=150)
    assert compared == [(32, 32)]


def test_no_secret_opens_what_is_not_there() -> None:
    # Even if somebody found one whose hash is what is compared with instead.
    with pytest.raises(CredentialInvalid):
        check_token(None, bytes(32), now_nanos=0)


def test_the_bearer_is_what_the_token_says() -> None:
    assert caller_of_token(TOKEN, "ipv4:1.2.3.4:5") == Caller(
        hub_project=HubProject("p"),
        runtime_id=RuntimeId("r"),
        role=Role.RUNTIME,
        peer="ipv4:1.2.3.4:5",
        credential_name="name",
        token_id=ID,
        project_id_prefixes=("a-", "b-"),
        is_certificate=False,
    )


def test_no_text_of_a_token_has_its_hash() -> None:
    assert repr(TOKEN) == str(TOKEN) == "Token('0123456789abcdef0123', 'p', runtime)"


@pytest.mark.parametrize(
    ("prefixes", "project_id", "covers"),
    [
        ((), "anything", True),
        ((), "", True),
        (("a",), "a", True),
        (("a",), "ab", True),
        (("a",), "A", False),
        (("a",), "b-a", False),
        (("a",), "", False),
        (("x", "a"), "ab", True),
        (("é",), "e\u0301", False),
    ],
)
def test_a_credential_covers_what_begins_with_one_of_its_prefixes(
    prefixes: tuple[str, ...], project_id: str, covers: bool
) -> None:
    caller = replace(caller_of_token(TOKEN, ""), project_id_prefixes=prefixes)
    assert caller.covers(project_id) is covers
