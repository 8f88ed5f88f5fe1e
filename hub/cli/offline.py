"""A store that no hub serves, in the hands of a command.

It runs the hub's own commands (``hub.service``), each in a transaction of its own, under the lock that a
hub would have. Imported where it is needed: other commands need no store.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hub.assembly.parts import boot_nanos
from hub.cli.logs import without_log
from hub.cli.output import CommandFailed
from hub.config import HubSettings, ServeFlags, load_settings
from hub.core.clock import HubClock
from hub.core.errors import Refusal, StorageUnavailable, StoreInUse
from hub.service.writer import Command
from hub.store.contract import ReadTransaction
from hub.store.health import StoreHealth
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore

Result = TypeVar("Result")


class OfflineStore:
    """What a hub does to its store, one step at a time."""

    def __init__(self, store: SqlStore) -> None:
        """Begin hub time where the store left it."""
        self._store = store
        self._clock = HubClock(
            wall_nanos=time.time_ns(),
            floor_nanos=store.time_floor_nanos,
            suspension_counting_nanos=boot_nanos,
        )

    def credential_nanos(self) -> int:
        """Return the time by which credentials end: the later of hub time and the wall clock."""
        return max(self._clock.now(), time.time_ns())

    def run(self, command: Command[Result]) -> Result:
        """Run a command and return its result once it is durable.

        Raises: what the command raises, and then nothing was changed; StorageUnavailable.
        """
        session = self._store.writing
        try:
            transaction = session.begin()
            session.set_savepoint()
            result = command(transaction, self._clock.now())
            session.release_savepoint()
            session.commit(self._clock.now())
        except Exception:
            session.rollback()
            raise
        return result

    def read(self, function: Callable[[ReadTransaction], Result]) -> Result:
        """Run a function over one state of the store and return what it returns."""
        with self._store.reading() as transaction:
            return function(transaction)


def settings_for(db: str) -> HubSettings:
    """Return the settings that a hub would have here over the store in this file.

    Raises: SettingsError.
    """
    return load_settings(ServeFlags(db=db))


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn what a hub would refuse into a sentence. Raises: CommandFailed."""
    try:
        yield
    except Refusal as refusal:
        raise CommandFailed(str(refusal)) from refusal


@contextmanager
def opened_store(settings: HubSettings, *, is_made: bool) -> Iterator[OfflineStore]:
    """Give the store of these settings for the length of a block.

    It is made where it is not there and ``is_made``. Raises: CommandFailed, also for what the store's
    commands refuse within the block; StartRefused where it is no store.
    """
    database = settings.database
    if not is_made and not database.exists():
        raise CommandFailed(f"there is no store {database}")
    try:
        with (
            without_log(),
            refusals_told(),
            opened_engine(database, limits=settings.limits) as engine,
            _faults_told(engine.health, database),
        ):
            store = SqlStore(engine, limits=settings.limits, wall_nanos=time.time_ns())
            try:
                yield OfflineStore(store)
            finally:
                store.close()
    except StoreInUse as error:
        hint = "Ask the hub itself: give --hub instead of --db. Or stop it first."
        raise CommandFailed(f"a hub (pid {error.pid}) serves {database}", hint=hint) from error


@contextmanager
def _faults_told(health: StoreHealth, database: Path) -> Iterator[None]:
    """Turn a store that cannot be written or read into a sentence that says why. Raises: CommandFailed."""
    try:
        yield
    except StorageUnavailable as error:
        why = health.fault() or "the disk cannot be read or written"
        raise CommandFailed(f"cannot use the store {database}: {why}") from error
