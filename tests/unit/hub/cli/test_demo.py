"""The parts of the demo that judge: a wrong figure is seen, and its input is real."""

import dataclasses
import json
from pathlib import Path

import pytest

from hub.cli.demo_figures import Check, tell_checks
from hub.cli.demo_input import write_history, write_installed_files
from hub.cli.demo_lease import FencedLease
from hub.cli.demo_processes import DemoProcesses
from hub.cli.output import CommandFailed

RIGHT = Check("gaps in the sequences", "0", True)
WRONG = Check("events that the hub has twice", "3", False)

FENCED = FencedLease(
    first_token=1,
    second_token=2,
    takeover_seconds=0.9,
    is_first_written=True,
    is_second_written=True,
    is_late_written=False,
    is_loss_noticed=True,
    written=(2, "second"),
)


def test_figures_that_are_all_right_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    tell_checks([RIGHT], is_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "what": "gaps in the sequences",
        "found": "0",
        "is_right": True,
    }


def test_one_wrong_figure_fails_the_demo_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandFailed, match="1 of 2 figures are wrong: events that the hub has twice"):
        tell_checks([RIGHT, WRONG], is_json=False)
    shown = capsys.readouterr().out
    assert "NO" in shown
    assert "yes" in shown


def test_a_demo_without_figures_fails() -> None:
    with pytest.raises(CommandFailed):
        tell_checks([], is_json=True)


def test_installed_files_are_one_json_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "installed.jsonl"
    count = write_installed_files(path)
    lines = path.read_bytes().splitlines()
    assert count == len(lines) > 100
    assert {"package", "file", "bytes", "sha256"} == set(json.loads(lines[-1]))


def test_the_history_is_one_json_object_a_change(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    count = write_history(path)
    if not count:
        pytest.skip("needs git and a clone of the repository, to read its history")
    changes = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len(changes) == count
    assert all(len(change["commit"]) == 40 and change["subject"] for change in changes)


def test_a_late_write_that_is_refused_is_right_and_told() -> None:
    taken, late = FENCED.checks()
    assert (taken.found, taken.is_right) == ("token 1 / token 2 after 0.9 s", True)
    assert (late.found, late.is_right) == (
        "refused and it knows; the table has token 2 of the second",
        True,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        dataclasses.replace(FENCED, second_token=1, written=(1, "second")),
        dataclasses.replace(FENCED, is_first_written=False),
        dataclasses.replace(FENCED, is_second_written=False),
        dataclasses.replace(FENCED, is_late_written=True),
        dataclasses.replace(FENCED, is_loss_noticed=False),
        dataclasses.replace(FENCED, written=(1, "first")),
        dataclasses.replace(FENCED, written=(2, "first")),
    ],
    ids=["token", "first", "second", "late", "unnoticed", "overwritten", "writer"],
)
def test_a_lease_that_did_not_fence_is_a_wrong_figure(wrong: FencedLease) -> None:
    assert not all(check.is_right for check in wrong.checks())


def test_what_is_meant_for_other_hubs_and_agents_does_not_reach_the_demos_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SYNCHUB_CREDENTIALS", "SYNCHUB_TOKEN", "RUNTIME_AGENT_CA_FILE", "RUNTIME_AGENT_CONFIG"):
        monkeypatch.setenv(name, "elsewhere")
    environment = DemoProcesses(tmp_path)._environment
    ours = {name: value for name, value in environment.items() if name.startswith(("SYNCHUB_", "RUNTIME_"))}
    assert ours == {"RUNTIME_AGENT_CONFIG": str(tmp_path / "agent.toml")}
    assert (tmp_path / "agent.toml").read_bytes() == b""
    assert environment["PATH"]
