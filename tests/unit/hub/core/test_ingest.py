"""The rule table of ingest, row by row, and the order of its rows."""

from dataclasses import replace

import pytest

from hub.core.ingest import (
    BatchDecision,
    Conflict,
    PushBatch,
    StoredContent,
    advanced_head,
    continues_plainly,
    decide_batch,
    decide_plainly,
    dropped_ranges,
    head_of_new_run,
    refuse_whole,
)
from hub.core.values import ConflictReason, EventContent, ProjectId, RunHead, RunId, RuntimeId
from synchub.contract import SEQUENCE_MAX, chain_hash_after, chain_hash_at_start
from tests.unit.hub.gate import batch
from tests.unit.hub.stored_runs import event

NEW = head_of_new_run(ProjectId("p"), RunId("r"), home_runtime_id=RuntimeId("runtime"))


def stored_of(*events: EventContent) -> dict[int, StoredContent]:
    return {each.sequence: StoredContent(each.content_hash, each.payload is None) for each in events}


def head_with(*events: EventContent) -> RunHead:
    """The head of a run that holds these events."""
    decision = BatchDecision(events, (), 0, (), go_back=False, head=None)
    beyond = sorted((each.sequence, each.content_hash) for each in events)
    return advanced_head(replace(NEW, run_key=1), decision, stored_beyond=beyond)


def decide(pushed: PushBatch, *stored: EventContent) -> BatchDecision:
    return decide_batch(head_with(*stored), pushed, stored=stored_of(*stored))


def reasons(decision: BatchDecision) -> list[tuple[int, ConflictReason]]:
    return [(conflict.sequence, conflict.reason) for conflict in decision.conflicts]


def chain(*events: EventContent) -> bytes:
    return chain_hash_after(chain_hash_at_start("p", "r"), [each.content_hash for each in events])


def test_new_events_are_accepted() -> None:
    decision = decide(batch(event(1), event(2)))
    assert (decision.accepted, decision.duplicate_count, list(decision.conflicts)) == (
        (event(1), event(2)),
        0,
        [],
    )


def test_a_whole_batch_of_somebody_elses_run_is_refused_without_a_hash() -> None:
    for reason in (ConflictReason.PROJECT_MISMATCH, ConflictReason.HOME_RUNTIME_MISMATCH):
        decision = refuse_whole(batch(event(1), event(2)), reason)
        assert list(decision.conflicts) == [Conflict(n, reason, b"", b"") for n in (1, 2)]
        assert (decision.accepted, decision.filled, decision.head) == ((), (), None)


def test_a_wrong_content_hash_is_a_conflict_before_anything_that_is_stored() -> None:
    # Row 6 comes before row 7: also where the content itself would be a duplicate.
    decision = decide(batch(event(1), event(2), wrong_hashes={0: b"\1" * 32}), event(1))
    assert list(decision.conflicts) == [Conflict(1, ConflictReason.CONTENT_HASH_MISMATCH, b"", b"\1" * 32)]
    assert (decision.accepted, decision.duplicate_count) == ((event(2),), 0)


def test_a_resent_event_is_a_duplicate() -> None:
    decision = decide(batch(event(1), event(2)), event(1), event(2))
    assert (decision.accepted, decision.duplicate_count, list(decision.conflicts)) == ((), 2, [])


def test_a_reused_sequence_is_a_conflict_with_the_stored_hash() -> None:
    other = event(1, b"other")
    decision = decide(batch(other, event(2)), event(1))
    assert list(decision.conflicts) == [
        Conflict(1, ConflictReason.SEQUENCE_REUSED, event(1).content_hash, other.content_hash)
    ]
    assert decision.accepted == (event(2),)


def test_one_sequence_several_times_in_a_batch_follows_the_table_in_order() -> None:
    decision = decide(batch(event(1), event(1), event(1, b"other"), event(1)))
    assert decision.accepted == (event(1),)
    assert decision.duplicate_count == 2
    assert reasons(decision) == [(1, ConflictReason.SEQUENCE_REUSED)]


