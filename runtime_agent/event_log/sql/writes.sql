-- Statements that change the local log; each has its name and a sentence above it.

-- name: claim_owner
-- The process becomes the one that may write.
INSERT INTO process_lease (id, owner, role, pid, host, boot_id, pid_namespace, heartbeat_nanos)
VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO UPDATE SET
    owner = excluded.owner, role = excluded.role, pid = excluded.pid, host = excluded.host,
    boot_id = excluded.boot_id, pid_namespace = excluded.pid_namespace,
    heartbeat_nanos = excluded.heartbeat_nanos;

-- name: beat_owner
-- The process that may write is alive.
UPDATE process_lease SET heartbeat_nanos = ?2 WHERE id = 1 AND owner = ?1;

-- name: release_owner
-- The process that may write leaves.
DELETE FROM process_lease WHERE id = 1 AND owner = ?1;

-- name: pin_identity
-- Says whose log it is, once.
UPDATE log_info SET hub_project = ?1, runtime_id = ?2 WHERE id = 1 AND hub_project IS NULL;

-- name: save_hub_limits
-- Remembers the hub's limits.
UPDATE log_info SET hub_limits = ?1 WHERE id = 1;

-- name: save_hub_generation
-- Remembers the generation that all runs were reconciled with.
UPDATE log_info SET hub_generation = ?1 WHERE id = 1;

-- name: save_acknowledge_time
-- Remembers when a hub last acknowledged something.
UPDATE log_info SET last_acknowledge_time_nanos = ?1 WHERE id = 1;

-- name: save_head_local_position
-- Moves the head of the log's own order.
UPDATE log_info SET head_local_position = ?1 WHERE id = 1;

-- name: insert_run
-- A new run, empty.
INSERT INTO run (
    project_id, run_id, last_sequence, chain_hash, acknowledged_sequence, payload_dropped_through,
    is_final, last_local_position
) VALUES (?1, ?2, 0, ?3, 0, 0, 0, 0)
RETURNING run_number;

-- name: save_head
-- Moves a run's head.
UPDATE run SET last_sequence = ?2, chain_hash = ?3, is_final = ?4, last_local_position = ?5
WHERE run_number = ?1;

-- name: insert_event
-- One event.
INSERT INTO event (
    local_position, run_number, sequence, event_type, event_time_nanos, attributes, is_final,
    content_hash, chain_hash, payload
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);

-- name: insert_receipt
-- What a named append was given.
INSERT INTO append_receipt (run_number, append_id, first_sequence, last_sequence, request_hash)
VALUES (?1, ?2, ?3, ?4, ?5);

-- name: move_acknowledged
-- Moves a run's acknowledged sequence on, never back and never beyond its last.
UPDATE run SET acknowledged_sequence = min(?3, last_sequence)
WHERE project_id = ?1 AND run_id = ?2 AND acknowledged_sequence < min(?3, last_sequence)
RETURNING run_number, acknowledged_sequence;

-- name: set_acknowledged
-- Sets a run's acknowledged sequence, also back.
UPDATE run SET acknowledged_sequence = min(?3, last_sequence)
WHERE project_id = ?1 AND run_id = ?2
RETURNING run_number, acknowledged_sequence;

-- name: save_taken_in
-- After taking in: all up to the head is acknowledged, and maybe without payloads from the start.
UPDATE run SET acknowledged_sequence = last_sequence, payload_dropped_through = ?2 WHERE run_number = ?1;

-- name: save_mark
-- Remembers the hour of an acknowledgement.
INSERT INTO acknowledge_mark (hour_nanos, run_number, sequence) VALUES (?1, ?2, ?3)
ON CONFLICT (hour_nanos, run_number) DO UPDATE SET sequence = max(sequence, excluded.sequence);

-- name: lower_marks
-- What the hub lost was not acknowledged after all.
UPDATE acknowledge_mark SET sequence = min(sequence, ?2) WHERE run_number = ?1;

-- name: delete_mark
-- An acknowledgement whose payloads are dropped.
DELETE FROM acknowledge_mark WHERE hour_nanos = ?1 AND run_number = ?2;

-- name: drop_payloads
-- Drops the payloads of some events; their hashes stay.
UPDATE event SET payload = NULL WHERE run_number = ?1 AND sequence > ?2 AND sequence <= ?3;

-- name: save_payload_dropped_through
-- Remembers up to where payloads are gone.
UPDATE run SET payload_dropped_through = max(payload_dropped_through, ?2) WHERE run_number = ?1;

-- name: insert_quarantine
-- Keeps a run from syncing; the first reason stays.
INSERT INTO quarantine (run_number, reason, detail, sequence, quarantine_time_nanos, copied_through_sequence)
VALUES (?1, ?2, ?3, ?4, ?5, 0)
ON CONFLICT (run_number) DO NOTHING;

-- name: delete_quarantine
-- Lets a run sync again.
DELETE FROM quarantine WHERE run_number = ?1;

-- name: save_copied_through
-- Remembers up to where a quarantined run was copied.
UPDATE quarantine SET copied_through_sequence = ?2 WHERE run_number = ?1;

-- name: copy_event
-- One event under a new key, its content unchanged.
INSERT INTO event (
    local_position, run_number, sequence, event_type, event_time_nanos, attributes, is_final,
    content_hash, chain_hash, payload
)
SELECT ?1, ?2, ?3, event_type, event_time_nanos, attributes, is_final, content_hash, ?4, payload
FROM event WHERE run_number = ?5 AND sequence = ?6;

-- name: delete_events
-- All events of a run.
DELETE FROM event WHERE run_number = ?1;

-- name: delete_receipts
-- All named appends of a run.
DELETE FROM append_receipt WHERE run_number = ?1;

-- name: delete_marks
-- All acknowledgements of a run.
DELETE FROM acknowledge_mark WHERE run_number = ?1;

-- name: delete_run
-- The run itself.
DELETE FROM run WHERE run_number = ?1;
