"""All that is done with leases, put together over one writer and its readers."""

from collections.abc import Callable

from hub.core.limits import Limits
from hub.service.lease_aborts import LeaseAborts
from hub.service.lease_queue import LeaseQueues
from hub.service.lease_reads import LeaseReads, ToldExpiries
from hub.service.lease_upkeep import LeaseUpkeep
from hub.service.lease_watch import LeaseWatches
from hub.service.leases import Leases
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import Changes


class LeaseUseCases:
    """The parts, each of which says itself what it promises."""

    def __init__(
        self, writer: AsyncWriter, readers: Readers, *, limits: Limits, now_nanos: Callable[[], int]
    ) -> None:
        """Put them together; ``now_nanos`` gives hub time."""
        queues = LeaseQueues(limits=limits)
        told = ToldExpiries(writer, readers)
        self.queues = queues
        self.aborts = LeaseAborts()
        self.changes = Leases(writer, queues=queues, limits=limits, now_nanos=now_nanos)
        self.reads = LeaseReads(readers, told=told, queues=queues, limits=limits, now_nanos=now_nanos)
        self.watches = LeaseWatches(readers, told=told, limits=limits, now_nanos=now_nanos)
        self.upkeep = LeaseUpkeep(writer, readers, limits=limits, now_nanos=now_nanos)

    def announce(self, changes: Changes) -> None:
        """Hear of a commit; to be called on the loop after each, in their order."""
        self.queues.announce(changes)
        self.aborts.announce(changes)
        self.watches.announce(changes)
        self.upkeep.announce(changes)
