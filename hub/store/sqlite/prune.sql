-- Statements that find and drop what is old. Parameters that are given in order are bound in the order in
-- which their names first stand.

-- name: count_events_of_hub_project
-- Events of a tenant: positions are given one after the other.
SELECT head_position FROM hub_project WHERE hub_project_key = :hub_project_key;

-- name: count_events_of_project
-- Events of a project of a tenant.
SELECT coalesce(sum(event_count), 0) FROM run
WHERE hub_project_key = :hub_project_key AND project_id = :project_id;

-- name: old_payloads_between
-- Events with payloads in a range of positions, received before a moment.
SELECT position, length(payload) FROM event
WHERE hub_project_key = :hub_project_key AND position > :after_position AND position <= :through_position
  AND receive_nanos < :received_before_nanos AND payload IS NOT NULL
ORDER BY position LIMIT :entries_max;

-- name: runs_to_prune
-- Runs of a project from one of them on.
SELECT run_key, run_id FROM run
WHERE hub_project_key = :hub_project_key AND project_id = :project_id AND run_id >= :run_id
ORDER BY run_id LIMIT :entries_max;

-- name: end_of_considered_events
-- The last of so many events of a run after a sequence, and how many there are.
SELECT coalesce(max(sequence), 0), count(*) FROM (
    SELECT sequence FROM event WHERE run_key = :run_key AND sequence > :after_sequence
    ORDER BY sequence LIMIT :entries_max
);

-- name: count_events_between
-- Events in a range of sequences of a run.
SELECT count(*) FROM event
WHERE run_key = :run_key AND sequence > :after_sequence AND sequence <= :through_sequence;

-- name: old_payloads_of_run
-- Events with payloads in a range of sequences of a run, received before a moment.
SELECT position, sequence, length(payload) FROM event
WHERE run_key = :run_key AND sequence > :after_sequence AND sequence <= :through_sequence
  AND receive_nanos < :received_before_nanos AND payload IS NOT NULL
ORDER BY sequence LIMIT :entries_max;

-- name: measure_payloads
-- How much there is to drop of the events at these positions, given as a JSON array.
SELECT count(*), coalesce(sum(length(payload)), 0) FROM event
WHERE hub_project_key = :hub_project_key AND position IN (SELECT value FROM json_each(:positions))
  AND receive_nanos < :received_before_nanos AND payload IS NOT NULL;

-- name: drop_payloads
-- Drops payloads for good: what retention took is not filled in again.
UPDATE event SET payload = NULL, was_pushed_dropped = 0
WHERE hub_project_key = :hub_project_key AND position IN (SELECT value FROM json_each(:positions))
  AND receive_nanos < :received_before_nanos AND payload IS NOT NULL;

-- name: end_of_considered_resources
-- The last of so many resources of a tenant after one of them, NULL where there is none.
SELECT max(resource) FROM (
    SELECT resource FROM resource WHERE hub_project_key = :hub_project_key AND resource > :after_name
    ORDER BY resource LIMIT :entries_max
);

-- name: ended_resources
-- Resources in a range of names of which everything ended before a moment.
SELECT resource FROM resource
WHERE hub_project_key = :hub_project_key AND resource > :after_name AND resource <= :through_name
  AND NOT EXISTS (
    SELECT 1 FROM tenure
    WHERE tenure.hub_project_key = resource.hub_project_key AND tenure.resource = resource.resource
      AND (tenure.end_nanos IS NULL OR tenure.end_nanos >= :before_nanos)
)
ORDER BY resource;

-- name: is_resource_ended
-- Whether everything of a resource ended before a moment.
SELECT 1 FROM resource
WHERE hub_project_key = :hub_project_key AND resource = :resource AND NOT EXISTS (
    SELECT 1 FROM tenure
    WHERE tenure.hub_project_key = resource.hub_project_key AND tenure.resource = resource.resource
      AND (tenure.end_nanos IS NULL OR tenure.end_nanos >= :ended_before_nanos)
);

-- name: count_old_receipts
-- Receipts of a tenant that were made before a moment.
SELECT count(*) FROM receipt
WHERE hub_project_key = :hub_project_key AND create_nanos < :created_before_nanos;

-- name: drop_receipts_made_before
-- Of the oldest receipts of a tenant, those that were made before a moment. Hub time never goes back, so
-- where none of them is old, none is.
DELETE FROM receipt WHERE hub_project_key = :hub_project_key AND receipt_number <= (
    SELECT max(receipt_number) FROM (
        SELECT receipt_number, create_nanos FROM receipt
        WHERE hub_project_key = :hub_project_key ORDER BY receipt_number LIMIT :entries_max
    ) WHERE create_nanos < :created_before_nanos
);

-- name: end_of_considered_runtimes
-- The last of so many runtimes of a tenant after one of them, NULL where there is none.
SELECT max(runtime_id) FROM (
    SELECT runtime_id FROM runtime WHERE hub_project_key = :hub_project_key AND runtime_id > :after_name
    ORDER BY runtime_id LIMIT :entries_max
);

-- name: silent_runtimes
-- Runtimes in a range of ids that were last heard before a moment; one that only reconciled, when its
-- instance began.
SELECT runtime_id FROM runtime
WHERE hub_project_key = :hub_project_key AND runtime_id > :after_name AND runtime_id <= :through_name
  AND is_forgotten = 0 AND coalesce(last_heartbeat_nanos, instance_start_nanos) < :before_nanos
ORDER BY runtime_id;

-- name: forget_runtimes
-- Forgets what was heard of runtimes, given as a JSON array of ids. Their instances stay.
UPDATE runtime SET is_forgotten = 1, last_heartbeat_nanos = NULL, is_goodbye = 0, host = '', pid = 0,
                   version = '', labels = '{}', active_runs = '[]', unsynced_event_count = 0
WHERE hub_project_key = :hub_project_key AND runtime_id IN (SELECT value FROM json_each(:runtime_ids))
  AND is_forgotten = 0 AND coalesce(last_heartbeat_nanos, instance_start_nanos) < :heard_before_nanos;

-- name: recall_runtime
-- A runtime that was forgotten is heard again.
UPDATE runtime SET is_forgotten = 0
WHERE hub_project_key = :hub_project_key AND runtime_id = :runtime_id AND is_forgotten = 1;
