"""Counts what is to be alerted, between commits.

The first observation of an alert is written with the group that saw it; what recurs is counted in
memory and written once a second at most, so that a flood of conflicts costs the store nothing. Bounded:
past as many keys as a hub project may have rows, its observations of one reason are counted together. No
group writes more than a part of many, hub projects in turns, so that nobody waits for a flood of another.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice, zip_longest
from threading import Lock
from typing import Final

from hub.core.alert import Observation, merged_samples
from hub.core.limits import Limits
from hub.core.values import AlertKey, HubProject
from hub.service.instruments import Instruments, NoInstruments
from hub.service.writer import AsyncWriter
from hub.store.contract import WriteTransaction
from synchub.contract import NANOS_PER_SECOND

FULL_HUB_PROJECTS_MAX: Final = 4
"""So many hub projects may have all the keys in memory that one may have; past it all count together."""


class AlertBook:
    """Observations that are not durable yet; takes part in every group of the writer."""

    def __init__(self, *, limits: Limits, instruments: Instruments | None = None) -> None:
        """Begin empty; ``instruments`` count what is observed."""
        self._limits = limits
        self._instruments = instruments or NoInstruments()
        self._lock = Lock()
        self._pending: dict[AlertKey, Observation] = {}
        self._pending_counts: Counter[HubProject] = Counter()
        self._writing: dict[AlertKey, Observation] = {}
        self._written_nanos: dict[AlertKey, int] = {}
        self._is_flush_wanted = False

    @property
    def has_pending(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._pending)

    def observe(self, observation: Observation) -> None:
        """Count an observation, from any thread; it is written with one of the next groups."""
        key = observation.key
        self._instruments.alert_observed(key.hub_project, reason=key.reason, count=observation.count)
        with self._lock:
            self._count(observation)

    async def flush(self, writer: AsyncWriter) -> None:
        """Make durable all that waits: before alerts are read, once a second, and at a stop.

        Raises: StorageUnavailable where it cannot be written now; it is counted on then.
        """
        with self._lock:
            # What the writer has taken is not durable yet: a reader must not be earlier than its COMMIT.
            waiting = len(self._pending) + len(self._writing)
        for _ in range(0, waiting, self._limits.alert_rows_at_once_max):
            self._is_flush_wanted = True
            await writer.settle()

    def before_commit(self, transaction: WriteTransaction, now_nanos: int) -> None:
        """Write what is due: what is new, and what was last written long enough ago."""
        if not self._pending:
            return
        interval_nanos = round(self._limits.alert_flush_seconds * NANOS_PER_SECOND)
        with self._lock:
            if self._is_flush_wanted:
                due = list(self._pending)
                self._is_flush_wanted = False
            else:
                due_before = now_nanos - interval_nanos
                due = [key for key in self._pending if self._written_nanos.get(key, 0) <= due_before]
            if len(due) > self._limits.alert_rows_at_once_max:
                due = _taken_in_turns(due, self._limits.alert_rows_at_once_max)
            self._writing = {key: self._pending.pop(key) for key in due}
            for key in due:
                self._pending_counts[key.hub_project] -= 1
                self._written_nanos[key] = now_nanos
            self._pending_counts = +self._pending_counts  # without those that have none
            if len(self._written_nanos) > self._limits.alert_rows_max:
                self._forget_written_before(now_nanos - interval_nanos)
        transaction.save_observations(
            list(self._writing.values()),
            now_nanos,
            rows_max=self._limits.alert_rows_max,
            samples_max=self._limits.alert_samples_max,
        )

    def after_commit(self) -> None:
        """What was written is durable: forget it."""
        self._writing.clear()

    def after_failure(self) -> None:
        """Nothing was written, or it is not known: count it again."""
        with self._lock:
            written_again, self._writing = self._writing, {}
            newer, self._pending = self._pending, {}
            self._pending_counts.clear()
            for observation in [*written_again.values(), *newer.values()]:
                self._written_nanos.pop(observation.key, None)
                self._count(observation)

    def _count(self, observation: Observation) -> None:
        key = observation.key
        if key not in self._pending and self._is_full(key.hub_project):
            key = AlertKey(key.hub_project, key.reason, "", "", "")
        before = self._pending.get(key)
        count, samples = observation.count, observation.samples
        if before is not None:
            count += before.count
            samples = merged_samples(before.samples, samples, samples_max=self._limits.alert_samples_max)
        else:
            self._pending_counts[key.hub_project] += 1
        self._pending[key] = Observation(key, count, samples)

    def _is_full(self, hub_project: HubProject) -> bool:
        """Whether too many keys wait already, of this hub project or of all."""
        keys_max = self._limits.alert_rows_max
        is_all_full = len(self._pending) >= FULL_HUB_PROJECTS_MAX * keys_max
        return is_all_full or self._pending_counts[hub_project] >= keys_max

    def _forget_written_before(self, nanos: int) -> None:
        """Keep only the keys that a recurrence could find written too recently."""
        self._written_nanos = {key: at for key, at in self._written_nanos.items() if at > nanos}


def _taken_in_turns(keys: Iterable[AlertKey], count_max: int) -> list[AlertKey]:
    """Return so many keys at most, of each hub project as many while it has some."""
    by_hub_project: dict[HubProject, list[AlertKey]] = {}
    for key in keys:
        by_hub_project.setdefault(key.hub_project, []).append(key)
    turns = chain.from_iterable(zip_longest(*by_hub_project.values()))
    return list(islice((key for key in turns if key is not None), count_max))
