-- Statements of the journal, for the writer and the readers. Parameters that are given in order are bound
-- in the order in which their names first stand.

-- --- commits -------------------------------------------------------------------------------------------

-- name: load_journal_commit
-- A commit that happened.
SELECT hash_version, content_hash, previous_revision, revision, commit_nanos, first_position, reply
FROM journal_commit WHERE hub_project_key = :hub_project_key AND message_id = :message_id;

-- name: load_journal_counters
-- The last position and the last creation of a message.
SELECT journal_head_position, outbox_ordinal FROM hub_project WHERE hub_project_key = :hub_project_key;

-- name: load_stream
-- How far a stream is.
SELECT stream_key, revision FROM stream
WHERE hub_project_key = :hub_project_key AND stream_id = :stream_id;

-- name: find_event_ids
-- Which of these ids, given as a JSON array, are of events.
SELECT event_id FROM journal_event
WHERE hub_project_key = :hub_project_key AND event_id IN (SELECT value FROM json_each(:event_ids));

-- name: find_outbox_ids
-- Which of these ids, given as a JSON array, are of messages.
SELECT outbox_id FROM outbox
WHERE hub_project_key = :hub_project_key AND outbox_id IN (SELECT value FROM json_each(:outbox_ids));

-- name: find_projection_streams
-- To which streams these projections belong, given as a JSON array.
SELECT projection.projection_id, stream.stream_id
FROM projection CROSS JOIN stream ON stream.stream_key = projection.stream_key
WHERE projection.hub_project_key = :hub_project_key
  AND projection.projection_id IN (SELECT value FROM json_each(:projection_ids));

-- name: create_stream
-- A stream exists once a commit named it.
INSERT INTO stream (hub_project_key, stream_id, revision, fencing_token, create_nanos, last_commit_nanos)
VALUES (:hub_project_key, :stream_id, :revision, :fencing_token, :commit_nanos, :commit_nanos)
RETURNING stream_key;

-- name: save_stream
-- Moves a stream's revision.
UPDATE stream SET revision = :revision, fencing_token = :fencing_token, last_commit_nanos = :commit_nanos
WHERE stream_key = :stream_key;

-- name: save_journal_counters
-- Positions and ordinals up to here are given.
UPDATE hub_project SET journal_head_position = :head_position, outbox_ordinal = :outbox_ordinal
WHERE hub_project_key = :hub_project_key;

-- name: store_journal_commit
-- A commit, once.
INSERT INTO journal_commit (hub_project_key, message_id, stream_key, hash_version, content_hash,
                            previous_revision, revision, commit_nanos, first_position, fencing_token, epoch,
                            reply)
VALUES (:hub_project_key, :message_id, :stream_key, :hash_version, :content_hash, :previous_revision,
        :revision, :commit_nanos, :first_position, :fencing_token, :epoch, :reply);

-- name: store_journal_events
-- Events of one commit, each once. A bulk statement: one row of store_journal_events_row follows for each.
INSERT INTO journal_event (hub_project_key, stream_key, position, revision, commit_nanos, message_id,
                           fencing_token, epoch, event_id, event_type, event_time_nanos, correlation_id,
                           causation_id, trace_id, payload)
VALUES;

-- name: store_journal_events_row
-- Shared: ?1 hub project, ?2 stream, ?3 position before the first row, ?4 revision minus position, ?5
-- commit time, ?6 message, ?7 token, ?8 epoch. A row's own: {0} id, {1} type, {2} payload, {3} time or
-- NULL, {4} correlation, {5} causation, {6} trace.
(?1, ?2, ?3 + {number}, ?3 + {number} + ?4, ?5, ?6, ?7, ?8, {0}, {1}, coalesce({3}, ?5), {4}, {5}, {6}, {2});

-- name: add_stream_event_type
-- A stream has an event of a type.
INSERT INTO stream_event_type (hub_project_key, event_type, stream_id)
VALUES (:hub_project_key, :event_type, :stream_id)
ON CONFLICT (hub_project_key, event_type, stream_id) DO NOTHING;

-- name: store_outbox_messages
-- Messages of one commit, each once. A bulk statement: one row of store_outbox_messages_row follows for
-- each.
INSERT INTO outbox (hub_project_key, stream_key, ordinal, create_nanos, message_id, outbox_id, event_id,
                    destination, ordering_key, payload, available_nanos, phase)
