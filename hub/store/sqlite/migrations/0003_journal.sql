-- The journal: streams, their events, the commits that wrote them, outbox messages and projections. Events
-- and commits never change; revisions and positions never go back.

-- The journal has positions of its own, and outbox messages an order of creation.
ALTER TABLE hub_project ADD COLUMN journal_head_position INTEGER NOT NULL DEFAULT 0;

ALTER TABLE hub_project ADD COLUMN outbox_ordinal INTEGER NOT NULL DEFAULT 0;

ALTER TABLE generation_head ADD COLUMN journal_head_position INTEGER NOT NULL DEFAULT 0;

-- What was ever committed to, and how far it is. fencing_token is that of the last commit.
CREATE TABLE stream (
    stream_key INTEGER PRIMARY KEY,
    hub_project_key INTEGER NOT NULL REFERENCES hub_project (hub_project_key),
    stream_id TEXT NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 0),
    fencing_token INTEGER NOT NULL CHECK (fencing_token >= 1),
    create_nanos INTEGER NOT NULL,
    last_commit_nanos INTEGER NOT NULL,
    UNIQUE (hub_project_key, stream_id)
) STRICT;

-- Every commit, once a message id. Its positions begin at first_position, one an event.
CREATE TABLE journal_commit (
    hub_project_key INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    stream_key INTEGER NOT NULL REFERENCES stream (stream_key),
    hash_version INTEGER NOT NULL,
    content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
    previous_revision INTEGER NOT NULL CHECK (previous_revision >= 0),
    revision INTEGER NOT NULL CHECK (revision >= previous_revision),
    first_position INTEGER NOT NULL CHECK (first_position >= 1),
    commit_nanos INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    reply BLOB NOT NULL,
    UNIQUE (hub_project_key, message_id)
) STRICT;

-- Every event, once. The optional ids are empty where they were not given.
CREATE TABLE journal_event (
    stream_key INTEGER NOT NULL REFERENCES stream (stream_key),
    revision INTEGER NOT NULL CHECK (revision >= 1),
    hub_project_key INTEGER NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    event_time_nanos INTEGER NOT NULL,
    commit_nanos INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    causation_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    fencing_token INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (stream_key, revision),
    UNIQUE (hub_project_key, position),
    UNIQUE (hub_project_key, event_id)
) STRICT;

-- Which streams have events of a type.
CREATE TABLE stream_event_type (
    hub_project_key INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    stream_id TEXT NOT NULL,
    PRIMARY KEY (hub_project_key, event_type, stream_id),
    FOREIGN KEY (hub_project_key, stream_id) REFERENCES stream (hub_project_key, stream_id)
) STRICT, WITHOUT ROWID;

-- Messages to be delivered. ordinal is the order of creation; event_id is NULL where none was named. Of a
-- destination and ordering key only the first that is not delivered is WAITING (or DEAD), those behind it
-- are BEHIND, so that what may be claimed is found by an index alone. available_nanos is when it may be
-- claimed; of a claimed one, when its claim is over.
CREATE TABLE outbox (
    hub_project_key INTEGER NOT NULL,
    outbox_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 1),
    stream_key INTEGER NOT NULL REFERENCES stream (stream_key),
    message_id TEXT NOT NULL,
    event_id TEXT,
    destination TEXT NOT NULL,
    ordering_key TEXT NOT NULL,
    create_nanos INTEGER NOT NULL,
    phase TEXT NOT NULL CHECK (phase IN ('WAITING', 'BEHIND', 'DEAD', 'DELIVERED')),
    available_nanos INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    claim_id TEXT NOT NULL DEFAULT '' CHECK (claim_id = '' OR phase = 'WAITING'),
    deliver_nanos INTEGER CHECK ((deliver_nanos IS NOT NULL) = (phase = 'DELIVERED')),
    payload BLOB NOT NULL,
    UNIQUE (hub_project_key, outbox_id),
    FOREIGN KEY (hub_project_key, message_id) REFERENCES journal_commit (hub_project_key, message_id),
    FOREIGN KEY (hub_project_key, event_id) REFERENCES journal_event (hub_project_key, event_id)
) STRICT;

