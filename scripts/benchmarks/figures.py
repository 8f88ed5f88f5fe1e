"""What every benchmark gives back: two lines for people and JSON for programs."""

import json
import statistics
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figures(ABC):
    """The outcome of a benchmark; its fields are the JSON, with units in their names."""

    @abstractmethod
    def figures_line(self) -> str:
        """Return what was measured, as one line."""

    @abstractmethod
    def ratios_line(self) -> str:
        """Return what it means within this run, as one line with the goals."""

    def json_text(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


def median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios round by round, so that a drifting machine does not count."""
    return statistics.median(rate / other for rate, other in zip(rates, others, strict=True))


def p50_ms(seconds: Sequence[float]) -> float:
    """Return the median of durations in seconds, in milliseconds."""
    return statistics.median(seconds) * 1_000


def p99_ms(seconds: Sequence[float]) -> float:
    """Return what 99 of 100 durations in seconds do not exceed, in milliseconds."""
    return statistics.quantiles(seconds, n=100)[98] * 1_000


def progress(text: str) -> None:
    """Show what is being measured, on a terminal; an empty text clears the line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
