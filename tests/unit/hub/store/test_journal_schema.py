"""What the schema of the journal refuses by itself, whatever code asks for it."""

from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from hub.core.selection import PageBounds
from hub.store.store import SqlStore
from tests.unit.hub.journal_values import commit, event, message, projection
from tests.unit.hub.stored_journal import H, Writes, store_commit
from tests.unit.hub.stored_runs import WALL_NANOS

REFUSED = {
    "UPDATE journal_event SET payload = x'00'": "an event of the journal never changes",
    "DELETE FROM journal_event": "an event of the journal is kept for good",
    "UPDATE journal_commit SET reply = x'00'": "a commit never changes",
    "DELETE FROM journal_commit": "a commit is kept for good",
    "UPDATE stream SET revision = revision - 1": "never go back",
    "UPDATE stream SET fencing_token = fencing_token - 1": "never go back",
    "UPDATE stream SET stream_id = 'another'": "belongs to its hub project for good",
    "DELETE FROM stream": "a stream is kept for good",
    "UPDATE hub_project SET journal_head_position = journal_head_position - 1": "never goes back",
    "UPDATE hub_project SET outbox_ordinal = outbox_ordinal - 1": "never goes back",
    "UPDATE outbox SET payload = x'00' WHERE phase = 'WAITING'": "what a message says never changes",
    "UPDATE outbox SET destination = 'another' WHERE phase = 'WAITING'": "what a message says never changes",
    "DELETE FROM outbox": "a message is kept for good",
    "UPDATE outbox SET phase = 'WAITING', deliver_nanos = NULL WHERE phase = 'DELIVERED'":
        "a delivered message never changes",
    "UPDATE projection SET stream_key = 2": "belongs to its stream for good",
    "UPDATE projection SET revision = revision - 1": "a projection never goes back",
    "DELETE FROM projection": "a projection is kept for good",
    "UPDATE outbox SET phase = 'DELIVERED' WHERE phase = 'WAITING'": "CHECK constraint",
    "UPDATE outbox SET phase = 'elsewhere' WHERE phase = 'WAITING'": "CHECK constraint",
    "UPDATE outbox SET phase = 'DEAD', claim_id = 'c' WHERE phase = 'WAITING'": "CHECK constraint",
    "INSERT INTO journal_event SELECT stream_key, 9, hub_project_key, 9, event_id, event_type, 0, 0, 'm',"
    " '', '', '', 1, 0, x'' FROM journal_event": "hub_project_key, journal_event.event_id",
    "INSERT INTO journal_event SELECT stream_key, 9, hub_project_key, 1, 'new', event_type, 0, 0, 'm',"
    " '', '', '', 1, 0, x'' FROM journal_event": "hub_project_key, journal_event.position",
    "INSERT INTO journal_event SELECT stream_key, 1, hub_project_key, 9, 'new', event_type, 0, 0, 'm',"
    " '', '', '', 1, 0, x'' FROM journal_event": "stream_key, journal_event.revision",
    "INSERT INTO outbox (hub_project_key, outbox_id, ordinal, stream_key, message_id, event_id, destination,"
    " ordering_key, create_nanos, phase, available_nanos, payload)"
    " VALUES (1, 'new', 9, 1, 'm1', 'nowhere', 'd', '', 1, 'WAITING', 1, x'')": "FOREIGN KEY",
}  # fmt: skip


@pytest.mark.parametrize("statement", REFUSED)
def test_the_schema_alone_keeps_what_was_committed(store: SqlStore, tmp_path: Path, statement: str) -> None:
    store_commit(
        store, commit("m1", events=[event("e1")], messages=[message("o1"), message("o2")],
                      projections=[projection()]),
    )  # fmt: skip
    store_commit(store, commit("m2", stream="t", projections=[projection("q")]))
    with Writes(store) as transaction:
        waiting = transaction.journal.available_messages(
            H, "d", now_nanos=WALL_NANOS, bounds=PageBounds(1, 1)
        )
        delivered = replace(waiting[0], deliver_nanos=WALL_NANOS)
        transaction.journal.save_outbox_messages(H, [delivered])
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(apsw.ConstraintError) as caught:
        connection.execute(statement)
    assert REFUSED[statement] in str(caught.value)
    connection.close()
