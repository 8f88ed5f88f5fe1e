"""Counts what is to be alerted, between commits.

The first observation of an alert is written with the group that saw it; what recurs is counted in
memory and written once a second at most, so that a flood of conflicts costs the store nothing. Bounded:
past as many keys as a hub project may have rows, observations of one reason are counted together.
"""

from threading import Lock

from hub.core.alert import Observation, merged_samples
from hub.core.limits import Limits
from hub.core.values import AlertKey
from hub.service.instruments import Instruments, NoInstruments
from hub.service.writer import AsyncWriter
from hub.store.contract import WriteTransaction
from synchub.contract import NANOS_PER_SECOND


class AlertBook:
    """Observations that are not durable yet; takes part in every group of the writer."""

    def __init__(self, *, limits: Limits, instruments: Instruments | None = None) -> None:
        """Begin empty; ``instruments`` count what is observed."""
        self._limits = limits
        self._instruments = instruments or NoInstruments()
        self._lock = Lock()
        self._pending: dict[AlertKey, Observation] = {}
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
        if self.has_pending:
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
            self._writing = {key: self._pending.pop(key) for key in due}
            for key in due:
                self._written_nanos[key] = now_nanos
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
            for observation in [*written_again.values(), *newer.values()]:
                self._written_nanos.pop(observation.key, None)
                self._count(observation)

    def _count(self, observation: Observation) -> None:
        key = observation.key
        if key not in self._pending and len(self._pending) >= self._limits.alert_rows_max:
            key = AlertKey(key.hub_project, key.reason, "", "", "")
        before = self._pending.get(key)
        count, samples = observation.count, observation.samples
        if before is not None:
            count += before.count
            samples = merged_samples(before.samples, samples, samples_max=self._limits.alert_samples_max)
        self._pending[key] = Observation(key, count, samples)

    def _forget_written_before(self, nanos: int) -> None:
        """Keep only the keys that a recurrence could find written too recently."""
        self._written_nanos = {key: at for key, at in self._written_nanos.items() if at > nanos}
