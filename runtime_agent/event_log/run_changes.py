"""Changes of whole runs: taking in from the hub, quarantine, copies, retention.

Each function runs inside the caller's transaction, and raises before anything half done could stay.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import apsw

from runtime_agent import limits
from runtime_agent.core.errors import (
    NothingToCopyError,
    RunExistsError,
    RunNotQuarantinedError,
    RunUnknownError,
    TakeInRefusedError,
)
from runtime_agent.core.values import FetchedEvent, HubLimits, RunKey, RunState
from runtime_agent.event_log.append_group import InsertRow
from runtime_agent.event_log.checks import run_fault
from runtime_agent.event_log.rows import attributes_to_text
from runtime_agent.event_log.statements import statements
from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash

FORKED_EVENT_TYPE = "forked"
"""Type of the first event of a run that was copied from a quarantined one."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A run's row as the database has it now."""

    run_number: int
    last_sequence: int
    chain_hash: bytes
    is_final: bool
    acknowledged_sequence: int
    payload_dropped_through: int


def load_head(connection: apsw.Connection, run: RunKey) -> LoadedHead | None:
    """Return the run's row, None where the log does not have it."""
    row = cast(
        tuple[int, int, bytes, int, int, int] | None,
        connection.execute(statements()["load_head"], (run.project_id, run.run_id)).fetchone(),
    )
    return None if row is None else LoadedHead(row[0], row[1], row[2], row[3] == 1, row[4], row[5])


def quarantined_run_number(connection: apsw.Connection, run: RunKey, *, state: RunState | None) -> int:
    """Return the number of a run that is quarantined, or raise what it is instead."""
    head = load_head(connection, run)
    if head is None or state is None:
        raise RunUnknownError(run.project_id, run.run_id)
    if state.quarantine is None:
        raise RunNotQuarantinedError(run.project_id, run.run_id)
    return head.run_number


def take_in(
    connection: apsw.Connection,
    run: RunKey,
    *,
    events: Sequence[FetchedEvent],
    chain_hash: bytes | None,
    now_nanos: int,
) -> None:
    """Append events that the hub has; see ``EventLog.take_in`` for what is refused."""
    head = load_head(connection, run) or _insert_run(connection, run)
    fault = _take_in_fault(head, events, chain_hash=chain_hash)
    if fault is not None:
        raise TakeInRefusedError(run.run_id, fault)
    if not events:
        return
    position = _head_local_position(connection)
    chain = head.chain_hash
    dropped_through = head.payload_dropped_through
    rows: list[InsertRow] = []
    for event in events:
        chain = chain_hash_after(chain, (event.content_hash,))
        position += 1
        if event.payload is None and dropped_through == event.sequence - 1:
            dropped_through = event.sequence
        rows.append(
            (position, head.run_number, event.sequence, event.event_type, event.event_time_nanos,
             attributes_to_text(event.attributes), event.is_final, event.content_hash, chain, event.payload)
        )  # fmt: skip
    sql = statements()
    connection.executemany(sql["insert_event"], rows)
    last = events[-1]
    connection.execute(sql["save_head"], (head.run_number, last.sequence, chain, last.is_final, position))
    connection.execute(sql["save_taken_in"], (head.run_number, dropped_through))
    connection.execute(sql["save_head_local_position"], (position,))
    hour = now_nanos - now_nanos % limits.ACKNOWLEDGE_BUCKET_NANOS
    connection.execute(sql["save_mark"], (hour, head.run_number, last.sequence))


def _take_in_fault(
    head: LoadedHead, events: Sequence[FetchedEvent], *, chain_hash: bytes | None
) -> str | None:
    if events and head.is_final:
        return f"the run ended at sequence {head.last_sequence}"
    for sequence, event in enumerate(events, start=head.last_sequence + 1):
        if event.sequence != sequence:
            return f"sequence {event.sequence} came where {sequence} is next"
        if event.is_final and event is not events[-1]:
            return f"an event follows the final one at sequence {sequence}"
        if event.payload is not None and event.content_hash != content_hash(
            event.event_type,
            event.event_time_nanos,
            is_final=event.is_final,
            attributes=event.attributes,
            payload=event.payload,
        ):
            return f"the event at sequence {sequence} does not have its content hash"
    chain_here = chain_hash_after(head.chain_hash, (event.content_hash for event in events))
    if chain_hash is not None and chain_here != chain_hash:
        return "its chain does not go on to the hub's"
    return None


