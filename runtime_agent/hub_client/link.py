"""The link to the hub: connects, runs one session after the other, and never gives up.

Here is decided only how long to wait before the next try, from why the last one ended; the session
(``push_session.py``) does the work. No refusal ends the link, and no failure of the hub ends the agent.
"""

import asyncio
from typing import Final

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.core.errors import LogError, LogOwnerLostError, LogStoppedError, RuntimeAgentError
from runtime_agent.core.instance import InstanceLife
from runtime_agent.core.push import PushCore
from runtime_agent.core.push_steps import PushBounds
from runtime_agent.core.refusals import RefusalAction
from runtime_agent.core.values import HubLinkState, HubLinkStatus, RunKey, RuntimeIdentity
from runtime_agent.event_log.contract import LogFront
from runtime_agent.hub_client.codec import HubFacts, PushSender
from runtime_agent.hub_client.credential_wait import wait_or_replaced
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.hub_calls import HubConnection
from runtime_agent.hub_client.push_session import PushSession, SessionEnded
from runtime_agent.hub_client.reconciler import HubGenerationMoved, Reconciler
from runtime_agent.hub_client.refusal_words import held_projects_words, refusal_words
from runtime_agent.hub_client.surroundings import Surroundings, wait_for_instance
from synchub import contract
from synchub.channel import FIRST_ANSWER_SECONDS_MAX, HubAddress, addresses_text
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, source_of

PUSH_BOUNDS: Final = PushBounds(
    in_flight_max=limits.BATCHES_IN_FLIGHT_MAX,
    read_ahead_max=limits.BATCHES_READ_AHEAD_MAX,
    batch_events_max=contract.BATCH_EVENTS_MAX,
    batch_bytes_max=contract.BATCH_BYTES_MAX,
    runs_tracked_max=limits.RUNS_TRACKED_MAX,
    held_projects_max=limits.HELD_PROJECTS_MAX,
    project_hold_seconds=limits.PROJECT_HOLD_SECONDS,
    answer_seconds_max=limits.ANSWER_SECONDS_MAX,
    first_answer_seconds_max=FIRST_ANSWER_SECONDS_MAX,
    retry_delay_seconds_max=limits.RETRY_DELAY_SECONDS_MAX,
    setback_seconds_first=limits.BACKOFF_SECONDS_FIRST,
    setback_seconds_max=limits.BACKOFF_SECONDS_MAX,
)
"""The bounds of pushing; a hub may have smaller batches."""
DRAIN_LOOK_SECONDS: Final = 0.02
"""How often a stopping agent looks whether everything is synced."""


