"""What an engine must give the store: one connection that runs named statements.

Parameters are given in the order in which their names first stand in the statement, or by name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

SqlValue = int | float | str | bytes | None
"""What a column holds."""
Row = tuple[SqlValue, ...]
"""A row as an engine gives it; the store knows the columns of each statement."""
Parameters = Sequence[SqlValue] | Mapping[str, SqlValue]


class DiskRoom(NamedTuple):
    """Bytes that can still be stored, and how many of them are to be kept in reserve."""

    room_bytes: int
    reserve_bytes: int

    @property
    def is_low(self) -> bool:
        """Whether only the reserve is left."""
        return self.room_bytes < self.reserve_bytes


class Session(Protocol):
    """One connection, used by one thread at a time.

    Every method raises StorageUnavailable where the engine cannot do it now (disk full, I/O error,
    locked); the transaction is then to be given up with ``rollback`` or ``close``.
    """

    def begin_writing(self) -> None:
        """Begin a transaction that writes; waits at most the busy timeout for another writer."""

    def begin_reading(self) -> None:
        """Begin a transaction that sees one state of the store until it ends."""

    def commit(self) -> None:
        """Make the transaction durable. Where it raises, the outcome is unknown: ``close`` then."""

    def rollback(self) -> None:
        """Undo the transaction; never raises."""

    def set_savepoint(self) -> None:
        """Mark a point within the transaction to which ``undo_to_savepoint`` returns."""

    def release_savepoint(self) -> None:
        """Keep what was done since the savepoint."""

    def undo_to_savepoint(self) -> None:
        """Undo what was done since the savepoint."""

    def fetch(self, statement: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Run the named statement and give its rows as they are read."""

    def fetch_composed(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Run a statement composed of named fragments (``fragment``) and give its rows."""

    def fragment(self, name: str) -> str:
        """Return the SQL of a named statement or fragment."""

    def run(self, statement: str, parameters: Parameters = ()) -> None:
        """Run the named statement; rows are not given."""

    def run_many(self, statement: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run the named statement once for each row of parameters."""

    def run_bulk(
        self, statement: str, shared: Sequence[SqlValue], *, rows: Sequence[Sequence[SqlValue]]
    ) -> None:
        """Insert rows by the named bulk statement, in the engine's fastest way, in their order.

        ``shared`` are the values that all rows share; the engine's file says which a row begins with.
        """

    def changed_count(self) -> int:
        """Return how many rows the last writing statement changed."""

    def disk_room(self, reserve_bytes: int) -> DiskRoom | None:
        """Return how much room there is, with a reserve of so many bytes, on a small disk of a part of it.

        Room that is free within the store counts; where there is more than enough, not all of it is
        counted. None where nobody can tell. Outside a transaction.
        """

    def make_room(self) -> None:
        """Give back to the disk what the engine holds of it without need; never raises nor waits for others.

        Outside a transaction.
        """

    def close(self) -> None:
        """Close the connection; an open transaction is undone. Never raises."""
