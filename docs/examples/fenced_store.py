"""A table that refuses an older fencing token in the same statement as the write. Nothing but SQLite.

Run it: ``python docs/examples/fenced_store.py``. It plays what docs/fencing.md tells: a holder is paused
between its check and its write, another takes over, and the first one wakes up.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

TABLES = """
CREATE TABLE document (resource TEXT PRIMARY KEY, fencing_token INTEGER NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE fence (resource TEXT PRIMARY KEY, fencing_token INTEGER NOT NULL) STRICT;
CREATE TABLE entry (resource TEXT NOT NULL, text TEXT NOT NULL) STRICT;
"""

# The row is written where its token is not larger than ours: comparison and write are one statement.
WRITE = """
INSERT INTO document (resource, fencing_token, text) VALUES (:resource, :token, :text)
ON CONFLICT (resource) DO UPDATE SET fencing_token = excluded.fencing_token, text = excluded.text
WHERE document.fencing_token <= excluded.fencing_token
"""

# Where one lease protects many rows, it has one fence, raised first in the transaction that writes.
RAISE_FENCE = """
INSERT INTO fence (resource, fencing_token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET fencing_token = excluded.fencing_token
WHERE fence.fencing_token <= excluded.fencing_token
"""


class StaleToken(Exception):
    """A larger token has written already: this holder's lease is over. Nothing was changed."""


class FencedStore:
    """What a lease protects. It knows no clock and no hub: it compares numbers."""

    def __init__(self, path: str) -> None:
        """Open a new store."""
        # Transactions begin and end where this text says so, nowhere else.
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(TABLES)

    def write(self, resource: str, *, token: int, text: str) -> None:
        """Write one row under a token. Raises: StaleToken."""
        written = self._database.execute(WRITE, {"resource": resource, "token": token, "text": text})
        if written.rowcount == 0:
            raise StaleToken

    @contextmanager
    def writing(self, resource: str, *, token: int) -> Iterator[sqlite3.Connection]:
        """Give a transaction that reads and writes anything under a token. Raises: StaleToken.

        The fence is raised before anything is read: from then on no older holder changes what was read.
        """
        self._database.execute("BEGIN IMMEDIATE")
        try:
            raised = self._database.execute(RAISE_FENCE, {"resource": resource, "token": token})
            if raised.rowcount == 0:
                raise StaleToken
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def is_current(self, resource: str, *, token: int) -> bool:
        """Say whether no larger token has written. Good for display; too early to protect a write."""
        query = "SELECT NOT EXISTS (SELECT 1 FROM document WHERE resource = ? AND fencing_token > ?)"
        return bool(self._database.execute(query, (resource, token)).fetchone()[0])

    def write_without_token(self, resource: str, *, text: str) -> None:
        """Write as stores do that know no tokens."""
        self._database.execute("UPDATE document SET text = ? WHERE resource = ?", (text, resource))

    def text(self, resource: str) -> str:
        """Return what is written."""
        query = "SELECT text FROM document WHERE resource = ?"
        return str(self._database.execute(query, (resource,)).fetchone()[0])


def main() -> None:
    """Tell the story of two holders."""
    store = FencedStore(":memory:")
    store.write("report", token=1, text="first draft")
    print(f"the first holder checks token 1: {'current' if store.is_current('report', token=1) else 'old'}")
    # Here the first holder is paused, longer than its lease. The hub gives the second one token 2.
    store.write("report", token=2, text="final text")
    print(f"the second holder writes with token 2: {store.text('report')!r}")
    # The first holder wakes up. It has checked, so it writes.
    try:
        store.write("report", token=1, text="old text")
    except StaleToken:
        print(f"the first holder writes with token 1: refused, still {store.text('report')!r}")
    with store.writing("log", token=2) as database:
        database.execute("INSERT INTO entry VALUES ('log', 'published')")
    try:
        with store.writing("log", token=1) as database:
            database.execute("INSERT INTO entry VALUES ('log', 'published again')")
    except StaleToken:
        print("its transaction over many rows: refused, nothing of it is stored")
    store.write_without_token("report", text="old text")
    print(f"the same write into a table without tokens: {store.text('report')!r}, and nobody is told")


if __name__ == "__main__":
    main()
