"""What lies under docs/deploy is what the programs take: settings, units, a Containerfile."""

import configparser
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import typer
from typer.core import TyperGroup

from hub.cli.main import app as hub_app
from hub.config import HubSettings, ServeFlags, load_settings
from hub.core.limits import Limits
from runtime_agent.cli import app as agent_app
from runtime_agent.config import StartSettings
from runtime_agent.config import load_settings as load_agent_settings

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "docs" / "deploy"
UNITS: Final = ("synchub.service", "runtime-agent@.service")
SECONDS_MAX: Final = 60
RENAMED: Final[Mapping[str, str]] = {
    "database": "db",
    "is_channelz_enabled": "channelz",
    "is_token_floor_now": "token_floor",
    "is_anyone_let_in": "anyone_may_connect",
    "tls": "tls_cert",
}
"""Settings whose keys have another name than the values that they become."""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for prefix in ("SYNCHUB_", "RUNTIME_AGENT_", "OTEL_"):
        for name in [name for name in os.environ if name.startswith(prefix)]:
            monkeypatch.delenv(name)


def taken_in(text: str) -> str:
    """The example with every setting that is commented out taken in."""
    return re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.M)


def settings_of(folder: Path, text: str) -> HubSettings:
    file = folder / "hub.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(ServeFlags(config=str(file)))


def test_the_example_of_a_hub_is_taken(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, (DEPLOY / "hub.toml").read_text(encoding="utf-8"))
    assert settings.database == Path("/var/lib/synchub/hub.db")
    assert settings.credentials == "required"
    assert settings.tls is not None
    assert settings.limits == Limits()


def test_every_setting_of_a_hub_is_in_its_example(tmp_path: Path) -> None:
    text = taken_in((DEPLOY / "hub.toml").read_text(encoding="utf-8"))
    # Everything at once would contradict itself there: who wants credentials lets not anybody in.
    settings = settings_of(tmp_path, text)
    assert settings.trust_domain == "example.org"
    named = tomllib.loads(text)
    keys = {RENAMED.get(each.name, each.name) for each in dataclasses.fields(HubSettings)}
    assert keys - named.keys() == set()
    assert named["limits"] == {each.name: getattr(Limits(), each.name) for each in dataclasses.fields(Limits)}


def test_the_bounds_in_the_example_are_fresh() -> None:
    script = ROOT / "scripts" / "gen_example_settings.py"
    check = subprocess.run(
        [sys.executable, script, "--check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert check.returncode == 0, check.stderr


def test_the_example_of_an_agent_is_taken_and_names_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DEPLOY / "runtime-agent.toml").read_text(encoding="utf-8")
    file = tmp_path / "runtime-agent.toml"
    monkeypatch.setenv("RUNTIME_AGENT_CONFIG", str(file))
    for each in (text, taken_in(text)):
        file.write_text(each, encoding="utf-8")
        assert load_agent_settings({}).hub == "hub.example.org:7443"
    named = tomllib.loads(taken_in(text))
    assert set(StartSettings.model_fields) - named.keys() == set()
    for name in ("retention_seconds", "log_bytes_max", "wait_seconds"):
        assert named[name] == StartSettings.model_fields[name].default


def unit(name: str) -> configparser.ConfigParser:
    # A key may come more than once in a unit, and its case counts.
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # as its documentation says
    parser.read_string((DEPLOY / name).read_text(encoding="utf-8"))
    return parser


def options_of(command: list[str]) -> set[str]:
    """The options that a command of one of the programs takes."""
    group = typer.main.get_command(hub_app if command[0] == "synchub" else agent_app)
    assert isinstance(group, TyperGroup)
    return {option for parameter in group.commands[command[1]].params for option in parameter.opts}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_there_is(name: str) -> None:
    command = unit(name)["Service"]["ExecStart"].split()
    program = Path(command[0])
    assert program.parent == Path("/opt/synchub/bin")
    given = {word for word in command if word.startswith("--")}
    assert given
    assert given - options_of([program.name, command[1]]) == set()


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_hardened_and_waits_longer_than_a_stop_takes(name: str) -> None:
    service = unit(name)["Service"]
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["Restart"] == "on-failure"
    assert service["User"] != "root"
    assert int(service["TimeoutStopSec"]) > 2 * Limits().drain_seconds_max


def test_the_units_and_the_example_name_the_same_folders() -> None:
    service = unit("synchub.service")["Service"]
    folders = {Path("/var/lib") / name for name in service["StateDirectory"].split()}
    settings = load_settings(ServeFlags(config=str(DEPLOY / "hub.toml")))
    assert settings.database.parent in folders
    assert settings.backup_folder in folders


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_a_unit(tmp_path: Path, name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: it comes with systemd")
    # The programs are not installed where the unit says, and users are the machine's.
    here = (
        (DEPLOY / name)
        .read_text(encoding="utf-8")
        .replace("/opt/synchub/bin", str(Path(sys.executable).parent))
    )
    (tmp_path / name).write_text(here, encoding="utf-8")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def instructions(text: str) -> list[tuple[str, str]]:
    """(word, rest) of each instruction of a Containerfile."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.M))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


def test_the_containerfile_copies_what_there_is_and_runs_as_nobody_special(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = instructions((DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    for word, rest in given:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
    assert ("USER", "synchub") in given
    assert ("VOLUME", "/var/lib/synchub") in given
    words = [word for word, _ in given]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "HEALTHCHECK" in words
    for _, rest in (each for each in given if each[0] == "ENV"):
        for name, value in re.findall(r"(SYNCHUB_\w+)=(\S+)", rest):
            monkeypatch.setenv(name, value)
    settings = load_settings(ServeFlags())
    assert str(settings.database).startswith("/var/lib/synchub/")
    assert str(settings.listen) == "0.0.0.0:7443"


def test_every_file_has_a_line_in_the_table() -> None:
    table = (DEPLOY / "README.md").read_text(encoding="utf-8")
    named = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`/ ]+)`", line.split("|")[1])
    }
    assert named == {path.name for path in DEPLOY.iterdir() if path.is_file()} - {"README.md"}
