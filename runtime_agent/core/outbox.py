"""How a dispatcher of outbox messages paces itself: pure, with moments and chance as arguments.

A try counts when a message is claimed, whether anybody gets to see it or not, and after too many a message
is dead. So a dispatcher claims what it can hand out soon and no more, and gives back what it cannot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from synchub.contract import NANOS_PER_SECOND

_SOON_SHARE: Final = 0.1
"""Claimed messages that were all handed out within this share of their time were not too many."""
_LATE_SHARE: Final = 0.25
"""Where it took more than this share, they were."""
_FRESH_SHARE: Final = 0.5
"""A message of whose time less than this share is left is not handed out any more."""
_DOUBLINGS_MAX: Final = 32
"""More doublings than any sensible pair of bounds has."""


def retry_delay_seconds(
    attempt_count: int, *, first_seconds: float, last_seconds: float, chance: Callable[[], float]
) -> float:
    """Return how long a message that failed is left alone, in seconds.

    Drawn evenly from 0 to a ceiling that doubles with each try (the first is 1): what fails together does
    not come back together. ``chance`` returns a number in [0, 1).
    """
    doublings = min(max(attempt_count - 1, 0), _DOUBLINGS_MAX)
    return chance() * min(last_seconds, first_seconds * 2.0**doublings)


@dataclass(slots=True)
class ClaimPace:
    """How many messages to claim at once: one at first, twice as many while they are handed out fast."""

    visibility_seconds: float
    count_max: int
    count: int = 1
    _claimed_at: float = 0.0

    def claimed(self, *, now: float) -> None:
        """Note that messages were claimed."""
        self._claimed_at = now

    def handed_out_all(self, *, now: float) -> None:
        """Note that the last of them went to its handler."""
        spent_seconds = now - self._claimed_at
        if spent_seconds <= self.visibility_seconds * _SOON_SHARE:
            self.count = min(self.count * 2, self.count_max)
        elif spent_seconds > self.visibility_seconds * _LATE_SHARE:
            self.count = max(self.count // 2, 1)

    def is_fresh(self, seconds_left: float) -> bool:
        """Say whether a claimed message may still be handed out; where not, begin small again."""
        if seconds_left >= self.visibility_seconds * _FRESH_SHARE:
            return True
        self.count = 1
        return False


def poll_seconds(*, now_nanos: int, next_available_nanos: int | None, seconds_max: float) -> float:
    """Return how long to wait before the next claim, where the last one found nothing.

    Both moments are the hub's; what is committed meanwhile is found after ``seconds_max`` at most.
    """
    if next_available_nanos is None:
        return seconds_max
    left_seconds = (next_available_nanos - now_nanos) / NANOS_PER_SECOND
    return min(max(left_seconds, 0.0), seconds_max)
