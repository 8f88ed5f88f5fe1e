"""What the hub's view of a run means for the agent: pure decisions over ``ReconcileRuns``.

The order of use for a run: ``decide_reconciled`` with the own chain hash at the hub's cursor. Where it
says ``FetchMissing``, fold all pages with ``fold_fetched`` before anything is taken into the log: only
at the hub's cursor its chain hash shows whether the log's own history is the one that goes on. Where it
says ``ProbeAbove``, look at one event and ask ``decide_probed``.

The rules: in step, go on; the hub behind, compare the own chain hash at its cursor and push on; the hub
ahead, fetch, check that the chain goes on to the hub's, take in; not equal at the same sequence, or
events above a hole that neither side has: diverged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from runtime_agent.core.values import FetchedEvent, RunKey
from synchub.contract import chain_hash_after, content_hash

REASON_HISTORY_DIVERGED: Final = "HISTORY_DIVERGED"
"""Why a run is quarantined whose history is not the hub's."""


class HubView(Enum):
    """Who is behind, as the hub says it. UNKNOWN is a state that this agent does not know."""

    IN_STEP = "in_step"
    HUB_BEHIND = "hub_behind"
    HUB_AHEAD = "hub_ahead"
    DIVERGED = "diverged"
    PROJECT_MISMATCH = "PROJECT_MISMATCH"
    HOME_RUNTIME_MISMATCH = "HOME_RUNTIME_MISMATCH"
    PERMISSION_DENIED = "permission_denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReconciledRun:
    """The hub's view of one run: cursor, chain hash there, highest sequence also beyond a gap."""

    run: RunKey
    view: HubView
    cursor: int
    chain_hash: bytes
    highest_sequence: int


@dataclass(frozen=True, slots=True)
class PushFrom:
    """The hub has the log's own events up to ``sequence``: set that as acknowledged, push on after it."""

    sequence: int


@dataclass(frozen=True, slots=True)
class FetchMissing:
    """The hub has events that the log lost: fetch those after ``after_sequence``, up to its cursor."""

    after_sequence: int
    through_sequence: int


@dataclass(frozen=True, slots=True)
class ProbeAbove:
    """The hub lacks events that the log has, and has some beyond the log's end: look at the next one."""

    after_sequence: int


@dataclass(frozen=True, slots=True)
class Diverge:
    """Quarantine the run. ``is_history``: log and hub may be equal up to a fork worth finding."""

    reason: str
    detail: str
    sequence: int
    is_history: bool


@dataclass(frozen=True, slots=True)
class HoldProject:
    """The credential does not allow this project now: its runs wait, the others go on."""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far fetched events go on from the log's end, and the chain hash there."""

    sequence: int
    chain_hash: bytes


ReconcileDecision: TypeAlias = PushFrom | FetchMissing | ProbeAbove | Diverge | HoldProject


def decide_reconciled(
    hub: ReconciledRun, *, last_sequence: int, own_chain_hash: bytes | None
) -> ReconcileDecision:
    """Decide what to do with a run whose log ends at ``last_sequence``.

    ``own_chain_hash``: the log's at ``min(hub.cursor, last_sequence)``; it is looked at where that is
    the hub's cursor. The log may have grown since the request: only the hub's cursor is compared.
    """
    match hub.view:
        case HubView.PROJECT_MISMATCH:
            detail = "the project belongs to another hub project"
            return Diverge(hub.view.value, detail, 0, is_history=False)
        case HubView.HOME_RUNTIME_MISMATCH:
            detail = "the run belongs to another runtime"
            return Diverge(hub.view.value, detail, 0, is_history=False)
        case HubView.PERMISSION_DENIED | HubView.UNKNOWN:
            return HoldProject()
        case HubView.DIVERGED:
            detail = f"log and hub have different events up to sequence {min(hub.cursor, last_sequence)}"
            return _diverged(detail, min(hub.cursor, last_sequence))
        case HubView.IN_STEP | HubView.HUB_BEHIND | HubView.HUB_AHEAD:
            pass
    if hub.cursor <= last_sequence and own_chain_hash != hub.chain_hash:
        return _diverged(f"the hub's chain hash at sequence {hub.cursor} is not the log's", hub.cursor)
    if hub.highest_sequence > max(hub.cursor, last_sequence):
        if hub.cursor >= last_sequence:
            return _diverged(_hole_detail(hub.cursor + 1), hub.cursor + 1)
        return ProbeAbove(last_sequence)
    if hub.cursor > last_sequence:
        return FetchMissing(last_sequence, hub.cursor)
    return PushFrom(hub.cursor)


def decide_probed(hub: ReconciledRun, next_sequence: int | None, *, last_sequence: int) -> PushFrom | Diverge:
    """Decide after ``ProbeAbove``; ``next_sequence`` is the first that the hub has beyond the log's end.

    Where it follows the log directly, the hole is one that the log fills: push first, and the hub's
    cursor jumps over what it has; the rest is fetched then, with a chain hash that proves it.
    """
    if next_sequence is not None and next_sequence != last_sequence + 1:
        return _diverged(_hole_detail(last_sequence + 1), last_sequence + 1)
    return PushFrom(hub.cursor)


def fold_fetched(
    hub: ReconciledRun, events: Sequence[FetchedEvent], *, progress: FetchProgress
) -> FetchProgress | Diverge:
    """Fold one page of fetched events onto the log's end; nothing may be taken in before the last page.

    Compared are the sequences, each content with its hash, and the chain with the hub's at its cursor.
    Events beyond the hub's cursor (stored since it was asked) are folded too. An empty page below the
    cursor means that the hub does not have what it says.
    """
    if not events and progress.sequence < hub.cursor:
        return _diverged(_hole_detail(progress.sequence + 1), progress.sequence + 1)
    sequence, chain_hash = progress.sequence, progress.chain_hash
    for event in events:
        sequence += 1
        if event.sequence != sequence:
            return _diverged(_hole_detail(sequence), sequence)
        if not _is_content_proven(event):
            return _diverged(f"the hub's content of sequence {sequence} does not have its hash", sequence)
        chain_hash = chain_hash_after(chain_hash, (event.content_hash,))
        if sequence == hub.cursor and chain_hash != hub.chain_hash:
            return _diverged(f"the log does not go on to the hub's chain hash at {sequence}", sequence)
    return FetchProgress(sequence, chain_hash)


def _diverged(detail: str, sequence: int) -> Diverge:
    return Diverge(REASON_HISTORY_DIVERGED, detail, sequence, is_history=True)


def _hole_detail(sequence: int) -> str:
    return f"neither log nor hub has sequence {sequence}, but the hub has later ones"


def _is_content_proven(event: FetchedEvent) -> bool:
    """Whether the content has its hash; where the payload is gone nothing can be compared."""
    if event.payload is None:
        return True
    return event.content_hash == content_hash(
        event.event_type,
        event.event_time_nanos,
        is_final=event.is_final,
        attributes=event.attributes,
        payload=event.payload,
    )


def equal_prefix_length(own: Sequence[bytes], hubs: Sequence[bytes]) -> int:
    """Return how many content hashes are equal from the start, to find where two histories fork."""
    for index, (one, other) in enumerate(zip(own, hubs, strict=False)):
        if one != other:
            return index
    return min(len(own), len(hubs))
