"""Heartbeats: a stream and a connection of their own, so that they never wait behind bulk.

Each stream says first who lives, then goes on in the interval that the hub asks for. Whatever ends a
stream leads to the next one; presence never ends the agent.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import grpc

from runtime_agent import limits
from runtime_agent.core.activity import RunActivity
from runtime_agent.core.backoff import Backoff
from runtime_agent.core.errors import LogError, LogOwnerLostError, LogStoppedError
from runtime_agent.core.instance import InstanceLife
from runtime_agent.core.refusals import RefusalAction
from runtime_agent.core.values import RunKey, RuntimeIdentity
from runtime_agent.event_log.contract import EventLogReader, LogFront
from runtime_agent.hub_client.codec import (
    DrainNotice,
    DuplicateNotice,
    Heartbeat,
    HeartbeatAnswer,
    PushSender,
)
from runtime_agent.hub_client.credential_wait import wait_or_replaced
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import HubConnection, PresenceStream
from runtime_agent.hub_client.surroundings import Surroundings, wait_for_instance
from synchub.channel import FIRST_ANSWER_SECONDS_MAX, HubAddress, Refusal
from synchub.contract import ACTIVE_RUNS_MAX
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, source_of

RUNS_NOTED_PAGE: Final = 1_000
"""Most runs looked at for one heartbeat; the rest is looked at for the next."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a heartbeat says of the process and its machine, the same for the agent's life."""

    host: str
    pid: int
    version: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PresenceListeners:
    """Whom presence tells what it hears; none of them waits."""

    on_lost: Callable[[], None]
    """The stream ended: the hub may be gone for others too."""
    on_drain: Callable[[float], None]
    """The hub will stop: connect again after so many seconds."""


class _Draining(Exception):
    """The hub asked to connect again after ``delay_seconds``."""

    def __init__(self, delay_seconds: float) -> None:
        super().__init__("the hub asked to connect again")
        self.delay_seconds = delay_seconds


