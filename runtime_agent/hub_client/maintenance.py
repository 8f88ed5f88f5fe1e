"""Maintenance: a resource is out of use for everybody but whoever maintains it.

::

    with hub.maintenance("orders") as maintenance:
        rebuild(fencing_token=maintenance.fencing_token)

Beginning ends the live tenure and fences every credential from before; until it is finished every claim
is refused with ``ResourceUnderMaintenance``. It is renewed every second, so that it ends by itself soon
after its process does; ``check``, ``on_lost`` and the token are those of a lease (``lease.py``). One that
outlives its process is begun, renewed and finished by the calls of ``HubClient`` of these names.
"""

from collections.abc import Callable
from typing import Self

from runtime_agent import limits
from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.async_lease import AwaitedHeld
from runtime_agent.hub_client.lease import BlockingHeld
from runtime_agent.hub_client.lease_kinds import MaintenanceCore
from runtime_agent.hub_client.lease_steps import run_steps, run_steps_async


class Maintenance(BlockingHeld):
    """A maintenance for the length of a block; made by ``HubClient.maintenance``."""

    def __init__(self, core: MaintenanceCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self._core = core

    def begin(self) -> Self:
        """Begin it, and keep it until it is finished or lost; returns itself. Raises: as ``acquire``."""
        return self.acquire()

    def finish(self, *, delete_state: bool = False) -> None:
        """Give the resource free; with ``delete_state`` the last lease's labels and flags are forgotten.

        Raises: LeaseLost, LeaseNotHeld, HubCallError where the hub cannot be told for 10 s.
        """
        steps = self._core.finish(delete_state=delete_state, seconds_max=limits.LEASE_RELEASE_SECONDS_MAX)
        run_steps(steps, self._core.channel)


class AsyncMaintenance(AwaitedHeld):
    """The same for event loops; made by ``AsyncHubClient.maintenance``."""

    def __init__(self, core: MaintenanceCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self._core = core

    async def begin(self) -> Self:
        """Begin it, and keep it until it is finished or lost; returns itself. Raises: as ``acquire``."""
        return await self.acquire()

    async def finish(self, *, delete_state: bool = False) -> None:
        """Give the resource free; see ``Maintenance.finish``."""
        steps = self._core.finish(delete_state=delete_state, seconds_max=limits.LEASE_RELEASE_SECONDS_MAX)
        await run_steps_async(steps, self._core.channel)
