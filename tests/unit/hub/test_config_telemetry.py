"""Settings of what a hub tells of itself: the log's form and level, and where traces go."""

from pathlib import Path

import pytest

from hub.config import ServeFlags, SettingsError, load_settings

COLLECTOR = "http://127.0.0.1:4317"
ANOTHER = "https://traces.example.org:4317"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SYNCHUB_LOG_FORMAT", "SYNCHUB_LOG_LEVEL", "SYNCHUB_OTLP_ENDPOINT", "SYNCHUB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)


def test_a_log_is_for_people_or_programs_from_info_on_and_nothing_is_traced() -> None:
    settings = load_settings(ServeFlags())
    assert (settings.log_format, settings.log_level, settings.otlp_endpoint) == ("auto", "info", None)


def test_flags_win_over_environment_and_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hub.toml"
    file.write_text(f'log_format = "json"\nlog_level = "error"\notlp_endpoint = "{COLLECTOR}"\n')
    monkeypatch.setenv("SYNCHUB_LOG_LEVEL", "warning")
    settings = load_settings(ServeFlags(log_format="console", config=str(file)))
    told = (settings.log_format, settings.log_level, settings.otlp_endpoint)
    assert told == ("console", "warning", COLLECTOR)


def test_where_traces_go_is_also_asked_for_as_opentelemetry_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", COLLECTOR)
    assert load_settings(ServeFlags()).otlp_endpoint == COLLECTOR
    assert load_settings(ServeFlags(otlp_endpoint=ANOTHER)).otlp_endpoint == ANOTHER
    # An empty setting says that this hub does not trace, whatever the environment says.
    assert load_settings(ServeFlags(otlp_endpoint="")).otlp_endpoint is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    assert load_settings(ServeFlags()).otlp_endpoint is None


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "grpc://collector:4317", "http://", "http:///x"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--otlp-endpoint"):
        load_settings(ServeFlags(otlp_endpoint=endpoint))


@pytest.mark.parametrize(
    ("flags", "name"),
    [(ServeFlags(log_format="xml"), "log_format"), (ServeFlags(log_level="loud"), "log_level")],
)
def test_a_format_or_level_that_is_none_is_refused_by_its_name(flags: ServeFlags, name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load_settings(flags)
