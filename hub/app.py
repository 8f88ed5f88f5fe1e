"""The composition root: makes every part of a hub, starts it, and stops it in the right order.

The only module that knows all others. Clocks, chance, threads and the event loop are made here and
given to whoever needs them.
"""

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import uvloop

from hub.assembly.access import Access, decide_access, refuse_anybody, say_access
from hub.assembly.gauges import watch_certificates, watch_gauges, watch_health
from hub.assembly.parts import HubParts
from hub.assembly.private_socket import private_socket
from hub.assembly.self_watch import SelfWatch
from hub.assembly.servicers import add_services
from hub.certificate_files import CertificateFiles
from hub.config import Endpoint, HubSettings, default_database
from hub.core.errors import Refusal, StartRefused, StorageUnavailable
from hub.http.app import make_http_app
from hub.http.metrics_guard import MetricsGuard
from hub.http.server import HttpServer
from hub.rpc.interceptors import RefusalInterceptor
from hub.rpc.server import HubServer, is_loopback
from hub.service.loops import Sleep, measure_loop_delay
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore

log = structlog.get_logger(__name__)

SETTLE_SECONDS_MAX: Final = 3.0
"""Of the time of a stop, what is kept for unary calls and the writer after the streams ended."""
COLLECT_AFTER_ALLOCATIONS: Final = 50_000
"""The collector of cycles looks at what is young after so many allocations."""


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that takes calls. ``http_address`` is None where it has no HTTP port."""

    address: str
    http_address: str | None
    access: Access


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
        say_access(settings, hub.access, address=hub.address, http_address=hub.http_address)
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
    if settings.credentials == "auto" and not settings.database.exists():
        # A start that is refused leaves no store behind.
        refuse_anybody(settings, are_credentials_required=settings.trust_domain is not None)
    certificates = None if settings.tls is None else CertificateFiles(settings.tls)
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
        access = decide_access(settings, store)
        executor = ThreadPoolExecutor(settings.limits.readers_max, thread_name_prefix="reader")
        stack.callback(executor.shutdown)
        parts = HubParts(store, executor, settings=settings, access=access)
        watch_gauges(parts)
        stack.callback(parts.backup_executor.shutdown)
        if parts.tracer is not None:
            stack.callback(parts.tracer.close)
        hub = _Hub(
            parts,
            access=access,
            certificates=certificates,
            socket=stack.enter_context(private_socket(settings.database)),
        )
        async with hub.running(settings, hastened=hastened or asyncio.Event()) as running:
            yield running


class _Hub:
    """Gives life to the parts of one hub, and ends it in the right order."""

    def __init__(
        self, parts: HubParts, *, access: Access, certificates: CertificateFiles | None, socket: Path
    ) -> None:
        """Keep the parts; nothing runs yet. Without certificates both ports are plain text; ``socket`` is
        where the hub calls itself.
        """
        self._parts = parts
        self._socket = socket
        self._access = access
        self._certificates = certificates
        self._is_stopping = False

    @asynccontextmanager
    async def running(self, settings: HubSettings, *, hastened: asyncio.Event) -> AsyncIterator[RunningHub]:
        """Bind, start everything, give the addresses; after the block, stop everything.

        Raises: StartRefused where an address is in use.
        """
        parts = self._parts
        server = HubServer(
            lambda grpc_server: add_services(parts, grpc_server),
            interceptor=RefusalInterceptor(parts.reporter, parts.admission, parts.calls, limits=parts.limits),
            message_bytes_max=self._parts.limits.message_bytes_max,
            is_channelz_enabled=settings.is_channelz_enabled,
        )
        port = server.bind(settings.listen.host, settings.listen.port, certificates=self._certificates)
        server.bind_private(self._socket)
        address = str(Endpoint(settings.listen.host, port))
        self_watch = SelfWatch(
            parts, parts.measurements, socket=self._socket, is_stopping=lambda: self._is_stopping
        )
        try:
            http, http_address = self._http_server(settings.http, self_watch)
        except StartRefused:
            await self_watch.close()
            await server.stop(0.0)
            raise
        self._parts.writer_thread.start()
        await parts.tokens.load(parts.readers)
        await parts.leases.aborts.load(parts.readers)
        self._start_loops(server, self_watch)
        serving_http = asyncio.create_task(http.serve(), name="http") if http is not None else None
        if serving_http is not None:
            parts.loops.watch(serving_http)
        await server.start()
        try:
            yield RunningHub(address, http_address, self._access)
        finally:
            await self._end_calls(server, hastened)
            await parts.loops.stop()
            await self_watch.close()
            await self._settle()
            if http is not None and serving_http is not None:
                http.stop()
                await asyncio.gather(serving_http, return_exceptions=True)

    def _http_server(
        self, endpoint: Endpoint | None, self_watch: SelfWatch
    ) -> tuple[HttpServer | None, str | None]:
        """Return the HTTP server, bound, and its address; None where there shall be none."""
        if endpoint is None:
            return None, None
        is_guarded = self._access.are_credentials_required and not is_loopback(endpoint.host)
        guard = MetricsGuard(self._parts.tokens.authenticate) if is_guarded else None
        server = HttpServer(
            make_http_app(self_watch.health, self._parts.metrics, guard=guard),
            host=endpoint.host,
            port=endpoint.port,
            certificates=self._certificates,
        )
        return server, str(Endpoint(endpoint.host, server.port))

    # --- in the background ---

    def _start_loops(self, server: HubServer, self_watch: SelfWatch) -> None:
        """Begin all that runs for as long as the hub does."""
        parts, certificates = self._parts, self._certificates
        loops = parts.loops
        loops.start("leases", parts.leases.upkeep.run)
        loops.start("presence", parts.presence.run)
        loops.start("alerts", self._flush_alerts)
        loops.start("writes", parts.streams.watch_writes)
        loops.start("credentials", parts.streams.watch_credentials)
        if certificates is not None:
            interval = parts.limits.certificate_check_seconds
            watch_certificates(parts.metrics, certificates)
            loops.start("certificates", lambda sleep: certificates.watch(sleep, interval_seconds=interval))
        loops.start(
            "loop_delay",
            lambda sleep: measure_loop_delay(
                sleep, monotonic_seconds=time.monotonic, told=parts.metrics.loop_delayed
            ),
        )
        loops.start("health", lambda sleep: self_watch.run(sleep, say_well=server.say_well))
        watch_health(parts.metrics, self_watch.health)

    async def _flush_alerts(self, sleep: Sleep) -> None:
        """Write what recurs, once an interval; what cannot be written now is counted on."""
        while True:
            await sleep(self._parts.limits.alert_flush_seconds)
            try:
                await self._parts.alert_book.flush(self._parts.async_writer)
            except Refusal as refusal:
                log.warning("alerts_not_written", reason=refusal.reason)

    # --- the stop ---

    async def _end_calls(self, server: HubServer, hastened: asyncio.Event) -> None:
        """Take no new streams, end the open ones, then the server; in a bounded time."""
        self._is_stopping = True
        await server.say_not_serving()
        seconds_max = max(0.0, self._parts.limits.drain_seconds_max - SETTLE_SECONDS_MAX)
        draining = asyncio.create_task(self._drain(server, seconds_max))
        hastening = asyncio.create_task(hastened.wait())
        await asyncio.wait({draining, hastening}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done() or not draining.result():
            log.warning("streams_cut", counts=dict(self._parts.streams.counts()))
        draining.cancel()
        hastening.cancel()
        await server.stop(0.0 if hastened.is_set() else SETTLE_SECONDS_MAX / 3)

    async def _drain(self, server: HubServer, seconds_max: float) -> bool:
        """Ask all streams to end; return whether they did in time, and who had one was told why."""
        end_seconds = asyncio.get_running_loop().time() + seconds_max
        have_ended = await self._parts.streams.drain(seconds_max)
        try:
            async with asyncio.timeout_at(end_seconds):
                await server.all_told()
        except TimeoutError:
            return False
        return have_ended

    async def _settle(self) -> None:
        """Make durable what is only in memory, and let the writer finish what it has."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX / 3):
                await self._parts.leases.changes.settle()
                await self._parts.presence.flush()
                await self._parts.alert_book.flush(self._parts.async_writer)
        except (Refusal, TimeoutError) as error:
            log.warning("not_all_written", error=str(error))
        self._parts.writer.stop()
        await asyncio.to_thread(self._parts.writer_thread.join, SETTLE_SECONDS_MAX / 3)
        if self._parts.writer_thread.is_alive():
            log.error("writer_hangs")


def _make_default_folder(database: Path) -> None:
    """Make the folder of the default store; one that a person named must be there."""
    if database != default_database():
        return
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"cannot make the folder {database.parent}: {error.strerror}."
        raise StartRefused(sentence, "Give a path that may be written with --db.") from error
