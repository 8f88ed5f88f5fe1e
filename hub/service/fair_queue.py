"""Queues in which everybody has a turn: what waits for the writer, and who waits for room there.

One key each is one hub project. Whoever has much waiting slows only itself: others are taken in their
turns, however long its queue is. The order within a key is kept.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from hub.core.errors import RateLimited

TURN_BYTES: Final = 64 * 1024
"""What a key may take in one turn, but always one entry."""
ENTRY_BYTES: Final = 1024
"""What an entry counts in a turn besides its bytes: many small ones take time too."""


class Sized(Protocol):
    """Something that takes bytes."""

    @property
    def bytes_count(self) -> int:
        """How many."""


Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Sized)


class FairQueue(Generic[Key, Item]):
    """Entries by their keys, taken in turns."""

    def __init__(self) -> None:
        """Begin empty."""
        self._queues: OrderedDict[Key, deque[Item]] = OrderedDict()
        """None is empty; the first one has the next turn."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def key_count(self) -> int:
        """How many keys have entries."""
        return len(self._queues)

    def append(self, key: Key, item: Item) -> None:
        """Add an entry behind all of its key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(item)
        self._count += 1

    def take(self, *, count_max: int, bytes_max: int, key_bytes_max: int) -> list[Item]:
        """Take entries up to these bounds, of all and of each key, but always one where there is one.

        A key of which nothing fits into what the others left has the first turn the next time.
        """
        taken: list[Item] = []
        bytes_left = bytes_max
        key_bytes_left: dict[Key, int] = {}
        unlucky: list[Key] = []
        done: OrderedDict[Key, deque[Item]] = OrderedDict()
        while self._queues and len(taken) < count_max:
            key, queue = self._queues.popitem(last=False)
            left = key_bytes_left.get(key, key_bytes_max)
            turn_bytes, has_turn = 0, True
            while queue and has_turn and len(taken) < count_max and turn_bytes < TURN_BYTES:
                size = queue[0].bytes_count
                if taken and size > bytes_left:
                    has_turn = False
                    if key not in key_bytes_left:
                        unlucky.append(key)
                elif key in key_bytes_left and size > left:
                    has_turn = False
                else:
                    taken.append(queue.popleft())
                    bytes_left -= size
                    left -= size
                    key_bytes_left[key] = left
                    turn_bytes += size + ENTRY_BYTES
            if queue:
                (self._queues if has_turn else done)[key] = queue
        self._queues.update(done)
        for key in reversed(unlucky):
            self._queues.move_to_end(key, last=False)
        self._count -= len(taken)
        return taken


class FairShares(Generic[Key]):
    """Shares of the bytes that may be queued; of each key first come, first served, the keys in turns.

    A key may have so many of them only, so that none fills the queue.
    """

    def __init__(self, bytes_max: int, *, key_bytes_max: int, limit: str, key_limit: str) -> None:
        """Begin with all free; the two limits' names are for refusals."""
        self._bytes_max = bytes_max
        self._key_bytes_max = min(bytes_max, key_bytes_max)
        self._limit = limit
        self._key_limit = key_limit
        self._of_key: dict[Key, int] = {}
        self._waiting: OrderedDict[Key, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()
        self._is_full = False
        """Whether somebody waits for more than is free at all: then nobody overtakes."""
        self.bytes_queued = 0

    async def take(self, key: Key, bytes_count: int) -> None:
        """Take a share, waiting for it."""
        if not bytes_count or self._take_if_free(key, bytes_count):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append((turn, bytes_count))
        self._admit_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit_waiting()
            else:
                self.give_back(key, bytes_count)
            raise

    def take_now(self, key: Key, bytes_count: int) -> None:
        """Take a share without waiting for it.

        Raises: RateLimited where there is no room.
        """
        if bytes_count and not self._take_if_free(key, bytes_count):
            if self._has_room(bytes_count):
                raise RateLimited(self._key_limit, self._key_bytes_max)
            raise RateLimited(self._limit, self._bytes_max)

    def give_back(self, key: Key, bytes_count: int) -> None:
        """Give a share back to those that wait."""
        if not bytes_count:
            return
        self.bytes_queued -= bytes_count
        self._of_key[key] -= bytes_count
        if not self._of_key[key]:
            del self._of_key[key]
        if self._waiting:
            self._admit_waiting()

    def _take_if_free(self, key: Key, bytes_count: int) -> bool:
        """Take a share where nobody has to be waited for."""
        is_free = (
            not self._is_full
            and key not in self._waiting
            and self._has_room(bytes_count)
            and self._has_key_room(key, bytes_count)
        )
        if is_free:
            self._count(key, bytes_count)
        return is_free

    def _count(self, key: Key, bytes_count: int) -> None:
        self.bytes_queued += bytes_count
        self._of_key[key] = self._of_key.get(key, 0) + bytes_count

    def _has_room(self, bytes_count: int) -> bool:
        return not self.bytes_queued or self.bytes_queued + bytes_count <= self._bytes_max

    def _has_key_room(self, key: Key, bytes_count: int) -> bool:
        queued = self._of_key.get(key, 0)
        return not queued or queued + bytes_count <= self._key_bytes_max

    def _admit_waiting(self) -> None:
        """Give their shares to those that wait, the keys in turns, until one does not fit."""
        self._is_full = False
        keys = deque(self._waiting)
        while keys:
            key = keys.popleft()
            turns = self._waiting[key]
            while turns and turns[0][0].cancelled():
                turns.popleft()
            if not turns:
                del self._waiting[key]
                continue
            turn, bytes_count = turns[0]
            if not self._has_key_room(key, bytes_count):
                continue
            if not self._has_room(bytes_count):
                self._is_full = True
                return
            turns.popleft()
            self._count(key, bytes_count)
            turn.set_result(None)
            self._waiting.move_to_end(key)
            keys.append(key)
