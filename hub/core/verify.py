"""Whether what is stored is what was accepted: content hashes, chain hashes and heads, computed anew.

A run is gone through page by page: ``begin_fold``, ``fold_events`` for each page, ``findings_of_run`` at
the end. A hub may go on meanwhile; ``is_to_repeat`` says where that got between two pages.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, NamedTuple

from hub.core.selection import RunPlace
from hub.core.values import RunHead
from synchub.contract import chain_hash_at_start, content_hash

EVENT_BYTES_BESIDE_CONTENT: Final = 128
"""What an event counts for in the stored bytes of a hub project, beside payload and attributes."""
REPEATS_MAX: Final = 3
"""How often a run is gone through again because its gaps were filled meanwhile."""


class Unreadable(Exception):
    """What is stored in a place cannot be read: the file is damaged there."""


class VerifiedEvent(NamedTuple):
    """One event as it is stored; a tuple, because millions of them pass."""

    sequence: int
    position: int
    hub_project_key: int
    event_type: str
    event_time_nanos: int | None
    attributes: str | None
    is_final: int
    payload: bytes | None
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be, as a sentence.

    Of what it is found: an event of a run, the run itself (sequence 0), a hub project (no project), or
    the store (no hub project).
    """

    problem: str
    hub_project: str = ""
    project_id: str = ""
    run_id: str = ""
    sequence: int = 0

    @property
    def sentence(self) -> str:
        """The finding with where it is."""
        places = [
            (self.hub_project, f"hub project {self.hub_project!r}"),
            (self.project_id, f"project {self.project_id!r}"),
            (self.run_id, f"run {self.run_id!r}"),
            (self.sequence, f"event {self.sequence}"),
        ]
        where = ", ".join(text for given, text in places if given)
        return f"{where}: {self.problem}" if where else self.problem


@dataclass(frozen=True, slots=True)
class Tenant:
    """The hub project whose events are gone through, and the last position given in it."""

    hub_project: str
    hub_project_key: int
    head_position: int


@dataclass(frozen=True, slots=True)
class RunFold:
    """A run as far as its events were gone through.

    ``sequence`` is that of the last one; ``cursor`` and ``chain_hash`` are what follows from the events so
    far; ``problem`` is what is wrong with the first that does not fit, at ``problem_sequence``.
    """

    began_as: RunHead
    sequence: int
    cursor: int
    chain_hash: bytes
    event_count: int = 0
    final_sequence: int | None = None
    problem: str = ""
    problem_sequence: int = 0
    repeat_count: int = 0


@dataclass(frozen=True, slots=True)
class VerifyPlace:
    """Where to go on: after the run that was done last, within the one that is being gone through."""

    after: RunPlace | None = None
    fold: RunFold | None = None


