"""Spans of time as people type and read them."""

import pytest

from hub.cli.output import EXIT_USAGE, CommandFailed
from hub.cli.spans import parse_span, span_text


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("30s", 30_000),
        ("30m", 1_800_000),
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("1s500ms", 1_500),
        ("90d", 7_776_000_000),
    ],
)
def test_a_span_is_numbers_with_units(text: str, millis: int) -> None:
    span = parse_span(text, flag="--ttl")
    assert span is not None
    assert span.ToMilliseconds() == millis


def test_no_text_is_no_span() -> None:
    assert parse_span("", flag="--ttl") is None


@pytest.mark.parametrize("text", ["30", "s", "-1s", "30m1h", "1h1d", "1.5h", "1 h", "٣s", "9999999h", "0s"])
def test_what_could_be_misread_is_wrong_usage(text: str) -> None:
    with pytest.raises(CommandFailed, match="--ttl") as caught:
        parse_span(text, flag="--ttl")
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (7.26, "7.3 s"),
        (59.99, "60.0 s"),
        (245.9, "4 min 5 s"),
        (3_600.0, "1 h 0 min"),
        (49 * 3_600.0, "2 days 1 h"),
    ],
)
def test_a_span_is_told_in_two_units_at_most(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