class Link:
    """Keeps the local log and the hub in step; the agent's ``HubLink``."""

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        *,
        identity: RuntimeIdentity,
        instance: InstanceLife,
        log: LogFront,
        surroundings: Surroundings,
        credentials: CredentialsGiven = NO_CREDENTIALS,
        bounds: PushBounds = PUSH_BOUNDS,
    ) -> None:
        """Raises: CredentialsError."""
        self._addresses = addresses
        self._credentials = source_of(credentials)
        self._shown = self._credentials.current()
        self._is_credential_refused = False
        self._identity = identity
        self._instance = instance
        self._log = log
        self._clock = surroundings.clock
        self._wall_clock_nanos = surroundings.wall_clock_nanos
        self._program_log = surroundings.program_log
        self._core = PushCore(bounds, chance=surroundings.chance)
        chance = surroundings.chance
        self._backoff = Backoff(limits.BACKOFF_SECONDS_FIRST, limits.BACKOFF_SECONDS_MAX, chance)
        self._credential_backoff = Backoff(
            limits.BACKOFF_SECONDS_FIRST, limits.CREDENTIAL_WAIT_SECONDS_MAX, chance
        )
        self._session: PushSession | None = None
        self._state = HubLinkState.STOPPED
        self._detail = ""
        self._wait_until = 0.0

    # --- HubLink -----------------------------------------------------------------------------------

    def status(self) -> HubLinkStatus:
        """Return how the link stands now. Never waits."""
        state, detail = self._state, self._detail
        if self._instance.usable_at is not None:
            state = HubLinkState.DUPLICATED
            seconds = max(0.0, self._instance.usable_at - self._clock())
            detail = (
                "another agent with this runtime id was heard after this one;"
                f" begins anew in {seconds:.0f} s, appends go on"
            )
        elif state is HubLinkState.WAITING:
            detail = f"{detail}; next try in {max(0.0, self._wait_until - self._clock()):.0f} s"
        elif state is HubLinkState.CONNECTED:
            detail = held_projects_words(self._core.held_projects(), now=self._clock())
        return HubLinkStatus(state, detail, addresses_text(self._addresses), self._instance.instance_id)

    def run_released(self, run: RunKey) -> None:
        """Reconcile a run that may sync again; where there is no connection, the next one does it."""
        if self._session is not None:
            self._session.run_released(run)

    def run_dropped(self, run: RunKey) -> None:
        """Forget a run that the log no longer has."""
        self._core.forget(run)
        if self._session is not None:
            self._session.run_dropped(run)

    # --- for the agent -----------------------------------------------------------------------------

    def doubt(self) -> None:
        """Presence lost the hub: look whether this connection still has it. Never waits."""
        if self._session is not None:
            self._session.doubt()

    def leave(self, delay_seconds: float) -> None:
        """The hub will stop: connect again after the delay, without a backoff. Never waits."""
        session = self._session
        if session is not None:
            asyncio.get_running_loop().call_later(
                min(delay_seconds, limits.RETRY_DELAY_SECONDS_MAX),
                session.end,
                SessionEnded("the hub asked to connect again"),
            )

    async def drain(self, seconds_max: float) -> bool:
        """Wait, only while connected, until everything is synced; return whether it is."""
        give_up_at = self._clock() + seconds_max
        while self._session is not None and self._state is HubLinkState.CONNECTED:
            if self._session.is_drained:
                return True
            if self._clock() >= give_up_at:
                break
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        return False

    async def run(self) -> None:
        """Connect and serve until cancelled, or until the log is lost to another process.

        Raises: LogOwnerLostError, LogStoppedError.
        """
        try:
            while True:
                await wait_for_instance(self._instance, clock=self._clock)
                wait_seconds = await self._connect_once()
                self._wait_until = self._clock() + wait_seconds
                await self._wait(wait_seconds)
        finally:
            self._state, self._detail = HubLinkState.STOPPED, ""

    async def _wait(self, seconds: float) -> None:
        if not self._is_credential_refused:
            await asyncio.sleep(seconds)
            return
        await wait_or_replaced(seconds, shown=self._shown, credentials=self._credentials)
        if self._credentials.current() != self._shown:
            self._credential_backoff.reset()

    # --- one try -----------------------------------------------------------------------------------

    async def _connect_once(self) -> float:
        """Connect and serve to the end; return how long to wait before the next time, in seconds."""
        began = self._clock()
        if self._state is not HubLinkState.WAITING:
            # While waiting for a hub that is away the reason stays readable during each try.
            self._state, self._detail = HubLinkState.CONNECTING, ""
        sender = PushSender(self._identity, self._instance.instance_id)
        acknowledged_batches = 0
        connection = await HubConnection.dial(self._addresses, credentials=self._credentials)
        self._shown, self._is_credential_refused = self._credentials.current(), False
        try:
            session, is_new_generation = await self._begin_session(connection, sender)
            self._session = session
            try:
                await session.run(is_new_generation=is_new_generation)
            finally:
                self._session = None
                acknowledged_batches = session.acknowledged_batch_count
            raise AssertionError("a session ends by raising")
        except Exception as error:  # noqa: BLE001 - whatever it was, the agent goes on: see the docstring
            lived_seconds = self._clock() - began
            if acknowledged_batches or lived_seconds > limits.BACKOFF_SECONDS_MAX:
                self._backoff.reset()
                self._credential_backoff.reset()
            return self._wait_seconds_after(error, sender)
        finally:
            await connection.close()

    async def _begin_session(self, connection: HubConnection, sender: PushSender) -> tuple[PushSession, bool]:
        facts = await connection.get_facts()
        memory = await asyncio.wrap_future(self._log.read(lambda reader: reader.load_hub_memory()))
        if facts.limits != memory.limits:
            await asyncio.wrap_future(self._log.call(lambda log: log.save_hub_limits(facts.limits)))
        self._core.set_batch_limits(
            events_max=min(contract.BATCH_EVENTS_MAX, facts.limits.batch_events_max),
            bytes_max=min(contract.BATCH_BYTES_MAX, facts.limits.batch_bytes_max),
        )
        reconciler = Reconciler(
            connection,
            sender=sender,
            log=self._log,
            hub_generation=facts.hub_generation,
            known_hub_generation=memory.hub_generation,
            wall_clock_nanos=self._wall_clock_nanos,
            program_log=self._program_log,
        )
        session = self._new_session(connection, reconciler, sender=sender, facts=facts)
        return session, facts.hub_generation != memory.hub_generation

    def _new_session(
        self, connection: HubConnection, reconciler: Reconciler, *, sender: PushSender, facts: HubFacts
    ) -> PushSession:
        return PushSession(
            connection,
            core=self._core,
            reconciler=reconciler,
            sender=sender,
            log=self._log,
            hub_generation=facts.hub_generation,
            reconcile_runs_max=facts.limits.reconcile_runs_max,
            clock=self._clock,
            wall_clock_nanos=self._wall_clock_nanos,
            on_reconciled=self._on_connected,
        )

    def _on_connected(self) -> None:
        if self._state is not HubLinkState.CONNECTED:
            self._program_log.info(
                "hub_connected",
                address=addresses_text(self._addresses),
                instance_id=self._instance.instance_id,
            )
        self._state, self._detail = HubLinkState.CONNECTED, ""

    def _wait_seconds_after(self, error: Exception, sender: PushSender) -> float:
        """Decide from why a try ended how long to wait before the next, and say so."""
        match error:
            case LogOwnerLostError() | LogStoppedError():
                raise error
            case HubCallError():
                wait_seconds = self._wait_seconds_after_refusal(error, sender)
            case HubGenerationMoved():
                wait_seconds = 0.0
            case LogError():
                wait_seconds = limits.LOG_RETRY_SECONDS
            case SessionEnded() | RuntimeAgentError():
                wait_seconds = self._backoff.next_wait_seconds()
            case _:
                # A mistake of ours: said with all that is known, and tried again like anything else.
                self._program_log.exception("link_failed", kind=type(error).__name__)
                wait_seconds = self._backoff.next_wait_seconds()
        detail = refusal_words(error, identity=self._identity, credentials=self._credentials)
        if (self._state, self._detail) != (HubLinkState.WAITING, detail):
            self._program_log.warning("hub_link_down", detail=detail, wait_seconds=round(wait_seconds, 3))
        self._state, self._detail = HubLinkState.WAITING, detail
        return wait_seconds

    def _wait_seconds_after_refusal(self, error: HubCallError, sender: PushSender) -> float:
        asked = min(error.refusal.retry_delay_seconds or 0.0, limits.RETRY_DELAY_SECONDS_MAX)
        match error.action:
            case RefusalAction.BEGIN_ANEW:
                self._instance.refused(sender.instance_id, now=self._clock())
                return 0.0
            case RefusalAction.READ_CREDENTIALS:
                self._is_credential_refused = True
                return max(asked, self._credential_backoff.next_wait_seconds())
            case _:
                return max(asked, self._backoff.next_wait_seconds())
