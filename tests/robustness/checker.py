"""Holds what a hub has against what was acknowledged: the invariants over one recorded history.

An append ends acknowledged or it does not; one whose answer was lost is repeated under its name until
it is acknowledged, so at the end nothing is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Run = tuple[str, str]
"""Project id and run id."""


@dataclass(frozen=True, slots=True)
class OnHub:
    """One event as the hub tells it."""

    run: Run
    sequence: int
    position: int
    payload: bytes


@dataclass(slots=True)
class Verdict:
    """What was found; everything but ``acknowledged_count`` must be empty."""

    acknowledged_count: int = 0
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    positions_out_of_order: list[str] = field(default_factory=list)
    cursors_wrong: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Everything that must not be."""
        kinds = {
            "lost": self.lost,
            "changed": self.changed,
            "doubled": self.doubled,
            "unexpected": self.unexpected,
            "gaps": self.gaps,
            "positions_out_of_order": self.positions_out_of_order,
            "cursors_wrong": self.cursors_wrong,
        }
        return [f"{kind}: {what}" for kind, found in kinds.items() for what in found]


def check(
    acknowledged: Mapping[Run, Sequence[bytes]],
    watched: Iterable[OnHub],
    *,
    cursors: Mapping[Run, int] | None = None,
) -> Verdict:
    """Compare the payloads acknowledged for each run, in order, with the hub's events as watched.

    With ``cursors``, what the hub says of each run, these must be what is watched without a gap.
    """
    verdict = Verdict(acknowledged_count=sum(map(len, acknowledged.values())))
    found: dict[Run, dict[int, bytes]] = {}
    last_position = 0
    for event in watched:
        name = f"{event.run} {event.sequence}"
        if event.position <= last_position:
            verdict.positions_out_of_order.append(name)
        last_position = event.position
        payloads = found.setdefault(event.run, {})
        if event.sequence in payloads:
            verdict.doubled.append(name)
        if payloads.setdefault(event.sequence, event.payload) != event.payload:
            verdict.changed.append(name)
    for run in {**acknowledged, **found}:
        _compare(run, acknowledged.get(run, ()), found.get(run, {}), verdict)
    if cursors is not None:
        _compare_cursors(cursors, found, verdict)
    return verdict


def check_prefix(earlier: Sequence[OnHub], later: Sequence[OnHub]) -> list[str]:
    """Return what a reader got once and a later one did not get at the same place."""
    return [
        f"{event.run} {event.sequence} at {event.position}"
        for place, event in enumerate(earlier)
        if place >= len(later) or later[place] != event
    ]


def _compare(run: Run, wanted: Sequence[bytes], stored: Mapping[int, bytes], verdict: Verdict) -> None:
    for sequence, payload in enumerate(wanted, 1):
        if sequence not in stored:
            verdict.lost.append(f"{run} {sequence}")
        elif stored[sequence] != payload:
            verdict.changed.append(f"{run} {sequence}")
    verdict.unexpected.extend(f"{run} {sequence}" for sequence in stored if not 1 <= sequence <= len(wanted))
    if _cursor_of(stored) != max(stored, default=0):
        verdict.gaps.append(f"{run} after {_cursor_of(stored)}")


def _compare_cursors(
    cursors: Mapping[Run, int], found: Mapping[Run, Mapping[int, bytes]], verdict: Verdict
) -> None:
    for run in {**cursors, **found}:
        told, seen = cursors.get(run, 0), _cursor_of(found.get(run, {}))
        if told != seen:
            verdict.cursors_wrong.append(f"{run} {told} instead of {seen}")


def _cursor_of(stored: Mapping[int, bytes]) -> int:
    """Return the highest sequence with no gap below it."""
    cursor = 0
    while cursor + 1 in stored:
        cursor += 1
    return cursor
