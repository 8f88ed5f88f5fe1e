"""What alerts follow from decisions, and how observations add up to one alert."""

from collections.abc import Iterable
from dataclasses import dataclass

from hub.core.ingest import BatchDecision, Conflict, PushBatch, dropped_ranges
from hub.core.values import (
    AlertKey,
    AlertReason,
    AlertSample,
    Caller,
    ConflictReason,
    HubProject,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """Something to be alerted: its key, how often, and samples (at most 16 are worth giving)."""

    key: AlertKey
    count: int
    samples: tuple[AlertSample, ...]


def observations_of_batch(
    batch: PushBatch,
    decision: BatchDecision,
    *,
    caller: Caller,
    owner: HubProject | None,
    samples_max: int,
) -> list[Observation]:
    """Return what is to be alerted about a decided batch.

    Each conflict counts one, but for RUN_COMPLETE, which is no alert. The owner of a project is told
    of a mismatch too, without anything of the caller. Payloads that no longer exist are HISTORY_LOST.
    """
    observations: list[Observation] = []
    by_reason: dict[ConflictReason, list[Conflict]] = {}
    for conflict in decision.conflicts:
        by_reason.setdefault(conflict.reason, []).append(conflict)
    for reason, conflicts in by_reason.items():
        if reason is ConflictReason.RUN_COMPLETE:
            continue
        samples = [
            (each.sequence, each.sequence, each.stored_content_hash, each.offered_content_hash)
            for each in conflicts[:samples_max]
        ]
        alert_reason = AlertReason(reason.value)
        observations.append(
            _observation(batch, alert_reason, samples=samples, count=len(conflicts), caller=caller)
        )
        if reason is ConflictReason.PROJECT_MISMATCH and owner is not None:
            owner_key = AlertKey(owner, AlertReason.PROJECT_MISMATCH, batch.project_id, "", "")
            observations.append(Observation(owner_key, len(conflicts), ()))
    if any(event.payload is None for event in decision.accepted):
        ranges = dropped_ranges(decision.accepted)
        samples = [(first, last, b"", b"") for first, last in ranges[:samples_max]]
        observations.append(
            _observation(batch, AlertReason.HISTORY_LOST, samples=samples, count=len(ranges), caller=caller)
        )
    return observations


def merged_samples(
    first: Iterable[AlertSample], more: Iterable[AlertSample], *, samples_max: int
) -> tuple[AlertSample, ...]:
    """Return the first samples of both in order, at most so many."""
    return (*first, *more)[:samples_max]


def _observation(
    batch: PushBatch,
    reason: AlertReason,
    *,
    samples: list[tuple[int, int, bytes, bytes]],
    count: int,
    caller: Caller,
) -> Observation:
    """Return an observation about the run of a batch."""
    key = AlertKey(caller.hub_project, reason, batch.project_id, batch.run_id, batch.runtime_id)
    return Observation(
        key,
        count,
        tuple(AlertSample(*sample, caller.peer, caller.credential_name) for sample in samples),
    )
