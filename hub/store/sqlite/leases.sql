-- Statements of leases, for the writer and the readers. Parameters that are given in order are bound in
-- the order in which their names first stand.

-- name: load_resource
-- A resource with the floors of its tenant.
SELECT token_floor, epoch_floor, fencing_token, epoch, maintenance_token, past_nonce_hashes
FROM hub_project LEFT JOIN resource
    ON resource.hub_project_key = hub_project.hub_project_key AND resource.resource = :resource
WHERE hub_project.hub_project_key = :hub_project_key;

-- name: load_floor
-- The floor of tenants that are not there yet.
SELECT token_floor FROM hub;

-- name: load_tenures
-- The last lease and the last maintenance of a resource.
SELECT resource, is_maintenance, runtime_id, holder_id, display_name, fencing_token, epoch, ttl_nanos,
       acquire_nanos, renew_nanos, expire_nanos, nonce_hash, labels, abort_reason, end_state, end_nanos
FROM tenure WHERE hub_project_key = :hub_project_key AND resource = :resource;

-- name: save_resource
-- The last token and epoch of a resource.
INSERT INTO resource (hub_project_key, resource, fencing_token, epoch, maintenance_token, past_nonce_hashes)
VALUES (:hub_project_key, :resource, :fencing_token, :epoch, :maintenance_token, :past_nonce_hashes)
ON CONFLICT (hub_project_key, resource) DO UPDATE
SET fencing_token = excluded.fencing_token, epoch = excluded.epoch,
    maintenance_token = excluded.maintenance_token, past_nonce_hashes = excluded.past_nonce_hashes;

-- name: save_change_number
-- The newest change of a tenant's tenures.
UPDATE hub_project SET tenure_change_number = :change_number WHERE hub_project_key = :hub_project_key;

-- name: save_tenure
-- The newest state of a resource's last lease or maintenance.
INSERT INTO tenure (hub_project_key, change_number, resource, is_maintenance, runtime_id, holder_id,
                    display_name, fencing_token, epoch, ttl_nanos, acquire_nanos, renew_nanos, expire_nanos,
                    nonce_hash, labels, abort_reason, end_state, end_nanos)
VALUES (:hub_project_key, :change_number, :resource, :is_maintenance, :runtime_id, :holder_id, :display_name,
        :fencing_token, :epoch, :ttl_nanos, :acquire_nanos, :renew_nanos, :expire_nanos, :nonce_hash,
        :labels, :abort_reason, :end_state, :end_nanos)
ON CONFLICT (hub_project_key, resource, is_maintenance) DO UPDATE
SET change_number = excluded.change_number, runtime_id = excluded.runtime_id, holder_id = excluded.holder_id,
    display_name = excluded.display_name, fencing_token = excluded.fencing_token, epoch = excluded.epoch,
    ttl_nanos = excluded.ttl_nanos, acquire_nanos = excluded.acquire_nanos,
    renew_nanos = excluded.renew_nanos, expire_nanos = excluded.expire_nanos,
    nonce_hash = excluded.nonce_hash, labels = excluded.labels, abort_reason = excluded.abort_reason,
    end_state = excluded.end_state, end_nanos = excluded.end_nanos;

-- name: overdue_resources
-- Resources with a tenure whose expiry passed and is not noted, of all tenants.
SELECT DISTINCT hub_project.hub_project, tenure.resource
FROM tenure JOIN hub_project USING (hub_project_key)
WHERE tenure.end_state IS NULL AND tenure.expire_nanos <= :now_nanos
ORDER BY tenure.expire_nanos LIMIT :entries_max;

-- name: purgeable_resources
-- Resources of which everything ended before a moment. By the index: few tenures ended long ago, and
-- SQLite would rather go through all of them in the order that DISTINCT likes.
SELECT DISTINCT hub_project_key, resource FROM tenure INDEXED BY tenure_by_end
WHERE end_state IS NOT NULL AND end_nanos < :ended_before_nanos AND NOT EXISTS (
    SELECT 1 FROM tenure AS other
    WHERE other.hub_project_key = tenure.hub_project_key AND other.resource = tenure.resource
      AND (other.end_nanos IS NULL OR other.end_nanos >= :ended_before_nanos)
)
LIMIT :entries_max;

