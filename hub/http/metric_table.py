"""Every metric of the hub: its name, its kind, its labels, and what it says.

What is not here is on no page: the page, the table of ``docs/telemetry.md`` and the queries of the
dashboard are held against it by tests. Values of labels are bounded: by code, or as hub projects are, by a
setting.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """What Prometheus takes a metric for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. The name of a counter ends in ``_total``."""

    name: str
    kind: Kind
    documentation: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, ascending, without the infinite one."""


COMMANDS_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
"""Commands in one commit."""
SECONDS_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Of what takes milliseconds where all is well."""
CALL_SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Of calls, some of which may wait."""

INGEST: Final = (
    MetricSpec(
        "synchub_batches_total",
        Kind.COUNTER,
        "Batches pushed: accepted (something new is stored), duplicate (all was stored before), conflict"
        " (something was refused), go_back (asked for from earlier on).",
        ("hub_project", "outcome"),
    ),
    MetricSpec(
        "synchub_events_total",
        Kind.COUNTER,
        "Events pushed, by what became of them: accepted, duplicate, conflict.",
        ("hub_project", "outcome"),
    ),
    MetricSpec(
        "synchub_batch_bytes_total", Kind.COUNTER, "Bytes of the batches that were pushed.", ("hub_project",)
    ),
    MetricSpec(
        "synchub_conflicts_total",
        Kind.COUNTER,
        "Events that were not accepted, by reason.",
        ("hub_project", "reason"),
    ),
    MetricSpec(
        "synchub_rate_delays_total",
        Kind.COUNTER,
        "Times that a stream was asked to wait because its hub project is above a rate.",
        ("hub_project", "limit"),
    ),
    MetricSpec(
        "synchub_rate_delay_seconds_total",
        Kind.COUNTER,
        "Seconds that streams were asked to wait because their hub project is above a rate.",
        ("hub_project", "limit"),
    ),
)

WRITER: Final = (
    MetricSpec(
        "synchub_group_commands",
        Kind.HISTOGRAM,
        "Commands that one commit made durable.",
        buckets=COMMANDS_BUCKETS,
    ),
    MetricSpec(
        "synchub_group_seconds",
        Kind.HISTOGRAM,
        "From the beginning of a group of commands to the end of its commit.",
        buckets=SECONDS_BUCKETS,
    ),
    MetricSpec(
        "synchub_commit_seconds",
        Kind.HISTOGRAM,
        "What the commit of a group took, with the sync of the disk.",
        buckets=SECONDS_BUCKETS,
    ),
    MetricSpec(
        "synchub_groups_failed_total",
        Kind.COUNTER,
        "Groups that could not be committed; nothing of them was acknowledged.",
    ),
    MetricSpec("synchub_writer_queue_commands", Kind.GAUGE, "Commands that wait for the writer.", ("lane",)),
    MetricSpec("synchub_writer_queue_bytes", Kind.GAUGE, "Bytes of commands that wait or run.", ("lane",)),
    MetricSpec(
        "synchub_writer_busy_seconds",
        Kind.GAUGE,
        "For how long the writer is at the group that it has now; 0 while it is idle.",
    ),
)

CALLS: Final = (
    MetricSpec(
        "synchub_calls_total",
        Kind.COUNTER,
        "Calls that ended, streams too, by their status; methods that the hub does not have are one.",
        ("method", "code"),
    ),
    MetricSpec(
        "synchub_call_seconds",
        Kind.HISTOGRAM,
        "From the beginning to the end of calls with one response; a wait for a lease counts.",
        ("method",),
        buckets=CALL_SECONDS_BUCKETS,
    ),
    MetricSpec(
        "synchub_refusals_total",
        Kind.COUNTER,
        "Calls and streams that ended by a refusal, by its reason.",
        ("reason", "code"),
    ),
    MetricSpec(
        "synchub_limits_reached_total",
        Kind.COUNTER,
        "Calls and streams that ended by a limit, a rate or a quota, by its setting.",
        ("limit",),
    ),
    MetricSpec(
        "synchub_refusals_unlogged_total",
        Kind.COUNTER,
        "Refusals for want of a credential or of permission that were not logged, since there were too many.",
    ),
    MetricSpec("synchub_streams_open", Kind.GAUGE, "Open streams.", ("method",)),
    MetricSpec("synchub_tokens", Kind.GAUGE, "Bearer tokens: live, expired, revoked.", ("state",)),
)

