"""Spans of time as people type and read them."""

import re
from typing import Final

from google.protobuf.duration_pb2 import Duration

from hub.cli.output import EXIT_USAGE, CommandFailed

_MILLIS_PER_UNIT: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SPAN: Final = re.compile(
    r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?(?:(\d{1,6})ms)?", re.ASCII
)


def parse_span(text: str, *, flag: str) -> Duration | None:
    """Return the span that ``30s``, ``90m``, ``1h30m`` or ``90d`` says; None for the empty text: not given.

    A number without a unit is refused: at night nobody should have to guess which one is meant.

    Raises: CommandFailed, naming the flag.
    """
    if not text:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        sentence = f"{flag} {text!r} is no span of time"
        raise CommandFailed(
            sentence, hint="Give number and unit, such as 30s, 30m, 1h or 90d.", exit_code=EXIT_USAGE
        )
    units = zip(match.groups(), _MILLIS_PER_UNIT.values(), strict=True)
    millis = sum(int(count) * unit for count, unit in units if count is not None)
    if millis == 0:
        raise CommandFailed(f"{flag} must be longer than nothing", exit_code=EXIT_USAGE)
    span = Duration()
    span.FromMilliseconds(millis)
    return span


def span_text(seconds: float) -> str:
    """Return a span for people, in two units at most: ``7.3 s``, ``4 min 5 s``, ``1 h 0 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left} s"
    hours, minutes_left = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes_left} min"
    return f"{hours // 24} days {hours % 24} h"
