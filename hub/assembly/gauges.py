"""Where each gauge of the metrics is read; all are quick, since they are read on the event loop.

Belongs to the composition root (``hub.app``).
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version

from hub.assembly.parts import HubParts
from hub.certificate_files import CertificateFiles
from hub.http.metrics import GaugeValues, HubMetrics
from hub.service.health import Findings, Health
from hub.service.writer import Lane


def watch_gauges(parts: HubParts) -> None:
    """Show the gauges of a hub's parts."""
    metrics = parts.metrics
    info: dict[tuple[str, ...], float] = {(version("synchub"), parts.store.engine): 1.0}
    metrics.watch("synchub_info", lambda: info)
    metrics.watch("synchub_writer_queue_commands", lambda: _by_lane(parts.writer.queued_counts()))
    metrics.watch("synchub_writer_queue_bytes", lambda: _by_lane(parts.async_writer.bytes_queued()))
    metrics.watch("synchub_writer_busy_seconds", _single(parts.writer.busy_seconds))
    metrics.watch("synchub_streams_open", lambda: _named(parts.streams.counts()))
    metrics.watch("synchub_tokens", lambda: _named(parts.tokens.counts()))
    metrics.watch("synchub_reads_waiting", _single(lambda: parts.readers.waiting_count))
    metrics.watch("synchub_loop_age_seconds", lambda: _named(parts.loops.ages()))
    metrics.watch("synchub_hub_time_ahead_seconds", _single(parts.time_ahead_seconds))
    _watch_runtimes(parts)
    _watch_measurements(parts)


def watch_health(metrics: HubMetrics, health: Health) -> None:
    """Show what was found last about the hub's health."""

    def read(is_so: Callable[[Findings], bool]) -> Callable[[], GaugeValues]:
        return lambda: {} if health.last is None else {(): float(is_so(health.last))}

    metrics.watch("synchub_healthy", read(lambda found: found.is_well))
    metrics.watch("synchub_ready", read(lambda found: found.is_ready and not health.is_stopping))


def watch_certificates(metrics: HubMetrics, certificates: CertificateFiles) -> None:
    """Show how long the hub's certificate still counts."""
    metrics.watch("synchub_certificate_left_seconds", _single(certificates.left_seconds))


def _watch_runtimes(parts: HubParts) -> None:
    metrics, label_of = parts.metrics, parts.metrics.label_of

    def runtimes() -> GaugeValues:
        values: dict[tuple[str, ...], float] = {}
        for hub_project, counts in parts.presence.counts().items():
            for state, count in counts.by_state.items():
                labels = (label_of(hub_project), str(state))
                values[labels] = values.get(labels, 0) + count
        return values

    def unsynced() -> GaugeValues:
        values: dict[tuple[str, ...], float] = {}
        for hub_project, counts in parts.presence.counts().items():
            labels = (label_of(hub_project),)
            values[labels] = values.get(labels, 0) + counts.unsynced_events
        return values

    def lags() -> GaugeValues:
        values: dict[tuple[str, ...], float] = {}
        for watched, watches in (("events", parts.watches), ("journal", parts.journal_watches)):
            for hub_project, positions in watches.lags().items():
                labels = (label_of(hub_project), watched)
                values[labels] = max(values.get(labels, 0), positions)
        return values

    metrics.watch("synchub_runtimes_heard", runtimes)
    metrics.watch("synchub_unsynced_events", unsynced)
    metrics.watch("synchub_watch_lag_positions", lags)
    metrics.watch("synchub_lease_waiters", _single(parts.leases.queues.waiter_count))


def _watch_measurements(parts: HubParts) -> None:
    metrics, measured = parts.metrics, parts.measurements
    metrics.watch("synchub_store_log_bytes", _single(parts.store.log_bytes))
    metrics.watch("synchub_store_bytes", _maybe(lambda: measured.sizes.store_bytes))
    metrics.watch("synchub_disk_free_bytes", _maybe(lambda: measured.sizes.disk_free_bytes))
    metrics.watch("synchub_backup_age_seconds", _maybe(measured.backup_age_seconds))
    metrics.watch("synchub_leases_live", _single(lambda: measured.counts.leases_live))
    metrics.watch("synchub_outbox_messages", lambda: _named(measured.counts.outbox_messages))


def _maybe(read: Callable[[], float | None]) -> Callable[[], GaugeValues]:
    """Return the source of a gauge without labels that is missing where there is nothing to tell."""

    def values() -> GaugeValues:
        value = read()
        return {} if value is None else {(): value}

    return values


def _single(read: Callable[[], float]) -> Callable[[], dict[tuple[str, ...], float]]:
    """Return the source of a gauge without labels."""
    return lambda: {(): read()}


def _named(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Return values by one label."""
    return {(key,): float(value) for key, value in values.items()}


def _by_lane(values: Mapping[Lane, int]) -> dict[tuple[str, ...], float]:
    """Return values by the names of lanes."""
    return {(lane.name,): float(value) for lane, value in values.items()}
