-- The first schema. Ids are kept as text and compared byte by byte (BINARY); moments are Unix
-- nanoseconds; names of people's ids never appear in keys of the big table, which has numbers.

-- The store itself: one row.
CREATE TABLE hub (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    time_floor_nanos INTEGER NOT NULL
) STRICT;

-- The lives of this store, oldest first; the last one is in force.
CREATE TABLE generation (
    ordinal INTEGER PRIMARY KEY,
    hub_generation TEXT NOT NULL UNIQUE,
    start_nanos INTEGER NOT NULL
) STRICT;

-- Tenants, each with its own order of positions.
CREATE TABLE hub_project (
    hub_project_key INTEGER PRIMARY KEY,
    hub_project TEXT NOT NULL UNIQUE,
    head_position INTEGER NOT NULL
) STRICT;

-- The head position of each hub project at which a generation began; none means 0.
CREATE TABLE generation_head (
    ordinal INTEGER NOT NULL REFERENCES generation (ordinal),
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    head_position INTEGER NOT NULL,
    PRIMARY KEY (ordinal, hub_project_key)
) STRICT, WITHOUT ROWID;

-- Which hub project a project belongs to, for good.
CREATE TABLE project (
    project_id TEXT PRIMARY KEY,
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    bind_nanos INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX project_by_hub_project ON project (hub_project_key, project_id);

-- Which runtime a run belongs to, for good, and how far the run is.
CREATE TABLE run (
    run_key INTEGER PRIMARY KEY,
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    project_id TEXT NOT NULL REFERENCES project (project_id),
    run_id TEXT NOT NULL,
    home_runtime_id TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    chain_hash BLOB NOT NULL CHECK (length(chain_hash) = 32),
    highest_sequence INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    final_sequence INTEGER,
    first_receive_nanos INTEGER NOT NULL,
    last_receive_nanos INTEGER NOT NULL,
    UNIQUE (project_id, run_id),
    CHECK (0 <= cursor AND cursor <= event_count AND event_count <= highest_sequence)
) STRICT;

CREATE INDEX run_by_hub_project ON run (hub_project_key, project_id, run_id);

CREATE INDEX run_by_runtime ON run (hub_project_key, home_runtime_id, project_id, run_id);

-- Every event, once. payload is NULL where it was dropped: was_pushed_dropped says whether it came so
-- (then its content may still be filled in) or retention took it.
CREATE TABLE event (
    run_key INTEGER NOT NULL REFERENCES run (run_key),
    sequence INTEGER NOT NULL CHECK (sequence >= 1),
    hub_project_key INTEGER NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    receive_nanos INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    event_time_nanos INTEGER,
    attributes TEXT,
    is_final INTEGER NOT NULL,
    payload BLOB,
    content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
    was_pushed_dropped INTEGER NOT NULL,
    UNIQUE (run_key, sequence),
    UNIQUE (hub_project_key, position)
) STRICT;

-- Runtimes: the current instance, and presence as it was last written.
CREATE TABLE runtime (
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    runtime_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    instance_start_nanos INTEGER NOT NULL,
    last_heartbeat_nanos INTEGER,
    is_goodbye INTEGER NOT NULL DEFAULT 0,
    host TEXT NOT NULL DEFAULT '',
    pid INTEGER NOT NULL DEFAULT 0,
    version TEXT NOT NULL DEFAULT '',
    labels TEXT NOT NULL DEFAULT '{}',
    active_runs TEXT NOT NULL DEFAULT '[]',
    unsynced_event_count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hub_project_key, runtime_id)
) STRICT, WITHOUT ROWID;

-- Instances that were current once and never are again.
CREATE TABLE past_instance (
    hub_project_key INTEGER NOT NULL,
    runtime_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    end_nanos INTEGER NOT NULL,
    PRIMARY KEY (hub_project_key, runtime_id, instance_id),
    FOREIGN KEY (hub_project_key, runtime_id) REFERENCES runtime (hub_project_key, runtime_id)
) STRICT, WITHOUT ROWID;

-- Security alerts, one row for each thing that recurs. samples is a JSON array.
CREATE TABLE alert (
    alert_key INTEGER PRIMARY KEY,
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    alert_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    runtime_id TEXT NOT NULL,
    first_seen_nanos INTEGER NOT NULL,
    last_seen_nanos INTEGER NOT NULL,
    seen_count INTEGER NOT NULL,
    samples TEXT NOT NULL,
    acknowledge_nanos INTEGER,
    change_number INTEGER NOT NULL,
    UNIQUE (hub_project_key, alert_id),
    UNIQUE (hub_project_key, reason, project_id, run_id, runtime_id)
) STRICT;

CREATE INDEX alert_by_change ON alert (hub_project_key, change_number);

-- The two bindings that everything rests on do not depend on code.
CREATE TRIGGER project_binding_is_immutable
BEFORE UPDATE OF project_id, hub_project_key ON project
BEGIN
    SELECT RAISE(ABORT, 'a project belongs to its hub project for good');
END;

CREATE TRIGGER run_binding_is_immutable
BEFORE UPDATE OF project_id, run_id, hub_project_key, home_runtime_id ON run
BEGIN
    SELECT RAISE(ABORT, 'a run belongs to its home runtime for good');
END;

CREATE TRIGGER event_key_is_immutable
BEFORE UPDATE OF run_key, sequence, hub_project_key, position, content_hash ON event
BEGIN
    SELECT RAISE(ABORT, 'the key, position and hash of an event never change');
END;

CREATE TRIGGER run_is_kept
BEFORE DELETE ON run
BEGIN
    SELECT RAISE(ABORT, 'a run is kept for good');
END;

CREATE TRIGGER event_is_kept
BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'an event is kept for good');
END;

CREATE TRIGGER project_with_runs_is_kept
BEFORE DELETE ON project
WHEN EXISTS (SELECT 1 FROM run WHERE run.project_id = OLD.project_id)
BEGIN
    SELECT RAISE(ABORT, 'a project with runs is kept for good');
END;
