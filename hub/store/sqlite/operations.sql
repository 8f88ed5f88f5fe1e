-- Statements of verification, backup and restore. Parameters are bound by name.

-- name: runs_to_verify
-- Heads of a tenant's runs after one of them, ascending by the bytes of their ids.
SELECT run_key, project_id, run_id, home_runtime_id, cursor, chain_hash, highest_sequence, event_count,
       final_sequence
FROM run
WHERE hub_project_key = :hub_project_key AND (project_id, run_id) > (:after_project_id, :after_run_id)
ORDER BY project_id, run_id LIMIT :entries_max;

-- name: runs_of_project_to_verify
-- The same, of one project.
SELECT run_key, project_id, run_id, home_runtime_id, cursor, chain_hash, highest_sequence, event_count,
       final_sequence
FROM run
WHERE hub_project_key = :hub_project_key AND project_id = :project_id AND run_id > :after_run_id
ORDER BY run_id LIMIT :entries_max;

-- name: run_to_verify
-- The head of one run as it is now.
SELECT run_key, project_id, run_id, home_runtime_id, cursor, chain_hash, highest_sequence, event_count,
       final_sequence
FROM run WHERE run_key = :run_key;

-- name: events_to_verify
-- Events of a run after a sequence, in the order of ``VerifiedEvent``.
SELECT sequence, position, hub_project_key, event_type, event_time_nanos, attributes, is_final, payload,
       content_hash
FROM event WHERE run_key = :run_key AND sequence > :after_sequence
ORDER BY sequence LIMIT :entries_max;

-- name: count_to_verify
-- How many runs and events of a tenant there are, as the heads say.
SELECT count(*), coalesce(sum(event_count), 0) FROM run
WHERE hub_project_key = :hub_project_key AND (:project_id IS NULL OR project_id = :project_id);

-- name: tenants_to_verify
-- All tenants.
SELECT hub_project_key, hub_project, head_position FROM hub_project ORDER BY hub_project;

-- name: counts_of_tenant
-- The head of a tenant's journal, and what is counted of it.
SELECT journal_head_position, stored_bytes, active_run_count FROM hub_project
WHERE hub_project_key = :hub_project_key;

-- name: count_lives
-- Rows of the store itself, and its lives.
SELECT (SELECT count(*) FROM hub), (SELECT count(*) FROM generation);

-- name: heads_of_lives_ahead
-- Tenants whose head is behind the one at which a life began.
SELECT hub_project.hub_project, max(generation_head.head_position)
FROM generation_head JOIN hub_project USING (hub_project_key)
WHERE generation_head.head_position > hub_project.head_position
   OR generation_head.journal_head_position > hub_project.journal_head_position
GROUP BY hub_project_key;

-- name: runs_of_foreign_projects
-- Runs that stand in another tenant than their project.
SELECT hub_project.hub_project, run.project_id, run.run_id
FROM run JOIN project USING (project_id) JOIN hub_project ON hub_project.hub_project_key = run.hub_project_key
WHERE project.hub_project_key <> run.hub_project_key
LIMIT :entries_max;

-- name: highest_positions
-- The highest positions of a tenant, in events and in its journal.
SELECT (SELECT max(position) FROM event WHERE hub_project_key = :hub_project_key),
       (SELECT max(position) FROM journal_event WHERE hub_project_key = :hub_project_key);

-- name: streams_with_gaps
-- Streams whose events are not 1, 2, 3 … up to their revision.
SELECT stream.stream_id, stream.revision, count(journal_event.revision), max(journal_event.revision)
FROM stream LEFT JOIN journal_event USING (stream_key)
WHERE stream.hub_project_key = :hub_project_key
GROUP BY stream.stream_key
HAVING count(journal_event.revision) <> stream.revision
    OR coalesce(max(journal_event.revision), 0) <> stream.revision
LIMIT :entries_max;

-- name: journal_events_beside_commits
-- Events of the journal that do not stand where their commit says.
SELECT stream.stream_id, min(journal_event.revision)
FROM journal_event JOIN stream USING (stream_key)
LEFT JOIN journal_commit
    ON journal_commit.hub_project_key = journal_event.hub_project_key
   AND journal_commit.message_id = journal_event.message_id
