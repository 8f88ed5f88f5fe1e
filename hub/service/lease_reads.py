"""Leases as they are read. An expiry that is told here is durable before it is told."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hub.core.lease import decide_check
from hub.core.limits import Limits
from hub.core.selection import LeasePlace
from hub.core.tenure import Holder, Resource, Tenure
from hub.core.values import Caller, HubProject, ResourceName
from hub.service.lease_queue import LeaseQueues
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import ReadTransaction

_LONG_AGO_NANOS: Final = 0
"""Every tenure whose end was not noted was live then, going by its expire time alone."""


class Waiting(NamedTuple):
    """Somebody who waits, and since when."""

    holder: Holder
    begin_nanos: int


@dataclass(frozen=True, slots=True)
class ResourceView:
    """A resource at a moment of hub time, and the first of those who wait for it at this hub."""

    resource: Resource
    now_nanos: int
    waiters: Sequence[Waiting]
    waiter_count: int


@dataclass(frozen=True, slots=True)
class LeasePage:
    """Tenures at a moment of hub time."""

    tenures: Sequence[Tenure]
    now_nanos: int


class ToldExpiries:
    """Makes an expiry durable before it is told, so that no clock and no restart takes it back.

    Hub time never begins below the floor that every commit writes, so one commit is enough.
    """

    def __init__(self, writer: AsyncWriter, readers: Readers) -> None:
        """Bind writer and readers."""
        self._writer = writer
        self._readers = readers

    async def settle(self, tenures: Iterable[Tenure | None], now_nanos: int) -> bool:
        """Return once every expiry among these tenures that was noticed at a moment is durable.

        True where there was one: a renewal that came in time may have been under way while the tenures were
        read. It is committed now, and no later one comes in time, so reading again tells which it is.

        Raises: what the writer raises.
        """
        if any(tenure is not None and _is_expiry_unnoted(tenure, now_nanos) for tenure in tenures):
            await self._writer.settle()
            return True
        return False

    async def live_tenures(
        self, hub_project: HubProject, now_nanos: int, *, after: LeasePlace | None, entries_max: int
    ) -> list[Tenure]:
        """Return a page of the tenures that are live at a moment: what is missing in it is told as well.

        Raises: what readers and writer raise.
        """

        def read_live_at(nanos: int) -> Callable[[ReadTransaction], list[Tenure]]:
            return lambda transaction: transaction.leases.tenures(
                hub_project, live_at_nanos=nanos, after=after, entries_max=entries_max
            )

        tenures = await self._readers.call(read_live_at(_LONG_AGO_NANOS))
        if await self.settle(tenures, now_nanos):
            tenures = await self._readers.call(read_live_at(now_nanos))
        return tenures


class LeaseReads:
    """The use cases that read leases."""

    def __init__(
        self,
        readers: Readers,
        *,
        told: ToldExpiries,
        queues: LeaseQueues,
        limits: Limits,
        now_nanos: Callable[[], int],
    ) -> None:
        """Bind the readers; ``now_nanos`` gives hub time."""
        self._readers = readers
        self._told = told
        self._queues = queues
        self._limits = limits
        self._now_nanos = now_nanos

    async def resource(self, caller: Caller, name: ResourceName) -> ResourceView:
        """Return a resource; one that was never used reads as the floor."""
        resource, now_nanos = await self._resource(caller, name)
        waiters = self._queues.waiters((caller.hub_project, name))
        shown = [
            Waiting(waiter.holder, waiter.begin_nanos)
            for waiter in waiters[: self._limits.lease_waiters_shown_max]
        ]
        return ResourceView(resource, now_nanos, shown, len(waiters))

    async def check(
        self, caller: Caller, name: ResourceName, *, fencing_token: int, nonce_hash: bytes | None
    ) -> Tenure:
        """Return the tenure of a token that is current; without a nonce the token alone is looked at.

        Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired.
        """
        resource, now_nanos = await self._resource(caller, name)
        return decide_check(resource, fencing_token, now_nanos=now_nanos, nonce_hash=nonce_hash)

    async def leases(
        self, caller: Caller, *, include_ended: bool, after: LeasePlace | None, entries_max: int
    ) -> LeasePage:
        """Return a page of live tenures, or of all, ascending by resource."""
        hub_project, now_nanos = caller.hub_project, self._now_nanos()
        if not include_ended:
            live = await self._told.live_tenures(hub_project, now_nanos, after=after, entries_max=entries_max)
            return LeasePage(live, now_nanos)

        def read(transaction: ReadTransaction) -> LeasePage:
            tenures = transaction.leases.tenures(
                hub_project, live_at_nanos=None, after=after, entries_max=entries_max
            )
            return LeasePage(tenures, now_nanos)

        page = await self._readers.call(read)
        if await self._told.settle(page.tenures, now_nanos):
            page = await self._readers.call(read)
        return page

    async def _resource(self, caller: Caller, name: ResourceName) -> tuple[Resource, int]:
        def read(transaction: ReadTransaction) -> tuple[Resource, int]:
            resource = transaction.leases.resource(caller.hub_project, name)
            return resource, self._now_nanos()

        resource, now_nanos = await self._readers.call(read)
        if await self._told.settle((resource.lease, resource.maintenance), now_nanos):
            resource, _ = await self._readers.call(read)
        return resource, now_nanos


def _is_expiry_unnoted(tenure: Tenure, now_nanos: int) -> bool:
    return tenure.end is None and now_nanos >= tenure.expire_nanos
