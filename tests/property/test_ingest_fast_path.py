"""A batch that is decided at once is decided as by the rules one by one, whatever the run holds."""

from dataclasses import replace

from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.core.ingest import (
    BatchDecision,
    PushBatch,
    StoredContent,
    advanced_head,
    continues_plainly,
    decide_batch,
    decide_plainly,
    head_of_new_run,
)
from hub.core.values import EventContent, ProjectId, RunHead, RunId, RuntimeId
from tests.unit.hub.gate import batch
from tests.unit.hub.stored_runs import event

NEW = head_of_new_run(ProjectId("p"), RunId("r"), home_runtime_id=RuntimeId("runtime"))


@st.composite
def made_events(draw: st.DrawFn, sequence: int) -> EventContent:
    made = event(sequence, draw(st.sampled_from([b"", b"one", b"other"])), is_final=draw(st.booleans()))
    return made._replace(payload=None) if draw(st.booleans()) else made


@st.composite
def stored_runs(draw: st.DrawFn) -> tuple[RunHead, dict[int, EventContent]]:
    """A run as the rules let it become, mostly without gaps, and all that it holds."""
    sequences = list(range(1, draw(st.integers(0, 5)) + 1))
    if draw(st.integers(0, 3)) == 0:
        sequences += draw(st.lists(st.integers(1, 9), max_size=3))
    head, stored = NEW, dict[int, EventContent]()
    for sequence in sequences:
        made = draw(made_events(sequence))
        made = made if draw(st.integers(0, 5)) == 0 else made._replace(is_final=False)
        decision = decide_batch(head, batch(made), stored=contents_of(stored))
        stored.update((each.sequence, each) for each in decision.accepted)
        head = head_after(head, decision, stored)
    return head, stored


def contents_of(stored: dict[int, EventContent]) -> dict[int, StoredContent]:
    return {n: StoredContent(each.content_hash, each.payload is None) for n, each in stored.items()}


def head_after(head: RunHead, decision: BatchDecision, stored: dict[int, EventContent]) -> RunHead:
    beyond = sorted((n, each.content_hash) for n, each in stored.items() if n > head.cursor)
    return advanced_head(head, decision, stored_beyond=beyond)


@st.composite
def pushed_batches(draw: st.DrawFn, head: RunHead) -> PushBatch:
    """Mostly what goes on from the cursor; else anything."""
    size = draw(st.integers(1, 4))
    sequences = list(range(head.cursor + 1, head.cursor + 1 + size))
    if draw(st.integers(0, 3)) == 0:
        sequences = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    events = [draw(made_events(sequence)) for sequence in sequences]
    if draw(st.booleans()):
        events = [each._replace(is_final=False) for each in events[:-1]] + events[-1:]
    proof = draw(st.sampled_from([None, head.chain_hash, head.chain_hash, bytes(32)]))
    wrong = draw(st.sampled_from([{}, {}, {}, {0: bytes(32)}]))
    made = batch(*events, proof=proof, wrong_hashes=wrong)
    return replace(made, previous_chain_hash=None) if sequences != sorted(set(sequences)) else made


@settings(max_examples=1_000)
@given(data=st.data())
def test_the_fast_path_equals_the_rules_one_by_one(data: st.DataObject) -> None:
    head, stored = data.draw(stored_runs())
    pushed = data.draw(pushed_batches(head))
    by_rules = decide_batch(head, pushed, stored=contents_of(stored))
    is_plain = continues_plainly(head, pushed)
    note(f"plain: {is_plain}")
    if not is_plain:
        return
    plain = decide_plainly(head, pushed)
    assert replace(by_rules, head=None) == replace(
        plain,
        head=None,
        accepted=tuple(plain.accepted),
        filled=tuple(plain.filled),
        conflicts=list(plain.conflicts),
    )
    after = stored | {each.sequence: each for each in by_rules.accepted}
    assert plain.head == head_after(head, by_rules, after)


@settings(max_examples=500)
@given(data=st.data())
def test_the_counts_of_a_decision_add_up_to_the_events_of_the_batch(data: st.DataObject) -> None:
    head, stored = data.draw(stored_runs())
    pushed = data.draw(pushed_batches(head))
    decision = decide_batch(head, pushed, stored=contents_of(stored))
    counted = len(decision.accepted) + decision.duplicate_count + len(decision.conflicts)
    assert counted == (0 if decision.go_back else len(pushed.events))
    # Whatever was accepted is new, each sequence once, and what is filled in was dropped before.
    accepted = [each.sequence for each in decision.accepted]
    assert len(set(accepted)) == len(accepted)
    assert not set(accepted) & set(stored)
    assert all(stored[each.sequence].payload is None for each in decision.filled)
    assert all(each.payload is not None for each in decision.filled)
