"""Every bound of the agent that is not one of the wire (those are in ``synchub/contract.py``)."""

from typing import Final

GIBIBYTE: Final = 1024**3
"""Bytes in a GiB."""
NANOS_PER_SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""

# --- the local log ----------------------------------------------------------------------------------

LOG_BYTES_MAX: Final = 10 * GIBIBYTE
"""Largest local log; then ``append`` is refused."""
RETENTION_SECONDS: Final = 7 * 24 * 3600
"""How long payloads stay after the hub acknowledged them."""
RETENTION_BATCH_EVENTS: Final = 1_000
"""Most payloads dropped in one transaction."""
ACKNOWLEDGE_BUCKET_NANOS: Final = 3600 * NANOS_PER_SECOND
"""Acknowledgements are remembered by the hour for retention: at most 168 rows a run in 7 days."""
EVENT_OVERHEAD_BYTES: Final = 128
"""What an event takes in a message besides type, attributes and payload, at most: sequence, time,
content hash, flags, and the tags and lengths of its fields; 16 attributes add 6 bytes each."""
RUN_CACHE_MAX: Final = 4_096
"""Most run heads that the log keeps in memory."""
COPY_PAGE_EVENTS: Final = 1_024
"""How many events a copy to a new run takes at once."""
DATABASE_BUSY_TIMEOUT_MS: Final = 5_000
"""How long a database call waits for a lock of another process."""
APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest append request: payloads, types and attributes of all its events."""

# --- the thread of the log --------------------------------------------------------------------------

GROUP_EVENTS_MAX: Final = 8_192
"""Most events in one transaction of appends."""
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most payload bytes in one transaction of appends."""
QUEUE_CALLS_MAX: Final = 10_000
"""Most calls that wait for the log's thread."""
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most payload bytes that wait for the log's thread."""

# --- one process a data folder ----------------------------------------------------------------------

PROCESS_LEASE_STALE_SECONDS: Final = 5.0
"""A holder that cannot be judged by its pid counts as gone after so long without a heartbeat."""
PROCESS_LEASE_BEAT_SECONDS: Final = 1.0
"""How often the holder writes its heartbeat."""
PROCESS_LEASE_WAIT_SECONDS: Final = 6.0
"""How long a command waits for the data folder; longer than stale."""
PROCESS_LEASE_RETRY_SECONDS: Final = 0.1
"""How often it tries meanwhile."""

# --- the local service ------------------------------------------------------------------------------

APPENDS_IN_FLIGHT_MAX: Final = 64
"""Most unanswered append requests a stream; then the stream is not read."""
APPEND_BYTES_IN_FLIGHT_MAX: Final = 16 * 1024 * 1024
"""Most unanswered bytes of append requests a stream, but always one request."""
RUN_PAGE_DEFAULT: Final = 100
"""Quarantined runs a page where the request says nothing."""
RUN_PAGE_MAX: Final = 1_000
"""Most quarantined runs a page."""
EVENT_PAGE_DEFAULT: Final = 500
"""Local events a page where the request says nothing."""
EVENT_PAGE_MAX: Final = 5_000
"""Most local events a page."""
PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Most bytes a page, but always at least one entry."""
TAIL_POLL_SECONDS: Final = 1.0
"""How often a tail looks by itself, besides being woken by appends."""
SOCKET_PATH_BYTES_MAX: Final = 107
"""Longest path of a Unix socket that the kernel takes."""
ANSWER_WAIT_SECONDS: Final = 30.0
"""How long a local program waits for the agent's answer; and an answer for its reader."""
STOP_SECONDS: Final = 10.0
"""How long an orderly stop may take."""

# --- the command line -------------------------------------------------------------------------------

