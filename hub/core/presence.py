"""Whether a runtime is alive, computed from the age of what was heard when it is asked.

So no stopped background task keeps a dead runtime alive, and a restart of the hub declares nobody dead:
what an earlier life of the hub heard counts from the start of this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hub.core.values import InstanceId, ProjectId, RunId, Runtime, RuntimeId


class PresenceState(StrEnum):
    """ONLINE: heard within the TTL. OFFLINE: it said goodbye. LOST: neither."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class PresenceBounds:
    """When silence means loss; in nanoseconds of hub time.

    ``hub_start_nanos`` is when this life of the hub began.
    """

    ttl_nanos: int
    broken_stream_grace_nanos: int
    hub_start_nanos: int


def decide_presence(
    runtime: Runtime, now_nanos: int, *, break_nanos: int | None, bounds: PresenceBounds
) -> PresenceState:
    """Say whether a runtime is alive now.

    ``break_nanos`` is when the stream of its last heartbeat broke, None while it did not. A runtime
    that only reconciled so far counts as heard when its instance began.
    """
    if runtime.is_goodbye:
        return PresenceState.OFFLINE
    if break_nanos is not None and now_nanos >= break_nanos + bounds.broken_stream_grace_nanos:
        return PresenceState.LOST
    heard_nanos = runtime.last_heartbeat_nanos
    if heard_nanos is None:
        heard_nanos = runtime.instance_start_nanos
    if now_nanos >= max(heard_nanos, bounds.hub_start_nanos) + bounds.ttl_nanos:
        return PresenceState.LOST
    return PresenceState.ONLINE


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a runtime says of itself, valid in itself; empty or 0 where it did not say."""

    runtime_id: RuntimeId
    instance_id: InstanceId
    host: str
    pid: int
    version: str
    labels: Mapping[str, str]
    active_runs: tuple[tuple[ProjectId, RunId], ...]
    unsynced_event_count: int
    is_goodbye: bool

    def as_runtime(self, *, instance_start_nanos: int, heard_nanos: int) -> Runtime:
        """Return what is known of the runtime once this heartbeat was heard."""
        return Runtime(
            self.runtime_id,
            self.instance_id,
            instance_start_nanos,
            heard_nanos,
            self.is_goodbye,
            self.host,
            self.pid,
            self.version,
            self.labels,
            self.active_runs,
            self.unsynced_event_count,
        )
