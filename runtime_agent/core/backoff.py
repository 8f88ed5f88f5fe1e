"""How long to wait before the next try: growing, bounded, and different for every runtime.

Pure: chance is an argument, and nothing here sleeps. There is no last try.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_DOUBLINGS_MAX: Final = 32
"""More doublings than any sensible pair of bounds has; keeps the power small after years of failures."""


@dataclass(slots=True)
class Backoff:
    """Waits drawn evenly from 0 to a ceiling that doubles from ``first_seconds`` to ``last_seconds``.

    Full jitter: a crowd of runtimes that lost their hub together does not come back together.
    ``chance`` returns a number in [0, 1). Both bounds are in seconds and above 0.
    """

    first_seconds: float
    last_seconds: float
    chance: Callable[[], float]
    failure_count: int = 0

    def next_wait_seconds(self) -> float:
        """Count one more failure and return how long to wait before the next try, in seconds."""
        doublings = min(self.failure_count, _DOUBLINGS_MAX)
        self.failure_count += 1
        return self.chance() * min(self.last_seconds, self.first_seconds * 2.0**doublings)

    def reset(self) -> None:
        """Forget the failures: something worked."""
        self.failure_count = 0