VALUES;

-- name: store_outbox_messages_row
-- Shared: ?1 hub project, ?2 stream, ?3 ordinal before the first row, ?4 commit time, ?5 message. A row's
-- own: {0} id, {1} event or empty, {2} destination, {3} ordering key, {4} payload, {5} availability or
-- NULL, {6} phase.
(?1, ?2, ?3 + {number}, ?4, ?5, {0}, nullif({1}, ''), {2}, {3}, {4}, coalesce({5}, ?4), {6});

-- name: save_projection
-- The newest value under a name.
INSERT INTO projection (hub_project_key, projection_id, stream_key, revision, commit_nanos, value)
VALUES (:hub_project_key, :projection_id, :stream_key, :revision, :commit_nanos, :value)
ON CONFLICT (hub_project_key, projection_id) DO UPDATE
SET stream_key = excluded.stream_key, revision = excluded.revision, commit_nanos = excluded.commit_nanos,
    value = excluded.value;

-- --- outbox messages ----------------------------------------------------------------------------------

-- name: outbox_columns
-- A message as it is read, in the order that ``hub.store.journal_rows`` expects.
SELECT outbox.outbox_id, coalesce(outbox.event_id, ''), outbox.destination, outbox.ordering_key,
       outbox.payload, outbox.available_nanos, outbox.create_nanos, stream.stream_id, outbox.message_id,
       outbox.attempt_count, outbox.claim_id, outbox.phase, outbox.deliver_nanos, outbox.ordinal
FROM outbox CROSS JOIN stream ON stream.stream_key = outbox.stream_key
WHERE outbox.hub_project_key = :hub_project_key;

-- name: outbox_message_is
-- One message.
AND outbox.outbox_id = :outbox_id;

-- name: outbox_of_destination
-- Narrows messages to a destination.
AND outbox.destination = :destination;

-- name: outbox_in_phase
-- Messages in a phase after a place.
AND outbox.phase = :phase AND (outbox.available_nanos, outbox.ordinal) > (:after_nanos, :after_ordinal);

-- name: outbox_unclaimed
-- Narrows messages to those that no claim hides at a moment.
AND (outbox.claim_id = '' OR outbox.available_nanos <= :now_nanos);

-- name: outbox_claimed
-- Narrows messages to those that a claim hides at a moment.
AND outbox.claim_id <> '' AND outbox.available_nanos > :now_nanos;

-- name: outbox_available
-- Messages that may be claimed at a moment.
AND outbox.phase = 'WAITING' AND outbox.available_nanos <= :now_nanos;

-- name: outbox_in_order
-- By availability and creation.
ORDER BY outbox.available_nanos, outbox.ordinal LIMIT :entries_max;

-- name: next_available
-- When the next message of a destination becomes available.
SELECT available_nanos FROM outbox
WHERE hub_project_key = :hub_project_key AND destination = :destination AND phase = 'WAITING'
ORDER BY available_nanos LIMIT 1;

-- name: is_key_waited_for
-- Whether a message of a destination and ordering key is not delivered.
SELECT 1 FROM outbox
WHERE hub_project_key = :hub_project_key AND destination = :destination AND ordering_key = :ordering_key
  AND ordering_key <> '' AND phase <> 'DELIVERED'
LIMIT 1;

-- name: save_outbox_message
-- Where a message stands now.
UPDATE outbox SET phase = :phase, available_nanos = :available_nanos, attempt_count = :attempt_count,
                  claim_id = :claim_id, deliver_nanos = :deliver_nanos
WHERE hub_project_key = :hub_project_key AND outbox_id = :outbox_id;

-- name: let_next_of_key_wait
-- The message before it was delivered: the next of a destination and ordering key may be claimed.
UPDATE outbox SET phase = 'WAITING'
WHERE rowid = (
    SELECT rowid FROM outbox
    WHERE hub_project_key = :hub_project_key AND destination = :destination AND ordering_key = :ordering_key
      AND ordering_key <> '' AND phase <> 'DELIVERED'
    ORDER BY ordinal LIMIT 1
) AND phase = 'BEHIND';

