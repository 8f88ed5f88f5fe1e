"""Who is behind, the runtime's log or the hub's: decided for one run.

The hub keeps a chain hash only at each run's cursor. Below it, it can compare histories by folding the
stored content hashes; above it, the runtime compares its own chain hash at the hub's cursor.
"""

from dataclasses import dataclass
from enum import StrEnum

from hub.core.values import ProjectId, RunHead, RunId


class ReconcileState(StrEnum):
    """Who is behind; the last three with nothing else told."""

    IN_STEP = "IN_STEP"
    HUB_BEHIND = "HUB_BEHIND"
    HUB_AHEAD = "HUB_AHEAD"
    DIVERGED = "DIVERGED"
    PROJECT_MISMATCH = "PROJECT_MISMATCH"
    HOME_RUNTIME_MISMATCH = "HOME_RUNTIME_MISMATCH"
    PERMISSION_DENIED = "PERMISSION_DENIED"


@dataclass(frozen=True, slots=True)
class RuntimeRun:
    """What a runtime has of a run: its last sequence, the chain hash there, and what it was told."""

    project_id: ProjectId
    run_id: RunId
    sequence: int
    chain_hash: bytes
    acknowledged_sequence: int


@dataclass(frozen=True, slots=True)
class ReconciledRun:
    """The hub's view of a run; cursor, chain hash and highest sequence are empty where not told."""

    project_id: ProjectId
    run_id: RunId
    cursor: int
    chain_hash: bytes
    highest_sequence: int
    state: ReconcileState


def decide_reconcile(
    head: RunHead,
    run: RuntimeRun,
    *,
    chain_hash_at_sequence: bytes | None,
    stored_above_count: int,
) -> ReconcileState:
    """Say who is behind.

    ``chain_hash_at_sequence`` is the hub's chain hash at the runtime's last sequence, where that is at
    most the cursor and the hub could compute it, else None. ``stored_above_count`` says how many
    events the hub has above the larger of its cursor and the runtime's last sequence.
    """
    if chain_hash_at_sequence is not None and chain_hash_at_sequence != run.chain_hash:
        return ReconcileState.DIVERGED
    if head.highest_sequence > max(head.cursor, run.sequence):
        # Events above a hole that neither side has can never be reached by either chain.
        hole_free = stored_above_count == head.highest_sequence - max(head.cursor, run.sequence)
        return ReconcileState.HUB_AHEAD if hole_free else ReconcileState.DIVERGED
    if run.sequence == head.cursor:
        return ReconcileState.IN_STEP
    return ReconcileState.HUB_AHEAD if run.sequence < head.cursor else ReconcileState.HUB_BEHIND


def is_history_lost(
    head: RunHead, run: RuntimeRun, *, known_hub_generation: str, hub_generation: str
) -> bool:
    """Whether the hub has less than what it acknowledged under the generation that it still has."""
    return known_hub_generation == hub_generation and head.cursor < run.acknowledged_sequence
