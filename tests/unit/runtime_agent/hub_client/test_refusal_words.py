"""What ``status`` says of a link that is refused."""

from pathlib import Path

import grpc
import pytest
import trustme

from runtime_agent.core.values import RuntimeIdentity
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.refusal_words import held_projects_words, refusal_words
from synchub.channel import Refusal
from synchub.credentials import NO_CREDENTIALS, Credentials, CredentialSource
from tests.unit.protos.showing_server import ClientFiles

IDENTITY = RuntimeIdentity("hp", "r1")


def words(reason: str, credentials: Credentials = NO_CREDENTIALS) -> str:
    error = HubCallError(Refusal(grpc.StatusCode.UNAUTHENTICATED, "the hub said so", reason))
    return refusal_words(error, identity=IDENTITY, credentials=CredentialSource(credentials))


def test_an_agent_that_shows_nothing_is_told_what_to_start_it_with() -> None:
    assert words("CREDENTIAL_MISSING") == (
        "the agent shows no credential, start it with --token-file or --cert-file: the hub said so"
    )


@pytest.mark.parametrize("reason", ["CREDENTIAL_INVALID", "CREDENTIAL_EXPIRED", "CREDENTIAL_REVOKED"])
def test_a_refused_credential_is_told_without_itself(reason: str) -> None:
    assert words(reason, Credentials(token="synchub_secret")) == (
        "the hub refused the credential: the hub said so"
    )


def test_the_files_that_are_read_again_are_named(tmp_path: Path) -> None:
    files = ClientFiles(tmp_path)
    files.put_token("synchub_secret")
    files.put_ca(trustme.CA())
    refused = "the hub refused the credential: the hub said so; "
    assert words("CREDENTIAL_INVALID", Credentials(token_file=files.token)) == (
        f"{refused}{files.token} is read again at each try"
    )
    assert words("CREDENTIAL_INVALID", Credentials(token_file=files.token, ca_file=files.ca)) == (
        f"{refused}{files.token} and {files.ca} are read again at each try"
    )


def test_a_credential_for_somebody_else_is_told_with_whom_the_agent_is() -> None:
    assert words("IDENTITY_MISMATCH") == (
        "this agent is started for hub project 'hp' and runtime 'r1', and its credential is not:"
        " the hub said so"
    )


def test_other_failures_are_told_as_they_are() -> None:
    assert words("QUOTA_EXCEEDED") == "the hub said so"
    source = CredentialSource(NO_CREDENTIALS)
    assert refusal_words(OSError("disk"), identity=IDENTITY, credentials=source) == "disk"
    assert refusal_words(KeyError(), identity=IDENTITY, credentials=source) == "KeyError"


def test_projects_that_wait_are_told_with_the_one_that_is_tried_next() -> None:
    assert held_projects_words({}, now=7.0) == ""
    assert held_projects_words({"q": 60.0}, now=18.0) == (
        "project 'q' is not open to this agent: tried again in 42 s, the others go on"
    )
    assert held_projects_words({"q": 60.0, "p": 50.0}, now=60.0) == (
        "project 'p' and 1 more are not open to this agent: tried again in 0 s, the others go on"
    )