def copy_to_new_run(
    connection: apsw.Connection,
    run: RunKey,
    *,
    new_run: RunKey,
    state: RunState | None,
    hub_limits: HubLimits,
    now_nanos: int,
) -> int:
    """Copy what the hub does not have of a quarantined run; see ``EventLog.release_as``."""
    old_number = quarantined_run_number(connection, run, state=state)
    assert state is not None
    assert state.quarantine is not None
    fault = run_fault(new_run, hub_limits)
    if fault is not None:
        raise fault
    if load_head(connection, new_run) is not None:
        raise RunExistsError(new_run.project_id, new_run.run_id)
    after = max(state.acknowledged_sequence, state.quarantine.copied_through_sequence)
    if after >= state.last_sequence:
        raise NothingToCopyError(run.run_id, state.last_sequence)
    head = _insert_run(connection, new_run)
    sql = statements()
    position = _head_local_position(connection) + 1
    attributes = {"run_id": run.run_id, "sequence": str(after)}
    digest = content_hash(FORKED_EVENT_TYPE, now_nanos, is_final=False, attributes=attributes, payload=b"")
    chain = chain_hash_after(head.chain_hash, (digest,))
    connection.execute(
        sql["insert_event"],
        (position, head.run_number, 1, FORKED_EVENT_TYPE, now_nanos, attributes_to_text(attributes), False,
         digest, chain, b""),
    )  # fmt: skip
    new_sequence = 1
    while after < state.last_sequence:
        page = list(
            cast(
                Iterable[tuple[int, bytes]],
                connection.execute(sql["list_copy_page"], (old_number, after, limits.COPY_PAGE_EVENTS)),
            )
        )
        bindings: list[tuple[int, int, int, bytes, int, int]] = []
        for after, content in page:
            chain = chain_hash_after(chain, (content,))
            new_sequence += 1
            position += 1
            bindings.append((position, head.run_number, new_sequence, chain, old_number, after))
        connection.executemany(sql["copy_event"], bindings)
    connection.execute(sql["save_head"], (head.run_number, new_sequence, chain, state.is_final, position))
    connection.execute(sql["save_head_local_position"], (position,))
    connection.execute(sql["save_copied_through"], (old_number, after))
    return new_sequence - 1


def drop_payloads(connection: apsw.Connection, *, acknowledged_before_nanos: int, limit: int) -> int:
    """Drop payloads acknowledged before a moment, at most ``limit``; return how many events it took."""
    sql = statements()
    hour_max = acknowledged_before_nanos - limits.ACKNOWLEDGE_BUCKET_NANOS
    dropped_count = 0
    while dropped_count < limit:
        mark = cast(
            tuple[int, int, int, int] | None,
            connection.execute(sql["next_expired_mark"], (hour_max,)).fetchone(),
        )
        if mark is None:
            break
        hour, run_number, through, dropped_through = mark
        step_end = min(through, dropped_through + limit - dropped_count)
        if step_end > dropped_through:
            connection.execute(sql["drop_payloads"], (run_number, dropped_through, step_end))
            connection.execute(sql["save_payload_dropped_through"], (run_number, step_end))
            dropped_count += step_end - dropped_through
        if step_end >= through or through <= dropped_through:
            connection.execute(sql["delete_mark"], (hour, run_number))
    return dropped_count


def _insert_run(connection: apsw.Connection, run: RunKey) -> LoadedHead:
    chain_hash = chain_hash_at_start(run.project_id, run.run_id)
    run_number = cast(
        int,
        connection.execute(statements()["insert_run"], (run.project_id, run.run_id, chain_hash)).get,
    )
    return LoadedHead(run_number, 0, chain_hash, False, 0, 0)


def _head_local_position(connection: apsw.Connection) -> int:
    return cast(int, connection.execute(statements()["load_head_local_position"]).get)
