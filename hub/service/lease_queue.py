"""Who waits for a resource: in order among the waiters of this hub, in memory.

A place in a queue is a promise only while its call is open; after a restart of the hub nobody waits any
more, and who still wants the resource calls again. One event loop uses this module.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from hub.core.errors import LimitReached
from hub.core.limits import Limits
from hub.core.tenure import Claim, Holder
from hub.core.values import HubProject, ResourceName
from hub.store.contract import Changes

QueueKey = tuple[HubProject, ResourceName]


class Waiter:
    """One call that waits for its turn."""

    __slots__ = ("_wake", "begin_nanos", "has_taken_place", "holder", "is_replaced", "nonce_hash")

    def __init__(self, claim: Claim, begin_nanos: int) -> None:
        """Begin to wait at a moment of hub time."""
        self.holder: Holder = claim.holder
        self.nonce_hash = claim.nonce_hash
        self.begin_nanos = begin_nanos
        self.is_replaced = False
        """Whether a later call under the same nonce has taken this one's place."""
        self.has_taken_place = False
        """Whether it has the place of an earlier call, and so waits already."""
        self._wake = asyncio.Event()

    def is_of(self, claim: Claim) -> bool:
        """Whether a claim is this waiter's own."""
        return self.holder.is_same(claim.holder) and self.nonce_hash == claim.nonce_hash

    def wake(self) -> None:
        """Let it look again."""
        self._wake.set()

    async def wait(self, seconds_max: float) -> bool:
        """Wait until there may be something to try, at most so long; return whether there may be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds_max)):
                await self._wake.wait()
        was_woken = self._wake.is_set()
        self._wake.clear()
        return was_woken


class LeaseQueues:
    """The queues of all resources for which somebody waits; ``announce`` is to be called at each COMMIT."""

    def __init__(self, *, limits: Limits) -> None:
        """Begin with nobody waiting."""
        self._limits = limits
        self._queues: dict[QueueKey, list[Waiter]] = {}

    def join(self, key: QueueKey, claim: Claim, *, begin_nanos: int) -> Waiter:
        """Return a waiter at the end of the queue, or at the place of an earlier call of the same claim.

        Raises: LimitReached where too many wait.
        """
        queue = self._queues.setdefault(key, [])
        waiter = Waiter(claim, begin_nanos)
        for place, earlier in enumerate(queue):
            if earlier.is_of(claim):
                queue[place] = waiter
                waiter.has_taken_place = True
                earlier.is_replaced = True
                earlier.wake()
                return waiter
        if len(queue) >= self._limits.lease_waiters_max:
            raise LimitReached("lease_waiters_max", self._limits.lease_waiters_max)
        queue.append(waiter)
        return waiter

    def leave(self, key: QueueKey, waiter: Waiter) -> None:
        """Give the place up; who comes first then looks whether it is its turn."""
        queue = self._queues.get(key)
        if queue is None or waiter not in queue:
            return
        was_first = queue[0] is waiter
        queue.remove(waiter)
        if not queue:
            del self._queues[key]
        elif was_first:
            queue[0].wake()

    def may_pass(self, key: QueueKey, waiter: Waiter | None) -> bool:
        """Whether a call may open a tenure: nobody waits before it."""
        queue = self._queues.get(key)
        return queue is None or queue[0] is waiter

    def waiters(self, key: QueueKey) -> Sequence[Waiter]:
        """Return who waits, first come first."""
        return self._queues.get(key, ())

    def waiter_count(self) -> int:
        """Return how many calls wait for all resources."""
        return sum(map(len, self._queues.values()))

    def announce(self, changes: Changes) -> None:
        """Wake who comes first at each resource that is free now, and whom a lease was transferred to."""
        for key, resource in changes.resources.items():
            queue = self._queues.get(key)
            if queue is None:
                continue
            tenure = resource.current
            if tenure is None or tenure.end is not None:
                queue[0].wake()
                continue
            for waiter in queue:
                if waiter.holder.is_same(tenure.holder):
                    waiter.wake()
