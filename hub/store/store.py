"""The store of a hub: opened once, with one writing side and a few readers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import LifoQueue
from typing import Final, Protocol, cast
from uuid import uuid4

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.core.values import HubGeneration
from hub.store.health import StoreHealth
from hub.store.reading import SqlReadTransaction
from hub.store.session import Session
from hub.store.writing import SqlWriteSession

NANOS_PER_MICROSECOND: Final = 1_000
"""Nanoseconds in a microsecond, the unit of a floor of tokens that is taken from the clock."""


class Engine(Protocol):
    """What an engine gives a store: its name, sessions, and its size."""

    @property
    def name(self) -> str:
        """The name that ``GetHubInfo`` tells: "sqlite" or "postgresql"."""

    @property
    def health(self) -> StoreHealth:
        """What is wrong with the store now."""

    def open_writer(self) -> Session:
        """Open a connection that writes."""

    def open_reader(self) -> Session:
        """Open a connection that reads."""

    def log_bytes(self) -> int:
        """Return the size of what is committed but not yet folded into the main file, in bytes."""


class SqlStore:
    """A store over any engine: the writing side for the writer, transactions for readers."""

    def __init__(
        self, engine: Engine, *, limits: Limits, wall_nanos: int, is_token_floor_now: bool = False
    ) -> None:
        """Open the store; a new one gets its first generation.

        With ``is_token_floor_now``, tokens and epochs of all that is to come begin above the Unix time
        in microseconds, and so above those of a store that was lost.

        Raises: StorageUnavailable where the engine cannot be read or written; StartRefused where the
        floor is to be raised in a store that is in use.
        """
        self._engine = engine
        self._limits = limits
        self.time_floor_nanos, self.hub_generation = _begin_life(
            engine.open_writer, wall_nanos, is_token_floor_now=is_token_floor_now
        )
        self.writing = SqlWriteSession(
            engine.open_writer, hub_generation=self.hub_generation, limits=limits, health=engine.health
        )
        self._idle_readers: LifoQueue[Session] = LifoQueue()
        self._keeper = _open_keeper(engine)

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._engine.name

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        return self._engine.log_bytes()

    def last_fault(self) -> str | None:
        """Return what is wrong with the store now, for an operator ("the disk is full"), None for nothing.

        A fault is over once something was written, or read, again.
        """
        return self._engine.health.fault()

    @contextmanager
    def reading(self) -> Iterator[SqlReadTransaction]:
        """Give a read transaction: one state of the store until the block ends. For reader threads.

        Keep it short: while it is open, SQLite's log cannot be folded back.
        """
        session = self._idle_readers.get_nowait() if self._idle_readers.qsize() else None
        session = session or self._engine.open_reader()
        is_whole = False
        try:
            session.begin_reading()
            yield SqlReadTransaction(session, hub_generation=self.hub_generation)
            is_whole = True
            self._engine.health.worked(is_writing=False)
        finally:
            session.rollback()
            # A connection on which something failed is not used again.
            if is_whole and self._idle_readers.qsize() < self._limits.readers_max:
                self._idle_readers.put(session)
            else:
                session.close()

    def close(self) -> None:
        """Close all connections; nothing may be in use any more."""
        self.writing.close()
        while self._idle_readers.qsize():
            self._idle_readers.get_nowait().close()
        self._keeper.close()


def _open_keeper(engine: Engine) -> Session:
    """Open a connection that is there as long as the store.

    So the last one is never closed while the hub lives: SQLite would take the files beside the store away,
    and on a full disk nobody could make them again.
    """
    session = engine.open_reader()
    session.begin_reading()
    list(session.fetch("load_time_floor"))
    session.rollback()
    return session


def _begin_life(
    open_writer: Callable[[], Session], wall_nanos: int, *, is_token_floor_now: bool
) -> tuple[int, HubGeneration]:
    """Return the persisted floor of hub time and the generation in force, which a new store gets."""
    session = open_writer()
    try:
        session.begin_writing()
        floors = list(session.fetch("load_time_floor"))
        if not floors:
            session.run("create_hub", (wall_nanos,))
            session.run("create_generation", (uuid4().hex, wall_nanos))
            floors = list(session.fetch("load_time_floor"))
        if is_token_floor_now:
            _raise_token_floor(session, wall_nanos // NANOS_PER_MICROSECOND)
        (hub_generation,) = cast("list[tuple[str]]", list(session.fetch("load_generation")))[0]
        session.commit()
        return cast("tuple[int]", floors[0])[0], HubGeneration(hub_generation)
    finally:
        session.close()


def _raise_token_floor(session: Session, floor: int) -> None:
    """Let fencing tokens of a store begin above this in which nothing is stored yet but tokens of callers."""
    if list(session.fetch("find_any_use")):
        raise StartRefused(
            "the store is in use, and its tokens go on by themselves.",
            "--token-floor is for a new, empty store in place of a lost one: leave it out.",
        )
    session.run("raise_floor_of_hub", (floor,))
    # The first token of a caller made its tenant, with the floors of before.
    session.run("raise_floors_of_tenants", (floor,))
