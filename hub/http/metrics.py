"""What the hub counts, in the form that Prometheus reads.

Every metric is defined here and nowhere else. Counters are told by the services (``Instruments``);
gauges are read from their sources when somebody asks.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

GROUP_SIZE_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
"""Commands in one commit."""
COMMIT_SECONDS_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""From the beginning of a group to its commit."""


@dataclass(frozen=True, slots=True)
class GaugeSources:
    """Where gauges are read when somebody asks; each must be quick."""

    writer_queue_bytes: Callable[[], int]
    streams_open: Callable[[], Mapping[str, int]]
    """By method."""
    runtimes_heard: Callable[[], Mapping[str, int]]
    """By state."""
    store_log_bytes: Callable[[], int]
    hub_time_ahead_seconds: Callable[[], float]


class HubMetrics:
    """The instruments of the services, and the page that shows them. Used from any thread."""

    def __init__(self) -> None:
        """Begin all at zero, in a registry of its own."""
        self.registry = CollectorRegistry()
        self._events = Counter(
            "synchub_events_total",
            "Events pushed, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self._accepted = self._events.labels("accepted")
        self._duplicates = self._events.labels("duplicate")
        self._conflicts = Counter(
            "synchub_conflicts_total",
            "Events that were not accepted, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._group_commands = Histogram(
            "synchub_group_commands",
            "Commands that one commit made durable.",
            buckets=GROUP_SIZE_BUCKETS,
            registry=self.registry,
        )
        self._commit_seconds = Histogram(
            "synchub_group_seconds",
            "From the beginning of a group of commands to its commit.",
            buckets=COMMIT_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._groups_failed = Counter(
            "synchub_groups_failed_total",
            "Groups that could not be committed; nothing of them was acknowledged.",
            registry=self.registry,
        )

    def group_committed(self, *, commands: int, seconds: float) -> None:
        """Count a commit."""
        self._group_commands.observe(commands)
        self._commit_seconds.observe(seconds)

    def group_failed(self) -> None:
        """Count a commit that failed."""
        self._groups_failed.inc()

    def batch_ingested(self, *, accepted: int, duplicates: int, conflicts: dict[str, int]) -> None:
        """Count the events of a batch."""
        self._accepted.inc(accepted)
        self._duplicates.inc(duplicates)
        for reason, count in conflicts.items():
            self._events.labels("conflict").inc(count)
            self._conflicts.labels(reason).inc(count)

    def watch(self, sources: GaugeSources) -> None:
        """Show gauges too; call once, when their sources exist."""
        self.registry.register(_Gauges(sources))

    def page(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    """Reads the gauges from their sources."""

    def __init__(self, sources: GaugeSources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        """Give each gauge with its value now."""
        sources = self._sources
        yield GaugeMetricFamily(
            "synchub_writer_queue_bytes",
            "Bytes that wait for the writer.",
            value=sources.writer_queue_bytes(),
        )
        yield _family("synchub_streams_open", "Open streams.", label="method", values=sources.streams_open())
        yield _family(
            "synchub_runtimes_heard", "Runtimes heard lately.", label="state", values=sources.runtimes_heard()
        )
        yield GaugeMetricFamily(
            "synchub_store_log_bytes",
            "Bytes committed but not yet folded into the store's main file.",
            value=sources.store_log_bytes(),
        )
        yield GaugeMetricFamily(
            "synchub_hub_time_ahead_seconds",
            "How far hub time is ahead of the wall clock.",
            value=sources.hub_time_ahead_seconds(),
        )


def _family(name: str, documentation: str, *, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