IMPORT_BATCH_LINES: Final = 1_024
"""Lines an append request of an import."""
IMPORT_BATCH_BYTES: Final = 1024 * 1024
"""An import sends its batch once it has so many bytes."""
IMPORT_BATCHES_IN_FLIGHT: Final = 8
"""Unanswered batches of an import."""
EXEC_LINE_BYTES_MAX: Final = 64 * 1024
"""A longer line of a program's output becomes several events."""
EXEC_BUFFER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Output of a program that waits for a log that fails; beyond it is lost, counted and said."""
EXEC_BATCH_EVENTS: Final = 1_024
"""Most events an append of ``exec``."""
EXEC_BATCH_BYTES: Final = 1024 * 1024
"""An append of ``exec`` is closed once it has so many bytes."""
EXEC_HOLD_SECONDS: Final = 1.0
"""Without an agent, ``exec`` lets others at the data folder after so long."""
EXEC_PAUSE_SECONDS: Final = 0.15
"""How long it stays away then; longer than their retry interval."""
EXEC_RETRY_SECONDS: Final = 0.5
"""How long ``exec`` waits before it tries a failing log again."""
EXEC_LAST_TRY_SECONDS: Final = 10.0
"""How long ``exec`` goes on trying to write the rest once its program has ended."""
EXEC_OUTPUT_GRACE_SECONDS: Final = 2.0
"""How long ``exec`` reads on after its program ended while somebody else holds the pipes open."""

# --- towards the hub --------------------------------------------------------------------------------

BATCHES_IN_FLIGHT_MAX: Final = 4
"""Most unanswered batches on the push stream."""
BATCHES_READ_AHEAD_MAX: Final = 2
"""Most batches that are read, or being read, while others are in flight."""
RUNS_TRACKED_MAX: Final = 8_192
"""Most runs with unsynced events that the push core looks at; the others wait in the log."""
HELD_PROJECTS_MAX: Final = 1_024
"""Most projects that wait after a refusal; beyond it the oldest is tried again early."""
PROJECT_HOLD_SECONDS: Final = 60.0
"""How long the runs of a project wait that the credential does not allow."""
CREDENTIAL_WAIT_SECONDS_MAX: Final = 60.0
"""Longest wait after a refused credential or a used-up quota."""
RETRY_DELAY_SECONDS_MAX: Final = 60.0
"""Longest pause that the agent takes from a hub's ``retry_delay``."""
BACKOFF_SECONDS_FIRST: Final = 0.5
"""Ceiling of the first wait before the agent connects again."""
BACKOFF_SECONDS_MAX: Final = 30.0
"""Ceiling of every later wait."""
ANSWER_SECONDS_MAX: Final = 30.0
"""A batch that is not answered for so long ends the stream; the first of a stream waits less."""
DUPLICATE_WAIT_SECONDS_FIRST: Final = 60.0
"""How long an instance that was refused as duplicated waits before it begins anew."""
DUPLICATE_WAIT_SECONDS_MAX: Final = 3_600.0
"""The longest such wait; it doubles up to here."""
DUPLICATE_CALM_SECONDS: Final = 7_200.0
"""After so long without such a refusal the wait begins small again."""
HEARTBEAT_SECONDS_DEFAULT: Final = 10.0
"""Heartbeat interval until the hub says its own."""
HEARTBEAT_SECONDS_MIN: Final = 0.1
"""The agent never sends heartbeats faster than this, whatever a hub says."""
HEARTBEAT_SECONDS_MAX: Final = 600.0
"""And never slower than this."""
ACTIVE_RUN_SECONDS: Final = 60.0
"""A run counts as active for so long after its last append."""
RECONCILE_SECONDS_MAX: Final = 30.0
"""Deadline of one ReconcileRuns call; 1,000 runs on a busy hub take longer than other calls."""
REPAIR_PAGE_EVENTS: Final = 1_000
"""Events a page when the agent fetches what it lost."""
DRAIN_SECONDS_MAX: Final = 3.0
"""How long a stopping agent that is connected goes on syncing."""
GOODBYE_SECONDS_MAX: Final = 1.0
"""How long a stopping agent waits for the answer to its goodbye."""
RETENTION_INTERVAL_SECONDS: Final = 60.0
"""How often the agent looks for payloads whose retention is over."""
LOG_RETRY_SECONDS: Final = 1.0
"""How long the link to the hub waits after the local log failed before it asks it again."""

