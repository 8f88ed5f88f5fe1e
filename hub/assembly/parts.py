"""All parts of one hub, put together: clock, writer, readers, use cases, admission, metrics.

Belongs to the composition root (``hub.app``), which gives them life; nothing runs here.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from threading import Thread
from typing import Final
from uuid import uuid4

from hub.assembly.access import Access
from hub.assembly.measurements import Measurements
from hub.config import HubSettings
from hub.core.clock import HubClock
from hub.http.metrics import HubMetrics
from hub.rpc.call_log import CallLog
from hub.rpc.identity import Admission
from hub.rpc.interceptors import FaultReporter
from hub.rpc.open_streams import OpenStreams
from hub.service.alert_book import AlertBook
from hub.service.alert_watch import AlertWatches
from hub.service.journal import Journal
from hub.service.journal_reads import JournalReads
from hub.service.journal_watch import JournalWatches
from hub.service.lease_use_cases import LeaseUseCases
from hub.service.loops import Loops
from hub.service.mismatches import Mismatches
from hub.service.presence import Presence
from hub.service.rates import HubRates, ProjectGuesses
from hub.service.readers import Readers
from hub.service.token_book import TokenBook
from hub.service.watch import Watches
from hub.service.writer import AsyncWriter, Writer
from hub.store.backup_contract import BackupMaker
from hub.store.contract import Changes
from hub.store.sqlite.backup import SqliteBackups
from hub.store.store import SqlStore
from hub.telemetry.start import start_tracer
from synchub.contract import NANOS_PER_SECOND

REFERENCE_CHARACTERS: Final = 12
"""Length of what names a fault in the log and to the client."""
CLAIM_ID_BYTES: Final = 16
"""Random bytes in what names the claim of an outbox message."""


def boot_nanos() -> int:
    """Return a clock that goes on while the machine sleeps (macOS: its monotonic clock does)."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class HubParts:
    """The parts, under the names that the composition root uses."""

    def __init__(
        self, store: SqlStore, executor: ThreadPoolExecutor, *, settings: HubSettings, access: Access
    ) -> None:
        """Make the parts, inside the running loop; nothing runs yet."""
        loop = asyncio.get_running_loop()
        self.store = store
        limits = self.limits = settings.limits
        self.clock = HubClock(
            wall_nanos=time.time_ns(),
            floor_nanos=store.time_floor_nanos,
            suspension_counting_nanos=boot_nanos,
        )
        self.metrics = HubMetrics(limits=limits)
        self.alert_book = AlertBook(limits=limits, instruments=self.metrics)
        self.writer = Writer(
            store.writing,
            clock=self.clock,
            limits=limits,
            hook=self.alert_book,
            instruments=self.metrics,
            monotonic_seconds=time.monotonic,
            dispatch=lambda deliver: _dispatch(loop, deliver),
            on_commit=self._announce,
        )
        self.rates = HubRates(limits=limits, instruments=self.metrics, monotonic_seconds=time.monotonic)
        self.guesses = ProjectGuesses(limits=limits, monotonic_seconds=time.monotonic)
        self.writer_thread = Thread(target=self.writer.run, name="writer", daemon=True)
        self.async_writer = AsyncWriter(self.writer, limits=limits)
        self.readers = Readers(store, executor, running_max=limits.readers_max)
        self.backup_maker: BackupMaker | None = None
        if settings.backup_folder is not None:
            self.backup_maker = SqliteBackups(settings.database, settings.backup_folder, limits=limits)
        self.backup_executor = ThreadPoolExecutor(1, thread_name_prefix="backup")
        self.loops = Loops(late_seconds_max=limits.loop_late_seconds_max, monotonic_seconds=time.monotonic)
        self.measurements = Measurements(
            self.readers, database=settings.database, backup_folder=settings.backup_folder
        )
        self.presence = Presence(
            self.async_writer,
            self.readers,
            alert_book=self.alert_book,
            limits=limits,
            now_nanos=self.clock.now,
            instruments=self.metrics,
        )
        self.watches = Watches(self.readers, limits=limits, monotonic_seconds=time.monotonic)
        self.alert_watches = AlertWatches(
            self.readers, self.async_writer, alert_book=self.alert_book, limits=limits
        )
        self.leases = LeaseUseCases(self.async_writer, self.readers, limits=limits, now_nanos=self.clock.now)
        self.journal = Journal(
            self.async_writer,
            rates=self.rates,
            limits=limits,
            new_claim_id=lambda: secrets.token_urlsafe(CLAIM_ID_BYTES),
            credential_nanos=self.credential_nanos,
            instruments=self.metrics,
        )
        self.journal_reads = JournalReads(self.readers, self.async_writer, now_nanos=self.clock.now)
        self.journal_watches = JournalWatches(self.readers, limits=limits, monotonic_seconds=time.monotonic)
        self.tokens = TokenBook(credential_nanos=self.credential_nanos)
        self._make_edge(settings, access)

    def _make_edge(self, settings: HubSettings, access: Access) -> None:
        """Make what calls come through: who may make them, how they are seen, what counts streams."""
        limits = self.limits
        self.admission = Admission(
            self.tokens,
            observer=Mismatches(self.alert_book),
            rates=self.rates,
            are_credentials_required=access.are_credentials_required,
            trust_domain=access.trust_domain,
        )
        self.tracer = start_tracer(
            settings.otlp_endpoint,
            version=version("synchub"),
            limits=limits,
            count_spans=self.metrics.span_ended,
        )
        self.calls = CallLog(self.metrics, limits=limits, tracer=self.tracer)
        self.reporter = FaultReporter(lambda: uuid4().hex[:REFERENCE_CHARACTERS])
        self.streams = OpenStreams(limits=limits, reporter=self.reporter)

    def credential_nanos(self) -> int:
        """Return the time by which credentials end: the later of hub time and the wall clock."""
        return max(self.clock.now(), time.time_ns())

    def time_ahead_seconds(self) -> float:
        """Return how far hub time is ahead of the wall clock."""
        return (self.clock.now() - time.time_ns()) / NANOS_PER_SECOND

    def _announce(self, changes: Changes) -> None:
        """Tell those who wait for changes; called on the loop, before the answers go out."""
        self.tokens.announce(changes)
        for (hub_project, runtime_id), (instance_id, start_nanos) in changes.instances.items():
            self.presence.instance_began(
                hub_project, runtime_id, instance_id=instance_id, start_nanos=start_nanos
            )
        self.leases.announce(changes)
        if changes.resources:
            for hub_project in changes.tenures_begun.keys() | changes.tenures_expired.keys():
                self.metrics.tenures_changed(
                    hub_project,
                    begun=changes.tenures_begun.get(hub_project, 0),
                    expired=changes.tenures_expired.get(hub_project, 0),
                )
        self.watches.announce(changes)
        self.journal_watches.announce(changes)
        self.alert_watches.announce(changes)
        if changes.tokens:
            self.streams.end_where_credential_ended()


def _dispatch(loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
    """Carry results from the writer's thread to the loop; where that is gone, nobody waits for them."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(deliver)
