"""Turns on the event loop: what takes its time for long is done for one hub project at a time.

A batch takes a millisecond to check and hash. A hub project that pushes on hundreds of streams would
have the loop for as many milliseconds in a row, and everybody else would wait. So in each round of the
loop a hub project may have as much read as fits in one turn; what is more waits for the next round.
"""

import asyncio
from collections import deque
from typing import Final

TURN_BYTES: Final = 256 * 1024
"""What may be read in one round for one hub project, some milliseconds' work, but always one request."""
REQUEST_BYTES: Final = 4 * 1024
"""What a request counts besides its bytes: a small one takes time too."""


class LoopTurns:
    """Who has had a turn in this round, and who waits for the next. Used on the loop only."""

    def __init__(self) -> None:
        """Begin with everybody's turn free."""
        self._left: dict[str, int] = {}
        """What is left of this round's turn, for those who used some of it."""
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    async def take(self, hub_project: str, bytes_count: int) -> None:
        """Take a part of a turn, after a wait where it is used up; first come, first served."""
        size = bytes_count + REQUEST_BYTES
        left = self._left.get(hub_project)
        if left is None:
            self._left[hub_project] = TURN_BYTES - size
            asyncio.get_running_loop().call_soon(self._begin_round, hub_project)
            return
        if left > 0 and hub_project not in self._waiting:
            self._left[hub_project] = left - size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(hub_project, deque()).append((turn, size))
        await turn

    def _begin_round(self, hub_project: str) -> None:
        """Give the next turn to those who wait; where nobody does, forget the hub project."""
        waiting = self._waiting.get(hub_project)
        if waiting is None:
            del self._left[hub_project]
            return
        left = TURN_BYTES
        while waiting and left > 0:
            turn, size = waiting.popleft()
            if not turn.cancelled():
                left -= size
                turn.set_result(None)
        if not waiting:
            del self._waiting[hub_project]
        self._left[hub_project] = left
        asyncio.get_running_loop().call_soon(self._begin_round, hub_project)
