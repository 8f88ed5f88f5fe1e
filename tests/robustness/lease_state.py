"""A resource as the rules of leases see it, and what may be known of its times.

Hub time is not seen but where an answer tells it, so moments are spans, and every answer narrows them:
what a span still holds is possible. A span never lets go of the truth; it may keep more.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.robustness.lease_history import Arguments

FOREVER: Final = 2**70
NONCES_REMEMBERED: Final = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Moments of hub time from ``low`` to ``high``, both within; one moment where they are equal."""

    low: int = 0
    high: int = FOREVER

    def within(self, low: int, high: int) -> "Span | None":
        """Return what lies in both, None where nothing does."""
        low, high = max(self.low, low), min(self.high, high)
        return Span(low, high) if low <= high else None


@dataclass(frozen=True, slots=True)
class Tenure:
    """One holder's time with the resource, or one maintenance of it."""

    token: int
    epoch: int
    runtime_id: str
    holder_id: str
    nonce: str
    """Empty where it was transferred and nobody claimed it."""
    ttl_nanos: int
    acquire: Span
    expire: Span
    """Since the last renewal."""
    is_maintenance: bool = False
    abort_reason: str = ""
    has_ended: bool = False
    """Released or finished."""

    def is_holder(self, arguments: Arguments) -> bool:
        return (self.runtime_id, self.holder_id) == (arguments.runtime_id, arguments.holder_id)

    def is_credential(self, arguments: Arguments) -> bool:
        is_nonce = self.nonce != "" and self.nonce == arguments.nonce
        return self.is_holder(arguments) and self.token == arguments.token and is_nonce


@dataclass(frozen=True, slots=True)
class State:
    """A resource after some operations; ``now_low``: hub time is not before this any more."""

    token: int = 0
    epoch: int = 0
    fence: int = 0
    """The token of the last maintenance."""
    tenure: Tenure | None = None
    ended_nonces: tuple[str, ...] = ()
    now_low: int = 0


def assume_live(state: State, now: Span) -> tuple[State, Span] | None:
    """Return the state and the time narrowed to: the tenure is not over yet."""
    tenure = state.tenure
    if tenure is None or tenure.has_ended:
        return None
    narrowed = now.within(0, tenure.expire.high - 1)
    if narrowed is None:
        return None
    # The last renewal was not after now.
    expire = tenure.expire.within(narrowed.low + 1, narrowed.high + tenure.ttl_nanos)
    if expire is None:
        return None
    return replace(state, tenure=replace(tenure, expire=expire)), narrowed


def assume_expired(state: State, now: Span) -> tuple[State, Span] | None:
    """Return the state and the time narrowed to: the tenure's time is over and nobody gave it back."""
    tenure = state.tenure
    if tenure is None or tenure.has_ended:
        return None
    narrowed = now.within(tenure.expire.low, FOREVER)
    if narrowed is None:
        return None
    expire = tenure.expire.within(0, narrowed.high)
    if expire is None:
        return None
    return replace(state, tenure=replace(tenure, expire=expire)), narrowed
