"""Settings of who may connect: TLS, credentials, and what of these fits together."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from hub.certificate_files import TlsFiles
from hub.config import ServeFlags, SettingsError, load_settings

PAIR: Final[Mapping[str, str]] = {"tls_cert": "/hub.pem", "tls_key": "/hub.key"}
CLIENTS: Final[Mapping[str, str]] = {**PAIR, "tls_client_ca": "/ca.pem", "trust_domain": "example.org"}


def given_flags(**given: str) -> ServeFlags:
    flags = ServeFlags()
    for name, value in given.items():
        flags = replace(flags, **{name: value})  # type: ignore[arg-type]  # all of these are texts
    return flags


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SYNCHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_without_a_word_there_is_no_tls_and_credentials_count_once_there_are_any() -> None:
    settings = load_settings(ServeFlags())
    assert (settings.tls, settings.trust_domain, settings.backup_folder) == (None, None, None)
    assert (settings.credentials, settings.is_anyone_let_in) == ("auto", False)


def test_each_may_be_a_flag() -> None:
    settings = load_settings(given_flags(**CLIENTS, credentials="required", backup_folder="/backups"))
    assert settings.tls == TlsFiles(Path("/hub.pem"), Path("/hub.key"), Path("/ca.pem"))
    assert settings.trust_domain == "example.org"
    assert settings.credentials == "required"
    assert settings.backup_folder == Path("/backups")
    assert load_settings(ServeFlags(anyone_may_connect=True)).is_anyone_let_in


def test_each_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CLIENTS, "credentials": "required", "backup_folder": "/backups"}.items():
        monkeypatch.setenv(f"SYNCHUB_{name.upper()}", value)
    by_flags = load_settings(given_flags(**CLIENTS, credentials="required", backup_folder="/backups"))
    assert load_settings(ServeFlags()) == by_flags
    monkeypatch.setenv("SYNCHUB_CREDENTIALS", "auto")
    monkeypatch.setenv("SYNCHUB_ANYONE_MAY_CONNECT", "true")
    assert load_settings(ServeFlags()).is_anyone_let_in


def test_each_may_be_in_the_file(tmp_path: Path) -> None:
    lines = [f'{name} = "{value}"' for name, value in CLIENTS.items()]
    file = tmp_path / "hub.toml"
    file.write_text("\n".join([*lines, 'credentials = "auto"', "anyone_may_connect = true"]))
    settings = load_settings(ServeFlags(config=str(file)))
    assert settings.tls == TlsFiles(Path("/hub.pem"), Path("/hub.key"), Path("/ca.pem"))
    assert settings.is_anyone_let_in


def test_a_relative_file_is_of_the_folder_that_the_hub_starts_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(ServeFlags(tls_cert="a.pem", tls_key="~/b.key", backup_folder="backups"))
    assert settings.tls == TlsFiles(tmp_path / "a.pem", Path("~/b.key").expanduser())
    assert settings.backup_folder == tmp_path / "backups"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tls_cert": "/a"}, "--tls-cert needs --tls-key"),
        ({"tls_key": "/a"}, "--tls-key needs --tls-cert"),
        ({"tls_client_ca": "/a", "trust_domain": "d"}, "--tls-client-ca needs --tls-cert"),
        ({**PAIR, "tls_client_ca": "/a"}, "--tls-client-ca and --trust-domain belong together"),
        ({**PAIR, "trust_domain": "d"}, "--tls-client-ca and --trust-domain belong together"),
        ({**CLIENTS, "trust_domain": "Example.org"}, "--trust-domain 'Example.org' is none"),
        ({**CLIENTS, "trust_domain": "spiffe://d"}, "--trust-domain 'spiffe://d' is none"),
        ({**CLIENTS, "credentials": "none"}, "--tls-client-ca asks for credentials"),
        ({"credentials": "maybe"}, "the setting credentials is wrong"),
        ({"credentials": ""}, "the setting credentials is wrong"),
        ({**PAIR, "tls_cert": ""}, "the setting tls_cert is wrong"),
        ({**PAIR, "tls_key": ""}, "the setting tls_key is wrong"),
        ({**CLIENTS, "tls_client_ca": ""}, "the setting tls_client_ca is wrong"),
        ({**CLIENTS, "trust_domain": ""}, "the setting trust_domain is wrong"),
        ({"backup_folder": ""}, "the setting backup_folder is wrong"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(given: Mapping[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(given_flags(**given))


def test_an_empty_variable_turns_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCHUB_TLS_CLIENT_CA", "")
    monkeypatch.setenv("SYNCHUB_TRUST_DOMAIN", "")
    with pytest.raises(SettingsError, match="the setting tls_client_ca is wrong"):
        load_settings(given_flags(**PAIR))


def test_to_let_anybody_in_and_to_want_credentials_contradict_each_other() -> None:
    with pytest.raises(SettingsError, match="contradict each other"):
        load_settings(ServeFlags(anyone_may_connect=True, credentials="required"))
