"""The parts of the demo that judge: a wrong figure is seen, and its input is real."""

import json
from pathlib import Path

import pytest

from hub.cli.demo import Check, tell_checks
from hub.cli.demo_input import write_history, write_installed_files
from hub.cli.output import CommandFailed

RIGHT = Check("gaps in the sequences", "0", True)
WRONG = Check("events that the hub has twice", "3", False)


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