# --- leases -----------------------------------------------------------------------------------------

LEASE_TTL_SECONDS: Final = 10.0
"""How long a renewal of a lease lasts where nothing else is asked for; a turn's too."""
LEASE_MARGIN_SECONDS: Final = 0.5
"""By so much a holder stops before the hub would let another in."""
LEASE_DATABASE_SKEW_SECONDS: Final = 0.25
"""Added to the margin with PostgreSQL: the clocks of two of its hosts may differ by so much."""
LEASE_WAIT_SECONDS_MAX: Final = 600.0
"""Longest wait for a lease that a hub takes."""
LEASE_RETRY_SECONDS_FIRST: Final = 0.1
"""Ceiling of the first wait after a lease call that nobody answered."""
LEASE_RETRY_SECONDS_MAX: Final = 1.0
"""Ceiling of every later one: a lease has seconds to live, so its holder asks more often than an agent."""
LEASE_LOOK_SECONDS: Final = 1.0
"""A keeper looks at the clock so often: what it sleeps by does not count suspension, leases do."""
LEASE_RELEASE_SECONDS_MAX: Final = 10.0
"""How long ``release`` tries to reach a hub."""
LEASE_LEAVE_SECONDS_MAX: Final = 2.0
"""The same where a block is left, or a grant given back: then it expires by itself."""
HANDOVER_SECONDS_MAX: Final = 10.0
"""How long a transfer tries to reach a hub."""
HUB_PROCESS_TTL_SECONDS: Final = 5.0
"""TTL of a process lease on the hub."""
HUB_PROCESS_BEAT_SECONDS: Final = 1.0
"""How often its holder renews it."""
HUB_PROCESS_WAIT_SECONDS: Final = 6.0
"""How long a process waits for its role; longer than the TTL, so that it outlasts a dead predecessor."""
HUB_PROCESS_RETRY_SECONDS: Final = 0.1
"""How often it tries meanwhile."""
MAINTENANCE_TTL_SECONDS: Final = 30.0
"""TTL of a maintenance where nothing else is asked for."""
MAINTENANCE_BEAT_SECONDS: Final = 1.0
"""How often it is renewed."""

# --- the journal ------------------------------------------------------------------------------------

COMMIT_SECONDS_MAX: Final = 30.0
"""How long a commit is sent again under its message id while no hub answers."""
JOURNAL_READ_SECONDS_MAX: Final = 5.0
"""The same for a read, and for a single answer about an outbox message."""
JOURNAL_RETRY_SECONDS_FIRST: Final = 0.1
"""Ceiling of the first wait before such a call is sent again."""
JOURNAL_RETRY_SECONDS_MAX: Final = 2.0
"""Ceiling of every later one; of a watch and a dispatcher too, which go on for ever."""
OUTBOX_VISIBILITY_SECONDS: Final = 30.0
"""For how long a claimed message is hidden from other dispatchers."""
OUTBOX_IN_FLIGHT_MAX: Final = 16
"""Most messages that a dispatcher has claimed and not answered."""
OUTBOX_CLAIM_MAX: Final = 100
"""Most messages that a hub gives in one claim."""
OUTBOX_POLL_SECONDS: Final = 1.0
"""A dispatcher that has nothing to deliver asks again after so long at most."""
OUTBOX_RETRY_SECONDS_FIRST: Final = 1.0
"""Ceiling of the wait before a message is tried a second time."""
OUTBOX_RETRY_SECONDS_MAX: Final = 300.0
"""Ceiling of every later wait; ten tries take minutes in all."""
OUTBOX_DELAY_SECONDS_MAX: Final = 24 * 3600.0
"""Longest delay of a returned message that a hub takes."""
OUTBOX_LEAVE_SECONDS_MAX: Final = 2.0
"""How long a dispatcher that stops tries to give back what it has claimed."""
PROJECTION_BUSY_SECONDS: Final = 5.0
"""How long a write to a read model waits for another program's lock, before it is tried anew."""
PROJECTION_RETRY_SECONDS: Final = 0.5
"""How long it waits between two such tries."""
