"""Reads in turns: whoever asks for much at once slows only itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import pytest

from hub.core.errors import LimitReached
from hub.service import readers as readers_module
from hub.service.readers import Readers, read_in_turn_of
from hub.store.contract import ReadTransaction
from hub.store.store import SqlStore

THREADS = 1
"""So that the order in which reads begin is that of their turns."""


class Shelf:
    """Readers of a store, and what was read, in its order."""

    def __init__(self, store: SqlStore, executor: ThreadPoolExecutor) -> None:
        self.readers = Readers(store, executor, running_max=THREADS)
        self.begun: list[str] = []
        self._may_end = threading.Event()

    async def read(self, hub_project: str, name: str, *, is_held: bool = False) -> None:
        read_in_turn_of(hub_project)

        def function(_transaction: ReadTransaction) -> None:
            self.begun.append(name)
            if is_held:
                assert self._may_end.wait(10)

        await self.readers.call(function)

    def begin(self, hub_project: str, name: str, *, is_held: bool = False) -> "asyncio.Task[None]":
        return asyncio.create_task(self.read(hub_project, name, is_held=is_held))

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """Every thread is taken within the block."""
        self._may_end.clear()
        held = [self.begin("a", f"held {n}", is_held=True) for n in range(THREADS)]
        while len(self.begun) < THREADS:  # noqa: ASYNC110 - a thread sets no event of a loop
            await asyncio.sleep(0)
        yield
        await settled()
        self.begun.clear()
        self._may_end.set()
        await asyncio.gather(*held)


async def settled() -> None:
    """Let every task come to where it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextmanager
def shelf_of(store: SqlStore) -> Iterator[Shelf]:
    with ThreadPoolExecutor(THREADS) as executor:
        yield Shelf(store, executor)


async def test_who_asks_for_little_comes_before_the_rest_of_who_asks_for_much(store: SqlStore) -> None:
    with shelf_of(store) as shelf:
        async with shelf.full():
            reads = [shelf.begin("a", f"a{n}") for n in range(50)]
            await settled()
            reads += [shelf.begin("b", "b0"), shelf.begin("b", "b1"), shelf.begin("c", "c0")]
        await asyncio.gather(*reads)
    assert shelf.begun == ["a0", "b0", "c0", "a1", "b1", *(f"a{n}" for n in range(2, 50))]
    assert shelf.readers.waiting_count == 0


async def test_the_order_within_a_hub_project_is_kept(store: SqlStore) -> None:
    with ThreadPoolExecutor(1) as executor:
        shelf = Shelf(store, executor)
        shelf.readers = Readers(store, executor)
        await asyncio.gather(*(shelf.begin("a", str(n)) for n in range(20)))
    assert shelf.begun == [str(n) for n in range(20)]


async def test_a_read_that_is_cancelled_while_it_waits_is_not_made_and_holds_nobody_up(
    store: SqlStore,
) -> None:
    with shelf_of(store) as shelf:
        async with shelf.full():
            cancelled = [shelf.begin("b", "cancelled") for _ in range(3)]
            other = shelf.begin("b", "other")
            await settled()
            for each in cancelled:
                each.cancel()
        await other
        assert shelf.begun == ["other"]
        # And every thread is there again.
        async with shelf.full():
            pass
    assert shelf.readers.waiting_count == 0


async def test_a_read_that_is_cancelled_while_it_runs_has_its_thread_until_it_is_over(
    store: SqlStore,
) -> None:
    with shelf_of(store) as shelf:
        async with shelf.full():
            running = shelf.begin("a", "late")
            await settled()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        async with shelf.full():
            pass
    assert shelf.readers.waiting_count == 0


async def test_a_turn_that_is_granted_to_who_is_cancelled_in_the_same_moment_is_given_on(
    store: SqlStore,
) -> None:
    with shelf_of(store) as shelf:
        async with shelf.full():
            cancelled, other = shelf.begin("b", "cancelled"), shelf.begin("c", "other")
            await settled()
            shelf.readers._running_count += 1  # one more runs, and is over
            shelf.readers._over()
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        await other
        await settled()
        assert shelf.begun == ["other"]
    assert shelf.readers._running_count == 0


async def test_what_a_read_raises_costs_no_thread(store: SqlStore) -> None:
    def broken(_transaction: ReadTransaction) -> None:
        raise LookupError

    with shelf_of(store) as shelf:
        for _ in range(THREADS + 1):
            with pytest.raises(LookupError):
                await shelf.readers.call(broken)
        async with shelf.full():
            pass


async def test_more_reads_than_may_wait_are_refused(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_module, "WAITING_READS_MAX", THREADS)
    with shelf_of(store) as shelf:
        async with shelf.full():
            with pytest.raises(LimitReached):
                await shelf.read("b", "too many")
        await shelf.read("b", "fits")
    assert shelf.begun == ["fits"]