@dataclass(frozen=True, slots=True)
class VerifiedPage:
    """What one page of a verification found; ``next_place`` is None at the end.

    ``stored_bytes`` is what its events count for, ``active_run_count`` how many of its runs are not
    complete.
    """

    findings: tuple[Finding, ...]
    event_count: int
    run_count: int
    stored_bytes: int
    active_run_count: int
    next_place: VerifyPlace | None


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verification is, and what was found since the last time that it was told."""

    event_count: int = 0
    total_count: int = 0
    run_count: int = 0
    findings: tuple[Finding, ...] = ()

    def of_total(self, total_count: int) -> "VerifyProgress":
        """Return it with how many events there are to go through."""
        return replace(self, total_count=total_count, findings=())

    def after(self, page: VerifiedPage) -> "VerifyProgress":
        """Return it after one more page."""
        return replace(
            self,
            event_count=self.event_count + page.event_count,
            run_count=self.run_count + page.run_count,
            findings=page.findings,
        )

    def with_findings(self, findings: Iterable[Finding]) -> "VerifyProgress":
        """Return it with what else was found."""
        return replace(self, findings=tuple(findings))


def begin_fold(head: RunHead, *, repeat_count: int = 0) -> RunFold:
    """Return where going through a run begins."""
    start = chain_hash_at_start(head.project_id, head.run_id)
    return RunFold(head, 0, 0, start, repeat_count=repeat_count)


def fold_events(fold: RunFold, events: Iterable[VerifiedEvent], *, tenant: Tenant) -> RunFold:
    """Return the run after these events, which follow in order of sequence."""
    sequence, cursor, chain_hash = fold.sequence, fold.cursor, fold.chain_hash
    count, final_sequence = fold.event_count, fold.final_sequence
    problem, problem_sequence = fold.problem, fold.problem_sequence
    for event in events:
        sequence = event.sequence
        count += 1
        if not problem:
            problem = _problem_of(event, tenant) or ""
            if final_sequence is not None and not problem:
                problem = f"it comes after the final event {final_sequence}"
            problem_sequence = sequence if problem else 0
        if sequence == cursor + 1:
            cursor = sequence
            chain_hash = sha256(chain_hash + event.content_hash).digest()
        if event.is_final and final_sequence is None:
            final_sequence = sequence
    return replace(
        fold,
        sequence=sequence,
        cursor=cursor,
        chain_hash=chain_hash,
        event_count=count,
        final_sequence=final_sequence,
        problem=problem,
        problem_sequence=problem_sequence,
    )


def findings_of_run(fold: RunFold, head: RunHead, *, hub_project: str) -> tuple[Finding, ...]:
    """Return what does not fit of a run whose events were all gone through; ``head`` is as it is now."""
    found: list[Finding] = []

    def note(problem: str, sequence: int = 0) -> None:
        found.append(Finding(problem, hub_project, head.project_id, head.run_id, sequence))

    if fold.problem:
        note(fold.problem, fold.problem_sequence)
    if head.cursor != fold.cursor:
        note(f"its cursor is {head.cursor}, and its events are without a gap up to {fold.cursor}")
    elif head.chain_hash != fold.chain_hash:
        note(f"its chain hash at {head.cursor} is not that of its events")
    if head.event_count != fold.event_count:
        note(f"it counts {head.event_count} events, and {fold.event_count} are stored")
    if head.highest_sequence != fold.sequence:
        note(f"its highest sequence is {head.highest_sequence}, and the highest stored is {fold.sequence}")
    if head.final_sequence != fold.final_sequence:
        note(f"its final sequence is {head.final_sequence}, and the final event is {fold.final_sequence}")
    return tuple(found)


def is_to_repeat(fold: RunFold, head: RunHead) -> bool:
    """Whether a gap may have been filled behind the place where the run was being gone through."""
    had_gap = fold.began_as.cursor != fold.began_as.highest_sequence or fold.cursor != fold.sequence
    return had_gap and head != fold.began_as and fold.repeat_count < REPEATS_MAX


def bytes_of(event: VerifiedEvent) -> int:
    """Return what an event counts for in the stored bytes of its hub project."""
    content = len(event.payload or b"") + len((event.attributes or "").encode())
    return EVENT_BYTES_BESIDE_CONTENT + content


def _problem_of(event: VerifiedEvent, tenant: Tenant) -> str | None:
    """Say what is wrong with an event by itself, None where nothing is."""
    if event.payload is not None:
        try:
            attributes: dict[str, str] = {} if event.attributes is None else json.loads(event.attributes)
            computed = content_hash(
                event.event_type,
                event.event_time_nanos,
                is_final=bool(event.is_final),
                attributes=attributes,
                payload=event.payload,
            )
        except (ValueError, AttributeError):
            return "its attributes cannot be read"
        if computed != event.content_hash:
            return "its content does not have its content hash"
    if event.position > tenant.head_position:
        return f"its position {event.position} is above the head {tenant.head_position}"
    if event.hub_project_key != tenant.hub_project_key:
        return "it stands in another hub project than its run"
    return None