-- name: raise_floors_to_resource
-- No token or epoch of a resource that goes is given again.
UPDATE hub_project SET token_floor = max(token_floor, resource.fencing_token),
                       epoch_floor = max(epoch_floor, resource.epoch)
FROM resource
WHERE hub_project.hub_project_key = :hub_project_key
  AND resource.hub_project_key = :hub_project_key AND resource.resource = :resource;

-- name: delete_tenures
-- The tenures of a resource that goes.
DELETE FROM tenure WHERE hub_project_key = :hub_project_key AND resource = :resource;

-- name: delete_resource
-- A resource whose floors were raised.
DELETE FROM resource WHERE hub_project_key = :hub_project_key AND resource = :resource;

-- name: find_any_use
-- Whether anything was ever stored but tokens of callers, which are made before a hub is first started.
SELECT 1 FROM project UNION ALL SELECT 1 FROM resource UNION ALL SELECT 1 FROM runtime LIMIT 1;

-- name: raise_floor_of_hub
-- The floor of tenants that come later.
UPDATE hub SET token_floor = max(token_floor, :floor);

-- name: raise_floors_of_tenants
-- The floors of all tenants.
UPDATE hub_project SET token_floor = max(token_floor, :floor), epoch_floor = max(epoch_floor, :floor);

-- name: load_receipt
-- The stored answer of a call.
SELECT method, parameters_hash, answer FROM receipt
WHERE hub_project_key = :hub_project_key AND caller = :caller AND request_id = :request_id;

-- name: next_receipt_number
-- Counts a receipt.
UPDATE hub_project SET receipt_number = receipt_number + 1
WHERE hub_project_key = :hub_project_key RETURNING receipt_number;

-- name: save_receipt
-- The answer of a call.
INSERT INTO receipt (hub_project_key, caller, request_id, receipt_number, method, parameters_hash, answer,
                     create_nanos)
VALUES (:hub_project_key, :caller, :request_id, :receipt_number, :method, :parameters_hash, :answer,
        :create_nanos);

-- name: drop_receipt
-- The answer of a call that nobody heard, and that does not hold any more.
DELETE FROM receipt
WHERE hub_project_key = :hub_project_key AND caller = :caller AND request_id = :request_id;

-- name: drop_old_receipts
-- Receipts that make room.
DELETE FROM receipt WHERE hub_project_key = :hub_project_key AND receipt_number <= :receipt_number;

-- name: tenure_columns
-- What a tenure is read as, of a tenant.
SELECT resource, is_maintenance, runtime_id, holder_id, display_name, fencing_token, epoch, ttl_nanos,
       acquire_nanos, renew_nanos, expire_nanos, nonce_hash, labels, abort_reason, end_state, end_nanos,
       change_number
FROM tenure WHERE hub_project_key = :hub_project_key

-- name: tenures_after
-- Tenures after a place.
AND (resource, is_maintenance) > (:after_resource, :after_is_maintenance)

-- name: tenures_live
-- Tenures that are live at a moment.
AND end_state IS NULL AND expire_nanos > :live_at_nanos

-- name: tenures_in_order
-- By resource, the lease before the maintenance.
ORDER BY resource, is_maintenance LIMIT :entries_max;

-- name: tenures_changed
-- Tenures that changed after a change, in the order of their last changes.
AND change_number > :after_change_number ORDER BY change_number LIMIT :entries_max;

-- name: load_change_number
-- The newest change of a tenant's tenures.
SELECT tenure_change_number FROM hub_project WHERE hub_project_key = :hub_project_key;

-- name: next_expiry
-- When the next tenure expires, of all tenants.
SELECT min(expire_nanos) FROM tenure WHERE end_state IS NULL;

-- name: tenures_to_abort
-- Leases that did not end and are to be aborted, of all tenants.
SELECT resource, is_maintenance, runtime_id, holder_id, display_name, fencing_token, epoch, ttl_nanos,
       acquire_nanos, renew_nanos, expire_nanos, nonce_hash, labels, abort_reason, end_state, end_nanos,
       hub_project
FROM tenure JOIN hub_project USING (hub_project_key)
WHERE end_state IS NULL AND abort_reason IS NOT NULL;

-- name: count_open_tenures
-- How many tenures of all tenants have no end that was noted, counted up to a number.
SELECT count(*) FROM (SELECT 1 FROM tenure WHERE end_state IS NULL LIMIT :counted_max);
