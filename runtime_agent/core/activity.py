"""Which runs count as active: those with a recent append that has not ended them. Pure."""

from collections import OrderedDict
from dataclasses import dataclass, field

from runtime_agent.core.values import RunKey


@dataclass(slots=True)
class RunActivity:
    """The most recently appended runs, at most ``runs_max``; times in seconds on a rising clock."""

    active_seconds: float
    runs_max: int
    _last_append: "OrderedDict[RunKey, float]" = field(default_factory=OrderedDict)

    def note(self, run: RunKey, *, is_ended: bool, now: float) -> None:
        """A run has new events; with ``is_ended`` its final one is among them."""
        if is_ended:
            self._last_append.pop(run, None)
            return
        self._last_append[run] = now
        self._last_append.move_to_end(run)
        if len(self._last_append) > self.runs_max:
            self._last_append.popitem(last=False)

    def active_runs(self, *, now: float, limit: int) -> tuple[RunKey, ...]:
        """Return at most ``limit`` active runs, the newest first; forget those that no longer are."""
        while self._last_append:
            run, noted = next(iter(self._last_append.items()))
            if now - noted <= self.active_seconds:
                break
            del self._last_append[run]
        newest_first = reversed(self._last_append)
        return tuple(run for run, _ in zip(newest_first, range(limit), strict=False))
