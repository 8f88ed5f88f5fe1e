"""A worker of ``synchub demo``: it writes to a table under a lease, as docs/fencing.md tells.

``python -m runtime_agent.demo_worker HUB HUB_PROJECT RESOURCE TABLE_FILE HOLDER``. It does what the lines
of its standard input say, ``acquire`` or ``write``, and answers each by a line of JSON. It writes without
asking whether it still has its lease: that is what a write is that was under way when its program froze.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.lease import Lease

TTL_SECONDS: Final = 1.0
"""The shortest that a hub grants, so that the demo is quick."""
WAIT_SECONDS_MAX: Final = 30.0

TABLE: Final = """
CREATE TABLE IF NOT EXISTS document
(resource TEXT PRIMARY KEY, fencing_token INTEGER NOT NULL, writer TEXT NOT NULL) STRICT
"""
WRITE: Final = """
INSERT INTO document (resource, fencing_token, writer) VALUES (:resource, :token, :writer)
ON CONFLICT (resource) DO UPDATE SET fencing_token = excluded.fencing_token, writer = excluded.writer
WHERE document.fencing_token <= excluded.fencing_token
"""


class Worker:
    """One holder of the lease."""

    def __init__(self, lease: Lease, table: Path) -> None:
        """Nothing is held yet."""
        self._lease = lease
        self._table = table

    def do(self, what: str) -> dict[str, int | bool]:
        """Do what a line says; return the answer."""
        if what == "acquire":
            self._lease.acquire()
            return {"token": self._lease.fencing_token}
        token = self._lease.fencing_token
        return {"token": token, "is_written": self._write(token), "is_lost": self._is_lost()}

    def _write(self, token: int) -> bool:
        with closing(sqlite3.connect(self._table)) as database, database:
            database.execute(TABLE)
            row = {"resource": self._lease.resource, "token": token, "writer": self._lease.holder_id}
            return database.execute(WRITE, row).rowcount == 1

    def _is_lost(self) -> bool:
        try:
            self._lease.check()
        except LeaseLost:
            return True
        return False


def main() -> None:
    """Do what is said until there is nothing more."""
    hub_address, hub_project, resource, table, holder = sys.argv[1:]
    with HubClient.connect(hub_address, hub_project=hub_project) as hub:
        lease = hub.lease(
            resource,
            runtime_id="demo-runtime",
            holder_id=holder,
            ttl_seconds=TTL_SECONDS,
            wait_seconds=WAIT_SECONDS_MAX,
            margin_seconds=TTL_SECONDS / 10,
        )
        worker = Worker(lease, Path(table))
        for line in sys.stdin:
            print(json.dumps(worker.do(line.strip())), flush=True)
        lease.release()


if __name__ == "__main__":
    main()
