-- Statements of the readers, and fragments that ``hub.store.reading`` composes filters of. Parameters
-- are bound by name.

-- name: find_hub_project
-- A tenant's key and head.
SELECT hub_project_key, head_position FROM hub_project WHERE hub_project = :hub_project;

-- name: list_generations
-- The lives of the store, oldest first, with the head of a tenant at which each began.
SELECT generation.hub_generation, coalesce(generation_head.head_position, 0)
FROM generation
LEFT JOIN generation_head
  ON generation_head.ordinal = generation.ordinal AND generation_head.hub_project_key = :hub_project_key
ORDER BY generation.ordinal;

-- name: run_columns
-- A run as it is read, in the order that ``hub.store.reading`` expects.
SELECT run_key, project_id, run_id, home_runtime_id, cursor, chain_hash, highest_sequence, event_count,
       final_sequence, first_receive_nanos, last_receive_nanos
FROM run;

-- name: run_is
-- One run of a tenant; of another tenant's it is as if there were none.
WHERE project_id = :project_id AND run_id = :run_id AND hub_project_key = :hub_project_key;

-- name: runs_of_all
-- Runs of a tenant after one of them.
WHERE hub_project_key = :hub_project_key AND (project_id, run_id) > (:after_project_id, :after_run_id);

-- name: runs_of_project
-- Runs of a project after one of them.
WHERE hub_project_key = :hub_project_key AND project_id = :project_id AND run_id > :after_run_id;

-- name: runs_of_runtime
-- Narrows a list of runs to a home runtime.
AND home_runtime_id = :runtime_id;

-- name: runs_complete
-- Narrows a list of runs to those whose final event lies at the cursor.
AND final_sequence IS cursor;

-- name: runs_incomplete
-- Narrows a list of runs to the others.
AND final_sequence IS NOT cursor;

-- name: runs_in_order
-- Ascending by the bytes of project id and run id.
ORDER BY project_id, run_id LIMIT :entries_max;

-- name: event_columns
-- An event as it is read, in the order of ``StoredEvent``.
SELECT run.project_id, run.run_id, event.sequence, event.position, event.event_type,
       event.event_time_nanos, event.attributes, event.is_final, event.payload, event.content_hash,
       event.receive_nanos;

-- name: events_of_run
-- Events of a run after a sequence. CROSS JOIN keeps the order of the loops.
FROM run CROSS JOIN event ON event.run_key = run.run_key
WHERE run.run_key = :run_key AND event.sequence > :after_sequence;

-- name: events_by_sequence
-- Oldest first.
ORDER BY event.sequence LIMIT :entries_max;

-- name: events_newest_first
-- Newest first.
ORDER BY event.sequence DESC LIMIT :entries_max;

-- name: events_between
-- Events of a tenant in a range of positions, along the positions. CROSS JOIN keeps the order of the
-- loops: the run is looked up for each event, never the other way round.
FROM event CROSS JOIN run ON run.run_key = event.run_key
WHERE event.hub_project_key = :hub_project_key
  AND event.position > :after_position AND event.position <= :through_position;

-- name: events_within_project
-- Narrows events to a project.
AND run.project_id = :project_id;

-- name: events_within_run
-- Narrows events to a run; the plus keeps the search along the positions.
AND +event.run_key = :run_key;

-- name: events_of_run_between
-- Events of a run in a range of positions, along its sequences: to be sorted, for a run that is small
-- beside the range.
FROM run CROSS JOIN event ON event.run_key = run.run_key
WHERE run.run_key = :run_key
  AND +event.position > :after_position AND +event.position <= :through_position;

-- name: events_of_types
-- Narrows events to types, given as a JSON array.
AND event.event_type IN (SELECT value FROM json_each(:event_types));

-- name: events_by_position
-- In the order in which they became visible.
ORDER BY event.position LIMIT :entries_max;

-- name: alert_columns
-- An alert as it is read, in the order that ``hub.store.reading`` expects.
SELECT alert_id, reason, project_id, run_id, runtime_id, first_seen_nanos, last_seen_nanos, seen_count,
       samples, acknowledge_nanos, change_number
FROM alert;

-- name: alert_is
-- One alert of a tenant.
WHERE hub_project_key = :hub_project_key AND alert_id = :alert_id;

-- name: alerts_after
-- Alerts of a tenant after one of them.
WHERE hub_project_key = :hub_project_key AND alert_id > :after_alert_id;

-- name: alerts_open
-- Narrows alerts to those that nobody has acknowledged.
AND acknowledge_nanos IS NULL;

-- name: alerts_in_order
-- Ascending by the bytes of their ids.
ORDER BY alert_id LIMIT :entries_max;

-- name: alerts_changed
-- Alerts of a tenant that changed after a change, in the order of their last changes.
WHERE hub_project_key = :hub_project_key AND change_number > :after_change_number
ORDER BY change_number LIMIT :entries_max;

-- name: list_projects
-- Projects of a tenant after one of them, ascending by the bytes of their ids.
SELECT project_id, bind_nanos, (SELECT count(*) FROM run WHERE run.project_id = project.project_id)
FROM project
WHERE hub_project_key = :hub_project_key AND project_id > :after_project_id
ORDER BY project_id LIMIT :entries_max;

-- name: has_project
-- Whether a project belongs to a tenant.
SELECT 1 FROM project WHERE project_id = :project_id AND hub_project_key = :hub_project_key;

-- name: runtime_columns
-- What a runtime is read as, of a tenant; not one that was forgotten.
SELECT runtime_id, instance_id, instance_start_nanos, last_heartbeat_nanos, is_goodbye, host, pid, version,
       labels, active_runs, unsynced_event_count
FROM runtime WHERE hub_project_key = :hub_project_key AND is_forgotten = 0

-- name: runtime_is
-- One runtime.
AND runtime_id = :runtime_id;

-- name: runtimes_in_order
-- Runtimes after one of them, ascending by id.
AND runtime_id > :after_runtime_id ORDER BY runtime_id LIMIT :entries_max;
