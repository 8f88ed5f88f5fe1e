-- Statements of the writer. Parameters are bound in the order in which their names first stand.

-- name: load_time_floor
-- The hub time that the last group of commits knew of.
SELECT time_floor_nanos FROM hub;

-- name: save_time_floor
-- Hub time never begins below this after a restart.
UPDATE hub SET time_floor_nanos = max(time_floor_nanos, :time_floor_nanos);

-- name: create_hub
-- The store's one row.
INSERT INTO hub (only_row, time_floor_nanos) VALUES (1, :time_floor_nanos);

-- name: load_generation
-- The generation in force.
SELECT hub_generation FROM generation ORDER BY ordinal DESC LIMIT 1;

-- name: create_generation
-- A new life of the store.
INSERT INTO generation (hub_generation, start_nanos) VALUES (:hub_generation, :start_nanos);

-- name: load_hub_project
-- A tenant's key, head, and what it keeps.
SELECT hub_project_key, head_position, stored_bytes, active_run_count
FROM hub_project WHERE hub_project = :hub_project;

-- name: create_hub_project
-- A tenant is created by its first write, with the floors of the store.
INSERT INTO hub_project (hub_project, head_position, token_floor, epoch_floor)
SELECT :hub_project, 0, token_floor, token_floor FROM hub RETURNING hub_project_key;

-- name: save_hub_project
-- Positions up to here are given, and this is kept; once a group.
UPDATE hub_project SET head_position = :head_position, stored_bytes = :stored_bytes,
                       active_run_count = :active_run_count
WHERE hub_project_key = :hub_project_key;

-- name: load_project_owner
-- The hub project that a project belongs to.
SELECT hub_project.hub_project
FROM project JOIN hub_project USING (hub_project_key)
WHERE project.project_id = :project_id;

-- name: bind_project
-- Binds a project to its hub project, for good.
INSERT INTO project (project_id, hub_project_key, bind_nanos)
VALUES (:project_id, :hub_project_key, :bind_nanos);

-- name: release_project
-- Takes back a binding; the schema refuses it once there is a run.
DELETE FROM project WHERE project_id = :project_id;

-- name: load_project
-- A project's binding and how many runs it has.
SELECT project_id, bind_nanos, (SELECT count(*) FROM run WHERE run.project_id = project.project_id)
FROM project WHERE project_id = :project_id;

-- name: load_run_head
-- What decides about the next events of a run.
SELECT run_key, home_runtime_id, cursor, chain_hash, highest_sequence, event_count, final_sequence
FROM run WHERE project_id = :project_id AND run_id = :run_id;

-- name: create_run
-- A run is created by its first accepted event, which binds it to its runtime.
INSERT INTO run (hub_project_key, project_id, run_id, home_runtime_id, cursor, chain_hash,
                 highest_sequence, event_count, final_sequence, first_receive_nanos, last_receive_nanos)
VALUES (:hub_project_key, :project_id, :run_id, :home_runtime_id, :cursor, :chain_hash,
        :highest_sequence, :event_count, :final_sequence, :receive_nanos, :receive_nanos)
RETURNING run_key;

-- name: save_run_head
-- Moves a run's head.
UPDATE run SET cursor = :cursor, chain_hash = :chain_hash, highest_sequence = :highest_sequence,
               event_count = :event_count, final_sequence = :final_sequence,
               last_receive_nanos = max(last_receive_nanos, :receive_nanos)
WHERE run_key = :run_key;

-- name: store_events
-- Events of one run, each once: the unique keys make twice impossible. A bulk statement: one row of
-- store_events_row follows for each event.
INSERT INTO event (run_key, sequence, hub_project_key, position, receive_nanos, event_type,
                   event_time_nanos, attributes, is_final, payload, content_hash, was_pushed_dropped)
VALUES;

-- name: store_events_row
-- Shared: ?1 run, ?2 hub project, ?3 position before the first row, ?4 receive time. A row's own:
-- {0} sequence, {1} type, {2} time, {3} attributes, {4} final, {5} payload, {6} content hash.
(?1, {0}, ?2, ?3 + {number}, ?4, {1}, {2}, {3}, {4}, {5}, {6}, {5} IS NULL);

-- name: fill_event
-- The content of an event that was pushed as dropped, known now; its position stays.
UPDATE event SET event_type = :event_type, event_time_nanos = :event_time_nanos,
                 attributes = :attributes, is_final = :is_final, payload = :payload,
                 was_pushed_dropped = 0
WHERE run_key = :run_key AND sequence = :sequence;

-- name: load_stored_bytes
-- What an event counts as it is stored.
SELECT 128 + coalesce(length(payload), 0) + coalesce(octet_length(attributes), 0) FROM event
WHERE run_key = :run_key AND sequence = :sequence;

