"""What every kind of lease shows of itself, whether its program blocks or runs on an event loop.

All of it is local and cheap, and may be asked from any thread.
"""

from collections.abc import Callable
from typing import Protocol

from runtime_agent.core.lease import AbortReason
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.lease_channel import LeaseChannel
from runtime_agent.hub_client.lease_steps import Steps
from runtime_agent.hub_client.lease_values import LeaseCredential


class HeldCore(Protocol):
    """A lease, or several that are held together, without a way of waiting."""

    on_lost: Callable[[LeaseLost], None] | None

    @property
    def channel(self) -> LeaseChannel:
        """What its steps are sent on."""
        ...

    @property
    def resource(self) -> str:
        """What it is about."""
        ...

    @property
    def credential(self) -> LeaseCredential:
        """What proves the tenure acquired last. Raises: LeaseNotHeld."""
        ...

    @property
    def fencing_token(self) -> int:
        """The token of the tenure acquired last. Raises: LeaseNotHeld."""
        ...

    @property
    def epoch(self) -> int:
        """The resource's epoch when that tenure began. Raises: LeaseNotHeld."""
        ...

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why its holder is asked to stop."""
        ...

    @property
    def loss(self) -> LeaseLost | None:
        """How it was lost."""
        ...

    @property
    def seconds_left(self) -> float:
        """How long it may be acted on at least; 0 where it is not held."""
        ...

    def check(self) -> None:
        """Return where it is held. Raises: LeaseLost, LeaseNotHeld."""
        ...

    def claim(self) -> Steps[None]:
        """Get it and begin to keep it."""
        ...

    def leave(self, seconds_max: float) -> Steps[None]:
        """Give it back."""
        ...


class Held:
    """The part of a lease that neither blocks nor awaits."""

    def __init__(self, core: HeldCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        self._held = core
        core.on_lost = self._tell_lost
        self.on_lost = on_lost
        """Called once for each loss; see ``lease.py`` and ``async_lease.py`` for where."""

    @property
    def resource(self) -> str:
        """The resource."""
        return self._held.resource

    @property
    def credential(self) -> LeaseCredential:
        """What proves the tenure to the hub, for calls that ask for it; it stays readable after a loss.

        Take it once, as the token below, and keep it out of logs. Raises: LeaseNotHeld where it never was
        acquired.
        """
        return self._held.credential

    @property
    def fencing_token(self) -> int:
        """The token to write beside everything that the lease protects; it stays readable after a loss.

        Take it once, where the work begins: after a loss and a new acquire it is another one, and work
        begun under the old one must fail. Raises: LeaseNotHeld where it never was acquired.
        """
        return self._held.fencing_token

    @property
    def epoch(self) -> int:
        """How often the resource had been maintained when the tenure began. Raises: LeaseNotHeld."""
        return self._held.epoch

    @property
    def is_held(self) -> bool:
        """Whether it may be acted on now, as far as this side can know."""
        return self._held.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """How long it may be acted on without another renewal; 0 where it is not held."""
        return self._held.seconds_left

    @property
    def loss(self) -> LeaseLost | None:
        """How it was lost; None while it is held, before it was acquired and after it was given back."""
        return self._held.loss

    @property
    def abort_requested(self) -> bool:
        """Whether its holder is asked to stop; seen with the next renewal, within a third of the TTL."""
        return self._held.abort_reason is not None

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why its holder is asked to stop; None where it is not."""
        return self._held.abort_reason

    def check(self) -> None:
        """Return where it is held. Call it before each step; it asks no hub.

        It spares work that would be refused; what protects is the token inside the protected write.

        Raises: LeaseLost, LeaseNotHeld where it was not acquired, or given back.
        """
        self._held.check()

    def __repr__(self) -> str:
        state = "held" if self.is_held else "not held"
        return f"<{type(self).__name__} of {self.resource!r}, {state}>"

    def _tell_lost(self, lost: LeaseLost) -> None:
        if self.on_lost is not None:
            self.on_lost(lost)
