-- Leases. Tokens and epochs never go back: rows keep the last ones, and floors stand for rows that are gone.

-- For hub projects that come later: below this no token or epoch is given in them.
ALTER TABLE hub ADD COLUMN token_floor INTEGER NOT NULL DEFAULT 0;

ALTER TABLE hub_project ADD COLUMN token_floor INTEGER NOT NULL DEFAULT 0;

ALTER TABLE hub_project ADD COLUMN epoch_floor INTEGER NOT NULL DEFAULT 0;

-- Counts the changes of tenures, for those who watch; it outlives purged rows.
ALTER TABLE hub_project ADD COLUMN tenure_change_number INTEGER NOT NULL DEFAULT 0;

ALTER TABLE hub_project ADD COLUMN receipt_number INTEGER NOT NULL DEFAULT 0;

-- What was ever leased: the last token and epoch, the token of the last maintenance, and the SHA-256 of
-- the last ended nonces, one after the other.
CREATE TABLE resource (
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    resource TEXT NOT NULL,
    fencing_token INTEGER NOT NULL CHECK (fencing_token >= 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    maintenance_token INTEGER NOT NULL CHECK (0 <= maintenance_token AND maintenance_token <= fencing_token),
    past_nonce_hashes BLOB NOT NULL CHECK (length(past_nonce_hashes) % 32 = 0),
    PRIMARY KEY (hub_project_key, resource)
) STRICT, WITHOUT ROWID;

-- The last lease and the last maintenance of a resource. nonce_hash is NULL while a transferred lease is
-- unclaimed; end_state is NULL until an end was noted.
CREATE TABLE tenure (
    hub_project_key INTEGER NOT NULL,
    resource TEXT NOT NULL,
    is_maintenance INTEGER NOT NULL CHECK (is_maintenance IN (0, 1)),
    runtime_id TEXT NOT NULL,
    holder_id TEXT NOT NULL,
    display_name TEXT NOT NULL,
    fencing_token INTEGER NOT NULL CHECK (fencing_token >= 1),
    epoch INTEGER NOT NULL,
    ttl_nanos INTEGER NOT NULL CHECK (ttl_nanos > 0),
    acquire_nanos INTEGER NOT NULL,
    renew_nanos INTEGER NOT NULL,
    expire_nanos INTEGER NOT NULL,
    nonce_hash BLOB CHECK (length(nonce_hash) = 32),
    labels TEXT NOT NULL,
    abort_reason TEXT,
    end_state TEXT,
    end_nanos INTEGER CHECK ((end_nanos IS NULL) = (end_state IS NULL)),
    change_number INTEGER NOT NULL,
    PRIMARY KEY (hub_project_key, resource, is_maintenance),
    FOREIGN KEY (hub_project_key, resource) REFERENCES resource (hub_project_key, resource)
) STRICT, WITHOUT ROWID;

CREATE INDEX tenure_by_expiry ON tenure (expire_nanos) WHERE end_state IS NULL;

CREATE INDEX tenure_by_end ON tenure (end_nanos) WHERE end_state IS NOT NULL;

CREATE INDEX tenure_to_abort ON tenure (hub_project_key) WHERE end_state IS NULL AND abort_reason IS NOT NULL;

CREATE UNIQUE INDEX tenure_by_change ON tenure (hub_project_key, change_number);

-- Stored answers of calls that can be repeated. answer is JSON and holds no nonce.
CREATE TABLE receipt (
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    caller TEXT NOT NULL,
    request_id TEXT NOT NULL,
    receipt_number INTEGER NOT NULL,
    method TEXT NOT NULL,
    parameters_hash BLOB NOT NULL CHECK (length(parameters_hash) = 32),
    answer TEXT NOT NULL,
    PRIMARY KEY (hub_project_key, caller, request_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX receipt_by_number ON receipt (hub_project_key, receipt_number);

-- That a token never goes back does not depend on code.
CREATE TRIGGER token_only_rises
BEFORE UPDATE OF fencing_token, epoch, maintenance_token ON resource
WHEN NEW.fencing_token < OLD.fencing_token OR NEW.epoch < OLD.epoch
    OR NEW.maintenance_token < OLD.maintenance_token
BEGIN
    SELECT RAISE(ABORT, 'a token, an epoch and the token of the last maintenance never go back');
END;

CREATE TRIGGER floor_only_rises
BEFORE UPDATE OF token_floor, epoch_floor ON hub_project
WHEN NEW.token_floor < OLD.token_floor OR NEW.epoch_floor < OLD.epoch_floor
BEGIN
    SELECT RAISE(ABORT, 'a floor never goes back');
END;

CREATE TRIGGER token_is_begun_above_the_floor
BEFORE INSERT ON resource
WHEN NEW.fencing_token <= (SELECT token_floor FROM hub_project WHERE hub_project_key = NEW.hub_project_key)
    -- An insert that becomes an update is looked at by token_only_rises.
    AND NOT EXISTS (SELECT 1 FROM resource
                    WHERE hub_project_key = NEW.hub_project_key AND resource = NEW.resource)
BEGIN
    SELECT RAISE(ABORT, 'tokens begin above the floor');
END;

CREATE TRIGGER floor_is_raised_before_a_resource_goes
BEFORE DELETE ON resource
WHEN (SELECT token_floor < OLD.fencing_token OR epoch_floor < OLD.epoch
      FROM hub_project WHERE hub_project_key = OLD.hub_project_key)
BEGIN
    SELECT RAISE(ABORT, 'the floor is raised to the token and epoch of a resource before it goes');
END;
