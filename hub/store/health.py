"""How the store stands: what is wrong with it now, for an operator, said in the log once, not for each group.

Told by sessions and by the store, from any thread; asked by whoever serves ``/readyz``. Nothing is decided
here.
"""

from threading import Lock
from typing import Final

import structlog

log = structlog.get_logger(__name__)

DISK_FULL: Final = "the disk is full"
"""The problem of a disk on which nothing more can be written."""
DISK_NEARLY_FULL: Final = "the disk is nearly full: nothing new is stored, leases and reads go on"
"""The problem of a disk of which only the reserve is left."""


class StoreHealth:
    """What is wrong with writing and with reading, None where nothing is."""

    def __init__(self) -> None:
        """Begin well."""
        self._lock = Lock()
        self._writing_problem: str | None = None
        self._reading_problem: str | None = None
        self._is_room_low = False
        self._failed_count = 0

    def fault(self) -> str | None:
        """Return what is wrong now as a sentence without its full stop, None where all is well."""
        with self._lock:
            if self._writing_problem is None and self._is_room_low:
                return DISK_NEARLY_FULL
            return self._writing_problem or self._reading_problem

    def failed(self, problem: str, *, is_writing: bool, during: str, error: str, detail: str) -> None:
        """Note that something failed; it is logged where the problem is another one than before.

        ``during``, ``error`` and ``detail`` are for the log alone.
        """
        with self._lock:
            self._failed_count += 1
            before = self._writing_problem if is_writing else self._reading_problem
            if is_writing:
                self._writing_problem = problem
            else:
                self._reading_problem = problem
        if before != problem:
            log.error("store_unavailable", problem=problem, during=during, error=error, detail=detail)

    def worked(self, *, is_writing: bool) -> None:
        """Note that something was written, or read."""
        # Without the lock: this is told at each commit, and of a race only the next one's telling is left.
        if (self._writing_problem if is_writing else self._reading_problem) is None:
            return
        with self._lock:
            # A commit that fits into what is left of a full disk does not make room.
            if is_writing and self._is_room_low:
                return
            if is_writing:
                self._writing_problem = None
            else:
                self._reading_problem = None
            failed_count, self._failed_count = self._failed_count, 0
        log.info("store_available_again", failed_count=failed_count)

    def room_is_low(self, is_low: bool, *, room_bytes: int, reserve_bytes: int) -> None:
        """Note whether only the reserve is left of the disk."""
        with self._lock:
            is_same, self._is_room_low = self._is_room_low == is_low, is_low
        if not is_same:
            facts = {"room_bytes": room_bytes, "reserve_bytes": reserve_bytes}
            if is_low:
                log.error("store_has_no_room", problem=DISK_NEARLY_FULL, **facts)
            else:
                log.info("store_has_room_again", **facts)