def test_a_batch_whose_fold_is_not_the_chain_hash_has_diverged() -> None:
    held = (event(1), event(2))
    decision = decide(batch(event(2), event(3), proof=b"\7" * 32), *held)
    assert (decision.accepted, decision.duplicate_count) == ((), 1)
    assert reasons(decision) == [(3, ConflictReason.HISTORY_DIVERGED)]


def test_a_reused_sequence_beyond_the_cursor_makes_a_proven_batch_diverge() -> None:
    proof = chain_hash_at_start("p", "r")
    decision = decide(batch(event(1), event(2), event(3, b"other"), proof=proof), event(3))
    assert decision.accepted == ()
    assert reasons(decision) == [
        (1, ConflictReason.HISTORY_DIVERGED),
        (2, ConflictReason.HISTORY_DIVERGED),
        (3, ConflictReason.SEQUENCE_REUSED),
    ]


def test_without_a_proof_a_reused_sequence_stops_no_other_event() -> None:
    decision = decide(batch(event(1), event(2), event(3, b"other")), event(3))
    assert decision.accepted == (event(1), event(2))
    assert reasons(decision) == [(3, ConflictReason.SEQUENCE_REUSED)]


def test_a_batch_that_reaches_over_the_cursor_is_folded_up_to_it() -> None:
    held = (event(1), event(2))
    decision = decide(batch(event(2), event(3), proof=chain(event(1))), *held)
    assert (decision.accepted, decision.duplicate_count, list(decision.conflicts)) == ((event(3),), 1, [])


def test_a_proven_batch_that_ends_below_the_cursor_is_settled_by_its_duplicates() -> None:
    decision = decide(batch(event(1), proof=chain_hash_at_start("p", "r")), event(1), event(2))
    assert (decision.duplicate_count, list(decision.conflicts)) == (1, [])


def test_a_proven_batch_beyond_the_cursor_goes_back_and_counts_nothing() -> None:
    held = (event(1),)
    decision = decide(batch(event(3), event(4), proof=b"\7" * 32), *held)
    assert decision == BatchDecision((), (), 0, (), go_back=True, head=head_with(*held))


def test_a_proven_batch_at_cursor_plus_one_does_not_go_back() -> None:
    decision = decide(batch(event(2), proof=chain(event(1))), event(1))
    assert (decision.go_back, decision.accepted) == (False, (event(2),))


def test_nothing_is_accepted_above_a_final_event() -> None:
    decision = decide(batch(event(3)), event(1), event(2, is_final=True))
    assert (decision.accepted, reasons(decision)) == ((), [(3, ConflictReason.RUN_COMPLETE)])


def test_a_gap_below_a_final_event_is_still_filled() -> None:
    decision = decide(batch(event(1)), event(2, is_final=True))
    assert decision.accepted == (event(1),)


def test_a_final_event_below_a_stored_one_is_refused() -> None:
    decision = decide(batch(event(1, is_final=True)), event(2))
    assert (decision.accepted, reasons(decision)) == ((), [(1, ConflictReason.RUN_COMPLETE)])


def test_completeness_counts_within_a_batch_too() -> None:
    decision = decide(batch(event(1), event(2, is_final=True), event(3)))
    assert reasons(decision) == [(3, ConflictReason.RUN_COMPLETE)]
    decision = decide(batch(event(2), event(1, is_final=True)))
    assert (decision.accepted, reasons(decision)) == ((event(2),), [(1, ConflictReason.RUN_COMPLETE)])


def test_the_tail_of_a_complete_run_sent_again_is_duplicates() -> None:
    held = (event(1), event(2, is_final=True))
    decision = decide(batch(*held, proof=chain_hash_at_start("p", "r")), *held)
    assert (decision.duplicate_count, list(decision.conflicts)) == (2, [])


