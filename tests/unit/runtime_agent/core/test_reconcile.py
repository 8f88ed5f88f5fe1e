"""What the hub's view of a run means."""

from dataclasses import replace

import pytest

from runtime_agent.core.reconcile import (
    REASON_HISTORY_DIVERGED,
    Diverge,
    FetchMissing,
    FetchProgress,
    HoldProject,
    HubView,
    ProbeAbove,
    PushFrom,
    ReconciledRun,
    decide_probed,
    decide_reconciled,
    equal_prefix_length,
    fold_fetched,
)
from runtime_agent.core.values import FetchedEvent, RunKey
from synchub import contract

RUN = RunKey("p", "r")
CONTENT = [
    contract.content_hash("t", None, is_final=False, attributes={}, payload=b"%d" % n) for n in range(1, 11)
]
CHAIN = [contract.chain_hash_after(contract.chain_hash_at_start("p", "r"), CONTENT[:n]) for n in range(11)]


def hub_at(cursor: int, view: HubView = HubView.HUB_BEHIND, highest: int | None = None) -> ReconciledRun:
    return ReconciledRun(RUN, view, cursor, CHAIN[cursor], cursor if highest is None else highest)


def fetched(first: int, last: int) -> list[FetchedEvent]:
    return [FetchedEvent(n, "t", None, {}, False, b"%d" % n, CONTENT[n - 1]) for n in range(first, last + 1)]


def test_in_step_goes_on_from_the_end() -> None:
    decision = decide_reconciled(hub_at(5, HubView.IN_STEP), last_sequence=5, own_chain_hash=CHAIN[5])
    assert decision == PushFrom(5)


def test_a_log_that_grew_since_the_question_goes_on_from_the_hubs_cursor() -> None:
    decision = decide_reconciled(hub_at(5, HubView.IN_STEP), last_sequence=9, own_chain_hash=CHAIN[5])
    assert decision == PushFrom(5)


@pytest.mark.parametrize("cursor", [0, 3])
def test_a_hub_that_is_behind_is_pushed_to_from_its_cursor(cursor: int) -> None:
    assert decide_reconciled(hub_at(cursor), last_sequence=5, own_chain_hash=CHAIN[cursor]) == PushFrom(
        cursor
    )


def test_a_hub_that_is_behind_with_another_history_has_diverged() -> None:
    decision = decide_reconciled(hub_at(3), last_sequence=5, own_chain_hash=CHAIN[4])
    assert isinstance(decision, Diverge)
    assert (decision.reason, decision.sequence, decision.is_history) == (REASON_HISTORY_DIVERGED, 3, True)


def test_a_hub_that_is_ahead_is_fetched_from() -> None:
    decision = decide_reconciled(hub_at(9, HubView.HUB_AHEAD), last_sequence=4, own_chain_hash=None)
    assert decision == FetchMissing(4, 9)


def test_events_above_a_hole_that_the_log_may_fill_are_looked_at_first() -> None:
    hub = hub_at(3, HubView.HUB_AHEAD, highest=9)
    assert decide_reconciled(hub, last_sequence=5, own_chain_hash=CHAIN[3]) == ProbeAbove(5)
    assert decide_probed(hub, 6, last_sequence=5) == PushFrom(3)
    assert isinstance(decide_probed(hub, 7, last_sequence=5), Diverge)


@pytest.mark.parametrize("last_sequence", [3, 5])
def test_events_above_a_hole_that_neither_side_has_are_divergence(last_sequence: int) -> None:
    hub = hub_at(5, HubView.HUB_AHEAD, highest=9)
    decision = decide_reconciled(hub, last_sequence=last_sequence, own_chain_hash=CHAIN[5])
    assert isinstance(decision, Diverge)
    assert decision.sequence == 6


def test_events_beyond_the_hubs_cursor_that_the_log_has_too_are_pushed_again() -> None:
    hub = hub_at(2, HubView.HUB_BEHIND, highest=5)
    assert decide_reconciled(hub, last_sequence=5, own_chain_hash=CHAIN[2]) == PushFrom(2)


@pytest.mark.parametrize("view", [HubView.PROJECT_MISMATCH, HubView.HOME_RUNTIME_MISMATCH])
def test_a_run_of_somebody_else_is_quarantined_under_that_reason(view: HubView) -> None:
    hub = ReconciledRun(RUN, view, 0, b"", 0)
    decision = decide_reconciled(hub, last_sequence=5, own_chain_hash=CHAIN[0])
    assert isinstance(decision, Diverge)
    assert (decision.reason, decision.is_history) == (view.value, False)


def test_a_diverged_run_is_quarantined() -> None:
    decision = decide_reconciled(hub_at(5, HubView.DIVERGED), last_sequence=5, own_chain_hash=CHAIN[5])
    assert isinstance(decision, Diverge)
    assert decision.reason == REASON_HISTORY_DIVERGED


@pytest.mark.parametrize("view", [HubView.PERMISSION_DENIED, HubView.UNKNOWN])
def test_a_project_that_is_not_allowed_waits(view: HubView) -> None:
    hub = ReconciledRun(RUN, view, 0, b"", 0)
    assert decide_reconciled(hub, last_sequence=5, own_chain_hash=CHAIN[0]) == HoldProject()


def test_fetched_pages_are_folded_up_to_the_hubs_chain_hash() -> None:
    hub = hub_at(9, HubView.HUB_AHEAD)
    progress = fold_fetched(hub, fetched(5, 7), progress=FetchProgress(4, CHAIN[4]))
    assert progress == FetchProgress(7, CHAIN[7])
    assert fold_fetched(hub, fetched(8, 9), progress=progress) == FetchProgress(9, CHAIN[9])


def test_a_log_with_another_history_shows_at_the_hubs_cursor() -> None:
    """A restored log gave sequence 4 again: every fetched event is right, but the chain is not."""
    other = contract.chain_hash_after(CHAIN[3], [b"x" * 32])
    decision = fold_fetched(hub_at(6, HubView.HUB_AHEAD), fetched(5, 6), progress=FetchProgress(4, other))
    assert isinstance(decision, Diverge)
    assert decision.sequence == 6


def test_a_hole_in_what_was_fetched_is_divergence() -> None:
    hub = hub_at(9, HubView.HUB_AHEAD)
    assert isinstance(fold_fetched(hub, fetched(6, 9), progress=FetchProgress(4, CHAIN[4])), Diverge)
    assert isinstance(fold_fetched(hub, [], progress=FetchProgress(4, CHAIN[4])), Diverge)


def test_fetched_content_must_have_its_hash_unless_it_was_dropped() -> None:
    hub = hub_at(5, HubView.HUB_AHEAD)
    (event,) = fetched(5, 5)
    start = FetchProgress(4, CHAIN[4])
    assert isinstance(fold_fetched(hub, [event._replace(payload=b"other")], progress=start), Diverge)
    assert fold_fetched(hub, [event._replace(payload=None)], progress=start) == FetchProgress(5, CHAIN[5])


def test_events_stored_since_the_question_are_folded_too() -> None:
    hub = replace(hub_at(5, HubView.HUB_AHEAD))
    folded = fold_fetched(hub, fetched(5, 6), progress=FetchProgress(4, CHAIN[4]))
    assert folded == FetchProgress(6, CHAIN[6])


def test_the_fork_is_where_content_hashes_begin_to_differ() -> None:
    assert equal_prefix_length(CONTENT[:5], CONTENT[:3]) == 3
    assert equal_prefix_length(CONTENT[:5], [*CONTENT[:2], b"x", *CONTENT[3:]]) == 2
    assert equal_prefix_length([], CONTENT) == 0