WHERE journal_event.hub_project_key = :hub_project_key
  AND (journal_commit.stream_key IS NOT journal_event.stream_key
       OR journal_event.revision <= journal_commit.previous_revision
       OR journal_event.revision > journal_commit.revision
       OR journal_event.position - journal_commit.first_position
          <> journal_event.revision - journal_commit.previous_revision - 1)
GROUP BY journal_event.stream_key
LIMIT :entries_max;

-- name: journal_bytes
-- What a tenant's journal and outbox count for in its stored bytes.
SELECT (SELECT coalesce(sum(128 + length(payload)), 0) FROM journal_event
        WHERE hub_project_key = :hub_project_key)
     + (SELECT coalesce(sum(128 + length(payload)), 0) FROM outbox WHERE hub_project_key = :hub_project_key);

-- name: tenures_above_their_resource
-- Tenures with a token or epoch that their resource has not given.
SELECT tenure.resource FROM tenure JOIN resource USING (hub_project_key, resource)
WHERE tenure.hub_project_key = :hub_project_key
  AND (tenure.fencing_token > resource.fencing_token OR tenure.epoch > resource.epoch)
LIMIT :entries_max;

-- name: highest_token_or_epoch
-- The highest token, epoch or floor that is stored anywhere.
SELECT max(
    (SELECT coalesce(max(token_floor), 0) FROM hub),
    (SELECT coalesce(max(max(token_floor, epoch_floor)), 0) FROM hub_project),
    (SELECT coalesce(max(max(fencing_token, epoch)), 0) FROM resource),
    (SELECT coalesce(max(max(fencing_token, epoch)), 0) FROM tenure),
    (SELECT coalesce(max(fencing_token), 0) FROM stream)
);

-- name: begin_generation
-- A new life of the store.
INSERT INTO generation (hub_generation, start_nanos) VALUES (:hub_generation, :start_nanos);

-- name: begin_generation_heads
-- Where the newest life begins, in events and journal of every tenant.
INSERT INTO generation_head (ordinal, hub_project_key, head_position, journal_head_position)
SELECT (SELECT max(ordinal) FROM generation), hub_project_key, head_position, journal_head_position
FROM hub_project;

-- name: heads_of_generation
-- Where the newest life begins, by tenant.
SELECT hub_project.hub_project, generation_head.head_position, generation_head.journal_head_position
FROM generation_head JOIN hub_project USING (hub_project_key)
WHERE generation_head.ordinal = (SELECT max(ordinal) FROM generation)
ORDER BY hub_project.hub_project;

-- name: end_all_tenures
-- Every lease and maintenance ends, as an expired one does; those who watch see each as changed.
UPDATE tenure SET end_state = 'EXPIRED', end_nanos = min(tenure.expire_nanos, :now_nanos),
                  change_number = live.change_number
FROM (
    SELECT tenure.hub_project_key, tenure.resource, tenure.is_maintenance,
           hub_project.tenure_change_number + row_number() OVER (
               PARTITION BY tenure.hub_project_key ORDER BY tenure.resource, tenure.is_maintenance
           ) AS change_number
    FROM tenure JOIN hub_project USING (hub_project_key)
    WHERE tenure.end_state IS NULL
) AS live
WHERE tenure.hub_project_key = live.hub_project_key AND tenure.resource = live.resource
  AND tenure.is_maintenance = live.is_maintenance;

-- name: count_changes_of_tenures
-- The newest change of each tenant's tenures.
UPDATE hub_project SET tenure_change_number = max(tenure_change_number, coalesce(
    (SELECT max(change_number) FROM tenure WHERE tenure.hub_project_key = hub_project.hub_project_key), 0));

-- name: drop_all_receipts
-- No call of the life before is answered from what was stored.
DELETE FROM receipt;

-- name: revoke_all_tokens
-- Tokens of the life before: who has a copy of the store may have them.
UPDATE token SET revoke_nanos = :now_nanos WHERE revoke_nanos IS NULL;

-- name: count_live_tokens
-- Tokens that were not revoked.
SELECT count(*) FROM token WHERE revoke_nanos IS NULL;

-- name: raise_time_floor
-- Hub time never begins below this.
UPDATE hub SET time_floor_nanos = max(time_floor_nanos, :now_nanos) RETURNING time_floor_nanos;