-- --- reading ------------------------------------------------------------------------------------------

-- name: list_journal_generations
-- The lives of the store, oldest first, with the head of a tenant's journal at which each began.
SELECT generation.hub_generation, coalesce(generation_head.journal_head_position, 0)
FROM generation
LEFT JOIN generation_head
  ON generation_head.ordinal = generation.ordinal AND generation_head.hub_project_key = :hub_project_key
ORDER BY generation.ordinal;

-- name: journal_event_columns
-- An event of the journal as it is read, in the order of ``JournalEvent``.
SELECT stream.stream_id, journal_event.revision, journal_event.position, journal_event.event_id,
       journal_event.event_type, journal_event.event_time_nanos, journal_event.commit_nanos,
       journal_event.message_id, journal_event.correlation_id, journal_event.causation_id,
       journal_event.trace_id, journal_event.fencing_token, journal_event.epoch, journal_event.payload;

-- name: journal_events_of_stream
-- Events of a stream in a range of revisions.
FROM stream CROSS JOIN journal_event ON journal_event.stream_key = stream.stream_key
WHERE stream.stream_key = :stream_key
  AND journal_event.revision > :after_revision AND journal_event.revision <= :through_revision
ORDER BY journal_event.revision LIMIT :entries_max;

-- name: journal_events_between
-- Events of a tenant in a range of positions, along the positions. CROSS JOIN keeps the order of the
-- loops: the stream is looked up for each event, never the other way round.
FROM journal_event CROSS JOIN stream ON stream.stream_key = journal_event.stream_key
WHERE journal_event.hub_project_key = :hub_project_key
  AND journal_event.position > :after_position AND journal_event.position <= :through_position;

-- name: journal_events_of_types
-- Narrows events to types, given as a JSON array.
AND journal_event.event_type IN (SELECT value FROM json_each(:event_types));

-- name: journal_events_by_position
-- In the order in which they became visible.
ORDER BY journal_event.position LIMIT :entries_max;

-- name: stream_columns
-- A stream as it is read, with the expiry of a lease whose end is not noted.
SELECT stream.stream_id, stream.revision, stream.fencing_token, stream.create_nanos,
       stream.last_commit_nanos, tenure.expire_nanos;

-- name: streams_of_all
-- Streams of a tenant, along their ids.
FROM stream AS named CROSS JOIN stream ON stream.stream_key = named.stream_key
LEFT JOIN tenure
    ON tenure.hub_project_key = stream.hub_project_key AND tenure.resource = stream.stream_id
    AND tenure.is_maintenance = 0 AND tenure.end_state IS NULL
WHERE named.hub_project_key = :hub_project_key;

-- name: streams_of_type
-- Streams of a tenant with an event of a type, along the ids of that type. CROSS JOIN keeps the order of
-- the loops.
FROM stream_event_type AS named CROSS JOIN stream
    ON stream.hub_project_key = named.hub_project_key AND stream.stream_id = named.stream_id
LEFT JOIN tenure
    ON tenure.hub_project_key = stream.hub_project_key AND tenure.resource = stream.stream_id
    AND tenure.is_maintenance = 0 AND tenure.end_state IS NULL
WHERE named.hub_project_key = :hub_project_key AND named.event_type = :event_type;

-- name: streams_from
-- Streams from an id on.
AND named.stream_id >= :lowest_id;

-- name: streams_after
-- Streams after an id.
AND named.stream_id > :lowest_id;

-- name: streams_before
-- Streams before an id.
AND named.stream_id < :end_id;

-- name: streams_in_order
-- Ascending by the bytes of their ids.
ORDER BY named.stream_id LIMIT :entries_max;

-- name: load_projection
-- A projection.
SELECT projection.projection_id, stream.stream_id, projection.value, projection.revision,
       projection.commit_nanos
FROM projection CROSS JOIN stream ON stream.stream_key = projection.stream_key
WHERE projection.hub_project_key = :hub_project_key AND projection.projection_id = :projection_id;

-- name: count_outbox_messages
-- How many outbox messages of all tenants are in a phase, counted up to a number.
SELECT count(*)
FROM (SELECT 1 FROM hub_project JOIN outbox USING (hub_project_key) WHERE phase = :phase LIMIT :counted_max);
