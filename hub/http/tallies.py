"""Plain counters and histograms, each added to by one thread and read by any.

A counter of prometheus_client takes a lock at each addition, which an event one by one would feel. Here an
addition is one step on a dict or a list; what reads copies them, which Python does in one piece.
"""

from bisect import bisect_left
from threading import Lock

from hub.core.values import HubProject

OTHER_HUB_PROJECTS = "other"
"""The label of the hub projects that have none of their own."""


class Counts:
    """A counter by the values of its labels."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        """Begin all at zero."""
        self._counts: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], count: float = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + count

    def values(self) -> dict[tuple[str, ...], float]:
        """Return what was counted so far."""
        return self._counts.copy()


class Buckets:
    """A histogram without labels."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Begin empty; ``bounds`` are upper ones, ascending."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, count up to there) for each bucket, and the sum of all values."""
        counts, total = self._counts.copy(), 0
        named: list[tuple[str, float]] = []
        for bound, count in zip([*map(_bound_text, self._bounds), "+Inf"], counts, strict=True):
            total += count
            named.append((bound, total))
        return named, self._sum


class HubProjectLabels:
    """The labels of hub projects: the first so many have their own names, who comes later has none."""

    def __init__(self, hub_projects_max: int) -> None:
        """Begin with none named."""
        self._hub_projects_max = hub_projects_max
        self._named: dict[HubProject, str] = {}
        self._lock = Lock()

    def __call__(self, hub_project: HubProject) -> str:
        """Return the label of a hub project."""
        label = self._named.get(hub_project)
        return self._name(hub_project) if label is None else label

    def _name(self, hub_project: HubProject) -> str:
        with self._lock:
            if hub_project not in self._named and len(self._named) >= self._hub_projects_max:
                return OTHER_HUB_PROJECTS
            return self._named.setdefault(hub_project, str(hub_project))


def _bound_text(bound: float) -> str:
    return str(float(bound))
