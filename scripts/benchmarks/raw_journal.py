"""The rows of the same commits stored by hand: what SQLite alone does, without rules and network.

Nothing is read or checked, ids and hashes are given; schema, pragmas and triggers are the hub's.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final, NamedTuple

import apsw

from hub.store.sqlite.file import prepare
from scripts.benchmarks.raw_sqlite import closing_connection
from synchub.v1.journal_service_pb2 import CommitRequest

NOW_NANOS: Final = 1_700_000_000_000_000_000
HASH_BYTES: Final = 32

RawRow = tuple[int | str | bytes, ...]

SAVE_FLOOR: Final = "UPDATE hub SET time_floor_nanos = max(time_floor_nanos, ?)"
STATEMENTS: Final = (
    "UPDATE hub_project SET journal_head_position = ?, outbox_ordinal = ? WHERE hub_project_key = 1",
    """
    INSERT INTO journal_commit (hub_project_key, message_id, stream_key, hash_version, content_hash,
                                previous_revision, revision, commit_nanos, first_position, fencing_token,
                                epoch, reply)
    VALUES (1, ?, ?, 1, ?, ?, ?, ?, ?, 1, 0, x'')
    """,
    """
    INSERT INTO journal_event (hub_project_key, stream_key, position, revision, commit_nanos, message_id,
                               fencing_token, epoch, event_id, event_type, event_time_nanos, correlation_id,
                               causation_id, trace_id, payload)
    VALUES (1, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, '', '', '', ?)
    """,
    """
    INSERT INTO stream_event_type (hub_project_key, event_type, stream_id) VALUES (1, ?, ?)
    ON CONFLICT (hub_project_key, event_type, stream_id) DO NOTHING
    """,
    """
    INSERT INTO outbox (hub_project_key, stream_key, ordinal, create_nanos, message_id, outbox_id, event_id,
                        destination, ordering_key, payload, available_nanos, phase)
    VALUES (1, ?, ?, ?, ?, ?, ?, ?, '', ?, ?, 'WAITING')
    """,
    "UPDATE stream SET revision = ?, fencing_token = 1, last_commit_nanos = ? WHERE stream_key = ?",
)
"""What one commit writes, in its order."""


class RawCommits(NamedTuple):
    """How fast commits were stored by hand, and how much processor time one took."""

    commits_per_second: float
    processor_us: float


class RawJournal:
    """One file for a whole run, as the hub has one: a log that still grows takes longer to sync."""

    def __init__(self, connection: apsw.Connection, stream_ids: Sequence[str]) -> None:
        """Make the hub's row, a tenant and the streams, as the hub has them when the clock begins to run."""
        self._connection = connection
        self._stream_keys = {stream_id: key for key, stream_id in enumerate(stream_ids, 1)}
        self._head_position = 0
        connection.execute("INSERT INTO hub (only_row, time_floor_nanos) VALUES (1, 0)")
        connection.execute(
            "INSERT INTO hub_project (hub_project_key, hub_project, head_position) VALUES (1, 'bench', 0)"
        )
        connection.executemany(
            "INSERT INTO stream VALUES (?, 1, ?, 0, 1, ?, ?)",
            [(key, stream_id, NOW_NANOS, NOW_NANOS) for stream_id, key in self._stream_keys.items()],
        )

    def store(self, requests: Sequence[CommitRequest], *, group_commits: int) -> RawCommits:
        """Store commits of one event and one message, so many a transaction.

        In a group the rows of one table go in together, which is the fastest way by hand.
        """
        columns: list[tuple[RawRow, ...]] = [
            _rows(request, self._stream_keys[request.stream_id], position=position)
            for position, request in enumerate(requests, self._head_position + 1)
        ]
        self._head_position += len(columns)
        begin, processor_begin = perf_counter(), thread_time()
        for first in range(0, len(columns), group_commits):
            group = columns[first : first + group_commits]
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, rows in zip(STATEMENTS, zip(*group, strict=True), strict=True):
                self._connection.executemany(statement, rows)
            self._connection.execute(SAVE_FLOOR, (NOW_NANOS,))
            self._connection.execute("COMMIT")
        seconds, processor_seconds = perf_counter() - begin, thread_time() - processor_begin
        return RawCommits(len(columns) / seconds, processor_seconds * 1e6 / len(columns))


@contextmanager
def opened_raw_journal(database: Path, stream_ids: Sequence[str]) -> Iterator[RawJournal]:
    """Give a new file of the hub's schema for the length of the block."""
    prepare(database, busy_timeout_seconds=5)
    with closing_connection(database) as connection:
        yield RawJournal(connection, stream_ids)


def _rows(request: CommitRequest, stream_key: int, *, position: int) -> tuple[RawRow, ...]:
    """Return the parameters of each of ``STATEMENTS`` for a commit."""
    (event,), (message,) = request.events, request.outbox_messages
    previous, message_id, now = request.expected_revision, request.message_id, NOW_NANOS
    content_hash = os.urandom(HASH_BYTES)
    return (
        (position, position),
        (message_id, stream_key, content_hash, previous, previous + 1, now, position),
        (
            stream_key,
            position,
            previous + 1,
            now,
            message_id,
            *(event.event_id, event.event_type, now),
            event.payload,
        ),
        (event.event_type, request.stream_id),
        (
            stream_key,
            position,
            now,
            message_id,
            message.outbox_id,
            message.event_id,
            message.destination,
            message.payload,
            now,
        ),
        (previous + 1, now, stream_key),
    )
