"""Which events of a batch are accepted: the rule table of ingest, as pure functions.

The first row that holds is the outcome of an event:

====  ==========================================================  =======================
 row  situation                                                    outcome
====  ==========================================================  =======================
  4   the project belongs to another hub project                   PROJECT_MISMATCH
  5   the run belongs to another home runtime                      HOME_RUNTIME_MISMATCH
  6   it carries a content hash that its content does not have     CONTENT_HASH_MISMATCH
  7   its sequence is stored with the same content hash            duplicate
  8   its sequence is stored with another content hash             SEQUENCE_REUSED
  9   the batch's history is not the hub's                         HISTORY_DIVERGED
 10   the run is final below it, or it is final below another      RUN_COMPLETE
 11   otherwise                                                    accepted
====  ==========================================================  =======================

Rows 1 to 3 (credentials, bounds, instances) refuse whole requests and are decided before. Nothing
here depends on time, on counts of batches or on a cache: only on what is stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hub.core.values import (
    ConflictReason,
    EventContent,
    InstanceId,
    ProjectId,
    RunHead,
    RunId,
    RuntimeId,
)
from synchub.contract import chain_hash_after, chain_hash_at_start


@dataclass(frozen=True, slots=True)
class PushBatch:
    """Events of one run as pushed, valid in themselves.

    ``events`` has at least one. ``wrong_hashes`` maps the index of an event to the content hash that
    it carried, where its content does not have it. ``previous_chain_hash`` is None where the batch
    does not prove its history; where it does, sequences are consecutive.
    """

    project_id: ProjectId
    run_id: RunId
    runtime_id: RuntimeId
    instance_id: InstanceId | None
    previous_chain_hash: bytes | None
    events: Sequence[EventContent]
    wrong_hashes: Mapping[int, bytes]
    bytes_count: int


class StoredContent(NamedTuple):
    """What is stored under a sequence. ``was_pushed_dropped``: its payload may still be filled in."""

    content_hash: bytes
    was_pushed_dropped: bool


class Conflict(NamedTuple):
    """An event that was not accepted; the stored hash only where the sequence is reused."""

    sequence: int
    reason: ConflictReason
    stored_content_hash: bytes
    offered_content_hash: bytes


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """What becomes of a batch.

    ``accepted`` are to be stored; ``filled`` are duplicates of events that were pushed as dropped and
    whose content is to be filled in. With ``go_back`` nothing is stored or counted. ``head`` is the
    run after the batch where the batch alone tells it, None where the cursor must be moved over what
    is stored (see ``advanced_head``).
    """

    accepted: Sequence[EventContent]
    filled: Sequence[EventContent]
    duplicate_count: int
    conflicts: Sequence[Conflict]
    go_back: bool
    head: RunHead | None


def head_of_new_run(project_id: ProjectId, run_id: RunId, *, home_runtime_id: RuntimeId) -> RunHead:
    """Return the head of a run of which nothing is stored."""
    return RunHead(
        run_key=None,
        project_id=project_id,
        run_id=run_id,
        home_runtime_id=home_runtime_id,
        cursor=0,
        chain_hash=chain_hash_at_start(project_id, run_id),
        highest_sequence=0,
        event_count=0,
        final_sequence=None,
    )


def continues_plainly(head: RunHead, batch: PushBatch) -> bool:
    """Whether the whole batch is accepted by row 11 without a look at any stored event.

    So it is where nothing is stored beyond the cursor, the sequences go on from it without a gap, the
    proof (if there is one) is the run's chain hash, no carried hash is wrong, and nothing is final
    but maybe the last event. This is the common case, decided once for all events.
    """
    events = batch.events
    first = head.cursor + 1
    return (
        head.highest_sequence == head.cursor
        and head.final_sequence is None
        and not batch.wrong_hashes
        and (batch.previous_chain_hash is None or batch.previous_chain_hash == head.chain_hash)
        and [event.sequence for event in events] == list(range(first, first + len(events)))
        and not any(event.is_final for event in events[:-1])
    )


def decide_plainly(head: RunHead, batch: PushBatch) -> BatchDecision:
    """Accept the whole batch; only for a batch that ``continues_plainly``."""
    events = batch.events
    last = events[-1]
    after = RunHead(
        run_key=head.run_key,
        project_id=head.project_id,
        run_id=head.run_id,
        home_runtime_id=head.home_runtime_id,
        cursor=last.sequence,
        chain_hash=chain_hash_after(head.chain_hash, [event.content_hash for event in events]),
        highest_sequence=last.sequence,
        event_count=head.event_count + len(events),
        final_sequence=last.sequence if last.is_final else None,
    )
    return BatchDecision(events, (), 0, (), go_back=False, head=after)


def refuse_whole(batch: PushBatch, reason: ConflictReason) -> BatchDecision:
    """Make every event of the batch a conflict of this reason (rows 4 and 5)."""
    conflicts = [Conflict(event.sequence, reason, b"", b"") for event in batch.events]
    return BatchDecision((), (), 0, conflicts, go_back=False, head=None)


def begins_beyond(head: RunHead, batch: PushBatch) -> bool:
    """Whether a batch that proves its history begins where the hub cannot check it yet (``go_back``)."""
    return batch.previous_chain_hash is not None and batch.events[0].sequence > head.cursor + 1


def go_back(head: RunHead) -> BatchDecision:
    """Store and count nothing; the runtime shall send again from the cursor."""
    return BatchDecision((), (), 0, (), go_back=True, head=head)


def decide_batch(head: RunHead, batch: PushBatch, *, stored: Mapping[int, StoredContent]) -> BatchDecision:
    """Decide every event by rows 6 to 11, in their order; the rule table itself.

    ``stored`` holds what is stored under the sequences of the batch. The head is None: the caller
    moves it over what is stored then, with ``advanced_head``.
    """
    if begins_beyond(head, batch):
        return go_back(head)
    diverged = _is_diverged(head, batch, stored=stored)
    accepted: dict[int, EventContent] = {}
    filled: dict[int, EventContent] = {}
    conflicts: list[Conflict] = []
    duplicate_count = 0
    final_sequence = head.final_sequence
    highest_sequence = head.highest_sequence
    for index, event in enumerate(batch.events):
        sequence, offered = event.sequence, event.content_hash
        if index in batch.wrong_hashes:
            wrong = batch.wrong_hashes[index]
            conflicts.append(Conflict(sequence, ConflictReason.CONTENT_HASH_MISMATCH, b"", wrong))
            continue
        before = _content_before(sequence, stored, accepted=accepted, filled=filled)
        if before is not None and before.content_hash == offered:
            duplicate_count += 1
            if before.was_pushed_dropped and event.payload is not None:
                (accepted if sequence in accepted else filled)[sequence] = event
                final_sequence = _final_sequence_after_fill(final_sequence, event)
        elif before is not None:
            conflicts.append(Conflict(sequence, ConflictReason.SEQUENCE_REUSED, before.content_hash, offered))
        elif diverged:
            conflicts.append(Conflict(sequence, ConflictReason.HISTORY_DIVERGED, b"", offered))
        elif (final_sequence is not None and final_sequence < sequence) or (
            event.is_final and sequence < highest_sequence
        ):
            conflicts.append(Conflict(sequence, ConflictReason.RUN_COMPLETE, b"", offered))
        else:
            accepted[sequence] = event
            highest_sequence = max(highest_sequence, sequence)
            if event.is_final:
                final_sequence = sequence
    return BatchDecision(
        tuple(accepted.values()),
        tuple(filled.values()),
        duplicate_count,
        conflicts,
        go_back=False,
        head=None,
    )


def advanced_head(
    head: RunHead, decision: BatchDecision, *, stored_beyond: Iterable[tuple[int, bytes]]
) -> RunHead:
    """Return the head after ``decision`` was stored.

    ``stored_beyond`` gives (sequence, content hash) of everything stored above the old cursor,
    ascending, the batch's own events included; it is read only up to the first gap.
    """
    cursor, chain_hash = head.cursor, head.chain_hash
    for sequence, content_hash in stored_beyond:
        if sequence != cursor + 1:
            break
        cursor = sequence
        chain_hash = chain_hash_after(chain_hash, (content_hash,))
    highest_sequence = max([head.highest_sequence, *(event.sequence for event in decision.accepted)])
    final_sequence = head.final_sequence
    for event in decision.filled:
        final_sequence = _final_sequence_after_fill(final_sequence, event)
    for event in decision.accepted:
        if event.is_final:
            final_sequence = event.sequence
    return replace(
        head,
        cursor=cursor,
        chain_hash=chain_hash,
        highest_sequence=highest_sequence,
        event_count=head.event_count + len(decision.accepted),
        final_sequence=final_sequence,
    )


def dropped_ranges(events: Iterable[EventContent]) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of sequences whose payload no longer exists anywhere."""
    ranges: list[tuple[int, int]] = []
    for sequence in sorted(event.sequence for event in events if event.payload is None):
        if ranges and ranges[-1][1] == sequence - 1:
            ranges[-1] = (ranges[-1][0], sequence)
        else:
            ranges.append((sequence, sequence))
    return ranges


