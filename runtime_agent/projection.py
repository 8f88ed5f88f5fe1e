"""Keeps a read model up to date: tables of yours in an SQLite file, made from the events of the journal.

::

    def reset(transaction):
        transaction.execute("DROP TABLE IF EXISTS spent")
        transaction.execute("CREATE TABLE spent (customer TEXT PRIMARY KEY, cents INTEGER) STRICT")

    def apply(transaction, event):
        transaction.execute("INSERT INTO spent VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = ...", ...)

    with HubClient.connect("127.0.0.1:7443", hub_project="acme") as hub:
        ProjectionRunner(hub, "spent.db", name="spent", reset=reset, apply=apply).run()

**Each event counts once.** What ``apply`` does for the events of one update, and up to where that was, are
one commit of the file. So the runner may be killed at any point: what is in the file is what a rebuild from
the first event up to the same position gives, provided that ``apply`` depends on nothing but the event and
the tables (no clock, no chance, nothing outside the file). ``apply`` may be called again for an event whose
commit did not happen, and must not commit itself; that is refused.

**When it begins anew.** ``reset`` makes the empty tables, whatever was there; it is called in one commit
with position 0 when there is no checkpoint, when ``version`` or the event types are not those of the
checkpoint (raise the version when you change ``apply``), and when the hub was restored to before the
checkpoint. In that last case the model holds effects of events that do not exist any more, maybe of others
that got the same positions since; nothing can take them back out, so it does not go on from the lowest
position that still holds, but rebuilds. Where a restore lost nothing that was read, it goes on. Meanwhile
readers see a model that grows from nothing: ``checkpoint`` says how far it is.

The file may have other tables and other models of other names. Several runners of one model do no harm: one
that finds the checkpoint moved goes on from where it is.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final

from runtime_agent import limits
from runtime_agent.core.errors import UsageError
from runtime_agent.core.journal_errors import PositionLost
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import JournalEvent, JournalUpdate
from runtime_agent.hub_client.journal_watch import JournalWatch

Reset = Callable[[sqlite3.Connection], None]
Apply = Callable[[sqlite3.Connection, JournalEvent], None]

CREATE: Final = """
-- Up to where each read model of this file has taken in the journal of a hub, and by which definition.
CREATE TABLE IF NOT EXISTS synchub_checkpoint (
    name           TEXT    NOT NULL PRIMARY KEY,
    hub_project    TEXT    NOT NULL,
    event_types    TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    hub_generation TEXT    NOT NULL,
    position       INTEGER NOT NULL CHECK (position >= 0)
) STRICT, WITHOUT ROWID
"""
IS_THERE: Final = """
-- Whether any model was begun in this file.
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'synchub_checkpoint'
"""
LOAD: Final = """
-- Where a read model stands.
SELECT hub_project, event_types, version, hub_generation, position FROM synchub_checkpoint WHERE name = ?
"""
SAVE: Final = """
-- Where a read model stands now, in the transaction of its effects.
INSERT INTO synchub_checkpoint (hub_project, event_types, version, hub_generation, position, name)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET hub_project = excluded.hub_project, event_types = excluded.event_types, version = excluded.version,
    hub_generation = excluded.hub_generation, position = excluded.position
