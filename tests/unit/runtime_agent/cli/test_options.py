"""How values of options are read, and settings found."""

from pathlib import Path

import pytest

from runtime_agent.cli.options import attributes_from_pairs, nanos_to_time, time_to_nanos
from runtime_agent.config import load_settings
from runtime_agent.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.000000001z", 1),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000_500_000_000),
    ],
)
def test_a_time_has_nanoseconds_and_a_zone(text: str, nanos: int) -> None:
    assert time_to_nanos(text) == nanos


@pytest.mark.parametrize("text", ["", "now", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z"])
def test_what_is_not_rfc_3339_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        time_to_nanos(text)


@pytest.mark.parametrize("nanos", [0, -1, 1, 1_700_000_000_123_456_789])
def test_a_time_that_is_shown_can_be_read_back(nanos: int) -> None:
    assert time_to_nanos(nanos_to_time(nanos)) == nanos


def test_a_time_beyond_every_calendar_is_shown_as_a_number() -> None:
    assert nanos_to_time(-(2**63)) == "1677-09-21T00:12:43.145224192Z"


def test_attributes_are_pairs() -> None:
    assert attributes_from_pairs(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for bad in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            attributes_from_pairs(bad)


def test_flags_win_over_environment_and_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('hub = "file:1"\nhub_project = "file"\nruntime_id = "file"\n')
    monkeypatch.setenv("RUNTIME_AGENT_CONFIG", str(file))
    monkeypatch.setenv("RUNTIME_AGENT_HUB_PROJECT", "environment")
    monkeypatch.setenv("RUNTIME_AGENT_RUNTIME_ID", "environment")
    settings = load_settings({"runtime_id": "flag", "hub": None})
    assert (settings.hub, settings.hub_project, settings.runtime_id) == ("file:1", "environment", "flag")


@pytest.mark.parametrize("text", ["unknown_key = 1", "log_bytes_max = 'much'", "not toml at all ["])
def test_a_wrong_settings_file_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    monkeypatch.setenv("RUNTIME_AGENT_CONFIG", str(file))
    with pytest.raises(UsageError):
        load_settings({})


def test_a_settings_file_that_is_named_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_AGENT_CONFIG", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is not there"):
        load_settings({})
