"""Whatever comes and goes, hub projects keep their order and their parts, and nobody waits for ever."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hub.service.fair_queue import FairQueue, FairShares

KEYS = st.sampled_from(["a", "b", "c"])
SIZES = st.one_of(st.integers(0, 12), st.sampled_from([1, 100_000]))


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    number: int
    bytes_count: int


@given(
    st.lists(st.one_of(st.tuples(KEYS, SIZES), st.none()), max_size=60),
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(1, 30),
)
def test_a_queue_gives_everything_once_in_the_order_of_each_key_and_within_its_bounds(
    steps: Sequence[tuple[str, int] | None], count_max: int, bytes_max: int, key_bytes_max: int
) -> None:
    queue: FairQueue[str, Entry] = FairQueue()
    given_to: list[Entry] = []
    taken: list[Entry] = []

    def take() -> int:
        group = queue.take(count_max=count_max, bytes_max=bytes_max, key_bytes_max=key_bytes_max)
        assert len(group) <= count_max
        sizes = [entry.bytes_count for entry in group]
        # What is larger than the bound is the only one that may be, and comes first.
        assert sum(sizes[1:]) + min(sizes[0], bytes_max) <= bytes_max if sizes else not len(queue)
        for key in {entry.key for entry in group}:
            of_key = [entry.bytes_count for entry in group if entry.key == key]
            assert sum(of_key[1:]) + min(of_key[0], key_bytes_max) <= key_bytes_max
        taken.extend(group)
        return len(group)

    for number, step in enumerate(steps):
        if step is None:
            take()
        else:
            entry = Entry(step[0], number, step[1])
            given_to.append(entry)
            queue.append(step[0], entry)
        assert len(queue) == len(given_to) - len(taken)
    while len(queue):
        assert take() > 0
    for key in "abc":
        assert [entry for entry in taken if entry.key == key] == [
            each for each in given_to if each.key == key
        ]


@given(
    st.lists(
        st.one_of(st.tuples(KEYS, SIZES), st.sampled_from(["give back", "give up"])), min_size=1, max_size=60
    ),
    st.integers(1, 30),
    st.integers(1, 30),
)
def test_shares_keep_their_bounds_and_everybody_who_waits_has_a_turn(
    steps: Sequence[tuple[str, int] | str], bytes_max: int, key_bytes_max: int
) -> None:
    async def go_through() -> None:
        shares: FairShares[str] = FairShares(
            bytes_max, key_bytes_max=key_bytes_max, limit="all", key_limit="each"
        )
        held: list[Entry] = []
        admitted: list[Entry] = []
        waiting: dict[Entry, asyncio.Task[None]] = {}

        async def take(entry: Entry) -> None:
            await shares.take(entry.key, entry.bytes_count)
            waiting.pop(entry, None)
            held.append(entry)
            admitted.append(entry)

        async def settle() -> None:
            for _ in range(len(waiting) + 3):
                await asyncio.sleep(0)
            check()

        def check() -> None:
            sizes = [entry.bytes_count for entry in held if entry.bytes_count]
            assert shares.bytes_queued == sum(sizes)
            assert sum(sizes) <= bytes_max or len(sizes) == 1
            for key in "abc":
                of_key = [entry.bytes_count for entry in held if entry.key == key and entry.bytes_count]
                assert sum(of_key) <= min(bytes_max, key_bytes_max) or len(of_key) == 1
            # Nobody waits while nothing is queued.
            assert sizes or not waiting

        for number, step in enumerate(steps):
            if isinstance(step, tuple):
                entry = Entry(step[0], number, step[1])
                waiting[entry] = asyncio.create_task(take(entry))
            elif step == "give back" and held:
                given_back = held.pop(0)
                shares.give_back(given_back.key, given_back.bytes_count)
            elif step == "give up" and waiting:
                waiting.pop(next(iter(waiting))).cancel()
            await settle()
        while held:
            last = held.pop(0)
            shares.give_back(last.key, last.bytes_count)
            await settle()
        assert (waiting, shares.bytes_queued) == ({}, 0)
        for key in "abc":
            numbers = [entry.number for entry in admitted if entry.key == key and entry.bytes_count]
            assert numbers == sorted(numbers)

    asyncio.run(go_through())
