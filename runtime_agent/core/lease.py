"""A lease as its holder may trust it: until when to act on it, when to renew it, and when it is lost.

Pure: moments are seconds on a clock that rises and counts suspension, and are arguments, as is chance.
The hub decides who holds a resource; here is decided what a holder may believe between two answers. It
errs to one side only: a holder stops early, never late. Of a frozen or cloned virtual machine no clock
tells: there only the token inside the protected write protects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from runtime_agent.core.backoff import Backoff

_RENEWALS_A_TENURE: Final = 3
"""A lease is renewed when a third of its time is over, so that two renewals may fail."""
_JITTER: Final = 0.25
"""By so much of the wait a renewal may come early: leases acquired together are not renewed together."""
_USEFUL_SHARE: Final = 0.1
"""A grant of whose time less than this share is left came too late."""
_ATTEMPT_SECONDS_MIN: Final = 0.25
"""No attempt to renew is given up sooner, but at the deadline."""


class AbortReason(Enum):
    """Why a holder is asked to stop; the hub never overwrites EXTERNAL by INTERNAL."""

    INTERNAL = "INTERNAL"
    """The system that the holder belongs to wants it."""
    EXTERNAL = "EXTERNAL"
    """A person or another system wants it."""


class LossReason(Enum):
    """Why a tenure is over for its holder; all but the last two are what the hub said."""

    FENCED = "LEASE_FENCED"
    """A maintenance came after it."""
    MISSING = "LEASE_MISSING"
    """It was released, or purged."""
    SUPERSEDED = "LEASE_SUPERSEDED"
    """Another holder, token or nonce is the current one."""
    EXPIRED = "LEASE_EXPIRED"
    """The hub's clock passed its expire time."""
    DEADLINE = "DEADLINE"
    """The local deadline passed before a renewal was answered."""
    CLIENT_CLOSED = "CLIENT_CLOSED"
    """The client was closed, so that nothing renews it any more."""


_LOSSES: Final = {reason.value: reason for reason in LossReason if reason.value.startswith("LEASE_")}
_TRANSIENT_REASONS: Final = frozenset(("STORAGE_UNAVAILABLE", "HUB_STOPPING", "RATE_LIMITED"))
_TRANSIENT_CODES: Final = frozenset(
    ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED")
)


def loss_of(reason: str) -> LossReason | None:
    """Return what a refusal of a credential means for its tenure; None where it says nothing of it."""
    return _LOSSES.get(reason)


def is_worth_repeating(reason: str, code: str) -> bool:
    """Say whether a call that failed so may succeed by being sent again: nobody knows what it did.

    ``reason`` is the bare one, "" where no hub answered; ``code`` the name of the gRPC code.
    """
    return reason in _TRANSIENT_REASONS if reason else code in _TRANSIENT_CODES


# --- what was granted ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer that opened or found a tenure, and when its question was sent.

    ``sent_at`` is the moment before the send that was answered, ``first_sent_at`` before the first one
    of the same call; ``waited_seconds`` is how long the hub queued it.
    """

    first_sent_at: float
    sent_at: float
    ttl_seconds: float
    waited_seconds: float = 0.0
    is_replayed: bool = False

    @property
    def began_at(self) -> float:
        """The earliest moment at which the hub can have granted it.

        A replayed answer is that of an earlier send; which one, nobody knows, so it is the first.
        """
        return (self.first_sent_at if self.is_replayed else self.sent_at) + self.waited_seconds

    def deadline(self, margin_seconds: float) -> float:
        """Return until when its holder may act."""
        return self.began_at + self.ttl_seconds - margin_seconds

    def is_useful(self, margin_seconds: float, *, now: float) -> bool:
        """Say whether enough of its time is left to begin anything with it."""
        usable_seconds = self.ttl_seconds - margin_seconds
        left_seconds = self.deadline(margin_seconds) - now
        return usable_seconds > 0 and left_seconds >= _USEFUL_SHARE * usable_seconds


@dataclass(frozen=True, slots=True)
class RenewalTiming:
    """How a tenure is kept, in seconds.

    ``margin_seconds`` is what the local deadline stays before the hub's; ``beat_seconds`` is how often to
    renew, None for a third of the usable time. A failed renewal is tried again after a wait that begins
    under ``retry_seconds_first`` and grows to ``retry_seconds_max``.
    """

    margin_seconds: float
    beat_seconds: float | None
    retry_seconds_first: float
    retry_seconds_max: float


# --- a tenure that is held ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Renew:
    """Send a renewal now; give it up after so many seconds."""

    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing will ever be to do; ``loss`` is None where the holder gave the tenure back itself."""

    loss: LossReason | None


KeepingStep: TypeAlias = Wait | Renew | Over


