"""The leases of ``lease.py`` for event loops.

::

    async with hub.lease("reports/daily", wait_seconds=30) as lease:
        token = lease.fencing_token
        async for report in reports:
            lease.check()
            await store.write(report, fencing_token=token)

What each call promises is said there. Renewals go out from a thread, so that a loop that is blocked keeps
its lease; ``on_lost`` is called on the loop that acquired it, once that loop runs again. A task that is
cancelled while it acquires gives back what it was granted in that moment.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from runtime_agent import limits
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.held import Held, HeldCore
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_steps import run_steps_async
from runtime_agent.hub_client.lease_values import LeaseView


class AwaitedHeld(Held):
    """Something that is held for the length of an ``async with``, or from ``acquire`` to ``release``."""

    def __init__(self, core: HeldCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def acquire(self) -> Self:
        """Get it, and keep it until it is released or lost; returns itself. Raises: as in ``lease.py``."""
        self._loop = asyncio.get_running_loop()
        await run_steps_async(self._held.claim(), self._held.channel)
        return self

    async def release(self) -> None:
        """Give it back; does nothing where it is not held, and sends nothing after a loss.

        Raises: HubCallError where the hub cannot be told for 10 s; then it expires by itself.
        """
        await run_steps_async(self._held.leave(limits.LEASE_RELEASE_SECONDS_MAX), self._held.channel)

    async def __aenter__(self) -> Self:
        return self if self.is_held else await self.acquire()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await run_steps_async(self._held.leave(limits.LEASE_LEAVE_SECONDS_MAX), self._held.channel)
        except HubCallError:
            pass  # it expires by itself; what the block raised is more important

    def _tell_lost(self, lost: LeaseLost) -> None:
        if self.on_lost is None or self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self.on_lost, lost)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told


class AsyncLease(AwaitedHeld):
    """A lease of one resource; made by ``AsyncHubClient.lease``."""

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

    async def take_over(self) -> Self:
        """Acquire it where its last holder let it expire, and in no other case; returns itself."""
        self._loop = asyncio.get_running_loop()
        await run_steps_async(self._core.take_over(), self._core.channel)
        return self

    async def transfer(
        self,
        next_holder_id: str,
        *,
        next_runtime_id: str = "",
        next_holder_display_name: str = "",
        ttl_seconds: float | None = None,
    ) -> LeaseView:
        """Hand it on to a named holder, of the same runtime where none is given; it is over here then."""
        steps = self._core.transfer(
            next_holder_id,
            next_runtime_id=next_runtime_id or self.runtime_id,
            next_holder_display_name=next_holder_display_name,
            ttl_seconds=ttl_seconds,
        )
        return await run_steps_async(steps, self._core.channel)
