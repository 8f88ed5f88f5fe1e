"""The agent as a process: takes the data folder, puts all parts together, runs them, stops in order.

The composition root: the only module of the agent besides the command line that knows all others.
Threads, loop, clocks and chance are made here and given. ``run_agent`` returns when it was asked to
stop (SIGTERM, SIGINT); no hub and no refusal of one ever ends it.
"""

import asyncio
import gc
import ipaddress
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast
from uuid import uuid4

import structlog

from runtime_agent import __version__, limits
from runtime_agent.core.errors import LogError, LogOwnerLostError, LogStoppedError, RuntimeAgentError
from runtime_agent.core.instance import InstanceLife
from runtime_agent.core.values import AgentFacts, RuntimeIdentity
from runtime_agent.event_log.contract import EventLog, LogFront
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import OwnedLog, take_folder
from runtime_agent.hub_client.link import Link
from runtime_agent.hub_client.presence import Machine, Presence, PresenceListeners
from runtime_agent.hub_client.surroundings import ProgramLog, Surroundings
from runtime_agent.local_api.server import LocalServer
from runtime_agent.local_api.service import RuntimeAgentServicer
from synchub.channel import HubAddress
from synchub.credentials import (
    NO_CREDENTIALS,
    Credentials,
    CredentialsGiven,
    CredentialSource,
    source_of,
)

PROCESS_ROLE: Final = "agent"
"""What a second process on the same data folder is told about this one."""
LOCAL_GRACE_SECONDS: Final = 1.0
"""How long open local calls may go on once the agent stops."""
SYNC_STOP_SECONDS_MAX: Final = 6.0
"""Everything of a stop but closing the log takes at most so long."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is started with; ``lock_wait_seconds``: how long to wait for the data folder."""

    hub_addresses: tuple[HubAddress, ...]
    folder: str
    identity: RuntimeIdentity
    credentials: CredentialsGiven = NO_CREDENTIALS
    labels: Mapping[str, str] = field(default_factory=dict)
    retention_seconds: float = limits.RETENTION_SECONDS
    log_bytes_max: int = limits.LOG_BYTES_MAX
    lock_wait_seconds: float = 0.0


def run_agent(settings: AgentSettings) -> None:
    """Run the agent until it is asked to stop; call it in the main thread.

    One line goes to standard output once local programs can append, the program's log to standard
    error. Raises: CredentialsError, AlreadyRunningError, IdentityPinnedError, and the other errors of
    opening the log; LogOwnerLostError where another process took the folder over meanwhile.
    """
    program_log = open_program_log()
    credentials = source_of(settings.credentials)
    owned = take_folder(
        settings.folder,
        role=PROCESS_ROLE,
        wait_seconds=settings.lock_wait_seconds,
        log_bytes_max=settings.log_bytes_max,
    )
    try:
        owned.log.pin_identity(settings.identity)
        front = LogThread(owned)
    except BaseException:
        owned.close()
        raise
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(_Agent(settings, credentials, owned, front, program_log=program_log).serve())


