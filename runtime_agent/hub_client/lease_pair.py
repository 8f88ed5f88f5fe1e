"""Two leases that are held together or not at all: what turns and processes are made of.

The first is the one that the work is about; its token fences. The second binds a name to it: its holder
stands for one first lease only, so that the same name with another one is another holder, and refused.
It is claimed before the first, since claiming the first may end what its own holder does there now, and
a claim that is refused must change nothing.
"""

import threading
from collections.abc import Callable

from runtime_agent import limits
from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.lease import AbortReason
from runtime_agent.core.lease_errors import LeaseError, LeaseHeld, LeaseLost, LeaseNotHeld
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import LeaseChannel
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_steps import Pause, Steps
from runtime_agent.hub_client.lease_values import LeaseCredential


class PairCore:
    """Two leases as one; lost where either is lost, and then the other is given back."""

    def __init__(
        self,
        first: LeaseCore,
        second: LeaseCore,
        *,
        second_refusal: Callable[[LeaseHeld], LeaseError],
        poll_seconds: float = 0.0,
        poll_seconds_max: float = 0.0,
    ) -> None:
        """A lease that is held is tried again every ``poll_seconds``, for ``poll_seconds_max`` in all."""
        self.on_lost: Callable[[LeaseLost], None] | None = None
        self._first = first
        self._second = second
        self._second_refusal = second_refusal
        self._poll_seconds = poll_seconds
        self._poll_seconds_max = poll_seconds_max
        self._clock = first.place.surroundings.clock
        self._lock = threading.Lock()
        self._is_whole = False
        first.on_lost = lambda lost: self._part_lost(lost, part=first, other=second)
        second.on_lost = lambda lost: self._part_lost(lost, part=second, other=first)

    # --- local ---

    @property
    def channel(self) -> LeaseChannel:
        """What its steps are sent on."""
        return self._first.channel

    @property
    def resource(self) -> str:
        """The first one's."""
        return self._first.resource

    @property
    def credential(self) -> LeaseCredential:
        """The first one's."""
        return self._first.credential

    @property
    def fencing_token(self) -> int:
        """The first one's."""
        return self._first.fencing_token

    @property
    def epoch(self) -> int:
        """The first one's."""
        return self._first.epoch

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why the holder of either is asked to stop."""
        return self._first.abort_reason or self._second.abort_reason

    @property
    def loss(self) -> LeaseLost | None:
        """How the first of them to be lost was lost."""
        lost = self._first.loss or self._second.loss
        return None if lost is None else self._as_own(lost)

    @property
    def seconds_left(self) -> float:
        """How long both may be acted on."""
        return min(self._first.seconds_left, self._second.seconds_left)

    def check(self) -> None:
        """Return where both are held. Raises: LeaseLost, LeaseNotHeld."""
        lost = self.loss
        if lost is not None:
            raise lost
        self._first.check()
        self._second.check()

    # --- steps ---

    def claim(self) -> Steps[None]:
        """Get both, or neither. Raises: what ``second_refusal`` returns, and as ``TenureCore.open``."""
        over_at = self._clock() + self._poll_seconds_max
        try:
            yield from self._polled(self._second, over_at)
        except LeaseHeld as held:
            raise self._second_refusal(held) from held
        try:
            yield from self._polled(self._first, over_at)
            self._begin()
        except RuntimeAgentError:
            # Whoever is refused finds the second name free again, for another claim at once.
            yield from self._leave_quietly()
            raise
        except BaseException:
            self._first.abandon()
            self._second.abandon()
            raise

    def leave(self, seconds_max: float) -> Steps[None]:
        """Give both back. Raises: HubCallError, once both were tried."""
        with self._lock:
            self._is_whole = False
        try:
            yield from self._first.leave(seconds_max)
        except HubCallError:
            self._second.abandon()
            raise
        yield from self._second.leave(seconds_max)

    def _leave_quietly(self) -> Steps[None]:
        try:
            yield from self.leave(limits.LEASE_LEAVE_SECONDS_MAX)
        except HubCallError:
            pass  # it expires by itself; why the claim failed is more important

    def _polled(self, part: LeaseCore, over_at: float) -> Steps[None]:
        while True:
            try:
                return (yield from part.claim())
            except LeaseHeld:
                if self._clock() + self._poll_seconds >= over_at:
                    raise
            yield Pause(self._poll_seconds)

    # --- inside ---

    def _begin(self) -> None:
        with self._lock:
            # What was lost before this line nobody was told; the caller is told by this.
            self.check()
            self._is_whole = True

    def _part_lost(self, lost: LeaseLost, *, part: LeaseCore, other: LeaseCore) -> None:
        with self._lock:
            is_news = self._is_whole and lost.fencing_token == part.fencing_token
            self._is_whole = self._is_whole and not is_news
        if not is_news:
            return
        other.abandon()
        if self.on_lost is not None:
            self.on_lost(self._as_own(lost))

    def _as_own(self, lost: LeaseLost) -> LeaseLost:
        try:
            fencing_token = self.fencing_token
        except LeaseNotHeld:
            fencing_token = 0
        return LeaseLost(self.resource, fencing_token, reason=lost.reason, cause=lost.cause)
