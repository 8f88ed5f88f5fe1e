"""How commands speak: to people, to programs, and where something failed."""

import json

import grpc
import pytest

from hub.cli.options import checked_hub_project
from hub.cli.output import (
    CommandFailed,
    fail_refused,
    failures_told,
    print_facts,
    print_json,
    print_table,
    printable,
)
from hub.config import SettingsError
from hub.core.errors import StartRefused
from synchub.channel import AddressError, Refusal, parse_addresses
from synchub.credentials import CredentialsError


def ended(error: BaseException) -> int:
    """The exit code after an error."""
    with pytest.raises(SystemExit) as caught, failures_told(parse_addresses("127.0.0.1:1")):
        raise error
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            StartRefused("the disk is away.", "Bring it back."),
            1,
            "synchub: the disk is away\n  Bring it back.\n",
        ),
        (SettingsError("the setting x is wrong"), 2, "synchub: the setting x is wrong\n"),
        (AddressError("the address is wrong"), 2, "synchub: the address is wrong\n"),
        (CommandFailed("there is no run"), 1, "synchub: there is no run\n"),
        (CommandFailed("no", hint="Say yes.", exit_code=2), 2, "synchub: no\n  Say yes.\n"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 2, "synchub: '\\udcff' is not UTF-8\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", said)


def test_a_hub_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, details="refused")
    assert ended(error) == 1
    assert "no hub can be reached at 127.0.0.1:1" in capsys.readouterr().err


def test_a_refusal_that_names_what_others_chose_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusal = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "held by \x1b[31m\u202e", reason="LEASE_HELD")
    with pytest.raises(SystemExit):
        fail_refused(refusal, [])
    assert capsys.readouterr().err == "synchub: held by \\x1b[31m\\u202e\n"


def test_a_fault_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), failures_told():
        raise ZeroDivisionError


def test_json_is_one_line_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["é", "\n"], "n": None})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": ["é", "\n"], "n": None}


def test_a_table_shows_cells_as_they_are_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "state"], [["[bold]x[/bold]", "\x1b[31mred\n"]], empty="nothing")
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "\\x1b[31mred\\n" in out


def test_a_row_is_one_line_where_a_program_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(["id", "state"], [["x" * 300, "LIVE"]], empty="nothing")
    assert capsys.readouterr().out.splitlines()[1].split() == ["x" * 300, "LIVE"]


def test_an_id_that_a_person_copies_is_never_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    alert_id = "7655870c8ba047e8b392c41bc2afbb8a"
    columns = ["ALERT", "REASON", "PROJECT", "RUN", "RUNTIME", "SEEN", "LAST SEEN (UTC)", "SEQUENCES"]
    row = [alert_id, "IDENTITY_MISMATCH", "garden", "log", "laptop-1", "8", "2026-11-30 12:31:27.881", "1"]
    print_table(columns, [row], empty="")
    out = capsys.readouterr().out
    assert alert_id in out
    assert max(map(len, out.splitlines())) <= 80


def test_an_empty_table_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id"], [], empty="There are no runs.")
    assert capsys.readouterr().out == "There are no runs.\n"


def test_facts_are_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("run", "r[0]"), ("cursor", "7")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["run", "r[0]"],
        ["cursor", "7"],
    ]


@pytest.mark.parametrize(("text", "shown"), [("é–a b", "é–a b"), ("\0\u202e\r", "\\x00\\u202e\\r")])
def test_what_could_steer_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("hub_project", ["", " p", "p\n"])
def test_a_hub_project_that_is_none_is_wrong_usage(hub_project: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        checked_hub_project(hub_project)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("reason", "code", "hint"),
    [
        ("CREDENTIAL_MISSING", grpc.StatusCode.UNAUTHENTICATED, "--token-file FILE"),
        ("CREDENTIAL_REVOKED", grpc.StatusCode.UNAUTHENTICATED, "--token-file FILE"),
        ("IDENTITY_MISMATCH", grpc.StatusCode.PERMISSION_DENIED, "leave --hub-project out"),
    ],
)
def test_a_refused_credential_is_a_sentence_and_what_to_do(
    reason: str, code: grpc.StatusCode, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        fail_refused(Refusal(code, "that is refused", reason), ())
    assert caught.value.code == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "synchub: that is refused"
    assert hint in second


def test_other_refusals_have_no_hint_about_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail_refused(Refusal(grpc.StatusCode.NOT_FOUND, "there is none", "NOT_FOUND"), ())
    assert capsys.readouterr().err == "synchub: there is none\n"


def test_credentials_that_cannot_be_used_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, failures_told():
        raise CredentialsError("the file t\x1b[1m is empty")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "synchub: the file t\\x1b[1m is empty\n"
