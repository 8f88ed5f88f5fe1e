"""Work under a lease whose token stands beside everything that is written, and lose the lease midway.

Run it: ``python docs/examples/lease.py 127.0.0.1:7443`` beside a running ``synchub serve``.

Two workers share one identity, as a program does with itself after it was started anew: the second one's
lease ends the first one's at once. A worker on another machine would wait, or be told who holds it.
"""

import sqlite3
import sys
import threading

from runtime_agent.core.lease_errors import LeaseError, LeaseHeld, LeaseLost
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError

RESOURCE = "garden/watering-plan"
TTL_SECONDS = 2.0

# The token is compared by the statement that writes: a check before it would be too early.
WRITE = """
INSERT INTO plan (resource, fencing_token, text) VALUES (?, ?, ?)
ON CONFLICT (resource) DO UPDATE SET fencing_token = excluded.fencing_token, text = excluded.text
WHERE plan.fencing_token <= excluded.fencing_token
"""


def write(store: sqlite3.Connection, text: str, *, fencing_token: int) -> None:
    """Write the plan under a token, and say what became of it."""
    written = store.execute(WRITE, (RESOURCE, fencing_token, text)).rowcount == 1
    print(f"token {fencing_token} writes {text!r}: {'written' if written else 'refused'}")


def work(hub: HubClient, store: sqlite3.Connection) -> None:
    """Write under a lease that another worker ends meanwhile."""
    is_lost = threading.Event()

    def stop(lost: LeaseLost) -> None:  # called once, on the thread that renews the lease
        print(f"the first worker is told: {lost.reason.name}")
        is_lost.set()

    first = hub.lease(RESOURCE, holder_id="worker", ttl_seconds=TTL_SECONDS, on_lost=stop)
    with first:
        token = first.fencing_token  # taken once, where the work begins
        write(store, "water at noon", fencing_token=token)
        try:
            hub.lease(RESOURCE, holder_id="somebody else").acquire()
        except LeaseHeld as held:
            print(f"somebody else is told: held by {held.holder_display_name}")
        with hub.lease(RESOURCE, holder_id="worker", wait_seconds=5) as second:
            write(store, "water at night", fencing_token=second.fencing_token)
            write(store, "water at noon again", fencing_token=token)
            is_lost.wait(TTL_SECONDS)
            try:
                first.check()
            except LeaseLost as lost:
                print(f"its next check says so too: {lost.reason.name}")


def main() -> None:
    """Work, and explain what went wrong."""
    with sqlite3.connect(":memory:") as store, HubClient.connect(sys.argv[1], hub_project="home") as hub:
        store.execute(
            "CREATE TABLE plan (resource TEXT PRIMARY KEY, fencing_token INTEGER, text TEXT) STRICT"
        )
        try:
            work(hub, store)
        except (LeaseError, HubCallError) as error:
            sys.exit(error.sentence)


if __name__ == "__main__":
    main()
