"""What ``start`` makes of its settings: what the agent shows to a hub, and whom it trusts."""

from pathlib import Path

import pytest

from runtime_agent.agent import is_token_readable_on_the_way
from runtime_agent.cli.start import credentials_from
from runtime_agent.config import load_settings
from runtime_agent.core.errors import UsageError
from synchub.channel import parse_addresses
from synchub.credentials import NO_CREDENTIALS, Credentials

FILES = ("token_file", "ca_file", "cert_file", "key_file")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_an_agent_that_is_told_nothing_shows_nothing() -> None:
    assert credentials_from(load_settings({})).credentials == NO_CREDENTIALS


def test_flags_go_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("".join(f'{name} = "from-file"\n' for name in FILES) + "tls = true\n")
    monkeypatch.setenv("RUNTIME_AGENT_CONFIG", str(file))
    monkeypatch.setenv("RUNTIME_AGENT_CA_FILE", "from-environment")
    monkeypatch.setenv("RUNTIME_AGENT_TOKEN_FILE", "from-environment")
    settings = load_settings({"token_file": "from-flag", "ca_file": None, "tls": None})
    assert [getattr(settings, name) for name in FILES] == [
        "from-flag",
        "from-environment",
        "from-file",
        "from-file",
    ]
    assert settings.tls


def test_a_token_file_is_found_in_the_home_of_its_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text("synchub_t\n")
    source = credentials_from(load_settings({"token_file": "~/token"}))
    assert source.credentials == Credentials(token_file=str(tmp_path / "token"))
    assert source.current().token == "synchub_t"


@pytest.mark.parametrize(
    ("flags", "part_of_the_sentence"),
    [
        ({"token_file": "/no/such/token"}, "/no/such/token cannot be read"),
        ({"key_file": "k.pem"}, "key file k.pem is given without a certificate file"),
        ({"ca_file": __file__}, "holds no certificate in PEM"),
    ],
)
def test_what_cannot_be_used_is_wrong_usage(flags: dict[str, str], part_of_the_sentence: str) -> None:
    with pytest.raises(UsageError, match=part_of_the_sentence):
        credentials_from(load_settings(flags))


@pytest.mark.parametrize(
    ("addresses", "credentials", "is_readable"),
    [
        ("127.0.0.1:1,[::1]:1,localhost:1", Credentials(token="t"), False),
        ("127.0.0.1:1,10.0.0.1:1", Credentials(token="t"), True),
        ("hub.example:1", Credentials(token_file="t"), True),
        ("hub.example:1", Credentials(token="t", is_tls=True), False),
        ("hub.example:1", NO_CREDENTIALS, False),
    ],
)
def test_a_token_that_others_on_the_network_can_read_is_noticed(
    addresses: str, credentials: Credentials, is_readable: bool
) -> None:
    assert is_token_readable_on_the_way(credentials, parse_addresses(addresses)) is is_readable
