"""One operation on a store, to be killed at any moment: the hub's own functions, without a command line.

    python -m tests.robustness.dying_operations OPERATION FOLDER

The folder has what the operation needs (``store.db``, ``backup.db``, ``old.db``); what it makes is there too.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hub.core.limits import Limits
from hub.store.sqlite.backup import take_backup
from hub.store.sqlite.engine import opened_engine
from hub.store.sqlite.migration import migrate_store
from hub.store.sqlite.restore import Restore, restore_backup, restore_in_place
from hub.store.store import SqlStore

LIMITS: Final = Limits()
WALL_NANOS: Final = 2_000_000_000_000_000_000


def backup(folder: Path) -> None:
    list(take_backup(folder / "store.db", folder / "made.db", limits=LIMITS))


def restore(folder: Path) -> None:
    plan = Restore("restored", WALL_NANOS)
    list(restore_backup(folder / "backup.db", folder / "made.db", restore=plan, limits=LIMITS))


def restore_the_backup_itself(folder: Path) -> None:
    list(restore_in_place(folder / "backup.db", restore=Restore("restored", WALL_NANOS), limits=LIMITS))


def restore_the_store_itself(folder: Path) -> None:
    list(restore_in_place(folder / "store.db", restore=Restore("restored", WALL_NANOS), limits=LIMITS))


def migrate(folder: Path) -> None:
    migrate_store(folder / "old.db", busy_timeout_seconds=LIMITS.busy_timeout_seconds)


def create(folder: Path) -> None:
    with opened_engine(folder / "made.db", limits=LIMITS) as engine:
        SqlStore(engine, limits=LIMITS, wall_nanos=WALL_NANOS).close()


OPERATIONS: Final[Mapping[str, Callable[[Path], None]]] = {
    each.__name__: each
    for each in (backup, restore, restore_the_backup_itself, restore_the_store_itself, migrate, create)
}


if __name__ == "__main__":
    OPERATIONS[sys.argv[1]](Path(sys.argv[2]))
