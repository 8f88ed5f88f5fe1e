"""Credentials as values, and what is made of their files as these change."""

from pathlib import Path

import pytest
import trustme

from synchub.credentials import (
    LOOK_SECONDS,
    NO_CREDENTIALS,
    Credentials,
    CredentialsError,
    CredentialSource,
    source_of,
)
from tests.unit.protos.showing_server import ClientFiles


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def files(tmp_path: Path) -> ClientFiles:
    return ClientFiles(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_nothing_shown_is_plain_text_without_a_token() -> None:
    contents = CredentialSource(NO_CREDENTIALS).current()
    assert (contents.token, contents.tls) == ("", None)
    assert not NO_CREDENTIALS.identifies
    assert not NO_CREDENTIALS.uses_tls


def test_the_last_line_end_is_no_part_of_a_token(files: ClientFiles) -> None:
    files.put(files.token, b"synchub_a.b-c_d\r\n")
    credentials = Credentials(token_file=files.token)
    assert CredentialSource(credentials).current().token == "synchub_a.b-c_d"
    assert (credentials.identifies, credentials.uses_tls) == (True, False)


def test_each_file_of_certificates_means_tls(files: ClientFiles) -> None:
    assert Credentials(is_tls=True).uses_tls
    assert Credentials(ca_file=files.ca).uses_tls
    assert not Credentials(ca_file=files.ca).identifies
    own = Credentials(certificate_file=files.certificate, key_file=files.key)
    assert (own.uses_tls, own.identifies) == (True, True)


def test_nothing_that_is_printed_has_a_secret(files: ClientFiles, authority: trustme.CA) -> None:
    files.put_token("synchub_secret")
    files.put_certificate(authority, "client")
    credentials = Credentials(token_file=files.token, certificate_file=files.certificate, key_file=files.key)
    source = CredentialSource(credentials)
    printed = f"{credentials!r} {source!r} {source.current()!r} {Credentials(token='synchub_secret')!r}"
    assert "secret" not in printed
    assert "PRIVATE" not in printed
    assert source.current().token == "synchub_secret"


@pytest.mark.parametrize(
    ("contents", "part_of_the_sentence"),
    [
        (b"", "token is empty"),
        (b" \n", "token is empty"),
        (b"two words", "token has white space in it"),
        (b"one\ntwo\n", "token has white space in it"),
        ("schlüssel".encode(), "token is not ASCII"),
        (b"nul\0byte", "token is not ASCII"),
        (b"\xff\xfe", "token is not ASCII"),
        (b"x" * 5_000, "token is larger than 4096 bytes"),
    ],
)
def test_a_token_file_that_holds_none_is_told_in_a_sentence(
    files: ClientFiles, contents: bytes, part_of_the_sentence: str
) -> None:
    files.put(files.token, contents)
    with pytest.raises(CredentialsError, match=part_of_the_sentence) as caught:
        CredentialSource(Credentials(token_file=files.token))
    assert files.token in str(caught.value)
    assert "words" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(files: ClientFiles) -> None:
    for credentials in (
        Credentials(token_file=files.token),
        Credentials(ca_file=files.ca),
        Credentials(certificate_file=files.certificate, key_file=files.key),
    ):
        with pytest.raises(CredentialsError, match=r"cannot be read: No such file") as caught:
            CredentialSource(credentials)
        assert credentials.files[0] in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="cannot be read: Is a directory"):
        CredentialSource(Credentials(token_file=str(tmp_path)))