def test_a_duplicate_of_a_dropped_event_fills_it_in() -> None:
    dropped = event(1)._replace(payload=None)
    decision = decide(batch(event(1)), dropped)
    assert (decision.accepted, decision.filled, decision.duplicate_count) == ((), (event(1),), 1)


def test_a_dropped_event_sent_again_as_dropped_fills_nothing() -> None:
    dropped = event(1)._replace(payload=None)
    decision = decide(batch(dropped), dropped)
    assert (decision.filled, decision.duplicate_count) == ((), 1)


def test_a_dropped_event_does_not_empty_a_stored_one() -> None:
    decision = decide(batch(event(1)._replace(payload=None)), event(1))
    assert (decision.accepted, decision.filled, decision.duplicate_count) == ((), (), 1)


def test_a_dropped_event_is_filled_within_its_own_batch() -> None:
    decision = decide(batch(event(1)._replace(payload=None), event(1)))
    assert (decision.accepted, decision.duplicate_count) == ((event(1),), 1)


def dropped(sequence: int, *, claims_final: bool = False) -> EventContent:
    """An event without its bytes, which may be wrong about all but its hash."""
    return event(sequence)._replace(payload=None, is_final=claims_final)


def final_after(decision: BatchDecision, *held: EventContent) -> int | None:
    return advanced_head(head_with(*held), decision, stored_beyond=()).final_sequence


def test_a_run_that_a_dropped_event_made_complete_goes_on_once_its_content_says_otherwise() -> None:
    held = (event(1), dropped(2, claims_final=True))
    assert head_with(*held).is_complete
    decision = decide(batch(event(2), event(3)), *held)
    assert (decision.filled, decision.accepted, list(decision.conflicts)) == ((event(2),), (event(3),), [])
    assert final_after(decision, *held) is None


def test_a_dropped_event_whose_content_is_final_completes_the_run() -> None:
    true_content = event(2, is_final=True)
    held = (event(1), true_content._replace(payload=None, is_final=False))
    decision = decide(batch(true_content, event(3)), *held)
    assert (decision.filled, reasons(decision)) == ((true_content,), [(3, ConflictReason.RUN_COMPLETE)])
    assert final_after(decision, *held) == 2


def test_going_back_comes_before_every_row_of_a_single_event() -> None:
    held = (event(1), event(3))
    pushed = batch(event(3, b"other"), event(4), proof=b"\7" * 32, wrong_hashes={1: b"\1" * 32})
    assert decide(pushed, *held) == BatchDecision((), (), 0, (), go_back=True, head=head_with(*held))


def test_a_wrong_content_hash_comes_before_a_diverged_history_and_a_complete_run() -> None:
    held = (event(1, is_final=True),)
    pushed = batch(event(2), event(3), proof=b"\7" * 32, wrong_hashes={0: b"\1" * 32})
    assert reasons(decide(pushed, *held)) == [
        (2, ConflictReason.CONTENT_HASH_MISMATCH),
        # ... and a diverged history comes before a complete run.
        (3, ConflictReason.HISTORY_DIVERGED),
    ]


def test_what_is_stored_comes_before_a_complete_run() -> None:
    held = (event(1), event(3, is_final=True))
    decision = decide(batch(event(3, is_final=True), event(1, is_final=True), event(3, b"other")), *held)
    assert decision.duplicate_count == 1
    assert reasons(decision) == [(1, ConflictReason.SEQUENCE_REUSED), (3, ConflictReason.SEQUENCE_REUSED)]


def test_a_wrong_content_hash_alone_does_not_make_a_proven_batch_diverge() -> None:
    # The second one's content is not what is stored, but it is not known what was meant either.
    pushed = batch(event(1), event(2), proof=chain_hash_at_start("p", "r"), wrong_hashes={1: b"\1" * 32})
    decision = decide(pushed, event(1))
    assert decision.duplicate_count == 1
    assert reasons(decision) == [(2, ConflictReason.CONTENT_HASH_MISMATCH)]
    decision = decide(replace(pushed, wrong_hashes={0: b"\1" * 32}), event(1))
    assert decision.accepted == (event(2),)


