"""Process leases: one owner a role, and one role an owner, over all machines of a hub project.

::

    with hub.process_lease("scheduler", owner="scheduler-a", on_lost=stop) as process:
        serve()

The claim is tried every 100 ms for 6 s, which is longer than a dead predecessor's lease lives (5 s), and
at least once. ``LeaseHeld`` names the owner that has the role, ``OwnerHasRole`` the role that the owner
has. The same owner claiming its role again (a process that was started anew) has it at once, and the
former self loses it. It is renewed every second; ``on_lost`` should stop the process. Pid and host stand
in the labels of the lease. See ``lease_names.py`` for its resources.

The lock of an agent's data folder is another thing: ``event_log/process_lease.py``, on one machine.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from runtime_agent import limits
from runtime_agent.core.lease_errors import LeaseError, LeaseHeld, LeaseLost, OwnerHasRole
from runtime_agent.hub_client.async_lease import AwaitedHeld
from runtime_agent.hub_client.lease import BlockingHeld
from runtime_agent.hub_client.lease_core import LeasePlace
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_names import bound_holder_id, process_owner_resource, process_resource
from runtime_agent.hub_client.lease_pair import PairCore
from runtime_agent.hub_client.lease_values import LeaseWish

PID_LABEL: Final = "pid"
"""The label that says which process it is."""
HOST_LABEL: Final = "host"
"""The label that says on which machine."""


class ProcessCore(PairCore):
    """The lease on a role, and the one that binds the owner to it."""

    def __init__(
        self, place: LeasePlace, wish: LeaseWish, *, role: str, wait_seconds: float, margin_seconds: float
    ) -> None:
        """``wish`` says who the owner is (its holder id); its resource and labels are completed here.

        Raises: UsageError where role or owner can be no name.
        """
        self.role = role
        self.owner = wish.holder_id
        labels = {**wish.labels, PID_LABEL: str(os.getpid()), HOST_LABEL: socket.gethostname()}
        on_role = replace(wish, resource=process_resource(role), labels=labels)
        on_owner = replace(
            on_role,
            resource=process_owner_resource(self.owner),
            holder_id=bound_holder_id(self.owner, on_role.resource),
            holder_display_name=role,
        )
        super().__init__(
            _kept(place, on_role, margin_seconds=margin_seconds),
            _kept(place, on_owner, margin_seconds=margin_seconds),
            second_refusal=self._refused_owner,
            poll_seconds=limits.HUB_PROCESS_RETRY_SECONDS,
            poll_seconds_max=wait_seconds,
        )

    def _refused_owner(self, held: LeaseHeld) -> LeaseError:
        return OwnerHasRole(held.resource, self.owner, role=held.holder_display_name)


class ProcessLease(BlockingHeld):
    """One owner's hold of a role; made by ``HubClient.process_lease``."""

    def __init__(self, core: ProcessCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self.role = core.role
        self.owner = core.owner


class AsyncProcessLease(AwaitedHeld):
    """The same for event loops; made by ``AsyncHubClient.process_lease``."""

    def __init__(self, core: ProcessCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self.role = core.role
        self.owner = core.owner


def _kept(place: LeasePlace, wish: LeaseWish, *, margin_seconds: float) -> LeaseCore:
    return LeaseCore(place, wish, margin_seconds=margin_seconds, beat_seconds=limits.HUB_PROCESS_BEAT_SECONDS)