RUNTIMES: Final = (
    MetricSpec(
        "synchub_runtimes_heard",
        Kind.GAUGE,
        "Runtimes heard lately, by presence; who fell silent or left is here only until that is stored.",
        ("hub_project", "state"),
    ),
    MetricSpec(
        "synchub_runtimes_lost_total", Kind.COUNTER, "Times that a runtime fell silent.", ("hub_project",)
    ),
    MetricSpec(
        "synchub_unsynced_events",
        Kind.GAUGE,
        "Events that runtimes have and the hub does not yet, as their last heartbeats say.",
        ("hub_project",),
    ),
    MetricSpec(
        "synchub_alerts_total",
        Kind.COUNTER,
        "What was seen that is alerted, by reason.",
        ("hub_project", "reason"),
    ),
    MetricSpec(
        "synchub_watch_lag_positions",
        Kind.GAUGE,
        "How far the slowest watcher is behind the newest commit: watchers of events, of the journal.",
        ("hub_project", "watched"),
    ),
)

LEASES: Final = (
    MetricSpec(
        "synchub_leases_live",
        Kind.GAUGE,
        "Leases and maintenances whose end is not noted; counted to 100,000.",
    ),
    MetricSpec("synchub_lease_waiters", Kind.GAUGE, "Calls that wait for a lease."),
    MetricSpec(
        "synchub_lease_grants_total",
        Kind.COUNTER,
        "Tenures that began: leases acquired, transferred or taken over, and maintenances.",
        ("hub_project",),
    ),
    MetricSpec("synchub_lease_expiries_total", Kind.COUNTER, "Tenures that expired.", ("hub_project",)),
    MetricSpec(
        "synchub_renewals_refused_total",
        Kind.COUNTER,
        "Renewals refused on RenewLeases streams, which go on; other refusals are in synchub_refusals_total.",
        ("reason",),
    ),
)

JOURNAL: Final = (
    MetricSpec(
        "synchub_journal_commits_total",
        Kind.COUNTER,
        "Commits to the journal: stored, or recovered (a repeat that was answered).",
        ("hub_project", "outcome"),
    ),
    MetricSpec("synchub_journal_events_total", Kind.COUNTER, "Events that commits stored.", ("hub_project",)),
    MetricSpec(
        "synchub_outbox_messages",
        Kind.GAUGE,
        "Outbox messages that are not delivered: WAITING, BEHIND another, DEAD; each counted to 100,000.",
        ("phase",),
    ),
)

HUB: Final = (
    MetricSpec("synchub_info", Kind.GAUGE, "Always 1; says the version and engine.", ("version", "engine")),
    MetricSpec("synchub_healthy", Kind.GAUGE, "1 while /healthz answers 200."),
    MetricSpec("synchub_ready", Kind.GAUGE, "1 while /readyz answers 200."),
    MetricSpec(
        "synchub_loop_age_seconds",
        Kind.GAUGE,
        "How long ago what runs in the background was last seen to run.",
        ("loop",),
    ),
    MetricSpec(
        "synchub_event_loop_delay_seconds",
        Kind.HISTOGRAM,
        "How much later than asked for the event loop woke a task.",
        buckets=SECONDS_BUCKETS,
    ),
    MetricSpec("synchub_reads_waiting", Kind.GAUGE, "Reads of the store that wait for a thread or run."),
    MetricSpec("synchub_hub_time_ahead_seconds", Kind.GAUGE, "How far hub time is ahead of the wall clock."),
    MetricSpec("synchub_store_bytes", Kind.GAUGE, "Size of the store's main file."),
    MetricSpec(
        "synchub_store_log_bytes",
        Kind.GAUGE,
        "Size of the write-ahead log: what is committed and not yet folded into the main file.",
    ),
    MetricSpec("synchub_disk_free_bytes", Kind.GAUGE, "Room on the store's disk for the hub's user."),
    MetricSpec(
        "synchub_backup_age_seconds",
        Kind.GAUGE,
        "Age of the newest backup in the backup folder; missing where there is none.",
    ),
    MetricSpec(
        "synchub_certificate_left_seconds",
        Kind.GAUGE,
        "How long the certificate of both ports still counts; missing without TLS.",
    ),
    MetricSpec(
        "synchub_trace_spans_total",
        Kind.COUNTER,
        "Spans: exported, failed (the collector did not take them), dropped (the queue was full).",
        ("outcome",),
    ),
)

METRICS: Final = {spec.name: spec for spec in (*INGEST, *WRITER, *CALLS, *RUNTIMES, *LEASES, *JOURNAL, *HUB)}
"""All of them by name, in the order of the page."""
