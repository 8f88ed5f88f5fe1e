"""What a client certificate's URI name says."""

from typing import Final

import pytest

from hub.core.certificate import caller_of_certificate, is_trust_domain
from hub.core.identity_errors import CredentialInvalid
from hub.core.values import Caller, HubProject, Role, RuntimeId

URI: Final = "spiffe://example.org/hub-project/home/runtime/build-7"


def test_a_certificate_names_one_runtime_of_one_hub_project() -> None:
    assert caller_of_certificate(URI, "peer", trust_domain="example.org") == Caller(
        hub_project=HubProject("home"),
        runtime_id=RuntimeId("build-7"),
        role=Role.RUNTIME,
        peer="peer",
        credential_name=URI,
        token_id=None,
        project_id_prefixes=(),
        is_certificate=True,
    )


def test_ids_are_percent_encoded_where_they_need_it() -> None:
    uri = "spiffe://example.org/hub-project/a%2Fb/runtime/%C3%A9%20x"
    caller = caller_of_certificate(uri, "", trust_domain="example.org")
    assert (caller.hub_project, caller.runtime_id) == ("a/b", "é x")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://example.org",
        "spiffe://example.org/hub-project/home",
        "spiffe://example.org/hub-project//runtime/r",
        "spiffe://example.org/hub-project/home/runtime/",
        f"{URI}/",
        f"{URI}?a=b",
        f"{URI}#a",
        f"{URI}/more",
        f" {URI}",
        f"{URI}\n",
        f"{URI}\0",
        URI.replace("spiffe", "SPIFFE"),
        URI.replace("spiffe", "https"),
        URI.replace("example.org", "Example.org"),
        URI.replace("example.org", "user@example.org"),
        URI.replace("example.org", "example.org:443"),
        URI.replace("hub-project", "hub_project"),
        URI.replace("home", "a/b"),
        URI.replace("home", "a b"),
        URI.replace("home", "é"),
        URI.replace("home", "\ufffd"),
        URI.replace("home", "%zz"),
        URI.replace("home", "%"),
        URI.replace("home", "%C3"),
        URI.replace("home", "%00"),
        URI.replace("home", "%20a"),
        URI.replace("build-7", "%0A"),
        URI.replace("home", "a" * 257),
    ],
)
def test_a_name_of_another_form_is_refused_without_repeating_it(uri: str) -> None:
    with pytest.raises(CredentialInvalid) as caught:
        caller_of_certificate(uri, "", trust_domain="example.org")
    assert len(uri) < 30 or uri not in str(caught.value)


def test_another_trust_domain_is_refused() -> None:
    for domain in ("other.org", "example.or", "example.org.evil", "exampleXorg"):
        with pytest.raises(CredentialInvalid, match="trust domain"):
            caller_of_certificate(URI.replace("example.org", domain.lower()), "", trust_domain="example.org")


@pytest.mark.parametrize(
    ("text", "is_one"), [("example.org", True), ("", False), ("A", False), ("a/b", False)]
)
def test_a_trust_domain_is_small_letters(text: str, is_one: bool) -> None:
    assert is_trust_domain(text) is is_one
