"""Every bound of the hub, in one place.

``Limits`` holds those that are settings: ``hub.config`` fills it, ``GetHubInfo`` reports what a client
needs, and whoever enforces one names it in its error. Units stand in the names. The example settings name all
of them: ``scripts/gen_example_settings.py`` writes them there.
"""

from dataclasses import dataclass

from synchub import contract


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds in force; the defaults are those of the wire contract."""

    identifier_bytes_max: int = contract.IDENTIFIER_BYTES_MAX
    event_type_bytes_max: int = contract.EVENT_TYPE_BYTES_MAX
    payload_bytes_max: int = contract.PAYLOAD_BYTES_MAX
    attribute_count_max: int = contract.ATTRIBUTE_COUNT_MAX
    attribute_key_bytes_max: int = contract.ATTRIBUTE_KEY_BYTES_MAX
    attributes_bytes_max: int = contract.ATTRIBUTES_BYTES_MAX
    batch_events_max: int = contract.BATCH_EVENTS_MAX
    batch_bytes_max: int = contract.BATCH_BYTES_MAX
    message_bytes_max: int = contract.MESSAGE_BYTES_MAX
    reconcile_runs_max: int = contract.RECONCILE_RUNS_MAX
    active_runs_max: int = contract.ACTIVE_RUNS_MAX

    page_entries_default: int = 100
    page_entries_max: int = 1_000
    event_page_entries_default: int = 500
    event_page_entries_max: int = 5_000
    page_bytes_max: int = 2 * 1024 * 1024

    heartbeat_interval_seconds: float = 10.0
    presence_ttl_seconds: float = 30.0
    broken_stream_grace_seconds: float = 5.0
    presence_flush_seconds: float = 1.0
    """How often presence is written, at most."""
    presence_flush_rows_max: int = 1_000
    """Runtimes in one command that writes presence, so that leases do not wait behind it."""
    drain_reconnect_seconds_max: float = 5.0
    """Over how long runtimes are spread that come back after a stop."""

    lease_ttl_seconds_default: float = 10.0
    maintenance_ttl_seconds_default: float = 30.0
    lease_ttl_seconds_min: float = 1.0
    lease_ttl_seconds_max: float = 3_600.0
    """A TTL that is asked for is brought within these two."""
    lease_wait_seconds_max: float = 600.0
    """How long a call may wait for a lease."""
    lease_waiters_max: int = 1_000
    """Calls that wait for one resource."""
    lease_past_nonces_max: int = 8
    """Nonces of ended tenures that a resource remembers."""
    lease_renewals_max: int = 1_000
    """Renewals in one request of a RenewLeases stream."""
    lease_renewals_remembered_max: int = 10_000
    """Leases last renewed on one RenewLeases stream whose aborts are pushed there; the oldest make room."""
    lease_abort_notices_max: int = 1_000
    """Aborts that one answer to a heartbeat tells; the others are told by the renewals."""
    lease_waiters_shown_max: int = 100
    """Waiters that GetResourceState names."""
    lease_retention_days: int = 7
    """Tenures that ended longer ago are dropped; tokens go on above theirs."""
    lease_purge_rows_max: int = 1_000
    """Resources dropped in one command."""
    receipts_max: int = 65_536
    """Stored answers of a hub project; the oldest make room."""

    commit_events_max: int = 128
    commit_outbox_messages_max: int = 128
    commit_projections_max: int = 32
    commit_bytes_max: int = 4 * 1024 * 1024
    """Largest Commit request, as serialised."""
    journal_page_entries_max: int = 128
    journal_page_bytes_max: int = 1024 * 1024
    stream_page_entries_default: int = 128
    stream_page_entries_max: int = 512
    outbox_claim_messages_max: int = 100
    outbox_visibility_seconds_default: float = 30.0
    outbox_visibility_seconds_max: float = 3_600.0
    outbox_return_delay_seconds_max: float = 86_400.0
    outbox_tries_max: int = 10
    """Claims of a message after which it is dead."""

    alert_rows_max: int = 10_000
    """Alerts of one hub project; past it one overflow row counts."""
    alert_samples_max: int = 16
    alert_rows_at_once_max: int = 1_000
    """Alerts written with one group, hub projects in turns, so that others do not wait for a flood of one."""
    alert_flush_seconds: float = 1.0
    """How often a recurring alert is written, at most."""

    writer_queue_bytes_max: int = 64 * 1024 * 1024
    """Commands waiting for the writer, ingest and commits each; when reached, streams are not read and
    commits are refused."""
    group_commands_max: int = 1_024
    group_bytes_max: int = 8 * 1024 * 1024
    """A group commit holds at most so much, so that a lease waits for one group at most."""
    stream_answers_max: int = 256
    """Answers of one push stream that may be outstanding; when reached, it is not read."""
    open_streams_max: int = 50_000
    """Long-lived calls of all kinds; about 40 KB each."""
    credential_streams_max: int = 25_000
    """Long-lived calls of one credential."""
    open_service_streams_max: int = 1_000
    """Streams of the services that anybody may call, credential or not: health and reflection."""
    open_service_message_bytes_max: int = 4 * 1024
    """Largest request of these, whose names the hub keeps for as long as the stream is open."""
    unread_answer_seconds_max: float = 30.0
    """A stream whose answers nobody reads for so long ends."""
    credential_unread_answer_bytes_max: int = 1024**3
    """Large answers that one credential, or without one a host, has asked for and not read yet."""
    first_message_seconds_max: float = 30.0
    """A stream that never says anything ends."""
    half_close_wait_seconds: float = 2.0
    """How long a refused stream may take to read the refusal before the status ends it."""
    watch_page_bytes_max: int = 1024 * 1024
    """What a watcher is given at a time."""
    watch_page_entries_max: int = 1_000
    """Events or alerts that a watcher is given at a time."""
    watch_tail_bytes_max: int = 4 * 1024 * 1024
    """The newest events of a hub project that its watchers share; who is behind reads from the store."""
    watch_tails_bytes_max: int = 64 * 1024 * 1024
    """The same of all hub projects together."""
    filter_event_types_max: int = 64
    """Event types that one read or watch may name."""
    watch_progress_seconds_max: float = 10.0
    """A watcher hears of progress at least so often."""

    run_heads_cached_max: int = 65_536
    instances_cached_max: int = 65_536
    resources_cached_max: int = 16_384
    streams_cached_max: int = 65_536
    busy_timeout_seconds: float = 5.0
    drain_seconds_max: float = 10.0
    """A stop takes at most so long."""
    readers_max: int = 4
    """Reading connections and threads."""
    reconcile_fold_events_max: int = 100_000
    """Content hashes read in one ReconcileRuns call to compare histories below the hub's cursor."""

    tokens_max: int = 50_000
    """Bearer tokens that the hub keeps, revoked and expired ones too; all are in memory, 1 KB each."""
    hub_project_tokens_max: int = 10_000
    """The same of one hub project, so that none takes them all."""
    credential_check_seconds: float = 1.0
    """How often open streams are checked again for a credential that has ended."""

    metrics_hub_projects_max: int = 100
    """Hub projects that metrics name; those that come later are counted together as "other"."""
    loop_late_seconds_max: float = 15.0
    """What runs in the background may be so late before ``/healthz`` fails."""
    probe_seconds_max: float = 5.0
    """How long the hub may take to answer a call of its own, its writer and its readers to do nothing."""
    probe_cached_seconds: float = 1.0
    """``/healthz`` and ``/readyz`` look at the hub at most so often, however often they are asked."""
    health_check_seconds: float = 5.0
    """How often the hub looks at itself, for the health that gRPC tells and for what metrics show."""
    disk_free_bytes_min: int = 256 * 1024 * 1024
    """With less room for the store ``/readyz`` says that the disk is nearly full."""
    refusals_logged_per_second: int = 10
    """Calls refused for want of a credential or of permission that are logged; the others are counted."""
    trace_queue_spans_max: int = 4_096
    """Spans that wait for being exported; more are dropped, and counted."""
    trace_links_max: int = 32
    """Contexts of events that the span of their batch links to."""
    certificate_check_seconds: float = 1.0
    """How often the files of TLS are looked at."""

    hub_project_stored_bytes_max: int = 1024**4
    """What a hub project may keep: 128 bytes a row, payloads and attributes of events and of the journal."""
    hub_project_active_runs_max: int = 1_000_000
    """Runs of a hub project that are not complete."""
    credential_requests_per_second: int = 10_000
    """Calls that begin with one credential; without one, of one host."""
    credential_requests_burst: int = 50_000
    """Calls of a credential that may come at once: all its runtimes after a restart."""
    hub_project_events_per_second: int = 1_000_000
    """Events pushed and committed; the default is more than a machine takes."""
    hub_project_bytes_per_second: int = 1024**3
    """Bytes of the requests that push and commit."""
    hub_project_burst_seconds: float = 1.0
    """For how long a hub project may save up what it does not use of these two."""
    hub_project_mismatches_per_minute: int = 600
    """Answers that a project is taken by somebody else; past it, projects that are not bound wait."""
    rate_buckets_max: int = 100_000
    """Callers of each rate that are remembered, 200 bytes each; the one not seen for longest makes room."""
    writer_queue_hub_project_bytes_max: int = 16 * 1024 * 1024
    """What one hub project may have of ``writer_queue_bytes_max``."""
    group_hub_project_bytes_max: int = 2 * 1024 * 1024
    """What one hub project may have of a group, but always one command."""
    group_shared_bytes_max: int = 256 * 1024
    """The same while others wait for the writer too: nobody waits for long behind a flood."""

    disk_reserve_bytes: int = 64 * 1024 * 1024
    """Nothing new is stored while the disk of the store has less room, on a small disk less than an eighth of
    it: from the reserve leases go on, and what is old can be pruned."""
    prune_events_max: int = 500
    """Payloads dropped in one command, so that other commands do not wait long."""
    prune_bytes_max: int = 4 * 1024 * 1024
    """Bytes of payloads dropped in one command, but always one payload."""
    prune_names_max: int = 250
    """Resources or receipts dropped, or runtimes forgotten, in one command."""
