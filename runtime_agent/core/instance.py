"""The agent's instance: fresh at each start, and begun anew after the hub refused it as duplicated.

Two agents that both live take turns so, more and more slowly; one that lives alone is reachable
again after the first wait. Pure: clock and chance are given.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class InstanceLife:
    """The current ``instance_id`` and until when it may not be used; seconds on a rising clock."""

    new_instance_id: Callable[[], str]
    wait_seconds_first: float
    wait_seconds_max: float
    calm_seconds: float
    instance_id: str = ""
    usable_at: float | None = None
    _next_wait_seconds: float = 0.0
    _last_refusal: float | None = None

    def __post_init__(self) -> None:
        self.instance_id = self.new_instance_id()

    @property
    def is_refused(self) -> bool:
        """Whether the hub refused the instance and its successor has not begun."""
        return self.usable_at is not None

    def refused(self, instance_id: str, *, now: float) -> None:
        """The hub refused this instance: wait before beginning anew, twice as long as the last time.

        Said by whoever hears it, also twice; an instance that is not the current one means nothing.
        """
        if instance_id != self.instance_id or self.is_refused:
            return
        is_calm = self._last_refusal is None or now - self._last_refusal > self.calm_seconds
        wait_seconds = self.wait_seconds_first if is_calm else self._next_wait_seconds
        self._next_wait_seconds = min(self.wait_seconds_max, wait_seconds * 2)
        self._last_refusal = now
        self.usable_at = now + wait_seconds

    def seconds_until_usable(self, *, now: float) -> float:
        """Return how long to wait before connecting; at 0 the instance may be used.

        A refused one is replaced by a fresh one when its wait is over.
        """
        if self.usable_at is None:
            return 0.0
        if now < self.usable_at:
            return self.usable_at - now
        self.usable_at = None
        self.instance_id = self.new_instance_id()
        return 0.0
