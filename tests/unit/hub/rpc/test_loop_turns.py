"""Turns on the loop: a hub project that has much to read leaves the loop to others in between."""

import asyncio
from itertools import pairwise

from hub.rpc.loop_turns import REQUEST_BYTES, TURN_BYTES, LoopTurns


class Readers:
    """Tasks that take a turn and note it."""

    def __init__(self) -> None:
        self.turns = LoopTurns()
        self.read: list[str] = []

    def start(self, name: str, bytes_count: int, *, hub_project: str = "h") -> "asyncio.Task[None]":
        async def read() -> None:
            await self.turns.take(hub_project, bytes_count)
            self.read.append(name)

        return asyncio.get_running_loop().create_task(read())


async def test_what_fits_in_a_turn_is_read_at_once() -> None:
    readers = Readers()
    for number in range(4):
        readers.start(f"{number}", TURN_BYTES // 4 - REQUEST_BYTES)
    await asyncio.sleep(0)
    assert readers.read == ["0", "1", "2", "3"]


async def test_what_is_more_waits_for_the_next_rounds_in_its_order() -> None:
    readers = Readers()
    for number in range(5):
        readers.start(f"{number}", TURN_BYTES)
    seen = []
    for _ in range(12):
        await asyncio.sleep(0)
        seen.append(len(readers.read))
    assert readers.read == ["0", "1", "2", "3", "4"]
    # At most one in a round.
    assert all(later - earlier <= 1 for earlier, later in pairwise(seen))


async def test_another_hub_project_does_not_wait() -> None:
    readers = Readers()
    for number in range(100):
        readers.start(f"flood {number}", TURN_BYTES)
    await asyncio.sleep(0)
    readers.start("quiet", 1, hub_project="other")
    await asyncio.sleep(0)
    assert "quiet" in readers.read[:3]


async def test_small_ones_count_too() -> None:
    readers = Readers()
    for number in range(1_000):
        readers.start(f"{number}", 0)
    await asyncio.sleep(0)
    assert len(readers.read) == TURN_BYTES // REQUEST_BYTES


async def test_one_that_gives_up_leaves_its_turn_to_the_next_and_nothing_is_kept() -> None:
    readers = Readers()
    tasks = [readers.start(f"{number}", TURN_BYTES) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert readers.read == ["0", "2", "3"]
    assert (readers.turns._left, readers.turns._waiting) == ({}, {})
