"""A read model whose every row depends on the order of all events before it; ``-m`` runs its runner.

Usage: python -m tests.robustness.read_model HUB DATABASE
"""

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import JournalEvent
from runtime_agent.projection import ProjectionRunner
from tests.robustness.client_load import say
from tests.robustness.programs import HUB_PROJECT

NAME: Final = "chain"
ROWS_AN_EVENT: Final = 12
"""So many statements an event: a kill between two of them is what the test wants."""


class Model(NamedTuple):
    """What a file holds: up to which position, and all rows."""

    position: int
    rows: list[tuple[object, ...]]


def reset(file: sqlite3.Connection) -> None:
    """Make the model empty."""
    file.execute("DROP TABLE IF EXISTS chain")
    file.execute("CREATE TABLE chain (place INTEGER PRIMARY KEY, event_count INTEGER, digest BLOB) STRICT")
    for place in range(ROWS_AN_EVENT):
        file.execute("INSERT INTO chain VALUES (?, 0, x'')", (place,))


def apply(file: sqlite3.Connection, event: JournalEvent) -> None:
    """Fold an event onto each row."""
    for place in range(ROWS_AN_EVENT):
        (digest,) = file.execute("SELECT digest FROM chain WHERE place = ?", (place,)).fetchone()
        values = (folded(digest, event, place=place), place)
        file.execute("UPDATE chain SET event_count = event_count + 1, digest = ? WHERE place = ?", values)


def folded(digest: bytes, event: JournalEvent, *, place: int) -> bytes:
    """Return the digest of a row after an event."""
    facts = f"{place} {event.position} {event.stream_id} {event.revision} {event.event_id}".encode()
    return sha256(digest + facts + event.payload).digest()


def rebuilt(events: list[JournalEvent], positions: Iterable[int]) -> dict[int, list[tuple[object, ...]]]:
    """Return the rows that the events up to each of these positions give, without any database."""
    wanted = set(positions)
    digests = [b""] * ROWS_AN_EVENT
    found: dict[int, list[tuple[object, ...]]] = {}
    for count, event in enumerate([None, *events]):
        if event is not None:
            digests = [folded(digest, event, place=place) for place, digest in enumerate(digests)]
        if (position := 0 if event is None else event.position) in wanted:
            found[position] = [(place, count, digest) for place, digest in enumerate(digests)]
    return found


def stored(database: Path) -> Model | None:
    """Return what a file holds now; None where the model was not begun yet."""
    with closing(sqlite3.connect(database)) as file:
        file.execute("BEGIN")
        if file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'chain'").fetchone() is None:
            return None
        (position,) = file.execute("SELECT position FROM synchub_checkpoint").fetchone()
        return Model(position, file.execute("SELECT * FROM chain ORDER BY place").fetchall())


def runner(hub: HubClient, database: Path) -> ProjectionRunner:
    """Return what keeps the model."""
    return ProjectionRunner(hub, database, name=NAME, reset=reset, apply=apply)


def main() -> None:
    """Keep the model until killed."""
    address, database = sys.argv[1:]
    say("running")
    with HubClient.connect(address, hub_project=HUB_PROJECT) as hub:
        runner(hub, Path(database)).run()


if __name__ == "__main__":
    main()
