"""Makes the leases of one client: its connection, its tenant, and who it is where nothing else is said."""

import math
import os
import socket
from collections.abc import Mapping
from uuid import uuid4

from runtime_agent import limits
from runtime_agent.core.errors import UsageError
from runtime_agent.hub_client.lease_channel import LeaseChannel
from runtime_agent.hub_client.lease_core import LeasePlace
from runtime_agent.hub_client.lease_keeper import LeaseSurroundings
from runtime_agent.hub_client.lease_kinds import LeaseCore, MaintenanceCore
from runtime_agent.hub_client.lease_names import refuse_reserved
from runtime_agent.hub_client.lease_values import LeaseWish
from runtime_agent.hub_client.process_lease import ProcessCore
from runtime_agent.hub_client.turn_lease import TurnCore
from synchub.channel import HubAddress
from synchub.contract import attributes_fault, identifier_fault
from synchub.credentials import CredentialsGiven

_NAMELESS_HOST = "localhost"


class LeaseMaker:
    """Makes leases for one client; ``close`` it with the client."""

    def __init__(
        self,
        addresses: tuple[HubAddress, ...],
        *,
        hub_project: str,
        credentials: CredentialsGiven,
        runtime_id: str,
        instance_id: str,
    ) -> None:
        """Where they are empty, the runtime is this host and the instance a random id of this client."""
        host = socket.gethostname()
        self.runtime_id = runtime_id or (_NAMELESS_HOST if identifier_fault(host) else host)
        self.instance_id = instance_id or uuid4().hex
        self._process_name = f"pid {os.getpid()} on {self.runtime_id}"
        self._channel = LeaseChannel(addresses, credentials=credentials)
        self._place = LeasePlace(self._channel, hub_project, LeaseSurroundings())

    def close(self) -> None:
        """End the connection; what is held by it is lost. Idempotent."""
        self._channel.close()

    def wish(
        self,
        resource: str,
        *,
        runtime_id: str,
        holder_id: str,
        holder_display_name: str,
        ttl_seconds: float,
        labels: Mapping[str, str] | None = None,
    ) -> LeaseWish:
        """Return who wants a resource, completed where nothing is said. Raises: UsageError."""
        _refuse_ttl(ttl_seconds)
        if not holder_id and not holder_display_name:
            # A random id says nothing to whoever is told that it holds the resource.
            holder_display_name = self._process_name
        wish = LeaseWish(
            resource=resource,
            runtime_id=runtime_id or self.runtime_id,
            holder_id=holder_id or self.instance_id,
            holder_display_name=holder_display_name,
            ttl_seconds=ttl_seconds,
            labels=dict(labels or {}),
        )
        _refuse_names(wish)
        return wish

    def lease(self, wish: LeaseWish, *, wait_seconds: float, margin_seconds: float) -> LeaseCore:
        """Return a lease to acquire. Raises: UsageError."""
        refuse_reserved(wish.resource)
        _refuse_wait(wait_seconds)
        return LeaseCore(self._place, wish, wait_seconds=wait_seconds, margin_seconds=margin_seconds)

    def maintenance(self, wish: LeaseWish) -> MaintenanceCore:
        """Return a maintenance to begin."""
        return MaintenanceCore(self._place, wish, beat_seconds=limits.MAINTENANCE_BEAT_SECONDS)

    def turn(
        self,
        wish: LeaseWish,
        *,
        topic: str,
        query_id: str,
        origin: str,
        wait_seconds: float,
        margin_seconds: float,
    ) -> TurnCore:
        """Return a turn to acquire. Raises: UsageError."""
        _refuse_wait(wait_seconds)
        return TurnCore(
            self._place,
            wish,
            topic=topic,
            query_id=query_id,
            origin=origin,
            wait_seconds=wait_seconds,
            margin_seconds=margin_seconds,
        )

    def process(
        self, wish: LeaseWish, *, role: str, wait_seconds: float, margin_seconds: float
    ) -> ProcessCore:
        """Return a process lease to acquire. Raises: UsageError."""
        _refuse_wait(wait_seconds)
        return ProcessCore(
            self._place, wish, role=role, wait_seconds=wait_seconds, margin_seconds=margin_seconds
        )


def _refuse_ttl(ttl_seconds: float) -> None:
    if not 0 < ttl_seconds < math.inf:
        raise UsageError(f"a TTL of {ttl_seconds:g} s is no number of seconds above 0")


def _refuse_names(wish: LeaseWish) -> None:
    """Refuse what no hub takes, before anything is sent."""
    names = {"resource": wish.resource, "runtime_id": wish.runtime_id, "holder_id": wish.holder_id}
    for field, name in names.items():
        # Turns and processes name their resources later.
        fault = identifier_fault(name) if name else None
        if fault is not None:
            raise UsageError(f"{field} {fault}")
    fault = attributes_fault(wish.labels)
    if fault is not None:
        raise UsageError(f"labels {fault}")


def _refuse_wait(wait_seconds: float) -> None:
    if not 0 <= wait_seconds <= limits.LEASE_WAIT_SECONDS_MAX:
        raise UsageError(
            f"waiting for {wait_seconds:g} s is not between 0 and {limits.LEASE_WAIT_SECONDS_MAX:g} s"
        )
