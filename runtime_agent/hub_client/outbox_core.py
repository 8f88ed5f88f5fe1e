"""A dispatcher of outbox messages without a way of waiting; ``outbox.py`` and ``async_outbox.py`` wait.

What it decides by is in ``core/outbox.py``. All of it may be asked from any thread.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime_agent import limits
from runtime_agent.core.errors import UsageError
from runtime_agent.core.outbox import ClaimPace, poll_seconds, retry_delay_seconds
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_calls import JournalCalls
from runtime_agent.hub_client.journal_values import (
    ClaimedMessage,
    OutboxMessage,
    OutboxOutcome,
    ReturnedMessage,
)
from runtime_agent.hub_client.lease_channel import Call, LeaseChannel
from runtime_agent.hub_client.lease_steps import Steps, asked_wait_seconds, may_repeat
from synchub.contract import NANOS_PER_SECOND

_LAST_TRY_SECONDS = 1.0
"""An answer about a message is tried for so long even if its claim is over by now."""
_POLL_SECONDS_MIN = 0.02
"""Two clocks differ a little: what is to become available now may need another look."""

OnFailure = Callable[[OutboxMessage, Exception], None]


@dataclass(frozen=True, slots=True)
class OutboxWish:
    """Which messages a dispatcher wants, and how it treats them; see ``JournalMethods.outbox``."""

    destination: str
    visibility_seconds: float = limits.OUTBOX_VISIBILITY_SECONDS
    in_flight_max: int = limits.OUTBOX_IN_FLIGHT_MAX
    retry_seconds_first: float = limits.OUTBOX_RETRY_SECONDS_FIRST
    retry_seconds_max: float = limits.OUTBOX_RETRY_SECONDS_MAX
    on_failure: OnFailure | None = None

    def check(self) -> None:
        """Return where it can be granted. Raises: UsageError."""
        if self.in_flight_max < 1:
            raise UsageError(
                f"in_flight_max is {self.in_flight_max}; a dispatcher needs at least one message"
            )
        if self.visibility_seconds <= 0:
            raise UsageError(f"a visibility of {self.visibility_seconds:g} s leaves no time to deliver")
        if not 0 <= self.retry_seconds_first <= self.retry_seconds_max <= limits.OUTBOX_DELAY_SECONDS_MAX:
            raise UsageError(
                f"a retry after {self.retry_seconds_first:g} to {self.retry_seconds_max:g} s is not between"
                f" 0 and {limits.OUTBOX_DELAY_SECONDS_MAX:g} s"
            )


@dataclass(eq=False, slots=True)
class HeldMessage:
    """A message with its claim, until when it is hidden at least, and what became of it."""

    claimed: ClaimedMessage
    over_at: float
    is_answered: bool = False
    outcome: OutboxOutcome | None = None


class OutboxCore:
    """The messages of one dispatcher: claimed, handed out, answered, given back."""

    def __init__(self, calls: JournalCalls, wish: OutboxWish) -> None:
        wish.check()
        self.wish = wish
        self._calls = calls
        self._lock = threading.Lock()
        self._pace = ClaimPace(
            wish.visibility_seconds, count_max=min(wish.in_flight_max, limits.OUTBOX_CLAIM_MAX)
        )
        self._backoff = calls.backoff()
        self._waiting: deque[HeldMessage] = deque()
        self._handed_out: set[HeldMessage] = set()
        self._abandoned: list[HeldMessage] = []
        self._is_closed = False

    # --- local ---

    @property
    def channel(self) -> LeaseChannel:
        """What its steps are sent on."""
        return self._calls.channel

    @property
    def is_closed(self) -> bool:
        """Whether it hands out nothing more."""
        return self._is_closed

    @property
    def is_full(self) -> bool:
        """Whether as many are handed out and not answered as may be."""
        return len(self._handed_out) >= self.wish.in_flight_max

    def seconds_left(self, held: HeldMessage) -> float:
        """Return for how long nobody else gets a message at least."""
        return max(0.0, held.over_at - self._calls.clock())

    def take(self) -> HeldMessage | None:
        """Return a claimed message to be handled; None where there is none, or too many are."""
        while True:
            with self._lock:
                if self.is_full or not self._waiting:
                    return None
                held = self._waiting.popleft()
                if not self._waiting:
                    self._pace.handed_out_all(now=self._calls.clock())
                is_fresh = self._pace.is_fresh(self.seconds_left(held))
                if is_fresh:
                    self._handed_out.add(held)
            if is_fresh:
                return held
            self._return_unheeded(held)

    # --- steps ---

    def claim(self) -> Steps[float]:
        """Claim what may be handed out soon; return how long to wait before ``take`` finds anything.

        A hub that is not there is waited for. Raises: HubCallError where it refuses for good.
        """
        with self._lock:
            count_max = min(self._pace.count, self.wish.in_flight_max - len(self._handed_out))
        if count_max <= 0:
            return 0.0
        sent_at = self._calls.clock()
        try:
            claimed = yield from self._calls.claim(
                self.wish.destination,
                visibility_seconds=self.wish.visibility_seconds,
                count_max=count_max,
            )
        except HubCallError as error:
            if self._is_closed:
                return 0.0
            if not may_repeat(error):
                raise
            return max(self._backoff.next_wait_seconds(), asked_wait_seconds(error))
        self._backoff.reset()
        over_at = sent_at + self.wish.visibility_seconds
        messages = [HeldMessage(each, over_at) for each in claimed.messages]
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._waiting.extend(messages)
                self._pace.claimed(now=self._calls.clock())
        if is_closed:
            yield from self._give_back_all(messages)
        if messages:
            return 0.0
        visible_nanos = round(self.wish.visibility_seconds * NANOS_PER_SECOND)
        wait_seconds = poll_seconds(
            now_nanos=claimed.claim_expire_time_nanos - visible_nanos,
            next_available_nanos=claimed.next_available_time_nanos,
            # Dispatchers that became idle together do not ask together.
            seconds_max=limits.OUTBOX_POLL_SECONDS * (0.5 + 0.5 * self._calls.chance()),
        )
        return max(wait_seconds, _POLL_SECONDS_MIN)

    def acknowledge(self, held: HeldMessage) -> Steps[OutboxOutcome]:
        """Say that a message was delivered. Raises: HubCallError where no hub hears it while it is hidden."""
        claimed = held.claimed
        try:
            held.outcome = yield from self._calls.acknowledge(
                claimed.message.outbox_id, claimed.claim_id, seconds_max=self._answer_seconds(held)
            )
        finally:
            self._answered(held)
        return held.outcome

    def retry(self, held: HeldMessage, delay_seconds: float | None) -> Steps[ReturnedMessage]:
        """Give a message back, by default after a delay that grows with its tries. Raises: HubCallError."""
        claimed = held.claimed
        if delay_seconds is None:
            delay_seconds = retry_delay_seconds(
                claimed.message.attempt_count,
                first_seconds=self.wish.retry_seconds_first,
                last_seconds=self.wish.retry_seconds_max,
                chance=self._calls.chance,
            )
        try:
            returned = yield from self._calls.give_back(
                claimed.message.outbox_id,
                claimed.claim_id,
                delay_seconds=delay_seconds,
                seconds_max=self._answer_seconds(held),
            )
        finally:
            self._answered(held)
        held.outcome = returned.outcome
        return returned

    def handled(self, held: HeldMessage, error: BaseException | None) -> Steps[bool]:
        """Answer as the block that handled a message ended; return whether its error is dealt with.

        Raises: what ``on_failure`` raises; HubCallError where the hub refuses the answer.
        """
        if error is not None and not isinstance(error, Exception):
            # The program ends, or the task is cancelled: nothing was wrong with the message.
            self.abandon(held)
            return False
        try:
            if error is not None:
                self._tell_failure(held, error)
        finally:
            if not held.is_answered:
                answer = self.acknowledge(held) if error is None else self.retry(held, None)
                try:
                    yield from answer
                except HubCallError as unheard:
                    if not may_repeat(unheard):
                        raise
                    # Nobody heard it: the message comes again when its time is over, as at least once says.
        return error is not None

    def abandon(self, held: HeldMessage) -> None:
        """Give a message that was handed out back at once, without waiting for the hub."""
        if not held.is_answered:
            self._answered(held)
            self._return_unheeded(held)
            with self._lock:
                # The client may be closed before that thread ran: closing says it once more.
                hidden = [each for each in self._abandoned if self.seconds_left(each) > 0]
                self._abandoned = [*hidden, held]

    def leave(self) -> Steps[None]:
        """Hand out nothing more, and give back what is claimed; what no hub hears of is hidden a while."""
        with self._lock:
            self._is_closed = True
            claimed = [*self._waiting, *self._handed_out, *self._abandoned]
            self._waiting.clear()
            self._handed_out.clear()
            self._abandoned.clear()
        yield from self._give_back_all(claimed)

    # --- inside ---

    def _give_back_all(self, claimed: Sequence[HeldMessage]) -> Steps[None]:
        over_at = self._calls.clock() + limits.OUTBOX_LEAVE_SECONDS_MAX
        for held in claimed:
            held.is_answered = True
            left_seconds = over_at - self._calls.clock()
            if left_seconds <= 0:
                return
            try:
                yield self._return_call(held, timeout_seconds=left_seconds)
            except HubCallError:
                pass  # it becomes available by itself when its visibility time is over

    def _answer_seconds(self, held: HeldMessage) -> float:
        return max(self.seconds_left(held), _LAST_TRY_SECONDS)

    def _answered(self, held: HeldMessage) -> None:
        with self._lock:
            held.is_answered = True
            self._handed_out.discard(held)

    def _tell_failure(self, held: HeldMessage, error: Exception) -> None:
        if self.wish.on_failure is not None:
            self.wish.on_failure(held.claimed.message, error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)

    def _return_unheeded(self, held: HeldMessage) -> None:
        self.channel.send_unheeded(self._return_call(held, timeout_seconds=limits.OUTBOX_LEAVE_SECONDS_MAX))

    def _return_call(self, held: HeldMessage, *, timeout_seconds: float) -> Call:
        claimed = held.claimed
        return self._calls.return_call(
            claimed.message.outbox_id, claimed.claim_id, delay_seconds=0.0, timeout_seconds=timeout_seconds
        )