def _content_before(
    sequence: int,
    stored: Mapping[int, StoredContent],
    *,
    accepted: Mapping[int, EventContent],
    filled: Mapping[int, EventContent],
) -> StoredContent | None:
    """Return what is stored under a sequence, counting what this batch stored before."""
    within_batch = accepted.get(sequence) or filled.get(sequence)
    if within_batch is not None:
        return StoredContent(within_batch.content_hash, within_batch.payload is None)
    return stored.get(sequence)


def _is_diverged(head: RunHead, batch: PushBatch, *, stored: Mapping[int, StoredContent]) -> bool:
    """Whether a batch that proves its history has another one than the hub (row 9).

    It has where any of its events falls under row 8, or where its content hashes, folded onto its
    proof up to the hub's cursor, do not give the run's chain hash.
    """
    if batch.previous_chain_hash is None:
        return False
    for index, event in enumerate(batch.events):
        before = stored.get(event.sequence)
        if (
            before is not None
            and index not in batch.wrong_hashes
            and before.content_hash != event.content_hash
        ):
            return True
    if batch.events[-1].sequence < head.cursor:
        return False
    up_to_cursor = [event.content_hash for event in batch.events if event.sequence <= head.cursor]
    return chain_hash_after(batch.previous_chain_hash, up_to_cursor) != head.chain_hash


def _final_sequence_after_fill(final_sequence: int | None, event: EventContent) -> int | None:
    """Return the run's final sequence after the true content of a dropped event is known."""
    if event.is_final:
        return event.sequence
    return None if final_sequence == event.sequence else final_sequence
