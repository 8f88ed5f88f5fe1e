"""Whether a store that no hub has open is what the rules say it must be, whatever was sent to the hub."""

import json
from pathlib import Path
from typing import cast

import apsw

from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash

_RunRow = tuple[int, str, str, int, bytes, int, int, int | None]
_EventRow = tuple[int, str, int | None, str | None, int, bytes | None, bytes]


def faults_of_store(database: Path) -> list[str]:
    """Compute every hash and chain anew and compare the counts; return what does not fit."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        faults = [
            f"{check}: {row}"
            for check in ("integrity_check", "foreign_key_check")
            for row in connection.execute(f"PRAGMA {check}")
            if row != ("ok",)
        ]
        faults += _faults_of_positions(connection)
        for row in connection.execute(
            "SELECT run_key, project_id, run_id, cursor, chain_hash, highest_sequence, event_count,"
            " final_sequence FROM run"
        ):
            faults += _faults_of_run(connection, cast("_RunRow", row))
        return faults
    finally:
        connection.close()


def event_count(database: Path) -> int:
    """Return how many events a store has that no hub has open."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return cast("int", next(iter(connection.execute("SELECT count(*) FROM event")))[0])
    finally:
        connection.close()


def _faults_of_positions(connection: apsw.Connection) -> list[str]:
    """Positions are given without a gap up to the head, revisions without a gap in their stream."""
    queries = (
        (
            "positions of events",
            "SELECT hub_project, head_position, count(event.position), coalesce(max(event.position), 0)"
            " FROM hub_project LEFT JOIN event USING (hub_project_key) GROUP BY hub_project_key",
        ),
        (
            "revisions of a stream",
            "SELECT stream_id, stream.revision, count(journal_event.revision),"
            " coalesce(max(journal_event.revision), 0)"
            " FROM stream LEFT JOIN journal_event USING (stream_key) GROUP BY stream_key",
        ),
    )
    return [
        f"{what} of {name!r}: head {head}, {count} there, last {last}"
        for what, query in queries
        for name, head, count, last in connection.execute(query)
        if not head == count == last
    ]


def _faults_of_run(connection: apsw.Connection, run: _RunRow) -> list[str]:
    run_key, project_id, run_id, cursor, chain_hash, highest, count, final = run
    name = f"run {project_id!r} {run_id!r}"
    faults: list[str] = []
    at_cursor, folded = 0, chain_hash_at_start(project_id, run_id)
    last, stored, finals = 0, 0, []
    rows = connection.execute(
        "SELECT sequence, event_type, event_time_nanos, attributes, is_final, payload, content_hash"
        " FROM event WHERE run_key = ? ORDER BY sequence",
        (run_key,),
    )
    for row in rows:
        sequence, event_type, nanos, attributes, is_final, payload, kept = cast("_EventRow", row)
        stored, last = stored + 1, sequence
        if is_final:
            finals.append(sequence)
        if sequence == at_cursor + 1:
            at_cursor, folded = sequence, chain_hash_after(folded, [kept])
        if payload is not None:
            pairs = cast("dict[str, str]", json.loads(attributes)) if attributes else {}
            computed = content_hash(
                event_type, nanos, is_final=bool(is_final), attributes=pairs, payload=payload
            )
            if computed != kept:
                faults.append(f"{name}: content hash of {sequence}")
    told = (cursor, chain_hash, highest, count, [] if final is None else [final])
    found = (at_cursor, folded, last, stored, finals)
    if told != found:
        faults.append(f"{name}: told {told}, found {found}")
    return faults