def open_program_log() -> ProgramLog:
    """Return the program's log on standard error: for people on a terminal, else a JSON object a line."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer()
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    return cast(ProgramLog, structlog.get_logger())


def is_token_readable_on_the_way(credentials: Credentials, addresses: tuple[HubAddress, ...]) -> bool:
    """Whether a token travels in plain text beyond this machine."""
    if credentials.uses_tls or not (credentials.token or credentials.token_file):
        return False
    return any(not _is_loopback(address.host) for address in addresses)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop; it is not there on every system, and the standard one does the same."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Agent:
    """The running agent: made inside ``run_agent``, served once."""

    def __init__(
        self,
        settings: AgentSettings,
        credentials: CredentialSource,
        owned: OwnedLog,
        front: LogThread,
        *,
        program_log: ProgramLog,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._owned = owned
        self._front = front
        self._program_log = program_log

    async def serve(self) -> None:
        """Run until a signal or the loss of the log; then stop, in bounded time."""
        settings, loop = self._settings, asyncio.get_running_loop()
        stopping, hurrying = asyncio.Event(), asyncio.Event()

        def on_signal() -> None:
            (hurrying if stopping.is_set() else stopping).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        self._front.start()
        link, presence = self._connect_parts()
        facts = AgentFacts(settings.identity, os.getpid(), __version__, time.time_ns())
        server = LocalServer(settings.folder, RuntimeAgentServicer(self._front, link, facts))
        tasks: list[asyncio.Task[None]] = []
        try:
            socket_path = await server.start()
            print(f"ready: listening on {socket_path}", flush=True)
            self._program_log.info(
                "agent_started",
                version=__version__,
                hub_project=settings.identity.hub_project,
                runtime_id=settings.identity.runtime_id,
                folder=settings.folder,
            )
            if is_token_readable_on_the_way(self._credentials.credentials, settings.hub_addresses):
                self._program_log.warning("token_sent_without_tls")
            gc.freeze()  # what lives as long as the process need not be looked at again
            tasks = [
                asyncio.create_task(link.run(), name="link"),
                asyncio.create_task(presence.run(), name="presence"),
                asyncio.create_task(self._drop_old_payloads(), name="retention"),
            ]
            waiting = asyncio.create_task(stopping.wait(), name="stop")
            done, _ = await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for task in done - {waiting}:
                # Only the loss of the log ends one of them; anything else is a mistake and is told.
                task.result()
        finally:
            stopping.set()
            await self._stop(server, link, presence=presence, tasks=tasks, hurrying=hurrying)

    def _connect_parts(self) -> tuple[Link, Presence]:
        settings = self._settings
        surroundings = Surroundings(
            clock=time.monotonic,
            wall_clock_nanos=time.time_ns,
            chance=random.SystemRandom().random,
            program_log=self._program_log,
        )
        instance = InstanceLife(
            new_instance_id=lambda: uuid4().hex,
            wait_seconds_first=limits.DUPLICATE_WAIT_SECONDS_FIRST,
            wait_seconds_max=limits.DUPLICATE_WAIT_SECONDS_MAX,
            calm_seconds=limits.DUPLICATE_CALM_SECONDS,
        )
        link = Link(
            settings.hub_addresses,
            identity=settings.identity,
            instance=instance,
            log=self._front,
            surroundings=surroundings,
            credentials=self._credentials,
        )
        presence = Presence(
            settings.hub_addresses,
            identity=settings.identity,
            instance=instance,
            machine=Machine(socket.gethostname(), os.getpid(), __version__, settings.labels),
            log=self._front,
            surroundings=surroundings,
            listeners=PresenceListeners(on_lost=link.doubt, on_drain=link.leave),
            credentials=self._credentials,
        )
        return link, presence

    async def _drop_old_payloads(self) -> None:
        """Drop payloads whose retention is over, in small transactions, for as long as the agent runs."""
        front: LogFront = self._front
        retention_nanos = int(self._settings.retention_seconds * limits.NANOS_PER_SECOND)
        while True:
            dropped_count = 0
            try:
                while True:
                    before_nanos = time.time_ns() - retention_nanos
                    dropped = await asyncio.wrap_future(
                        front.call(partial(_drop_payloads, acknowledged_before_nanos=before_nanos))
                    )
                    dropped_count += dropped
                    if dropped == 0:
                        break
            except (LogOwnerLostError, LogStoppedError):
                raise
            except LogError as error:
                self._program_log.warning("retention_failed", detail=str(error))
            if dropped_count:
                self._program_log.info("payloads_dropped", event_count=dropped_count)
            await asyncio.sleep(limits.RETENTION_INTERVAL_SECONDS)

    async def _stop(
        self,
        server: LocalServer,
        link: Link,
        *,
        presence: Presence,
        tasks: list[asyncio.Task[None]],
        hurrying: asyncio.Event,
    ) -> None:
        """Take no more appends, sync what can be synced soon, say goodbye, close the log."""
        self._program_log.info("agent_stopping")
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_STOP_SECONDS_MAX):
                await server.stop(LOCAL_GRACE_SECONDS)
                await _unless(hurrying, link.drain(limits.DRAIN_SECONDS_MAX))
                await presence.say_goodbye(limits.GOODBYE_SECONDS_MAX)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, RuntimeAgentError):
                self._program_log.warning("stop_failed", detail=f"{type(result).__name__}: {result}")
        await asyncio.to_thread(self._front.stop)
        self._program_log.info("agent_stopped")


async def _unless(hurrying: asyncio.Event, work: Coroutine[None, None, bool]) -> None:
    """Wait for the work, or for the event if that comes first: then the work is cancelled."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(hurrying.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def _drop_payloads(log: EventLog, *, acknowledged_before_nanos: int) -> int:
    return log.drop_payloads(
        acknowledged_before_nanos=acknowledged_before_nanos, limit=limits.RETENTION_BATCH_EVENTS
    )