"""
_PRIMARY_CODE: Final = 0xFF
"""The part of an SQLite code that is not the extended one."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Up to where a read model has taken in the journal, and what it was made by.

    ``event_types`` are ascending; none for all.
    """

    hub_project: str
    event_types: tuple[str, ...]
    version: int
    hub_generation: str
    position: int

    def moved_to(self, update: JournalUpdate) -> "Checkpoint":
        """Return where the model stands after an update."""
        return replace(self, hub_generation=update.hub_generation, position=update.progress_position)

    def has_definition_of(self, other: "Checkpoint") -> bool:
        """Say whether both are made by the same functions from the same events."""
        return (self.event_types, self.version) == (other.event_types, other.version)


class ProjectionRunner:
    """Keeps one read model; ``run`` it in a thread or a process of its own."""

    def __init__(
        self,
        hub: HubClient,
        database: "str | PathLike[str]",
        *,
        name: str,
        reset: Reset,
        apply: Apply,
        event_types: Sequence[str] = (),
        version: int = 1,
    ) -> None:
        """Bind what the model is made by; nothing is opened before it runs.

        - ``database``: the file; made where there is none.
        - ``name``: which model of the file it is.
        - ``reset``: makes its empty tables, whatever was there.
        - ``apply``: takes in one event; both get the open transaction.
        - ``event_types``: only events of these types; none for all.
        - ``version``: of the two functions; another one than the checkpoint's begins anew.

        Raises: UsageError where the client names no hub project: the model remembers whose it is.
        """
        if not hub.hub_project:
            raise UsageError("a read model is of one hub project; connect its client with hub_project")
        self._hub = hub
        self._database = database
        self._name = name
        self._reset = reset
        self._apply = apply
        self._origin = Checkpoint(hub.hub_project, tuple(sorted(set(event_types))), version, "", 0)
        self._stopped = threading.Event()
        self._watch: JournalWatch | None = None

    def run(self) -> None:
        """Take in what is stored, then what comes, until ``stop`` is called or the client is closed.

        It waits for a hub that is not there, and for locks of other programs on the file.

        Raises: HubCallError where the hub refuses to be read; UsageError where the file's model is of
        another hub project, or was begun anew by another definition; and what ``reset`` and ``apply`` raise,
        sqlite3's errors among it: then nothing of that update is in the file.
        """
        self._follow(until_head=False)

    def catch_up(self) -> None:
        """Take in all that is stored now, and return. Raises: as ``run``."""
        self._follow(until_head=True)

    def stop(self) -> None:
        """End ``run``, from any other thread; what is taken in stays. Not to be undone.

        A program that is told to end by a signal may simply end: the file is right at any point.
        """
        self._stopped.set()
        watch = self._watch
        if watch is not None:
            watch.close()

    def checkpoint(self) -> Checkpoint | None:
        """Return up to where the model has come; None where it was never begun."""
        if not Path(self._database).exists():
            return None
        with closing(self._open()) as file:
            return self._load(file) if file.execute(IS_THERE).fetchone() else None

    # --- inside ---

    def _follow(self, *, until_head: bool) -> None:
        try:
            with closing(self._open()) as file:
                place: Checkpoint | None = self._in_transaction(file, lambda: self._begin(file))
                while place is not None:
                    place = self._take_in_from(file, place, until_head=until_head)
        except _Stopped:
            pass  # while it waited for a lock of another program

    def _take_in_from(
        self, file: sqlite3.Connection, place: Checkpoint, *, until_head: bool
    ) -> Checkpoint | None:
        """Take in what comes; return where to go on from elsewhere, None at the end."""
        with self._hub.watch_journal(
            event_types=place.event_types,
            after_position=place.position,
            hub_generation=place.hub_generation,
        ) as self._watch:
            # ``stop`` closes the watch that it finds; it may have come before this one.
            if self._stopped.is_set():
                return None
            try:
                for update in self._watch:
                    after = place.moved_to(update)
                    if after != place:
                        stored = self._in_transaction(
                            file, partial(self._take_in, file, update=update, before=place, after=after)
                        )
                        if stored != after:
                            return stored
                        place = after
                    if until_head and not update.events:
                        break
            except PositionLost as lost:
                begin = partial(self._begin, file, lost=place, hub_generation=lost.hub_generation)
                return self._in_transaction(file, begin)
        return None

    def _begin(
        self, file: sqlite3.Connection, *, lost: Checkpoint | None = None, hub_generation: str = ""
    ) -> Checkpoint:
        """Return where the model stands; make it empty where it has to be made, or is at what is lost."""
        file.execute(CREATE)
        found = self._load(file)
        if found is not None:
            self._refuse_other_hub_project(found)
            if found.has_definition_of(self._origin) and found != lost:
                return found
        anew = replace(self._origin, hub_generation=hub_generation)
        with _no_commit(file):
            self._reset(file)
        self._save(file, anew)
        return anew

    def _take_in(
        self, file: sqlite3.Connection, *, update: JournalUpdate, before: Checkpoint, after: Checkpoint
    ) -> Checkpoint:
        """Write the effects of an update, unless another runner moved the model; return where it stands."""
        found = self._load(file)
        if found == before:
            with _no_commit(file):
                for event in update.events:
                    self._apply(file, event)
            self._save(file, after)
            return after
        if found is None or not found.has_definition_of(self._origin):
            raise UsageError(f"the model {self._name!r} was begun anew by another definition of it")
        self._refuse_other_hub_project(found)
        return found

    def _refuse_other_hub_project(self, found: Checkpoint) -> None:
        if found.hub_project != self._origin.hub_project:
            raise UsageError(
                f"the model {self._name!r} is made from hub project {found.hub_project!r}, not from"
                f" {self._origin.hub_project!r}; give it another name or file"
            )

    # --- the file ---

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._database, timeout=limits.PROJECTION_BUSY_SECONDS, isolation_level=None)

    def _in_transaction(self, file: sqlite3.Connection, work: Callable[[], Checkpoint]) -> Checkpoint:
        """Do something in one commit; anew where another program holds the file. Raises: _Stopped."""
        while True:
            try:
                file.execute("BEGIN IMMEDIATE")
                try:
                    result = work()
                    file.execute("COMMIT")
                except BaseException:
                    if file.in_transaction:
                        file.execute("ROLLBACK")
                    raise
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY:
                    raise
                if self._stopped.wait(limits.PROJECTION_RETRY_SECONDS):
                    raise _Stopped from error
            else:
                return result

    def _load(self, file: sqlite3.Connection) -> Checkpoint | None:
        row = file.execute(LOAD, (self._name,)).fetchone()
        if row is None:
            return None
        hub_project, event_types, version, hub_generation, position = row
        return Checkpoint(hub_project, tuple(json.loads(event_types)), version, hub_generation, position)

    def _save(self, file: sqlite3.Connection, place: Checkpoint) -> None:
        types = json.dumps(place.event_types)
        values = (place.hub_project, types, place.version, place.hub_generation, place.position, self._name)
        file.execute(SAVE, values)


class _Stopped(Exception):
    """The runner was stopped while it waited."""


@contextmanager
def _no_commit(file: sqlite3.Connection) -> Iterator[None]:
    """Refuse what would end the transaction: effects and checkpoint are one commit, or none."""

    def authorize(action: int, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

    file.set_authorizer(authorize)
    try:
        yield
    finally:
        file.set_authorizer(None)
