"""A real hub whose clock stands still until a test lets it pass.

Leases are decided by hub time alone, so that a test may stand a nanosecond before or after an expiry.
What the hub does by itself (noting expiries, waking waiters) it looks for at least once a real second.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub.core.limits import Limits
from synchub.contract import NANOS_PER_SECOND
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread


class HandClock:
    """In place of the clock that counts suspension, or of the wall clock."""

    def __init__(self, nanos: int = 0) -> None:
        self._nanos = nanos

    def __call__(self) -> int:
        return self._nanos

    def pass_time(self, seconds: float) -> None:
        self._nanos += round(seconds * NANOS_PER_SECOND)


@contextmanager
def hub_in_hand(
    folder: Path,
    clock: HandClock,
    *,
    limits: Limits | None = None,
    wall_nanos: int | HandClock | None = None,
) -> Iterator[HubInThread]:
    """Run a hub over the store in a folder; its wall clock may show another time, and stands still then or
    is in the test's hand too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hub.assembly.parts.boot_nanos", clock)
        if wall_nanos is not None:
            wall = wall_nanos if isinstance(wall_nanos, HandClock) else HandClock(wall_nanos)
            stopped = SimpleNamespace(time_ns=wall, monotonic=time.monotonic)
            for module in ("app", "assembly.parts", "assembly.servicers"):
                patch.setattr(f"hub.{module}.time", stopped)
        with HubInThread(settings_in(folder, limits)) as hub:
            yield hub
