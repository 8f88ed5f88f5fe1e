"""Where each gauge of the metrics is read; all are quick, since they are read on the event loop.

Belongs to the composition root (``hub.app``).
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from hub.service.writer import Lane

if TYPE_CHECKING:
    from hub.parts import HubParts


def watch_gauges(parts: "HubParts") -> None:
    """Show the gauges of a hub's parts."""
    metrics = parts.metrics
    info: dict[tuple[str, ...], float] = {(version("synchub"), parts.store.engine): 1.0}
    metrics.watch("synchub_info", lambda: info)
    metrics.watch("synchub_writer_queue_commands", lambda: _by_lane(parts.writer.queued_counts()))
    metrics.watch("synchub_writer_queue_bytes", lambda: _by_lane(parts.async_writer.bytes_queued()))
    metrics.watch("synchub_writer_busy_seconds", _single(parts.writer.busy_seconds))
    metrics.watch("synchub_streams_open", lambda: _named(parts.streams.counts()))
    metrics.watch("synchub_store_log_bytes", _single(parts.store.log_bytes))
    metrics.watch("synchub_hub_time_ahead_seconds", _single(parts.time_ahead_seconds))


def _single(read: Callable[[], float]) -> Callable[[], dict[tuple[str, ...], float]]:
    """Return the source of a gauge without labels."""
    return lambda: {(): read()}


def _named(values: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    """Return values by one label."""
    return {(key,): float(value) for key, value in values.items()}


def _by_lane(values: Mapping[Lane, int]) -> dict[tuple[str, ...], float]:
    """Return values by the names of lanes."""
    return {(lane.name,): float(value) for lane, value in values.items()}
