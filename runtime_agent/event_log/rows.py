"""Between rows of the database and values of the log. STRICT tables guarantee the columns' types."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TypeAlias

from runtime_agent import limits
from runtime_agent.core.values import (
    NO_ATTRIBUTES,
    HubLimits,
    LogEvent,
    Quarantine,
    RunKey,
    RunState,
)

EventRow: TypeAlias = tuple[int, str, int | None, str | None, int, bytes | None, bytes, bytes, int]
"""Sequence, type, time, attributes, final, payload, content hash, chain hash, local position."""

TailRow: TypeAlias = tuple[
    int, str, int | None, str | None, int, bytes | None, bytes, bytes, int, str, str, int
]
"""An event row, then project, run, acknowledged."""

RunRow: TypeAlias = tuple[
    str, str, int, bytes, int, int, int, int, str | None, str | None, int | None, int | None, int | None
]
"""The columns of a run, then those of its quarantine, which may be NULL."""


def attributes_to_text(attributes: Mapping[str, str]) -> str | None:
    """Return attributes as the JSON text that is stored; ASCII, so that its length bounds their bytes."""
    if not attributes:
        return None
    return json.dumps(dict(attributes), sort_keys=True, separators=(",", ":"))


def attributes_from_text(text: str | None) -> Mapping[str, str]:
    """Return the attributes of a stored event."""
    if text is None:
        return NO_ATTRIBUTES
    attributes: dict[str, str] = json.loads(text)
    return attributes


def event_from_row(row: EventRow) -> LogEvent:
    """Return the event of a row."""
    return LogEvent(
        row[0], row[1], row[2], attributes_from_text(row[3]), row[4] == 1, row[5], row[6], row[7], row[8]
    )


def event_bytes(row: EventRow) -> int:
    """Return how many bytes the event takes in a message, at most."""
    event_type, attributes, payload = row[1], row[3], row[5]
    return (
        limits.EVENT_OVERHEAD_BYTES
        + (len(event_type) if event_type.isascii() else len(event_type.encode()))
        + (0 if attributes is None else len(attributes))
        + (0 if payload is None else len(payload))
    )


def bounded_events(rows: Iterable[EventRow], bytes_max: int) -> tuple[LogEvent, ...]:
    """Return the events of the first rows that fit ``bytes_max``, but always one where there is one."""
    events: list[LogEvent] = []
    bytes_sum = 0
    for row in rows:
        bytes_sum += event_bytes(row)
        if bytes_sum > bytes_max and events:
            break
        events.append(event_from_row(row))
    return tuple(events)


def run_state_from_row(row: RunRow) -> RunState:
    """Return the run of a row."""
    project_id, run_id, last_sequence, chain_hash, acknowledged, dropped_through, is_final, position = row[:8]
    reason, detail, sequence, time_nanos, copied_through = row[8:]
    quarantine = None
    if reason is not None:
        assert detail is not None
        assert sequence is not None
        assert time_nanos is not None
        assert copied_through is not None
        quarantine = Quarantine(reason, detail, sequence, time_nanos, copied_through)
    return RunState(
        run=RunKey(project_id, run_id),
        last_sequence=last_sequence,
        chain_hash=chain_hash,
        acknowledged_sequence=acknowledged,
        oldest_payload_sequence=dropped_through + 1 if dropped_through < last_sequence else 0,
        is_final=is_final == 1,
        last_local_position=position,
        quarantine=quarantine,
    )


def limits_to_text(hub_limits: HubLimits) -> str:
    """Return limits as the JSON text that is stored."""
    return json.dumps(asdict(hub_limits), sort_keys=True)


def limits_from_text(text: str | None) -> HubLimits | None:
    """Return stored limits; None where there are none, or those of a version with other limits."""
    if text is None:
        return None
    stored: dict[str, int] = json.loads(text)
    try:
        return HubLimits(**stored)
    except TypeError:
        # Written by another version of the agent: the hub tells them again on connecting.
        return None