class Presence:
    """Says that the runtime lives; ``run`` it until cancelled, then ``say_goodbye`` was called or not."""

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        *,
        identity: RuntimeIdentity,
        instance: InstanceLife,
        machine: Machine,
        log: LogFront,
        surroundings: Surroundings,
        listeners: PresenceListeners,
        credentials: CredentialsGiven = NO_CREDENTIALS,
    ) -> None:
        """Raises: CredentialsError."""
        self._addresses = addresses
        self._credentials = source_of(credentials)
        self._shown = self._credentials.current()
        self._identity = identity
        self._instance = instance
        self._machine = machine
        self._log = log
        self._clock = surroundings.clock
        self._program_log = surroundings.program_log
        self._listeners = listeners
        self._backoff = Backoff(limits.BACKOFF_SECONDS_FIRST, limits.BACKOFF_SECONDS_MAX, surroundings.chance)
        self._activity = RunActivity(limits.ACTIVE_RUN_SECONDS, ACTIVE_RUNS_MAX)
        self._noted_position: int | None = None
        self._unsynced_event_count = 0
        self._interval_seconds = limits.HEARTBEAT_SECONDS_DEFAULT
        self._last_detail = ""
        self._is_leaving = asyncio.Event()
        self._has_left = asyncio.Event()
        self._stream: PresenceStream | None = None

    async def run(self) -> None:
        """Keep a heartbeat stream open until cancelled or after ``say_goodbye``."""
        while not self._is_leaving.is_set():
            await wait_for_instance(self._instance, clock=self._clock)
            await self._wait(await self._connect_once())
        self._has_left.set()

    async def _wait(self, seconds: float) -> None:
        """Wait before the next stream; not when leaving, nor for a credential that is replaced."""
        leaving = asyncio.ensure_future(self._is_leaving.wait())
        waiting = asyncio.ensure_future(
            wait_or_replaced(seconds, shown=self._shown, credentials=self._credentials)
        )
        try:
            await asyncio.wait((leaving, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            waiting.cancel()

    async def say_goodbye(self, seconds_max: float) -> None:
        """Leave orderly, so that the runtime is OFFLINE and not LOST; waits at most that long."""
        self._is_leaving.set()
        if self._stream is None:
            return
        try:
            async with asyncio.timeout(seconds_max):
                await self._has_left.wait()
        except TimeoutError:
            pass

    # --- one stream --------------------------------------------------------------------------------

    async def _connect_once(self) -> float:
        """Hold one stream to its end; return how long to wait before the next, in seconds."""
        sender = PushSender(self._identity, self._instance.instance_id)
        connection = await HubConnection.dial(self._addresses, credentials=self._credentials)
        self._shown = self._credentials.current()
        try:
            self._stream = stream = connection.open_presence(sender)
            await self._beat(stream)
            return 0.0
        except _Draining as asked:
            return asked.delay_seconds
        except HubCallError as error:
            return self._wait_seconds_after(error, sender)
        except TimeoutError:
            late = Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "the heartbeat was not answered in time")
            return self._wait_seconds_after(HubCallError(late, self._addresses), sender)
        except (LogOwnerLostError, LogStoppedError):
            raise
        except Exception:  # noqa: BLE001 - a mistake of ours costs a reconnect, never the agent
            self._program_log.exception("presence_failed")
            return self._backoff.next_wait_seconds()
        finally:
            if self._stream is not None:
                self._stream.cancel()
                self._stream = None
            await connection.close()

    async def _beat(self, stream: PresenceStream) -> None:
        """Send heartbeats and take answers until leaving; raises what ends the stream."""
        reading: asyncio.Task[HeartbeatAnswer] | None = None
        leaving = asyncio.ensure_future(self._is_leaving.wait())
        try:
            while not self._is_leaving.is_set():
                await self._send(stream, is_goodbye=False)
                # The answer to the heartbeat just sent has to come in time; notices may come before.
                next_beat = self._clock() + self._interval_seconds
                answer_due: float | None = self._clock() + FIRST_ANSWER_SECONDS_MAX
                while not self._is_leaving.is_set():
                    now = self._clock()
                    if answer_due is None and now >= next_beat:
                        break
                    if answer_due is not None and now >= answer_due:
                        raise TimeoutError("the hub does not answer heartbeats")
                    if reading is None:
                        reading = asyncio.create_task(stream.receive(), name="presence-receive")
                    wait_until = next_beat if answer_due is None else answer_due
                    await asyncio.wait(
                        (reading, leaving),
                        timeout=max(0.0, wait_until - now),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if reading.done():
                        answer, reading = reading.result(), None
                        self._take(answer)
                        if answer.interval_seconds > 0:
                            answer_due = None
                            next_beat = min(next_beat, now + self._interval_seconds)
            await self._leave(stream, reading)
            reading = None
        finally:
            leaving.cancel()
            if reading is not None:
                await _ended(reading)

    async def _send(self, stream: PresenceStream, *, is_goodbye: bool) -> None:
        heartbeat = await self._heartbeat(is_goodbye=is_goodbye)
        async with asyncio.timeout(FIRST_ANSWER_SECONDS_MAX):
            await stream.send(heartbeat)

    async def _leave(self, stream: PresenceStream, reading: "asyncio.Task[HeartbeatAnswer] | None") -> None:
        """Say goodbye and wait for the hub's answer or the end of the stream; both will do."""
        try:
            async with asyncio.timeout(limits.GOODBYE_SECONDS_MAX):
                await self._send(stream, is_goodbye=True)
                await stream.half_close()
                if reading is not None:
                    await reading
                while True:
                    await stream.receive()
        except (HubCallError, TimeoutError):
            pass
        finally:
            if reading is not None:
                await _ended(reading)

    def _take(self, answer: HeartbeatAnswer) -> None:
        self._backoff.reset()
        self._last_detail = ""
        if answer.interval_seconds > 0:
            self._interval_seconds = min(
                limits.HEARTBEAT_SECONDS_MAX, max(limits.HEARTBEAT_SECONDS_MIN, answer.interval_seconds)
            )
        for notice in answer.notices:
            match notice:
                case DrainNotice(delay_seconds):
                    self._listeners.on_drain(delay_seconds)
                    raise _Draining(min(delay_seconds, limits.RETRY_DELAY_SECONDS_MAX))
                case DuplicateNotice(current_instance_id):
                    # What it means for this instance is said by the refusal; this names the other one.
                    self._program_log.warning("runtime_duplicated", current_instance_id=current_instance_id)

    def _wait_seconds_after(self, error: HubCallError, sender: PushSender) -> float:
        if error.action is RefusalAction.BEGIN_ANEW:
            self._instance.refused(sender.instance_id, now=self._clock())
            self._program_log.warning("runtime_duplicated", instance_id=sender.instance_id)
            return 0.0
        self._listeners.on_lost()
        asked = min(error.refusal.retry_delay_seconds or 0.0, limits.RETRY_DELAY_SECONDS_MAX)
        wait_seconds = max(asked, self._backoff.next_wait_seconds())
        detail = str(error)
        if detail != self._last_detail:
            # A hub that is away for weeks is said once, not with each try.
            self._last_detail = detail
            self._program_log.info("presence_down", detail=detail, wait_seconds=round(wait_seconds, 3))
        return wait_seconds

    # --- what a heartbeat says ---------------------------------------------------------------------

    async def _heartbeat(self, *, is_goodbye: bool) -> Heartbeat:
        now = self._clock()
        try:
            position = self._noted_position
            async with asyncio.timeout(limits.LOG_RETRY_SECONDS):
                glance = await asyncio.wrap_future(self._log.read(lambda reader: _glance(reader, position)))
            self._noted_position, self._unsynced_event_count = glance.position, glance.unsynced_event_count
            for run, is_ended in glance.runs:
                self._activity.note(run, is_ended=is_ended, now=now)
        except (LogOwnerLostError, LogStoppedError):
            raise
        except (LogError, TimeoutError):
            pass  # a log that is busy or ill is no reason to be counted as dead: say what was known
        return Heartbeat(
            host=self._machine.host,
            pid=self._machine.pid,
            version=self._machine.version,
            labels=self._machine.labels,
            active_runs=self._activity.active_runs(now=now, limit=ACTIVE_RUNS_MAX),
            unsynced_event_count=self._unsynced_event_count,
            is_goodbye=is_goodbye,
        )


@dataclass(frozen=True, slots=True)
class _Glance:
    """What one look at the log says: the unsynced events, and the runs appended to since the last."""

    unsynced_event_count: int
    position: int
    runs: tuple[tuple[RunKey, bool], ...]


def _glance(reader: EventLogReader, position: int | None) -> _Glance:
    """Runs on the log's reading thread; the first look only takes its position."""
    totals = reader.load_totals()
    if position is None:
        return _Glance(totals.unsynced_event_count, totals.head_local_position, ())
    states = reader.list_runs_changed_after(position, limit=RUNS_NOTED_PAGE)
    if states:
        position = states[-1].last_local_position
    return _Glance(
        totals.unsynced_event_count, position, tuple((state.run, state.is_final) for state in states)
    )


async def _ended(reading: "asyncio.Task[HeartbeatAnswer]") -> None:
    """Cancel a read and look at how it ended, so that it is not reported as forgotten."""
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
