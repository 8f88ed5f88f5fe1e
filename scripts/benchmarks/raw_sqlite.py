"""The same rows stored by hand: what SQLite alone does, without rules and network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import apsw

from hub.store.sqlite.file import connect, prepare
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest

RAW_GROUP_ROWS = 1_024
RAW_INSERT = """
INSERT INTO event (run_key, sequence, hub_project_key, position, receive_nanos, event_type,
                   event_time_nanos, attributes, is_final, payload, content_hash, was_pushed_dropped)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def raw_sqlite_rate(database: Path, streams: list[list[PushEventsRequest]]) -> float:
    """Store the same rows by hand in groups of 1,024, hashes given; return rows a second.

    Same schema and pragmas as the hub's store; no rules, no network.
    """
    prepare(database, busy_timeout_seconds=5)
    with closing_connection(database) as connection:
        connection.execute(
            "INSERT INTO hub_project (hub_project_key, hub_project, head_position) VALUES (1, 'bench', 0)"
        )
        connection.execute("INSERT INTO project VALUES ('bench', 1, 0)")
        for run_key, requests in enumerate(streams, 1):
            connection.execute(
                "INSERT INTO run VALUES (?, 1, 'bench', ?, 'bench-runtime', 0, ?, 0, 0, NULL, 0, 0)",
                (run_key, requests[0].run_id, bytes(32)),
            )
        rows = [
            (run_key, event.sequence, 1, position, 0, *columns_of(event))
            for position, (run_key, event) in enumerate(interleaved(streams), 1)
        ]
        begin = perf_counter()
        for first in range(0, len(rows), RAW_GROUP_ROWS):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(RAW_INSERT, rows[first : first + RAW_GROUP_ROWS])
            connection.execute("COMMIT")
        return len(rows) / (perf_counter() - begin)


def columns_of(event: SyncEvent) -> tuple[str, int, None, bool, bytes, bytes, bool]:
    """Return what an event brings to its row."""
    nanos = event.event_time.ToNanoseconds()
    return event.event_type, nanos, None, False, event.payload, event.content_hash, False


def interleaved(streams: list[list[PushEventsRequest]]) -> Iterator[tuple[int, SyncEvent]]:
    """Give (run key, event) in the order in which parallel streams bring them."""
    for batches in zip(*streams, strict=True):
        for run_key, request in enumerate(batches, 1):
            for event in request.events:
                yield run_key, event


@contextmanager
def closing_connection(database: Path) -> Iterator[apsw.Connection]:
    """Open a connection like the hub's writer does."""
    connection = connect(database, busy_timeout_seconds=5, is_writer=True)
    try:
        yield connection
    finally:
        connection.close(True)
