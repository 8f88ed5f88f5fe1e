"""Leases for programs that block; ``async_lease.py`` is the twin for event loops.

::

    with hub.lease("reports/daily", wait_seconds=30) as lease:
        token = lease.fencing_token
        for report in reports:
            lease.check()
            store.write(report, fencing_token=token)

It renews itself on a thread of its own, through a restart of the hub too. It is lost when the hub says
so, or when its local deadline passes unrenewed: the moment before the send that was answered, plus the
TTL, less a margin, on a clock that counts suspension. ``check`` raises from then on, and ``on_lost`` is
called once, on the renewing thread; what it does must not take long, and may acquire anew. An object
whose lease was lost or released can acquire again: that is a new tenure, with a new token.

Code that holds the interpreter's lock for longer than the TTL keeps the renewing thread from running as
well; it counts as frozen. Do not fork while a lease is held: spawn.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from runtime_agent import limits
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.held import Held
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_steps import run_steps
from runtime_agent.hub_client.lease_values import LeaseView


class BlockingHeld(Held):
    """Something that is held for the length of a block, or from ``acquire`` to ``release``."""

    def acquire(self) -> Self:
        """Get it, and keep it until it is released or lost; returns itself.

        A lost answer is asked for again, until 10 s after the waiting time is over. A grant that arrives
        when its time is nearly over is given back, and another one asked for.

        Raises: LeaseHeld, ResourceUnderMaintenance, LeaseGrantLate, LeaseLost where a newer self of this
        holder has it, UsageError where it is held already, HubCallError.
        """
        run_steps(self._held.claim(), self._held.channel)
        return self

    def release(self) -> None:
        """Give it back; does nothing where it is not held, and sends nothing after a loss.

        It counts as not held from the beginning of this call. Raises: HubCallError where the hub cannot
        be told for 10 s; then it expires by itself.
        """
        run_steps(self._held.leave(limits.LEASE_RELEASE_SECONDS_MAX), self._held.channel)

    def __enter__(self) -> Self:
        # So that ``with lease.take_over():`` is what it looks like.
        return self if self.is_held else self.acquire()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            run_steps(self._held.leave(limits.LEASE_LEAVE_SECONDS_MAX), self._held.channel)
        except HubCallError:
            pass  # it expires by itself; what the block raised is more important


class Lease(BlockingHeld):
    """A lease of one resource; made by ``HubClient.lease``."""

    def __init__(self, core: LeaseCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self._core = core

    @property
    def runtime_id(self) -> str:
        """The runtime that holds it, or will."""
        return self._core.wish.runtime_id

    @property
    def holder_id(self) -> str:
        """Who holds it within that runtime, or will."""
        return self._core.wish.holder_id

    def take_over(self) -> Self:
        """Acquire it where its last holder let it expire, and in no other case; returns itself.

        Raises: as ``acquire``; the reason is LEASE_MISSING where it was released, or never leased.
        """
        run_steps(self._core.take_over(), self._core.channel)
        return self

    def transfer(
        self,
        next_holder_id: str,
        *,
        next_runtime_id: str = "",
        next_holder_display_name: str = "",
        ttl_seconds: float | None = None,
    ) -> LeaseView:
        """Hand it on to a named holder, of the same runtime where none is given; it is not held after this.

        The next holder gets it by acquiring it, within its TTL; until then nobody's token is current.

        Raises: LeaseLost, LeaseNotHeld, HubCallError; then it is kept where it is still held.
        """
        steps = self._core.transfer(
            next_holder_id,
            next_runtime_id=next_runtime_id or self.runtime_id,
            next_holder_display_name=next_holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        return run_steps(steps, self._core.channel)
