-- Statements that read the local log; each has its name and a sentence above it.

-- name: load_identity
-- Whose log it is.
SELECT hub_project, runtime_id FROM log_info WHERE id = 1;

-- name: load_hub_memory
-- What the log remembers of the hub.
SELECT hub_generation, hub_limits FROM log_info WHERE id = 1;

-- name: load_head_local_position
-- The highest local position ever given.
SELECT head_local_position FROM log_info WHERE id = 1;

-- name: load_totals
-- Sums over all runs: sequences have no gap, so the last one counts the events.
SELECT
    count(*),
    coalesce(sum(last_sequence), 0),
    coalesce(sum(last_sequence - acknowledged_sequence), 0),
    (SELECT count(*) FROM quarantine),
    (SELECT head_local_position FROM log_info WHERE id = 1),
    (SELECT last_acknowledge_time_nanos FROM log_info WHERE id = 1)
FROM run;

-- name: load_owner
-- The process that may write.
SELECT owner, role, pid, host, boot_id, pid_namespace, heartbeat_nanos FROM process_lease WHERE id = 1;

-- name: load_owner_id
-- Only who may write: looked at in every transaction.
SELECT owner FROM process_lease WHERE id = 1;

-- name: load_run
-- One run with its quarantine.
SELECT
    r.project_id, r.run_id, r.last_sequence, r.chain_hash, r.acknowledged_sequence,
    r.payload_dropped_through, r.is_final, r.last_local_position,
    q.reason, q.detail, q.sequence, q.quarantine_time_nanos, q.copied_through_sequence
FROM run AS r LEFT JOIN quarantine AS q ON q.run_number = r.run_number
WHERE r.project_id = ?1 AND r.run_id = ?2;

-- name: list_runs
-- Runs after a key, ascending by key.
SELECT
    r.project_id, r.run_id, r.last_sequence, r.chain_hash, r.acknowledged_sequence,
    r.payload_dropped_through, r.is_final, r.last_local_position,
    q.reason, q.detail, q.sequence, q.quarantine_time_nanos, q.copied_through_sequence
FROM run AS r LEFT JOIN quarantine AS q ON q.run_number = r.run_number
WHERE (r.project_id, r.run_id) > (?1, ?2)
ORDER BY r.project_id, r.run_id LIMIT ?3;

-- name: list_unsynced_runs
-- Runs with unacknowledged events after a key, ascending by key, from an index of only these.
SELECT
    r.project_id, r.run_id, r.last_sequence, r.chain_hash, r.acknowledged_sequence,
    r.payload_dropped_through, r.is_final, r.last_local_position,
    q.reason, q.detail, q.sequence, q.quarantine_time_nanos, q.copied_through_sequence
FROM run AS r INDEXED BY run_unsynced LEFT JOIN quarantine AS q ON q.run_number = r.run_number
WHERE r.acknowledged_sequence < r.last_sequence AND (r.project_id, r.run_id) > (?1, ?2)
ORDER BY r.project_id, r.run_id LIMIT ?3;

-- name: list_runs_changed_after
-- Runs with an event after a local position, ascending by their newest one.
SELECT
    r.project_id, r.run_id, r.last_sequence, r.chain_hash, r.acknowledged_sequence,
    r.payload_dropped_through, r.is_final, r.last_local_position,
    q.reason, q.detail, q.sequence, q.quarantine_time_nanos, q.copied_through_sequence
FROM run AS r LEFT JOIN quarantine AS q ON q.run_number = r.run_number
WHERE r.last_local_position > ?1
ORDER BY r.last_local_position LIMIT ?2;

-- name: list_quarantined_runs
-- Quarantined runs after a key, ascending by key.
SELECT
    r.project_id, r.run_id, r.last_sequence, r.chain_hash, r.acknowledged_sequence,
    r.payload_dropped_through, r.is_final, r.last_local_position,
    q.reason, q.detail, q.sequence, q.quarantine_time_nanos, q.copied_through_sequence
FROM quarantine AS q JOIN run AS r ON r.run_number = q.run_number
WHERE (r.project_id, r.run_id) > (?1, ?2)
ORDER BY r.project_id, r.run_id LIMIT ?3;

-- name: load_head
-- What an append needs to know of a run.
SELECT run_number, last_sequence, chain_hash, is_final, acknowledged_sequence, payload_dropped_through
FROM run WHERE project_id = ?1 AND run_id = ?2;

-- name: read_events
-- Events of a run after a sequence, ascending.
SELECT
    sequence, event_type, event_time_nanos, attributes, is_final, payload, content_hash, chain_hash,
    local_position
FROM event
WHERE run_number = (SELECT run_number FROM run WHERE project_id = ?1 AND run_id = ?2)
    AND sequence > ?3
ORDER BY sequence LIMIT ?4;

-- name: read_content_hashes
-- Content hashes of a run after a sequence, ascending.
SELECT content_hash FROM event
WHERE run_number = (SELECT run_number FROM run WHERE project_id = ?1 AND run_id = ?2)
    AND sequence > ?3
ORDER BY sequence LIMIT ?4;

-- name: load_chain_hash
-- Chain hash of a run at a sequence.
SELECT chain_hash FROM event
WHERE run_number = (SELECT run_number FROM run WHERE project_id = ?1 AND run_id = ?2)
    AND sequence = ?3;

-- name: tail_events
-- Events after a local position over all runs, or those of a project or run; one pass over the log.
SELECT
    e.sequence, e.event_type, e.event_time_nanos, e.attributes, e.is_final, e.payload, e.content_hash,
    e.chain_hash, e.local_position, r.project_id, r.run_id, e.sequence <= r.acknowledged_sequence
FROM event AS e CROSS JOIN run AS r ON r.run_number = e.run_number
WHERE e.local_position > ?1
    AND (?2 = '' OR r.project_id = ?2) AND (?3 = '' OR r.run_id = ?3)
ORDER BY e.local_position LIMIT ?4;

-- name: load_receipt
-- What a named append was given.
SELECT first_sequence, last_sequence, request_hash FROM append_receipt
WHERE run_number = ?1 AND append_id = ?2;

-- name: next_expired_mark
-- The oldest acknowledgement whose whole hour lies before a moment.
SELECT m.hour_nanos, m.run_number, m.sequence, r.payload_dropped_through
FROM acknowledge_mark AS m JOIN run AS r ON r.run_number = m.run_number
WHERE m.hour_nanos <= ?1
ORDER BY m.hour_nanos, m.run_number LIMIT 1;

-- name: list_copy_page
-- Sequence and content hash of the events to copy.
SELECT sequence, content_hash FROM event
WHERE run_number = ?1 AND sequence > ?2
ORDER BY sequence LIMIT ?3;
