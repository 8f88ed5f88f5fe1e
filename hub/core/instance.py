"""Which start of a runtime's agent speaks for it.

An instance that was current before never is again. So two copies of one runtime (a cloned disk, a
restored machine) are seen, and the older one begins anew under a fresh instance.
"""

from enum import StrEnum

from hub.core.values import InstanceId


class InstanceStanding(StrEnum):
    """How an instance stands to its runtime: CURRENT, NEW (never heard), or PAST (refused)."""

    CURRENT = "CURRENT"
    NEW = "NEW"
    PAST = "PAST"


def decide_instance(
    instance_id: InstanceId, *, current: InstanceId | None, was_current_before: bool
) -> InstanceStanding:
    """Say how an instance stands, given the runtime's current one and whether it had its turn."""
    if instance_id == current:
        return InstanceStanding.CURRENT
    return InstanceStanding.PAST if was_current_before else InstanceStanding.NEW
