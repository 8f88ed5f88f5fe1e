"""What the public client gives to a program that reads from a hub, as values.

Times are nanoseconds since 1970, None where there is none; hashes are 32 bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from runtime_agent.core.push_steps import Conflict
from runtime_agent.core.values import RunKey


@dataclass(frozen=True, slots=True)
class EventToPush:
    """One event as a program pushes it. ``content_hash`` is compared with the content where it is given.

    With ``payload_dropped`` the payload no longer exists and the content hash is required.
    """

    sequence: int
    event_type: str
    payload: bytes = b""
    event_time_nanos: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_final: bool = False
    content_hash: bytes = b""
    payload_dropped: bool = False


@dataclass(frozen=True, slots=True)
class BatchToPush:
    """1 to 1,024 events of one run, at most 4 MiB.

    With ``previous_chain_hash`` (before the first event) the batch proves that it continues the hub's
    history, and its sequences must be consecutive; without it gaps are accepted.
    """

    run: RunKey
    events: tuple[EventToPush, ...]
    previous_chain_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class PushResult:
    """What became of one batch; it is on stable storage when this is there.

    With ``go_back`` nothing was stored: send again from ``cursor`` + 1.
    """

    run: RunKey
    cursor: int
    chain_hash: bytes
    accepted_count: int
    duplicate_count: int
    conflicts: tuple[Conflict, ...]
    go_back: bool
    retry_delay_seconds: float


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as the hub holds it; ``payload`` is None where it was dropped."""

    run: RunKey
    sequence: int
    position: int
    event_type: str
    event_time_nanos: int | None
    attributes: Mapping[str, str]
    payload: bytes | None
    content_hash: bytes
    is_final: bool
    receive_time_nanos: int


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """Events in the order of their positions, or progress, or both.

    To go on after a break, watch again from ``progress_position`` under ``hub_generation``.
    """

    events: tuple[StoredEvent, ...]
    progress_position: int
    hub_generation: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run as the hub knows it."""

    run: RunKey
    home_runtime_id: str
    cursor: int
    highest_sequence: int
    event_count: int
    chain_hash: bytes
    is_complete: bool
    first_receive_time_nanos: int | None
    last_receive_time_nanos: int | None


class RuntimeState(Enum):
    """Whether a runtime is alive. UNKNOWN is a state that this version does not know."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    LOST = "LOST"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """A runtime as the hub last heard of it."""

    runtime_id: str
    state: RuntimeState
    instance_id: str
    host: str
    pid: int
    version: str
    labels: Mapping[str, str]
    active_runs: tuple[RunKey, ...]
    unsynced_event_count: int
    last_heartbeat_time_nanos: int | None
    instance_start_time_nanos: int | None


@dataclass(frozen=True, slots=True)
class AlertSample:
    """One observation behind an alert."""

    sequence: int
    last_sequence: int
    stored_content_hash: bytes
    offered_content_hash: bytes
    peer: str
    credential_name: str


@dataclass(frozen=True, slots=True)
class Alert:
    """A security alert; ``reason`` is bare ("SEQUENCE_REUSED")."""

    alert_id: str
    reason: str
    project_id: str
    run_id: str
    runtime_id: str
    first_seen_time_nanos: int | None
    last_seen_time_nanos: int | None
    seen_count: int
    samples: tuple[AlertSample, ...]
    acknowledge_time_nanos: int | None