-- name: load_contents_between
-- What is stored under a range of sequences.
SELECT sequence, content_hash, was_pushed_dropped FROM event
WHERE run_key = :run_key AND sequence BETWEEN :first_sequence AND :last_sequence;

-- name: load_content
-- What is stored under one sequence.
SELECT sequence, content_hash, was_pushed_dropped FROM event
WHERE run_key = :run_key AND sequence = :sequence;

-- name: load_hashes_after
-- Content hashes after a sequence, ascending, read only as far as they are needed.
SELECT sequence, content_hash FROM event
WHERE run_key = :run_key AND sequence > :sequence ORDER BY sequence;

-- name: count_events_after
-- How many events are stored after a sequence.
SELECT count(*) FROM event WHERE run_key = :run_key AND sequence > :sequence;

-- name: load_instance
-- A runtime's current instance.
SELECT instance_id FROM runtime WHERE hub_project_key = :hub_project_key AND runtime_id = :runtime_id;

-- name: was_instance
-- Whether an instance had its turn.
SELECT 1 FROM past_instance
WHERE hub_project_key = :hub_project_key AND runtime_id = :runtime_id AND instance_id = :instance_id;

-- name: end_instance
-- The current instance has a successor.
INSERT INTO past_instance (hub_project_key, runtime_id, instance_id, end_nanos)
VALUES (:hub_project_key, :runtime_id, :instance_id, :end_nanos);

-- name: begin_instance
-- Makes an instance its runtime's current one; what was heard of the one before is not its own.
INSERT INTO runtime (hub_project_key, runtime_id, instance_id, instance_start_nanos)
VALUES (:hub_project_key, :runtime_id, :instance_id, :instance_start_nanos)
ON CONFLICT (hub_project_key, runtime_id) DO UPDATE
SET instance_id = excluded.instance_id, instance_start_nanos = excluded.instance_start_nanos,
    last_heartbeat_nanos = NULL, is_goodbye = 0, host = '', pid = 0, version = '', labels = '{}',
    active_runs = '[]', unsynced_event_count = 0, is_forgotten = 0;

-- name: save_presence
-- Presence as last heard, only of the instance that is still current.
UPDATE runtime SET last_heartbeat_nanos = :last_heartbeat_nanos, is_goodbye = :is_goodbye, host = :host,
                   pid = :pid, version = :version, labels = :labels, active_runs = :active_runs,
                   unsynced_event_count = :unsynced_event_count, is_forgotten = 0
WHERE hub_project_key = :hub_project_key AND runtime_id = :runtime_id AND instance_id = :instance_id;

-- name: load_alert
-- The alert of a key.
SELECT alert_key, first_seen_nanos, seen_count, samples FROM alert
WHERE hub_project_key = :hub_project_key AND reason = :reason AND project_id = :project_id
  AND run_id = :run_id AND runtime_id = :runtime_id;

-- name: count_alerts
-- How many alerts a hub project has, and its newest change.
SELECT count(*), coalesce(max(change_number), 0) FROM alert WHERE hub_project_key = :hub_project_key;

-- name: count_alerts_of_reasons
-- How many alerts of each reason a hub project has.
SELECT reason, count(*) FROM alert WHERE hub_project_key = :hub_project_key GROUP BY reason;

-- name: drop_acknowledged_alert
-- The alert that a person has seen and that did not recur for longest makes room.
DELETE FROM alert WHERE alert_key = (
    SELECT alert_key FROM alert
    WHERE hub_project_key = :hub_project_key AND acknowledge_nanos IS NOT NULL
    ORDER BY last_seen_nanos LIMIT 1
) RETURNING reason;

-- name: create_alert
-- A new alert.
INSERT INTO alert (hub_project_key, alert_id, reason, project_id, run_id, runtime_id, first_seen_nanos,
                   last_seen_nanos, seen_count, samples, acknowledge_nanos, change_number)
VALUES (:hub_project_key, :alert_id, :reason, :project_id, :run_id, :runtime_id, :first_seen_nanos,
        :last_seen_nanos, :seen_count, :samples, NULL, :change_number);

-- name: count_alert_again
-- An alert recurred: it is open again.
UPDATE alert SET last_seen_nanos = :last_seen_nanos, seen_count = :seen_count, samples = :samples,
                 acknowledge_nanos = NULL, change_number = :change_number
WHERE alert_key = :alert_key;

-- name: acknowledge_alert
-- A person has seen an alert.
UPDATE alert SET acknowledge_nanos = :acknowledge_nanos, change_number = :change_number
WHERE hub_project_key = :hub_project_key AND alert_id = :alert_id AND acknowledge_nanos IS NULL;
