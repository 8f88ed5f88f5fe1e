-- Credentials, quotas, and what retention drops.

-- Bearer tokens. Of a secret only its SHA-256 is kept. project_id_prefixes is a JSON array.
CREATE TABLE token (
    token_id TEXT PRIMARY KEY,
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
    display_name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('runtime', 'reader', 'operator', 'admin')),
    runtime_id TEXT CHECK (runtime_id IS NULL OR role = 'runtime'),
    project_id_prefixes TEXT NOT NULL,
    create_nanos INTEGER NOT NULL,
    expire_nanos INTEGER,
    revoke_nanos INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX token_by_hub_project ON token (hub_project_key, token_id);

-- What quotas count: bytes of events and of the journal that are kept, and runs that are not complete.
ALTER TABLE hub_project ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;

ALTER TABLE hub_project ADD COLUMN active_run_count INTEGER NOT NULL DEFAULT 0;

UPDATE hub_project SET
    stored_bytes = (
        SELECT coalesce(sum(128 + coalesce(length(event.payload), 0) + coalesce(octet_length(event.attributes), 0)), 0)
        FROM event WHERE event.hub_project_key = hub_project.hub_project_key
    ) + (
        SELECT coalesce(sum(128 + length(journal_event.payload)), 0)
        FROM journal_event WHERE journal_event.hub_project_key = hub_project.hub_project_key
    ) + (
        SELECT coalesce(sum(128 + length(outbox.payload)), 0)
        FROM outbox WHERE outbox.hub_project_key = hub_project.hub_project_key
    ),
    active_run_count = (
        SELECT count(*) FROM run
        WHERE run.hub_project_key = hub_project.hub_project_key
          AND (run.final_sequence IS NULL OR run.final_sequence <> run.cursor)
    );

-- A runtime that was not heard for long is not shown any more; its instance and the past ones stay.
ALTER TABLE runtime ADD COLUMN is_forgotten INTEGER NOT NULL DEFAULT 0;

-- When a receipt was made, in hub time; of those that are there it is not known.
ALTER TABLE receipt ADD COLUMN create_nanos INTEGER NOT NULL DEFAULT 0;

UPDATE receipt SET create_nanos = (SELECT time_floor_nanos FROM hub);

-- Alerts that a person has seen make room for new ones, the one not seen again for longest first.
CREATE INDEX alert_acknowledged ON alert (hub_project_key, last_seen_nanos) WHERE acknowledge_nanos IS NOT NULL;

-- A token says for good what it is for, and what was taken back stays so.
CREATE TRIGGER token_is_immutable
BEFORE UPDATE OF token_id, hub_project_key, secret_hash, display_name, role, runtime_id, project_id_prefixes,
                 create_nanos, expire_nanos ON token
BEGIN
    SELECT RAISE(ABORT, 'what a token is for never changes');
END;

CREATE TRIGGER revocation_is_final
BEFORE UPDATE OF revoke_nanos ON token
WHEN OLD.revoke_nanos IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a revoked token stays revoked');
END;

CREATE TRIGGER token_is_kept
BEFORE DELETE ON token
BEGIN
    SELECT RAISE(ABORT, 'a token is kept for good: alerts and logs name it');
END;
