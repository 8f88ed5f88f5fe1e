"""Hub time: it never steps back, whatever the wall clock does.

Hub time is its value at start plus the time since on a clock that counts suspension. The value at
start is the larger of the wall clock and the floor that the store kept, so neither a step of the wall
clock nor a restart revives, lengthens or freezes anything that expires.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from synchub.contract import NANOS_PER_SECOND

RFC3339_NANOS_MAX: Final = 253_402_300_800 * NANOS_PER_SECOND - 1
"""The last nanosecond of the year 9999, after which RFC 3339 has no year."""


def rfc3339(nanos: int) -> str:
    """Return a moment given in Unix nanoseconds, 0 or more, as people and programs write it, in UTC."""
    seconds, rest = divmod(min(nanos, RFC3339_NANOS_MAX), NANOS_PER_SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


class HubClock:
    """Gives hub time in Unix nanoseconds; rises, also over restarts."""

    def __init__(
        self, *, wall_nanos: int, floor_nanos: int, suspension_counting_nanos: Callable[[], int]
    ) -> None:
        """Begin at the larger of the wall clock and the persisted floor.

        ``suspension_counting_nanos`` reads a clock that goes on while the machine sleeps.
        """
        self._start_nanos = max(wall_nanos, floor_nanos)
        self._elapsed_from = suspension_counting_nanos()
        self._read = suspension_counting_nanos

    def now(self) -> int:
        """Return hub time now."""
        return self._start_nanos + self._read() - self._elapsed_from
