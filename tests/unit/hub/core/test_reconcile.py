"""Who is behind: decided for one run."""

import pytest

from hub.core.ingest import head_of_new_run
from hub.core.reconcile import ReconcileState, RuntimeRun, decide_reconcile, is_history_lost
from hub.core.values import ProjectId, RunHead, RunId, RuntimeId

OWN = b"\1" * 32
OTHER = b"\2" * 32


def head(cursor: int, highest: int | None = None) -> RunHead:
    new = head_of_new_run(ProjectId("p"), RunId("r"), home_runtime_id=RuntimeId("runtime"))
    highest = cursor if highest is None else highest
    return RunHead(1, new.project_id, new.run_id, new.home_runtime_id, cursor, OWN, highest, cursor, None)


def run(sequence: int, acknowledged: int = 0) -> RuntimeRun:
    return RuntimeRun(ProjectId("p"), RunId("r"), sequence, OWN, acknowledged)


@pytest.mark.parametrize(
    ("hub", "sequence", "chain_hash", "above_count", "state"),
    [
        (head(0), 0, OWN, 0, ReconcileState.IN_STEP),
        (head(5), 5, OWN, 0, ReconcileState.IN_STEP),
        (head(5), 5, OTHER, 0, ReconcileState.DIVERGED),
        (head(3), 5, None, 0, ReconcileState.HUB_BEHIND),
        (head(5), 3, OWN, 0, ReconcileState.HUB_AHEAD),
        (head(5), 3, OTHER, 0, ReconcileState.DIVERGED),
        (head(5), 3, None, 0, ReconcileState.HUB_AHEAD),
        # Events stored beyond the cursor, from the runtime's last one on: it can fetch them.
        (head(3, 7), 5, None, 2, ReconcileState.HUB_AHEAD),
        # The hub has 7 but neither side has 6: no chain can ever reach it.
        (head(3, 7), 5, None, 1, ReconcileState.DIVERGED),
        (head(3, 5), 3, OWN, 1, ReconcileState.DIVERGED),
        # What the hub has beyond its cursor, the runtime has too, and fills the gap.
        (head(3, 5), 5, None, 0, ReconcileState.HUB_BEHIND),
    ],
)
def test_the_state_follows_from_both_sides(
    hub: RunHead, sequence: int, chain_hash: bytes | None, above_count: int, state: ReconcileState
) -> None:
    decided = decide_reconcile(
        hub, run(sequence), chain_hash_at_sequence=chain_hash, stored_above_count=above_count
    )
    assert decided is state


@pytest.mark.parametrize(
    ("known", "acknowledged", "is_lost"), [("now", 4, True), ("now", 3, False), ("before", 4, False)]
)
def test_history_is_lost_only_within_the_generation_that_acknowledged_it(
    known: str, acknowledged: int, is_lost: bool
) -> None:
    told = run(5, acknowledged)
    assert is_history_lost(head(3), told, known_hub_generation=known, hub_generation="now") is is_lost
