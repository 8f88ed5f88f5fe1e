"""Settings: where they come from, in which order, and what is refused."""

import dataclasses
import os
from pathlib import Path

import pytest

from hub.config import (
    DEFAULT_HTTP,
    DEFAULT_LISTEN,
    Endpoint,
    ServeFlags,
    SettingsError,
    limit_range,
    limits_fault,
    load_settings,
    parse_endpoint,
)
from hub.core.limits import Limits


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SYNCHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def file_with(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hub.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_a_word_a_hub_is_on_loopback_with_its_store_in_the_data_folder(tmp_path: Path) -> None:
    settings = load_settings(ServeFlags())
    assert str(settings.listen) == DEFAULT_LISTEN
    assert str(settings.http) == DEFAULT_HTTP
    assert settings.database == tmp_path / "data/synchub/hub.db"
    assert settings.limits == Limits()
    assert not settings.is_channelz_enabled


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_with(
        tmp_path,
        'listen = "127.0.0.1:1"\nhttp = "127.0.0.1:1"\ndb = "/file.db"\n'
        "[limits]\nreaders_max = 1\npresence_ttl_seconds = 41\n",
    )
    monkeypatch.setenv("SYNCHUB_HTTP", "127.0.0.1:2")
    monkeypatch.setenv("SYNCHUB_DB", "/environment.db")
    monkeypatch.setenv("SYNCHUB_LIMITS__READERS_MAX", "2")
    settings = load_settings(ServeFlags(db="/flag.db", config=file))
    assert settings.database == Path("/flag.db")
    assert settings.http == Endpoint("127.0.0.1", 2)
    assert settings.listen == Endpoint("127.0.0.1", 1)
    assert (settings.limits.readers_max, settings.limits.presence_ttl_seconds) == (2, 41.0)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCHUB_CONFIG", file_with(tmp_path, "[limits]\nreaders_max = 7\n"))
    assert load_settings(ServeFlags()).limits.readers_max == 7


def test_there_may_be_no_http_port() -> None:
    assert load_settings(ServeFlags(http="none")).http is None


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
def test_every_bound_is_a_setting_with_a_range(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = getattr(Limits(), name)
    smallest, largest = limit_range(name, default)
    assert smallest <= default <= largest
    for wrong in (smallest - 1, largest + 1, "x"):
        monkeypatch.setenv(f"SYNCHUB_LIMITS__{name.upper()}", str(wrong))
        with pytest.raises(SettingsError, match=name):
            load_settings(ServeFlags())
    monkeypatch.setenv(f"SYNCHUB_LIMITS__{name.upper()}", str(default))
    assert load_settings(ServeFlags()).limits == Limits()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope = 1", "nope"),
        ("[limits]\nnope = 1", "limits.nope"),
        ("[limits]\npresence_ttl_seconds = inf", "presence_ttl_seconds"),
        ("[limits]\nheartbeat_interval_seconds = 30", "heartbeat_interval_seconds must be below"),
        ("listen = 7443", "listen"),
        ("listen", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(ServeFlags(config=file_with(tmp_path, text)))


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="is not there"):
        load_settings(ServeFlags(config="/nowhere/hub.toml"))


def test_another_engine_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"postgresql://… is not supported"):
        load_settings(ServeFlags(db="postgresql://user:secret@host/db"))


def test_the_defaults_fit_together() -> None:
    assert limits_fault(Limits()) is None


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:7443", Endpoint("127.0.0.1", 7443)),
        ("localhost:0", Endpoint("localhost", 0)),
        (" [::1]:65535 ", Endpoint("::1", 65535)),
    ],
)
def test_an_address_is_read(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text, flag="--listen") == endpoint
    assert parse_endpoint(str(endpoint), flag="--listen") == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "7443", ":7443", "::1:7443", "host:", "host:x", "host:65536", "host:-1", "a/b:1", "a b:1", "h:١"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--listen takes HOST:PORT"):
        parse_endpoint(text, flag="--listen")
