-- The local log of one runtime.

-- One row: whose log it is, what it remembers of the hub, and the head of its own order.
CREATE TABLE log_info (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    hub_project TEXT,
    runtime_id TEXT,
    hub_generation TEXT NOT NULL,
    -- JSON object of the limits that the hub told last.
    hub_limits TEXT,
    last_acknowledge_time_nanos INTEGER,
    -- The highest local position ever given; it never falls, whatever is deleted.
    head_local_position INTEGER NOT NULL CHECK (head_local_position >= 0),
    CHECK ((hub_project IS NULL) = (runtime_id IS NULL))
) STRICT;

INSERT INTO log_info (id, hub_generation, head_local_position) VALUES (1, '', 0);

-- One row at most: the process that may write.
CREATE TABLE process_lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    owner TEXT NOT NULL,
    role TEXT NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace TEXT NOT NULL,
    heartbeat_nanos INTEGER NOT NULL
) STRICT;

-- The runs; run_number is never reused, so that what is left of a dropped run cannot join a new one.
CREATE TABLE run (
    run_number INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    last_sequence INTEGER NOT NULL CHECK (last_sequence >= 0),
    chain_hash BLOB NOT NULL CHECK (length(chain_hash) = 32),
    acknowledged_sequence INTEGER NOT NULL
        CHECK (acknowledged_sequence >= 0 AND acknowledged_sequence <= last_sequence),
    -- No payload up to here is left.
    payload_dropped_through INTEGER NOT NULL
        CHECK (payload_dropped_through >= 0 AND payload_dropped_through <= last_sequence),
    is_final INTEGER NOT NULL CHECK (is_final IN (0, 1)),
    last_local_position INTEGER NOT NULL,
    UNIQUE (project_id, run_id)
) STRICT;

CREATE INDEX run_unsynced ON run (project_id, run_id) WHERE acknowledged_sequence < last_sequence;

CREATE INDEX run_by_local_position ON run (last_local_position);

-- The events; a payload that is NULL was dropped, an empty one is an empty blob.
CREATE TABLE event (
    local_position INTEGER PRIMARY KEY,
    run_number INTEGER NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    event_type TEXT NOT NULL,
    event_time_nanos INTEGER,
    -- JSON object of strings; NULL where there are none.
    attributes TEXT,
    is_final INTEGER NOT NULL CHECK (is_final IN (0, 1)),
    content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
    chain_hash BLOB NOT NULL CHECK (length(chain_hash) = 32),
    payload BLOB
) STRICT;

CREATE UNIQUE INDEX event_by_sequence ON event (run_number, sequence);

-- What each named append was given, for as long as its run is in the log.
CREATE TABLE append_receipt (
    run_number INTEGER NOT NULL,
    append_id TEXT NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    request_hash BLOB NOT NULL CHECK (length(request_hash) = 32),
    PRIMARY KEY (run_number, append_id)
) STRICT, WITHOUT ROWID;

-- When the hub acknowledged what, by the hour: for the retention of payloads.
CREATE TABLE acknowledge_mark (
    hour_nanos INTEGER NOT NULL,
    run_number INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (hour_nanos, run_number)
) STRICT, WITHOUT ROWID;

CREATE INDEX acknowledge_mark_by_run ON acknowledge_mark (run_number);

-- Runs that are kept from syncing until a person decides.
CREATE TABLE quarantine (
    run_number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    quarantine_time_nanos INTEGER NOT NULL,
    copied_through_sequence INTEGER NOT NULL
) STRICT;