def test_files_that_hold_no_certificate_or_another_key_are_named(
    files: ClientFiles, authority: trustme.CA
) -> None:
    files.put(files.ca, b"no certificate")
    with pytest.raises(CredentialsError, match=r"ca\.pem holds no certificate in PEM"):
        CredentialSource(Credentials(ca_file=files.ca))
    files.put_certificate(authority, "client")
    files.put(files.key, authority.issue_cert("other").private_key_pem.bytes())
    own = Credentials(certificate_file=files.certificate, key_file=files.key)
    with pytest.raises(CredentialsError, match="are not a certificate and its key"):
        CredentialSource(own)
    files.put(
        files.key, b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(CredentialsError, match="has a passphrase"):
        CredentialSource(own)


@pytest.mark.parametrize(
    ("fields", "part_of_the_sentence"),
    [
        ({"key_file": "k.pem"}, "key file k.pem is given without a certificate file"),
        ({"certificate_file": "c.pem"}, "certificate file c.pem is given without a key file"),
        ({"token": "t", "token_file": "f"}, "a token and a token file are given"),
        ({"token": "Bearer t"}, "the token has white space in it"),
        ({"token": "t\r\nx-other: 1"}, "the token has white space in it"),
        ({"token": "ü"}, "the token is not ASCII"),
    ],
)
def test_credentials_that_contradict_themselves_are_refused(
    fields: dict[str, str], part_of_the_sentence: str
) -> None:
    with pytest.raises(CredentialsError, match=part_of_the_sentence):
        Credentials(**fields)  # type: ignore[arg-type]  # all of these are texts


def test_a_replaced_token_is_shown_once_a_second_has_passed(files: ClientFiles, clock: Clock) -> None:
    files.put_token("old")
    source = CredentialSource(Credentials(token_file=files.token), clock=clock)
    files.put_token("new")
    clock.seconds += LOOK_SECONDS / 2
    assert source.current().token == "old"
    clock.seconds += LOOK_SECONDS / 2
    assert source.current().token == "new"


def test_who_connects_anew_has_the_files_looked_at_at_once(files: ClientFiles, clock: Clock) -> None:
    files.put_token("old")
    source = CredentialSource(Credentials(token_file=files.token), clock=clock)
    files.put_token("new")
    assert source_of(source) is source
    assert source.current().token == "new"


def test_the_last_good_token_stays_while_its_file_is_gone_or_half_written(
    files: ClientFiles, clock: Clock
) -> None:
    files.put_token("old")
    source = CredentialSource(Credentials(token_file=files.token), clock=clock)
    assert source.fault == ""
    Path(files.token).unlink()
    clock.seconds += LOOK_SECONDS
    assert source.current().token == "old"
    assert "No such file" in source.fault
    Path(files.token).write_text("")
    clock.seconds += LOOK_SECONDS
    assert source.current().token == "old"
    assert source.fault == f"the file {files.token} is empty"
    Path(files.token).write_text("new\n")
    clock.seconds += LOOK_SECONDS
    assert source.current().token == "new"
    assert source.fault == ""


def test_a_file_that_comes_back_as_it_was_is_no_fault_any_more(files: ClientFiles, clock: Clock) -> None:
    files.put_token("same")
    aside = Path(f"{files.token}.aside")
    source = CredentialSource(Credentials(token_file=files.token), clock=clock)
    Path(files.token).rename(aside)
    clock.seconds += LOOK_SECONDS
    source.current()
    aside.rename(files.token)
    clock.seconds += LOOK_SECONDS
    assert (source.current().token, source.fault) == ("same", "")


def test_a_certificate_is_used_only_together_with_its_key(
    files: ClientFiles, clock: Clock, authority: trustme.CA
) -> None:
    files.put_certificate(authority, "old")
    credentials = Credentials(certificate_file=files.certificate, key_file=files.key)
    source = CredentialSource(credentials, clock=clock)
    before = source.current().tls
    renewed = authority.issue_cert("new")
    files.put(files.certificate, b"".join(each.bytes() for each in renewed.cert_chain_pems))
    clock.seconds += LOOK_SECONDS
    assert source.current().tls == before
    assert "are not a certificate and its key" in source.fault
    files.put(files.key, renewed.private_key_pem.bytes())
    clock.seconds += LOOK_SECONDS
    after = source.current().tls
    assert after is not None
    assert after.key == renewed.private_key_pem.bytes()
    assert source.fault == ""


def test_a_new_token_leaves_the_certificates_in_use(
    files: ClientFiles, clock: Clock, authority: trustme.CA
) -> None:
    files.put_token("old")
    files.put_ca(authority)
    source = CredentialSource(Credentials(token_file=files.token, ca_file=files.ca), clock=clock)
    before = source.current()
    files.put_token("new")
    clock.seconds += LOOK_SECONDS
    after = source.current()
    assert after.token == "new"
    assert after.tls is before.tls
