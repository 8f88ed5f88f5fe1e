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

    @property
    def faults(self) -> list[str]:
        """Everything that must not be."""
        return [
            f"{kind}: {what}"
            for kind in ("lost", "changed", "doubled", "unexpected", "gaps", "positions_out_of_order")
            for what in getattr(self, kind)
        ]


def check(acknowledged: Mapping[Run, Sequence[bytes]], watched: Iterable[OnHub]) -> Verdict:
    """Compare the payloads acknowledged for each run, in order, with the hub's events as watched."""
    verdict = Verdict(acknowledged_count=sum(map(len, acknowledged.values())))
    found: dict[tuple[Run, int], bytes] = {}
    last_position = 0
    for event in watched:
        name = f"{event.run} {event.sequence}"
        if event.position <= last_position:
            verdict.positions_out_of_order.append(name)
        last_position = event.position
        if (event.run, event.sequence) in found:
            verdict.doubled.append(name)
        found[event.run, event.sequence] = event.payload
    for run, payloads in acknowledged.items():
        for sequence, payload in enumerate(payloads, 1):
            stored = found.pop((run, sequence), None)
            if stored is None:
                verdict.lost.append(f"{run} {sequence}")
            elif stored != payload:
                verdict.changed.append(f"{run} {sequence}")
    verdict.unexpected.extend(f"{run} {sequence}" for run, sequence in found)
    _find_gaps(acknowledged, verdict)
    return verdict


def _find_gaps(acknowledged: Mapping[Run, Sequence[bytes]], verdict: Verdict) -> None:
    """A loss with something stored behind it is a gap besides."""
    lost = set(verdict.lost)
    for run, payloads in acknowledged.items():
        missing = [n for n in range(1, len(payloads) + 1) if f"{run} {n}" in lost]
        if missing and len(missing) != len(payloads) - missing[0] + 1:
            verdict.gaps.append(str(run))
