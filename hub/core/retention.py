"""What is old enough to be dropped: the moments before which a prune looks, as pure functions.

Only payloads of events go, never the rest of an event: keys and hashes are kept for good, and so are
instances that are past. Of leases, receipts and runtimes only what has ended goes.
"""

from dataclasses import dataclass

from hub.core.presence import PresenceBounds
from hub.core.values import ProjectId


@dataclass(frozen=True, slots=True)
class PruneQuery:
    """What shall go: events older than so much, of all projects or of one.

    With ``project_id`` leases, receipts and runtimes stay: they belong to no project. With
    ``is_dry_run`` it is only counted.
    """

    older_than_nanos: int
    project_id: ProjectId | None = None
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PruneMoments:
    """Before when something must have happened to go, in Unix nanoseconds.

    ``received_nanos`` is by the wall clock, as receive times are; the others are hub time.
    """

    received_nanos: int
    ended_nanos: int
    heard_nanos: int


@dataclass(frozen=True, slots=True)
class PruneProgress:
    """How far a prune is; counts are of what went so far, or in a dry run of what would go."""

    considered_count: int = 0
    total_count: int = 0
    payload_count: int = 0
    payload_bytes: int = 0
    resource_count: int = 0
    receipt_count: int = 0
    runtime_count: int = 0
    is_done: bool = False


def decide_moments(
    older_than_nanos: int, *, wall_nanos: int, now_nanos: int, bounds: PresenceBounds
) -> PruneMoments:
    """Return the moments of a prune that begins now, none before 1970.

    Where the wall clock and hub time differ, one of them is wrong: the earlier one counts, so that a clock
    that jumped ahead makes nothing old. A runtime that may be alive is never old, however young the rest may
    be that goes.
    """
    silent_nanos = now_nanos - max(older_than_nanos, bounds.ttl_nanos)
    # What an earlier life of the hub heard counts from the start of this one.
    is_anyone_silent = now_nanos - bounds.ttl_nanos >= bounds.hub_start_nanos
    return PruneMoments(
        received_nanos=max(0, min(wall_nanos, now_nanos) - older_than_nanos),
        ended_nanos=max(0, now_nanos - older_than_nanos),
        heard_nanos=max(0, silent_nanos) if is_anyone_silent else 0,
    )
