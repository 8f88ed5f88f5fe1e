"""Keeps a reserve of the disk, so that a full store can still be pruned, and leases go on.

A database that fills its disk to the last byte cannot even delete: that needs room in the log, and the log
cannot be folded into a file that must grow for it. So what makes the store grow is refused while only the
reserve is left. Everything else may use it.
"""

from hub.core.errors import StorageFull
from hub.store.health import StoreHealth
from hub.store.session import Session


class Room:
    """Whether there is room for more, looked at before each transaction."""

    def __init__(self, health: StoreHealth, *, reserve_bytes: int) -> None:
        """Keep a reserve of so many bytes, on a small disk a part of it; nothing is looked at yet."""
        self._health = health
        self._reserve_bytes = reserve_bytes
        self._is_low = False

    def look(self, session: Session) -> None:
        """See how much room there is; outside a transaction."""
        found = session.disk_room(self._reserve_bytes)
        if found is not None and found.is_low:
            session.make_room()
            found = session.disk_room(self._reserve_bytes)
        self._is_low = found is not None and found.is_low
        if found is not None:
            self._health.room_is_low(
                self._is_low, room_bytes=found.room_bytes, reserve_bytes=found.reserve_bytes
            )

    def fault(self) -> StorageFull | None:
        """Return why the store may not grow now, None where it may."""
        return StorageFull() if self._is_low else None