def test_the_start_of_another_run_proves_nothing() -> None:
    for other in (chain_hash_at_start("p", "R"), chain_hash_at_start("pr", ""), bytes(32)):
        assert reasons(decide(batch(event(1), proof=other))) == [(1, ConflictReason.HISTORY_DIVERGED)]


def test_the_cursor_waits_at_zero_while_the_first_event_is_missing() -> None:
    head = head_with(event(2), event(3))
    assert (head.cursor, head.chain_hash, head.highest_sequence) == (0, chain_hash_at_start("p", "r"), 3)


def test_a_run_is_complete_only_when_its_final_event_lies_at_the_cursor() -> None:
    assert not head_with(event(1), event(3, is_final=True)).is_complete
    assert head_with(event(1), event(2), event(3, is_final=True)).is_complete


def test_the_cursor_jumps_over_all_that_is_stored_once_the_gap_closes() -> None:
    held = (event(1), event(3), event(4), event(6))
    head = head_with(*held)
    assert (head.cursor, head.highest_sequence, head.event_count) == (1, 6, 4)
    decision = decide(batch(event(2)), *held)
    stored = sorted((each.sequence, each.content_hash) for each in (*held, event(2)))
    after = advanced_head(head, decision, stored_beyond=[each for each in stored if each[0] > 1])
    assert (after.cursor, after.highest_sequence, after.event_count) == (4, 6, 5)
    assert after.chain_hash == chain(*(event(n) for n in (1, 2, 3, 4)))


def test_the_last_sequence_that_fits_is_taken() -> None:
    decision = decide(batch(event(SEQUENCE_MAX)))
    assert decision.accepted == (event(SEQUENCE_MAX),)
    head = advanced_head(NEW, decision, stored_beyond=[(SEQUENCE_MAX, event(SEQUENCE_MAX).content_hash)])
    assert (head.cursor, head.highest_sequence) == (0, SEQUENCE_MAX)


def test_counts_add_up_to_the_events_of_the_request() -> None:
    pushed = batch(event(1), event(1), event(2, b"other"), event(5, is_final=True), event(6), event(4))
    decision = decide(pushed, event(2))
    assert len(decision.accepted) + decision.duplicate_count + len(decision.conflicts) == 6


@pytest.mark.parametrize("proof", [None, chain(event(1))])
def test_the_fast_path_decides_as_the_rules_one_by_one(proof: bytes | None) -> None:
    head = head_with(event(1))
    pushed = batch(event(2), event(3, is_final=True), proof=proof)
    assert continues_plainly(head, pushed)
    plain = decide_plainly(head, pushed)
    by_rules = decide_batch(head, pushed, stored={})
    beyond = [(each.sequence, each.content_hash) for each in pushed.events]
    assert tuple(plain.accepted) == by_rules.accepted
    assert plain.head == advanced_head(head, by_rules, stored_beyond=beyond)


@pytest.mark.parametrize(
    ("held", "pushed"),
    [
        ((event(1),), batch(event(1))),
        ((event(1),), batch(event(3))),
        ((event(1),), batch(event(2), event(2))),
        ((event(1), event(3)), batch(event(2))),
        ((event(1, is_final=True),), batch(event(2))),
        ((event(1),), batch(event(2, is_final=True), event(3))),
        ((event(1),), batch(event(2), proof=b"\7" * 32)),
        ((event(1),), batch(event(2), wrong_hashes={0: b"\1" * 32})),
    ],
)
def test_whatever_is_not_plain_is_not_taken_at_once(
    held: tuple[EventContent, ...], pushed: PushBatch
) -> None:
    assert not continues_plainly(head_with(*held), pushed)


def test_ranges_of_dropped_payloads_are_told_together() -> None:
    dropped = [event(n)._replace(payload=None) for n in (5, 1, 2)]
    assert dropped_ranges([*dropped, event(3)]) == [(1, 2), (5, 5)]
