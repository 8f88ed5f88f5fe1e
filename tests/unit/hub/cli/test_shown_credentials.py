"""What commands show to a hub: the options, the environment, and who is given them."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hub.cli.main import app as synchub
from hub.cli.options import DEFAULT_HUB, HubOption, HubProjectOption, checked_hub_project
from hub.cli.output import CommandFailed
from hub.cli.shown_credentials import add_credential_options, credentials_given, given_credentials
from synchub.credentials import NO_CREDENTIALS, Credentials

OPTIONS = ("--token-file", "--ca-file", "--cert-file", "--key-file", "--tls")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def commands_of(app: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield (*path, command.name or command.callback.__name__.replace("_", "-"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from commands_of(group.typer_instance, (*path, str(group.name)))


def help_of(command: tuple[str, ...]) -> str:
    shown = CliRunner().invoke(synchub, [*command, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    return COLOUR.sub("", shown.output)


@pytest.mark.parametrize("command", list(commands_of(synchub)), ids=" ".join)
def test_a_command_takes_the_options_where_it_asks_a_hub(command: tuple[str, ...]) -> None:
    text = help_of(command)
    asks_a_hub = re.search(r"--hub\s", text) is not None
    found = [re.search(rf"{option}\s", text) is not None for option in OPTIONS]
    assert found == [asks_a_hub] * len(OPTIONS)
    if asks_a_hub:
        assert "SYNCHUB_TOKEN_FILE" in text


def probe() -> tuple[typer.Typer, list[tuple[Credentials, str]]]:
    """Return an app with one command, and what it was run with."""
    app = typer.Typer()
    seen: list[tuple[Credentials, str]] = []

    @app.command()
    def look(hub: HubOption = DEFAULT_HUB, hub_project: HubProjectOption = "") -> None:
        seen.append((given_credentials(), checked_hub_project(hub_project)))

    @app.command()
    def other() -> None:
        seen.append((given_credentials(), "other"))

    add_credential_options(app)
    add_credential_options(app)
    return app, seen


def run(*words: str, **environment: str) -> tuple[int, list[tuple[Credentials, str]], str]:
    app, seen = probe()
    result = CliRunner().invoke(app, [*words], env={"SYNCHUB_HUB_PROJECT": None, **environment})
    return result.exit_code, seen, result.output


def test_flags_say_what_is_shown() -> None:
    words = (
        "--token-file",
        "t",
        "--ca-file",
        "a.pem",
        "--cert-file",
        "c.pem",
        "--key-file",
        "k.pem",
        "--tls",
    )
    assert run("look", *words) == (
        0,
        [(Credentials("", "t", "a.pem", "c.pem", "k.pem", is_tls=True), "")],
        "",
    )


def test_the_environment_says_it_too_and_has_the_token_itself() -> None:
    code, seen, _ = run("look", SYNCHUB_TOKEN="synchub_t", SYNCHUB_CA_FILE="a.pem", SYNCHUB_TLS="1")
    assert (code, seen) == (0, [(Credentials("synchub_t", ca_file="a.pem", is_tls=True), "")])


def test_the_end_of_a_line_in_the_environment_is_no_part_of_the_token() -> None:
    code, seen, _ = run("look", SYNCHUB_TOKEN="synchub_t\r\n")
    assert (code, seen) == (0, [(Credentials("synchub_t"), "")])


def test_a_token_file_goes_before_a_token_of_the_environment() -> None:
    code, seen, _ = run("look", "--token-file", "~/t", SYNCHUB_TOKEN="synchub_t")
    assert (code, seen) == (0, [(Credentials(token_file=str(Path.home() / "t")), "")])


def test_no_option_takes_a_token() -> None:
    app, _ = probe()
    callback = app.registered_commands[0].callback
    assert callback is not None
    assert "token" not in inspect.signature(callback).parameters


def test_a_command_that_asks_no_hub_shows_nothing() -> None:
    assert run("other", SYNCHUB_TOKEN="synchub_t") == (0, [(NO_CREDENTIALS, "other")], "")


def test_what_a_command_showed_is_gone_after_it() -> None:
    run("look", "--token-file", "t")
    assert given_credentials() == NO_CREDENTIALS


def test_a_wrong_credential_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, seen, output = run("look", "--key-file", "k.pem")
    assert (code, seen) == (2, [])
    assert output == "synchub: the key file k.pem is given without a certificate file\n"


def test_a_hub_project_may_be_left_out_where_a_hub_can_tell_who_calls() -> None:
    for credentials in (
        Credentials(token="t"),
        Credentials(token_file="t"),
        Credentials(certificate_file="c", key_file="k"),
    ):
        with credentials_given(credentials):
            assert checked_hub_project("") == ""
            assert checked_hub_project("p") == "p"
    for credentials in (NO_CREDENTIALS, Credentials(is_tls=True), Credentials(ca_file="a")):
        with credentials_given(credentials), pytest.raises(CommandFailed, match="no hub project is given"):
            checked_hub_project("")


def test_a_maintenance_without_a_hub_project_needs_a_place_for_its_secret() -> None:
    """Two tokens of two hub projects may each have a resource of one name."""
    words = ["leases", "maintenance", "begin", "r", "--hub", "127.0.0.1:1"]
    result = CliRunner().invoke(synchub, words, env={"SYNCHUB_TOKEN": "t", "SYNCHUB_HUB_PROJECT": None})
    assert result.exit_code == 2
    assert "a hub project is needed to keep the credential under, or --credential FILE" in result.output
