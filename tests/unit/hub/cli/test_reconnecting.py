"""Which refusals a command that follows a hub waits out, and which end it."""

from pathlib import Path

import grpc
import pytest

from hub.cli import reconnecting
from hub.cli.reconnecting import Reconnecting
from hub.cli.shown_credentials import credentials_given
from synchub.channel import Refusal
from synchub.credentials import Credentials

HUB = "127.0.0.1:7443"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "RETRY_SECONDS_FIRST", 0.001)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, ""),
        (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING"),
        (grpc.StatusCode.UNAVAILABLE, "STORAGE_UNAVAILABLE"),
        # A pager or a stopped terminal did not read for longer than the hub waits, or the hub is full.
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED"),
    ],
)
def test_what_passes_by_itself_is_waited_out(
    code: grpc.StatusCode, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = Reconnecting(HUB)
    waits.answered()
    waits.wait_after(Refusal(code, "not now", reason))
    assert "trying again in" in capsys.readouterr().err
    waits.answered()
    waits.answered()
    assert capsys.readouterr().err == "synchub: the hub answers again\n"


def test_a_hub_that_never_answered_is_a_mistake_in_the_command() -> None:
    with pytest.raises(SystemExit):
        Reconnecting(HUB).wait_after(Refusal(grpc.StatusCode.UNAVAILABLE, "not there"))


def test_any_other_refusal_ends_the_command() -> None:
    waits = Reconnecting(HUB)
    waits.answered()
    with pytest.raises(SystemExit):
        waits.wait_after(Refusal(grpc.StatusCode.OUT_OF_RANGE, "ahead", "POSITION_AHEAD"))


def test_a_hub_that_counts_requests_says_how_long_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    waits = Reconnecting(HUB)
    waits.answered()
    waits.wait_after(
        Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "slowly", "RATE_LIMITED", retry_delay_seconds=0.11)
    )
    assert "trying again in 0.1 s" in capsys.readouterr().err


def test_a_token_that_was_replaced_before_it_was_revoked_is_no_reason_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    revoked = Refusal(grpc.StatusCode.UNAUTHENTICATED, "the token was revoked", "CREDENTIAL_REVOKED")
    with credentials_given(Credentials(token_file=str(file))):
        waits = Reconnecting(HUB)
        waits.answered()
        file.write_text("newer")
        waits.wait_after(revoked)
        assert "the token was revoked; trying again in" in capsys.readouterr().err
        waits.answered()
        with pytest.raises(SystemExit) as caught:
            waits.wait_after(revoked)
    assert caught.value.code == 1
