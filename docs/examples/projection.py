"""A read model in an SQLite file of one's own, kept up to date from the journal, each event counted once.

Run it: ``python docs/examples/projection.py 127.0.0.1:7443 harvest.db`` beside a running ``synchub serve``.
It may be killed at any point and run again: the file always is what the events up to its checkpoint give.
"""

import sqlite3
import sys

from runtime_agent.core.lease_errors import LeaseError
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import JournalEvent, NewJournalEvent
from runtime_agent.projection import ProjectionRunner

STREAM = "garden/harvest"
KILOS = {"apples": 5, "plums": 2, "pears": 3}


def reset(model: sqlite3.Connection) -> None:
    """Make the empty model, whatever there was: called for the first start and each rebuild."""
    model.execute("DROP TABLE IF EXISTS harvest")
    model.execute("CREATE TABLE harvest (fruit TEXT PRIMARY KEY, kilos INTEGER NOT NULL) STRICT")


def apply(model: sqlite3.Connection, event: JournalEvent) -> None:
    """Take in one event. It is added, so that one that came twice would show."""
    kilos = int(event.payload)
    model.execute(
        "INSERT INTO harvest VALUES (?, ?) ON CONFLICT (fruit) DO UPDATE SET kilos = kilos + excluded.kilos",
        (event.correlation_id, kilos),
    )


def harvest(hub: HubClient) -> int:
    """Append an event for each fruit; return the stream's revision."""
    with hub.lease(STREAM, wait_seconds=10) as lease:
        revision = 0
        for event in hub.stream_events(STREAM):
            revision = event.revision
        for fruit, kilos in KILOS.items():
            name = f"{STREAM} {revision + 1}"
            picked = NewJournalEvent(name, "picked", str(kilos).encode(), correlation_id=fruit)
            committed = hub.commit(name, STREAM, lease=lease, expected_revision=revision, events=[picked])
            revision = committed.revision
    return revision


def main() -> None:
    """Harvest, bring the model up to date, and read it."""
    address, database = sys.argv[1:]
    with HubClient.connect(address, hub_project="home") as hub:
        try:
            revision = harvest(hub)
            # ``run`` would go on with what comes; this returns once it has what is stored.
            runner = ProjectionRunner(
                hub, database, name="harvest", reset=reset, apply=apply, event_types=["picked"]
            )
            runner.catch_up()
        except (LeaseError, HubCallError) as error:
            sys.exit(error.sentence)
    model = sqlite3.connect(database)
    for fruit, kilos in model.execute("SELECT fruit, kilos FROM harvest ORDER BY fruit"):
        print(f"{fruit}: {kilos} kg")
    print(f"from {revision} events")
    model.close()


if __name__ == "__main__":
    main()
