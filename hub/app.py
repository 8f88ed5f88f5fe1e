"""The composition root: makes every part of a hub, starts it, and stops it in the right order.

The only module that knows all others. Clocks, chance, threads and the event loop are made here and
given to whoever needs them.
"""

import asyncio
import gc
import random
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Final
from uuid import uuid4

import grpc.aio
import structlog
import uvloop

from hub.config import Endpoint, HubSettings, default_database
from hub.core.clock import HubClock
from hub.core.errors import Refusal, StartRefused, StorageUnavailable
from hub.core.limits import Limits
from hub.http.app import Probes, make_http_app
from hub.http.metrics import GaugeSources, HubMetrics
from hub.http.server import HttpServer
from hub.rpc.heartbeat_handler import HeartbeatHandler
from hub.rpc.hub_service import HubFacts, HubService
from hub.rpc.interceptors import FaultReporter
from hub.rpc.journal_service import JournalService
from hub.rpc.lease_service import LeaseService
from hub.rpc.presence_service import PresenceService
from hub.rpc.push_handler import PushHandler
from hub.rpc.read_handlers import ReadHandlers
from hub.rpc.renew_handler import RenewHandler
from hub.rpc.server import HubServer, refuse_beyond_loopback
from hub.rpc.streams import OpenStreams
from hub.rpc.sync_service import SyncService
from hub.rpc.watch_handlers import WatchHandlers
from hub.service.alert_book import AlertBook
from hub.service.alert_watch import AlertWatches
from hub.service.ingest import Ingest
from hub.service.journal import Journal
from hub.service.journal_reads import JournalReads
from hub.service.journal_watch import JournalWatches
from hub.service.lease_use_cases import LeaseUseCases
from hub.service.presence import Presence
from hub.service.projects import Projects
from hub.service.readers import Readers
from hub.service.reads import Reads
from hub.service.reconcile import Reconcile
from hub.service.watch import Watches
from hub.service.writer import AsyncWriter, Writer
from hub.store.contract import Changes
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND
from synchub.v1.hub_service_pb2_grpc import add_HubServiceServicer_to_server
from synchub.v1.journal_service_pb2_grpc import add_JournalServiceServicer_to_server
from synchub.v1.lease_service_pb2_grpc import add_LeaseServiceServicer_to_server
from synchub.v1.presence_service_pb2_grpc import add_PresenceServiceServicer_to_server
from synchub.v1.sync_service_pb2_grpc import add_SyncServiceServicer_to_server

log = structlog.get_logger(__name__)

SERVICE_NAMES: Final = (
    "synchub.v1.SyncService",
    "synchub.v1.PresenceService",
    "synchub.v1.LeaseService",
    "synchub.v1.JournalService",
    "synchub.v1.HubService",
)
SETTLE_SECONDS_MAX: Final = 3.0
"""Of the time of a stop, what is kept for unary calls and the writer after the streams ended."""
REFERENCE_CHARACTERS: Final = 12
"""Length of what names a fault in the log and to the client."""
NONCE_BYTES: Final = 16
"""Random bytes in a nonce that the hub makes."""
CLAIM_ID_BYTES: Final = 16
"""Random bytes in what names the claim of an outbox message."""
COLLECT_AFTER_ALLOCATIONS: Final = 50_000
"""The collector of cycles looks at what is young after so many allocations."""


def boot_nanos() -> int:
    """Return a clock that goes on while the machine sleeps (macOS: its monotonic clock does)."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that takes calls. ``http_address`` is None where it has no HTTP port."""

    address: str
    http_address: str | None


