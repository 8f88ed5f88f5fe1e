"""Whom a hub lets in, and what it says about that at its start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from hub.assembly.access import Access, access_words, decide_access, say_access
from hub.certificate_files import TlsFiles
from hub.config import Endpoint, HubSettings
from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.contract.secured import KINDS, keep, new_bearer

NOW_NANOS: Final = 1_700_000_000 * 10**9
LOOPBACK: Final = Endpoint("127.0.0.1", 7443)
OUTSIDE: Final = Endpoint("192.0.2.1", 7443)
TLS: Final = TlsFiles(Path("hub.pem"), Path("hub.key"), Path("ca.pem"))


def settings_in(folder: Path, listen: Endpoint = LOOPBACK, http: Endpoint | None = None) -> HubSettings:
    return HubSettings(database=folder / "hub.db", listen=listen, http=http)


@contextmanager
def opened(settings: HubSettings) -> Iterator[SqlStore]:
    with opened_engine(settings.database, limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=NOW_NANOS)
        yield store
        store.close()


def decided(settings: HubSettings) -> Access:
    with opened(settings) as store:
        return decide_access(settings, store)


def with_a_token(settings: HubSettings) -> HubSettings:
    bearer = new_bearer("one", KINDS["admin"], display_name="first", now_nanos=NOW_NANOS)
    keep(settings.database, bearer.token, wall_nanos=NOW_NANOS)
    return settings


def test_without_a_token_nothing_is_wanted_and_with_one_it_is(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert decided(settings) == Access(False, None, has_tokens=False)
    with_a_token(settings)
    assert decided(settings) == Access(True, None, has_tokens=True)


@pytest.mark.parametrize("name", ["revoked", "expired"])
def test_a_store_whose_tokens_have_all_ended_lets_nobody_in(tmp_path: Path, name: str) -> None:
    # As it is after a restore: else whoever comes next could do everything.
    settings = settings_in(tmp_path)
    bearer = new_bearer("one", KINDS["admin"], display_name=name, now_nanos=NOW_NANOS, ttl_seconds=1)
    keep(settings.database, bearer.token, wall_nanos=NOW_NANOS)
    with opened(settings) as store:
        transaction = store.writing.begin()
        if name == "revoked":
            transaction.tokens.revoke(bearer.token.token_id, NOW_NANOS)
        # Long after the other one's end.
        store.writing.commit(NOW_NANOS + 10**10)
    assert decided(settings) == Access(True, None, has_tokens=True)


def test_who_asks_for_client_certificates_wants_credentials(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path), trust_domain="example.org")
    assert decided(settings) == Access(True, "example.org", has_tokens=False)


def test_what_is_said_wins_over_what_is_there(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert decided(replace(settings, credentials="required")).are_credentials_required
    with_a_token(settings)
    assert not decided(replace(settings, credentials="none")).are_credentials_required


@pytest.mark.parametrize("flag", ["--listen", "--http"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "hub.example.org"])
@pytest.mark.parametrize("credentials", ["auto", "none"])
def test_without_credentials_a_hub_stays_on_loopback(
    tmp_path: Path, flag: str, host: str, credentials: str
) -> None:
    outside = Endpoint(host, 1)
    settings = (
        settings_in(tmp_path, outside) if flag == "--listen" else settings_in(tmp_path, LOOPBACK, outside)
    )
    if credentials == "none":
        settings = replace(with_a_token(settings), credentials="none")
    with pytest.raises(StartRefused, match=f"{flag} .* is not a loopback address"):
        decided(settings)
    assert not decided(replace(settings, is_anyone_let_in=True)).are_credentials_required


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_every_way_to_write_loopback_is_loopback(tmp_path: Path, host: str) -> None:
    assert not decided(settings_in(tmp_path, Endpoint(host, 1), Endpoint(host, 2))).are_credentials_required


def test_with_credentials_a_hub_may_be_anywhere(tmp_path: Path) -> None:
    assert decided(with_a_token(settings_in(tmp_path, OUTSIDE, OUTSIDE))).are_credentials_required


def said(settings: HubSettings, access: Access) -> tuple[str, str]:
    http = None if settings.http is None else str(settings.http)
    words = access_words(settings, access, address=str(settings.listen), http_address=http)
    return words.sentence, "\n".join(words.warnings)


ANYBODY: Final = Access(False, None)
TOKENS: Final = Access(True, None, has_tokens=True)


def test_a_hub_on_loopback_says_that_anybody_there_may_do_everything(tmp_path: Path) -> None:
    assert said(settings_in(tmp_path), ANYBODY) == (
        "credentials: none, anybody who reaches 127.0.0.1:7443 may do everything; no TLS",
        "",
    )


def test_a_hub_with_tokens_and_certificates_says_both(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path, OUTSIDE), tls=TLS)
    assert said(settings, Access(True, "example.org")) == (
        "credentials: tokens; TLS; client certificates of trust domain example.org",
        "",
    )
    assert said(settings, TOKENS) == ("credentials: tokens; TLS", "")


@pytest.mark.parametrize(("listen", "http"), [(OUTSIDE, None), (LOOPBACK, OUTSIDE)])
def test_tokens_that_travel_in_the_open_are_warned_of(
    tmp_path: Path, listen: Endpoint, http: Endpoint | None
) -> None:
    settings = settings_in(tmp_path, listen, http)
    sentence, warnings = said(settings, TOKENS)
    assert sentence == "credentials: tokens; no TLS"
    assert warnings.startswith(f"tokens travel to {OUTSIDE} without TLS")
    assert said(replace(settings, tls=TLS), TOKENS)[1] == ""
    assert said(settings_in(tmp_path, LOOPBACK, LOOPBACK), TOKENS)[1] == ""


def test_who_lets_everybody_in_is_warned_with_or_without_tls(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path, OUTSIDE, OUTSIDE), is_anyone_let_in=True)
    for each in (settings, replace(settings, tls=TLS)):
        (warning,) = said(each, ANYBODY)[1].splitlines()
        assert warning.startswith(f"anybody on the network who reaches {OUTSIDE} and {OUTSIDE} may read")
    assert "does nothing here" in said(replace(settings, tls=TLS), TOKENS)[1]


def test_who_locks_everybody_out_is_told_how_to_make_the_first_token(tmp_path: Path) -> None:
    settings = replace(settings_in(tmp_path), credentials="required")
    warnings = said(settings, Access(True, None))[1]
    assert warnings.endswith(f"synchub token create --db {settings.database}")
    assert said(settings, Access(True, "example.org"))[1] == ""


def test_it_is_said_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_in(tmp_path, OUTSIDE)
    say_access(settings, TOKENS, address="192.0.2.1:7443", http_address=None)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("synchub: ")]
    assert lines[0] == "synchub: credentials: tokens; no TLS"
    assert lines[1].startswith("synchub: WARNING: tokens travel to 192.0.2.1:7443 without TLS")
    assert len(lines) == 2