class HeldTenure:
    """One tenure in the eyes of its holder. Whoever shares it among threads locks it.

    It is held until its deadline passes, the hub says that it is lost, or its holder ends it; none of
    these is ever undone, so an answer that comes after the deadline revives nothing.
    """

    def __init__(self, grant: Grant, timing: RenewalTiming, *, chance: Callable[[], float]) -> None:
        self._timing = timing
        self._chance = chance
        self._backoff = Backoff(timing.retry_seconds_first, timing.retry_seconds_max, chance)
        self._is_ended = False
        self._is_paused = False
        self._loss: LossReason | None = None
        self._begin(grant.began_at, grant.ttl_seconds)

    @property
    def deadline(self) -> float:
        """Until when its holder may act, as far as is known now."""
        return self._deadline

    @property
    def is_ended(self) -> bool:
        """Whether its holder ended it."""
        return self._is_ended

    def loss(self, *, now: float) -> LossReason | None:
        """Return why it is lost, None while it is not; a deadline that has passed is a loss for good."""
        if self._loss is None and not self._is_ended and now >= self._deadline:
            self._loss = LossReason.DEADLINE
        return self._loss

    def next_step(self, *, now: float) -> KeepingStep:
        """Say what to do now."""
        loss = self.loss(now=now)
        if loss is not None or self._is_ended:
            return Over(loss)
        if self._is_paused:
            return Wait(self._deadline - now)
        if now < self._renewal_due:
            return Wait(min(self._renewal_due, self._deadline) - now)
        return Renew(min(self._attempt_seconds, self._deadline - now))

    def renewed(self, ttl_seconds: float, *, sent_at: float, now: float) -> None:
        """Take the answer to the renewal that was sent at ``sent_at``; one that comes too late is none."""
        if self._is_ended or self.loss(now=now) is not None:
            return
        self._backoff.reset()
        self._begin(sent_at, ttl_seconds)

    def not_renewed(self, reason: str, *, now: float) -> None:
        """Take a failed renewal: some reasons mean the loss at once, all others a further try."""
        if self._is_ended or self._loss is not None:
            return
        loss = loss_of(reason)
        if loss is not None and not self._is_paused:
            self._loss = loss
        elif self._is_paused:
            # The hub may have handed it on already; whether it has is asked again after the pause.
            self._renewal_due = now
        else:
            self._renewal_due = now + self._backoff.next_wait_seconds()

    def pause(self) -> None:
        """Send no renewal until ``resume``, and believe no refusal: the lease is about to be handed on."""
        self._is_paused = True

    def resume(self, *, now: float) -> None:
        """Renew at once: it was perhaps not handed on."""
        self._is_paused = False
        self._renewal_due = now

    def end(self, *, now: float) -> bool:
        """End it by the holder's will; return whether it was held until now. Idempotent."""
        was_held = not self._is_ended and self.loss(now=now) is None
        self._is_ended = self._is_ended or was_held
        return was_held

    def lose(self, loss: LossReason) -> None:
        """Take it as lost; changes nothing where it is over already."""
        if not self._is_ended and self._loss is None:
            self._loss = loss

    def _begin(self, began_at: float, ttl_seconds: float) -> None:
        usable_seconds = max(0.0, ttl_seconds - self._timing.margin_seconds)
        self._deadline = began_at + ttl_seconds - self._timing.margin_seconds
        # A third of the usable time, not of the whole: with a short TTL the margin is most of it.
        third_seconds = usable_seconds / _RENEWALS_A_TENURE
        wait_seconds = self._timing.beat_seconds or third_seconds
        self._renewal_due = began_at + min(wait_seconds, third_seconds) * (1.0 - _JITTER * self._chance())
        self._attempt_seconds = max(_ATTEMPT_SECONDS_MIN, third_seconds)


# --- opening a tenure ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpeningTry:
    """One send of a call that opens a tenure."""

    timeout_seconds: float
    wait_seconds: float
    """How long the hub may still queue it."""


@dataclass(frozen=True, slots=True)
class OpeningTries:
    """How long a call that opens a tenure is sent again: it may wait, and each answer takes its time."""

    began_at: float
    wait_seconds: float
    answer_seconds: float

    def next_try(self, *, now: float) -> OpeningTry | None:
        """Return the try to make now; None where the time is over."""
        waiting_until = self.began_at + self.wait_seconds
        left_seconds = waiting_until + self.answer_seconds - now
        if left_seconds <= 0:
            return None
        return OpeningTry(left_seconds, max(0.0, waiting_until - now))


class OpeningAction(Enum):
    """What a refusal of a call that opens a tenure asks for."""

    REPEAT = "repeat"
    """Send it again with the same nonce: if it was granted, the same tenure comes back."""
    LOOK = "look"
    """The nonce's tenure is over already: look whether another self of this holder ended it."""
    GIVE_UP = "give_up"
    """Tell the caller."""


def decide_opening_refusal(reason: str, code: str) -> OpeningAction:
    """Say what a refused call that opens a tenure does next; arguments as in ``is_worth_repeating``."""
    if is_worth_repeating(reason, code):
        return OpeningAction.REPEAT
    return OpeningAction.LOOK if reason == LossReason.SUPERSEDED.value else OpeningAction.GIVE_UP