def serve(settings: HubSettings) -> None:
    """Run a hub until SIGTERM or SIGINT; a second signal hastens the stop.

    Prints one line when it is ready. Raises: StartRefused.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: HubSettings) -> None:
    stopping, hastened = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hastened if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with running_hub(settings, hastened=hastened) as hub:
        http = f" http {hub.http_address}" if hub.http_address is not None else ""
        print(f"listening on {hub.address}{http}", flush=True)
        log.info("hub_ready", address=hub.address, http_address=hub.http_address, db=str(settings.database))
        # What lives from now on is for good: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        # A batch is some thousand small tuples and no cycle: look for cycles less often.
        gc.set_threshold(COLLECT_AFTER_ALLOCATIONS, 20, 20)
        await stopping.wait()
        log.info("hub_stopping")
    log.info("hub_stopped")


@asynccontextmanager
async def running_hub(
    settings: HubSettings, *, hastened: asyncio.Event | None = None
) -> AsyncIterator[RunningHub]:
    """Run a hub on the running loop for the length of the block, then stop it gracefully.

    Setting ``hastened`` cuts the stop short. Raises: StartRefused.
    """
    for endpoint, flag in ((settings.listen, "--listen"), (settings.http, "--http")):
        if endpoint is not None:
            refuse_beyond_loopback(endpoint.host, flag=flag)
    _make_default_folder(settings.database)
    with ExitStack() as stack:
        engine = stack.enter_context(opened_engine(settings.database, limits=settings.limits))
        try:
            store = SqlStore(
                engine,
                limits=settings.limits,
                wall_nanos=time.time_ns(),
                is_token_floor_now=settings.is_token_floor_now,
            )
        except StorageUnavailable as error:
            hint = "The log has the details: check the disk and the file's permissions."
            raise StartRefused(f"cannot open the store {settings.database}.", hint) from error
        stack.callback(store.close)
        executor = ThreadPoolExecutor(settings.limits.readers_max, thread_name_prefix="reader")
        stack.callback(executor.shutdown)
        hub = _Hub(store, executor, limits=settings.limits)
        async with hub.running(settings, hastened=hastened or asyncio.Event()) as running:
            yield running


class _Hub:
    """All parts of one hub, put together; ``running`` gives them life."""

    def __init__(self, store: SqlStore, executor: ThreadPoolExecutor, *, limits: Limits) -> None:
        """Make the parts, inside the running loop; nothing runs yet."""
        loop = asyncio.get_running_loop()
        self._store = store
        self._limits = limits
        self._is_stopping = False
        self._dead_part: str | None = None
        self._clock = HubClock(
            wall_nanos=time.time_ns(),
            floor_nanos=store.time_floor_nanos,
            suspension_counting_nanos=boot_nanos,
        )
        self._metrics = HubMetrics()
        self._alert_book = AlertBook(limits=limits)
        self._writer = Writer(
            store.writing,
            clock=self._clock,
            limits=limits,
            hook=self._alert_book,
            instruments=self._metrics,
            monotonic_seconds=time.monotonic,
            dispatch=lambda deliver: _dispatch(loop, deliver),
            on_commit=self._tell_commit,
        )
        self._writer_thread = Thread(target=self._writer.run, name="writer", daemon=True)
        self._async_writer = AsyncWriter(self._writer, limits=limits)
        self._readers = Readers(store, executor)
        self._presence = Presence(
            self._async_writer,
            self._readers,
            alert_book=self._alert_book,
            limits=limits,
            now_nanos=self._clock.now,
        )
        self._watches = Watches(self._readers, limits=limits, monotonic_seconds=time.monotonic)
        self._alert_watches = AlertWatches(
            self._readers, self._async_writer, alert_book=self._alert_book, limits=limits
        )
        self._leases = LeaseUseCases(
            self._async_writer, self._readers, limits=limits, now_nanos=self._clock.now
        )
        self._journal = Journal(
            self._async_writer,
            limits=limits,
            new_claim_id=lambda: secrets.token_urlsafe(CLAIM_ID_BYTES),
        )
        self._journal_reads = JournalReads(self._readers, self._async_writer, now_nanos=self._clock.now)
        self._journal_watches = JournalWatches(self._readers, limits=limits, monotonic_seconds=time.monotonic)
        self._reporter = FaultReporter(lambda: uuid4().hex[:REFERENCE_CHARACTERS])
        self._streams = OpenStreams(limits=limits, reporter=self._reporter)
        self._metrics.watch(
            GaugeSources(
                writer_queue_bytes=lambda: self._async_writer.bytes_queued,
                streams_open=self._streams.counts,
                runtimes_heard=lambda: {
                    str(state): count for state, count in self._presence.counts().items()
                },
                store_log_bytes=store.log_bytes,
                hub_time_ahead_seconds=self._time_ahead_seconds,
            )
        )

    @asynccontextmanager
    async def running(self, settings: HubSettings, *, hastened: asyncio.Event) -> AsyncIterator[RunningHub]:
        """Bind, start everything, give the addresses; after the block, stop everything.

        Raises: StartRefused where an address is in use.
        """
        server = HubServer(
            self._add_services,
            reporter=self._reporter,
            message_bytes_max=self._limits.message_bytes_max,
            is_channelz_enabled=settings.is_channelz_enabled,
        )
        port = server.bind(settings.listen.host, settings.listen.port)
        address = str(Endpoint(settings.listen.host, port))
        try:
            http, http_address = self._http_server(settings.http)
        except StartRefused:
            await server.stop(0.0)
            raise
        self._writer_thread.start()
        await self._leases.aborts.load(self._readers)
        background = [
            asyncio.create_task(self._leases.upkeep.run(asyncio.sleep), name="leases"),
            asyncio.create_task(self._presence.run(asyncio.sleep), name="presence"),
            asyncio.create_task(self._flush_alerts(), name="alerts"),
            asyncio.create_task(self._streams.watch_writes(asyncio.sleep), name="writes"),
        ]
        for task in background:
            task.add_done_callback(self._note_end)
        serving_http = asyncio.create_task(http.serve(), name="http") if http is not None else None
        await server.start()
        try:
            yield RunningHub(address, http_address)
        finally:
            await self._end_calls(server, hastened)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._settle()
            if http is not None and serving_http is not None:
                http.stop()
                await asyncio.gather(serving_http, return_exceptions=True)

    def _add_services(self, server: grpc.aio.Server) -> tuple[str, ...]:
        """Make the services and add them to the server."""
        limits, streams = self._limits, self._streams
        reconcile = Reconcile(self._async_writer, alert_book=self._alert_book, limits=limits)
        ingest = Ingest(
            self._async_writer,
            alert_book=self._alert_book,
            limits=limits,
            instruments=self._metrics,
            wall_nanos=time.time_ns,
        )
        sync_service = SyncService(
            push=PushHandler(ingest=ingest, reconcile=reconcile, open_streams=streams, limits=limits),
            reads=ReadHandlers(
                reads=Reads(self._readers, limits=limits),
                alerts=self._alert_watches,
                projects=Projects(self._async_writer),
                open_streams=streams,
                limits=limits,
            ),
            watches=WatchHandlers(
                watches=self._watches, alerts=self._alert_watches, open_streams=streams, limits=limits
            ),
        )
        heartbeat_handler = HeartbeatHandler(
            self._presence,
            aborts=self._leases.aborts,
            open_streams=streams,
            limits=limits,
            chance=random.SystemRandom(),
        )
        presence_service = PresenceService(
            self._presence, heartbeat_handler, open_streams=streams, limits=limits
        )
        journal_service = JournalService(
            self._journal,
            reads=self._journal_reads,
            watches=self._journal_watches,
            open_streams=streams,
            limits=limits,
        )
        facts = HubFacts(version("synchub"), self._store.hub_generation, self._store.engine)
        hub_service = HubService(facts, limits=limits, now_nanos=self._clock.now)
        add_SyncServiceServicer_to_server(sync_service, server)
        add_PresenceServiceServicer_to_server(presence_service, server)
        add_LeaseServiceServicer_to_server(self._lease_service(), server)
        add_JournalServiceServicer_to_server(journal_service, server)
        add_HubServiceServicer_to_server(hub_service, server)
        return SERVICE_NAMES

    def _lease_service(self) -> LeaseService:
        """Make the service of leases."""
        leases, limits, streams = self._leases, self._limits, self._streams
        renew_handler = RenewHandler(
            leases.changes, aborts=leases.aborts, open_streams=streams, limits=limits
        )
        return LeaseService(
            leases.changes,
            renew_handler,
            reads=leases.reads,
            watches=leases.watches,
            open_streams=streams,
            limits=limits,
            new_nonce=lambda: secrets.token_urlsafe(NONCE_BYTES),
        )

    def _http_server(self, endpoint: Endpoint | None) -> tuple[HttpServer | None, str | None]:
        """Return the HTTP server, bound, and its address; None where there shall be none."""
        if endpoint is None:
            return None, None
        probes = Probes(
            run_through_writer=self._async_writer.settle,
            is_stopping=lambda: self._is_stopping,
            dead_part=lambda: self._dead_part,
            hub_time_ahead_seconds=self._time_ahead_seconds,
        )
        server = HttpServer(make_http_app(probes, self._metrics), host=endpoint.host, port=endpoint.port)
        return server, str(Endpoint(endpoint.host, server.port))

    # --- in the background ---

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Say so where something that runs for ever has ended by a fault; health fails from then on."""
        if not task.cancelled() and task.exception() is not None:
            self._dead_part = task.get_name()
            log.error("background_task_died", task=task.get_name(), exc_info=task.exception())

    async def _flush_alerts(self) -> None:
        """Write what recurs, once an interval; what cannot be written now is counted on."""
        while True:
            await asyncio.sleep(self._limits.alert_flush_seconds)
            try:
                await self._alert_book.flush(self._async_writer)
            except Refusal as refusal:
                log.warning("alerts_not_written", reason=refusal.reason)

    def _tell_commit(self, changes: Changes) -> None:
        """Tell those who wait for changes; called on the loop, before the answers go out."""
        for (hub_project, runtime_id), (instance_id, start_nanos) in changes.instances.items():
            self._presence.instance_began(
                hub_project, runtime_id, instance_id=instance_id, start_nanos=start_nanos
            )
        self._leases.announce(changes)
        self._watches.announce(changes)
        self._journal_watches.announce(changes)
        self._alert_watches.announce(changes)

    def _time_ahead_seconds(self) -> float:
        """Return how far hub time is ahead of the wall clock."""
        return (self._clock.now() - time.time_ns()) / NANOS_PER_SECOND

    # --- the stop ---

    async def _end_calls(self, server: HubServer, hastened: asyncio.Event) -> None:
        """Take no new streams, end the open ones, then the server; in a bounded time."""
        self._is_stopping = True
        await server.say_not_serving()
        seconds_max = max(0.0, self._limits.drain_seconds_max - SETTLE_SECONDS_MAX)
        draining = asyncio.create_task(self._streams.drain(seconds_max))
        hastening = asyncio.create_task(hastened.wait())
        await asyncio.wait({draining, hastening}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done() or not draining.result():
            log.warning("streams_cut", counts=dict(self._streams.counts()))
        draining.cancel()
        hastening.cancel()
        await server.stop(0.0 if hastened.is_set() else SETTLE_SECONDS_MAX / 3)

    async def _settle(self) -> None:
        """Make durable what is only in memory, and let the writer finish what it has."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX / 3):
                await self._leases.changes.settle()
                await self._presence.flush()
                await self._alert_book.flush(self._async_writer)
        except (Refusal, TimeoutError) as error:
            log.warning("not_all_written", error=str(error))
        self._writer.stop()
        await asyncio.to_thread(self._writer_thread.join, SETTLE_SECONDS_MAX / 3)
        if self._writer_thread.is_alive():
            log.error("writer_hangs")


def _dispatch(loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
    """Carry results from the writer's thread to the loop; where that is gone, nobody waits for them."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(deliver)


def _make_default_folder(database: Path) -> None:
    """Make the folder of the default store; one that a person named must be there."""
    if database != default_database():
        return
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"cannot make the folder {database.parent}: {error.strerror}."
        raise StartRefused(sentence, "Give a path that may be written with --db.") from error