CREATE INDEX outbox_by_availability ON outbox (hub_project_key, phase, available_nanos, ordinal);

CREATE INDEX outbox_by_destination ON outbox (hub_project_key, destination, phase, available_nanos, ordinal);

CREATE INDEX outbox_by_ordering_key ON outbox (hub_project_key, destination, ordering_key, ordinal)
WHERE ordering_key <> '' AND phase <> 'DELIVERED';

-- Values stored under names; each belongs to the stream that first set it.
CREATE TABLE projection (
    hub_project_key INTEGER NOT NULL,
    projection_id TEXT NOT NULL,
    stream_key INTEGER NOT NULL REFERENCES stream (stream_key),
    revision INTEGER NOT NULL CHECK (revision >= 0),
    commit_nanos INTEGER NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (hub_project_key, projection_id)
) STRICT;

-- What was committed does not depend on code.
CREATE TRIGGER journal_head_only_rises
BEFORE UPDATE OF journal_head_position, outbox_ordinal ON hub_project
WHEN NEW.journal_head_position < OLD.journal_head_position OR NEW.outbox_ordinal < OLD.outbox_ordinal
BEGIN
    SELECT RAISE(ABORT, 'the head of the journal never goes back');
END;

CREATE TRIGGER stream_binding_is_immutable
BEFORE UPDATE OF stream_key, hub_project_key, stream_id, create_nanos ON stream
BEGIN
    SELECT RAISE(ABORT, 'a stream belongs to its hub project for good');
END;

CREATE TRIGGER revision_only_rises
BEFORE UPDATE OF revision, fencing_token ON stream
WHEN NEW.revision < OLD.revision OR NEW.fencing_token < OLD.fencing_token
BEGIN
    SELECT RAISE(ABORT, 'the revision and the token of a stream never go back');
END;

CREATE TRIGGER stream_is_kept
BEFORE DELETE ON stream
BEGIN
    SELECT RAISE(ABORT, 'a stream is kept for good');
END;

CREATE TRIGGER journal_commit_is_immutable
BEFORE UPDATE ON journal_commit
BEGIN
    SELECT RAISE(ABORT, 'a commit never changes');
END;

CREATE TRIGGER journal_commit_is_kept
BEFORE DELETE ON journal_commit
BEGIN
    SELECT RAISE(ABORT, 'a commit is kept for good');
END;

CREATE TRIGGER journal_event_is_immutable
BEFORE UPDATE ON journal_event
BEGIN
    SELECT RAISE(ABORT, 'an event of the journal never changes');
END;

CREATE TRIGGER journal_event_is_kept
BEFORE DELETE ON journal_event
BEGIN
    SELECT RAISE(ABORT, 'an event of the journal is kept for good');
END;

CREATE TRIGGER outbox_content_is_immutable
BEFORE UPDATE OF hub_project_key, outbox_id, ordinal, stream_key, message_id, event_id, destination,
                 ordering_key, create_nanos, payload ON outbox
BEGIN
    SELECT RAISE(ABORT, 'what a message says never changes');
END;

CREATE TRIGGER delivery_is_final
BEFORE UPDATE ON outbox
WHEN OLD.phase = 'DELIVERED'
BEGIN
    SELECT RAISE(ABORT, 'a delivered message never changes');
END;

CREATE TRIGGER outbox_message_is_kept
BEFORE DELETE ON outbox
BEGIN
    SELECT RAISE(ABORT, 'a message is kept for good');
END;

CREATE TRIGGER projection_binding_is_immutable
BEFORE UPDATE OF hub_project_key, projection_id, stream_key ON projection
WHEN NEW.hub_project_key <> OLD.hub_project_key OR NEW.projection_id <> OLD.projection_id
    OR NEW.stream_key <> OLD.stream_key
BEGIN
    SELECT RAISE(ABORT, 'a projection belongs to its stream for good');
END;

CREATE TRIGGER projection_only_goes_on
BEFORE UPDATE OF revision ON projection
WHEN NEW.revision < OLD.revision
BEGIN
    SELECT RAISE(ABORT, 'a projection never goes back');
END;

CREATE TRIGGER projection_is_kept
BEFORE DELETE ON projection
BEGIN
    SELECT RAISE(ABORT, 'a projection is kept for good');
END;
