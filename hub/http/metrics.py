"""What the hub counts, in the form that Prometheus reads.

Which metrics there are says ``metric_table``. Counters are told by the services (``Instruments``) and by
whoever serves calls; gauges are read from their sources when somebody asks, on the event loop: each source
must be quick, so what takes a while is measured beforehand. The text is made on a thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from hub.core.limits import Limits
from hub.core.values import AlertReason, HubProject
from hub.http.metric_table import METRICS, Kind, MetricSpec
from hub.http.tallies import Buckets, Counts, HubProjectLabels

OTHER_METHODS: Final = "other"
"""The label of the methods that the hub does not have."""

GaugeValues = Mapping[tuple[str, ...], float]
"""Values of a gauge by those of its labels."""
ReadGauge = Callable[[], GaugeValues]


class _Batch(NamedTuple):
    """What became of a batch whose group is not committed yet."""

    hub_project: HubProject
    accepted: int
    duplicates: int
    conflicts: Mapping[str, int]
    bytes_count: int


class HubMetrics:
    """The instruments of the services, and the page that shows them; see ``Instruments``."""

    def __init__(self, *, limits: Limits | None = None) -> None:
        """Begin all at zero."""
        self.label_of: Final = HubProjectLabels((limits or Limits()).metrics_hub_projects_max)
        self._counts = {spec.name: Counts() for spec in METRICS.values() if spec.kind is Kind.COUNTER}
        self._buckets: dict[str, dict[tuple[str, ...], Buckets]] = {
            spec.name: {} if spec.labels else {(): Buckets(spec.buckets)}
            for spec in METRICS.values()
            if spec.kind is Kind.HISTOGRAM
        }
        self._gauges: dict[str, ReadGauge] = {}
        self._lock = Lock()
        self._in_group: list[_Batch] = []
        self._commits_in_group: list[tuple[HubProject, int, bool]] = []
        self._group_commands = self._buckets["synchub_group_commands"][()]
        self._group_seconds = self._buckets["synchub_group_seconds"][()]
        self._commit_seconds = self._buckets["synchub_commit_seconds"][()]
        self._loop_delay = self._buckets["synchub_event_loop_delay_seconds"][()]
        self._process = ProcessCollector(registry=CollectorRegistry())
        self._rendering: asyncio.Task[bytes] | None = None

    # --- from the writer's thread alone ---

    def group_committed(self, *, commands: int, seconds: float, commit_seconds: float) -> None:
        """Count a commit, and the batches and commits to the journal that it made durable."""
        self._group_commands.observe(commands)
        self._group_seconds.observe(seconds)
        self._commit_seconds.observe(commit_seconds)
        if self._in_group:
            batches, self._in_group = self._in_group, []
            for batch in batches:
                self._count_batch(batch)
        if self._commits_in_group:
            commits, self._commits_in_group = self._commits_in_group, []
            for hub_project, events, is_recovered in commits:
                label = self.label_of(hub_project)
                outcome = "recovered" if is_recovered else "stored"
                self._counts["synchub_journal_commits_total"].add((label, outcome))
                if events and not is_recovered:
                    self._counts["synchub_journal_events_total"].add((label,), events)

    def group_failed(self) -> None:
        """Count a commit that failed; what was in the group is not counted."""
        self._counts["synchub_groups_failed_total"].add(())
        self._in_group.clear()
        self._commits_in_group.clear()

    def batch_ingested(
        self,
        hub_project: HubProject,
        *,
        accepted: int,
        duplicates: int,
        conflicts: Mapping[str, int],
        bytes_count: int,
    ) -> None:
        """Count a batch once its group is committed."""
        self._in_group.append(_Batch(hub_project, accepted, duplicates, conflicts, bytes_count))

    def commit_stored(self, hub_project: HubProject, *, events: int, is_recovered: bool) -> None:
        """Count a commit to the journal once its group is committed."""
        self._commits_in_group.append((hub_project, events, is_recovered))

    def _count_batch(self, batch: "_Batch") -> None:
        hub_project, accepted, duplicates, conflicts, bytes_count = batch
        label = self.label_of(hub_project)
        events = self._counts["synchub_events_total"]
        if accepted:
            events.add((label, "accepted"), accepted)
        if duplicates:
            events.add((label, "duplicate"), duplicates)
        for reason, count in conflicts.items():
            events.add((label, "conflict"), count)
            self._counts["synchub_conflicts_total"].add((label, reason), count)
        outcome = "go_back"
        if conflicts:
            outcome = "conflict"
        elif accepted:
            outcome = "accepted"
        elif duplicates:
            outcome = "duplicate"
        self._counts["synchub_batches_total"].add((label, outcome))
        self._counts["synchub_batch_bytes_total"].add((label,), bytes_count)

    # --- from any thread ---

    def alert_observed(self, hub_project: HubProject, *, reason: AlertReason, count: int) -> None:
        """Count what is alerted."""
        with self._lock:
            self._counts["synchub_alerts_total"].add((self.label_of(hub_project), reason), count)

    def rate_delayed(self, hub_project: HubProject, *, limit: str, seconds: float) -> None:
        """Count a wait that a stream was asked for."""
        labels = (self.label_of(hub_project), limit)
        with self._lock:
            self._counts["synchub_rate_delays_total"].add(labels)
            self._counts["synchub_rate_delay_seconds_total"].add(labels, seconds)

    def span_ended(self, outcome: str, count: int = 1) -> None:
        """Count what became of spans."""
        with self._lock:
            self._counts["synchub_trace_spans_total"].add((outcome,), count)

    # --- from the event loop alone ---

    def call_ended(self, method: str, *, code: str, seconds: float | None) -> None:
        """Count a call; ``seconds`` is None for one whose length says nothing: a stream."""
        self._counts["synchub_calls_total"].add((method, code))
        if seconds is not None:
            by_method = self._buckets["synchub_call_seconds"]
            buckets = by_method.get((method,))
            if buckets is None:
                buckets = by_method[method,] = Buckets(METRICS["synchub_call_seconds"].buckets)
            buckets.observe(seconds)

    def call_refused(self, reason: str, *, code: str, limit: str | None) -> None:
        """Count the refusal that ended a call, and the limit that it names."""
        self._counts["synchub_refusals_total"].add((reason, code))
        if limit is not None:
            self._counts["synchub_limits_reached_total"].add((limit,))

    def refusal_unlogged(self) -> None:
        """Count a refusal of which there is no line in the log."""
        self._counts["synchub_refusals_unlogged_total"].add(())

    def renewal_refused(self, reason: str) -> None:
        """Count a renewal that was refused within a stream."""
        self._counts["synchub_renewals_refused_total"].add((reason,))

    def tenures_changed(self, hub_project: HubProject, *, begun: int, expired: int) -> None:
        """Count tenures that began and that expired."""
        label = (self.label_of(hub_project),)
        if begun:
            self._counts["synchub_lease_grants_total"].add(label, begun)
        if expired:
            self._counts["synchub_lease_expiries_total"].add(label, expired)

    def runtime_lost(self, hub_project: HubProject) -> None:
        """Count a runtime that fell silent."""
        self._counts["synchub_runtimes_lost_total"].add((self.label_of(hub_project),))

    def loop_delayed(self, seconds: float) -> None:
        """Count by how much the event loop was late."""
        self._loop_delay.observe(seconds)

    # --- the page ---

    def watch(self, name: str, read: ReadGauge) -> None:
        """Show a gauge, read from its source when somebody asks."""
        spec = METRICS[name]
        assert spec.kind is Kind.GAUGE, name
        self._gauges[name] = read

    async def page(self) -> bytes:
        """Return all metrics as text; who asks while it is being made gets the same."""
        if self._rendering is None:
            # Gauges are of the loop, and read on it; the text is made beside it.
            families = _Families([self._family(spec) for spec in METRICS.values()], self._process)
            self._rendering = asyncio.create_task(asyncio.to_thread(_text_of, families))
            self._rendering.add_done_callback(self._forget_rendering)
        return await asyncio.shield(self._rendering)

    def _forget_rendering(self, _task: asyncio.Task[bytes]) -> None:
        self._rendering = None

    def _family(self, spec: MetricSpec) -> Metric:
        """Return a metric with its values now."""
        if spec.kind is Kind.COUNTER:
            counter = CounterMetricFamily(spec.name, spec.documentation, labels=spec.labels)
            counts = self._counts[spec.name].values()
            for labels, count in (counts or ({} if spec.labels else {(): 0.0})).items():
                counter.add_metric(labels, count)
            return counter
        if spec.kind is Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(spec.name, spec.documentation, labels=spec.labels)
            for labels, buckets in self._buckets[spec.name].copy().items():
                named, total = buckets.cumulative()
                histogram.add_metric(labels, named, total)
            return histogram
        gauge = GaugeMetricFamily(spec.name, spec.documentation, labels=spec.labels)
        read = self._gauges.get(spec.name)
        for labels, value in ({} if read is None else read()).items():
            gauge.add_metric(labels, value)
        return gauge


class _Families(Collector):
    """Metrics that were read, and those of the process."""

    def __init__(self, families: list[Metric], process: ProcessCollector) -> None:
        self._families = families
        self._process = process

    def collect(self) -> Iterable[Metric]:
        """Give them."""
        yield from self._families
        yield from self._process.collect()


def _text_of(families: _Families) -> bytes:
    return generate_latest(families)
