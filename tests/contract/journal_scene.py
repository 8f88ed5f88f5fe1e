"""A hub project with something of everything in its journal, and whether anything of it changed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from synchub.channel import Refusal
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import LeaseCredential
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import (
    Everything,
    claim,
    commit,
    commit_request,
    everything,
    leased,
    new_event,
    new_message,
    projection,
)

JOURNAL_TABLES: Final = (
    "stream",
    "journal_commit",
    "journal_event",
    "stream_event_type",
    "outbox",
    "projection",
)
"""All that a commit or an answer about a message writes beside the counters of the hub project."""
COUNTERS: Final = """
    SELECT hub_project_key, journal_head_position, outbox_ordinal FROM hub_project WHERE hub_project = ?
"""

Row = tuple[object, ...]


class State(NamedTuple):
    """All that there is in the journal: as it is read by calls, and as rows."""

    seen: Everything
    projections: list[messages.Projection]
    rows: dict[str, list[Row]]


@dataclass
class Scene:
    """A hub project with two streams, each under a lease, with something of everything in it.

    Stream ``s`` is at revision 2 by commit ``m1``, stream ``other`` at 1 by ``mx``. Of the messages ``o1``
    is claimed, ``o2`` is pending and ``ox`` is of the other stream.
    """

    journal: JournalServiceStub
    leases: LeaseServiceStub
    hub_project: str
    database: Path
    credential: LeaseCredential = field(init=False)
    other: LeaseCredential = field(init=False)
    first: messages.CommitRequest = field(init=False)
    claimed: messages.ClaimedOutboxMessage = field(init=False)

    def __post_init__(self) -> None:
        self.credential = leased(self.leases, self.hub_project)
        self.other = leased(self.leases, self.hub_project, "other", holder_id="x", secret="x1")
        self.first = commit_request(
            self.hub_project,
            self.credential,
            events=[new_event("e1", payload=b"one"), new_event("e2", correlation_id="c")],
            outbox_messages=[new_message("o1"), new_message("o2", event_id="e1")],
            projections=[messages.NewProjection(projection_id="p1", value=b"v")],
            reply=b"reply",
        )
        commit(self.journal, self.first)
        other = commit_request(
            self.hub_project,
            self.other,
            message_id="mx",
            stream_id="other",
            events=[new_event("x1")],
            outbox_messages=[new_message("ox", "elsewhere")],
            projections=[messages.NewProjection(projection_id="px", value=b"x")],
        )
        commit(self.journal, other)
        (self.claimed,) = claim(self.journal, self.hub_project, max_count=1, visible=600).messages

    def next(self) -> messages.CommitRequest:
        """A commit that would be accepted, with something of everything."""
        return commit_request(
            self.hub_project,
            self.credential,
            message_id="m2",
            expected_revision=2,
            events=[new_event("e3"), new_event("e4")],
            outbox_messages=[new_message("o3", event_id="e3"), new_message("o4", event_id="x1")],
            projections=[
                messages.NewProjection(projection_id="p1"),
                messages.NewProjection(projection_id="p2"),
            ],
        )

    def state(self) -> State:
        """Return all that there is now."""
        projections = [projection(self.journal, self.hub_project, name) for name in ("p1", "px")]
        return State(everything(self.journal, self.hub_project), projections, self._rows())

    def _rows(self) -> dict[str, list[Row]]:
        """Return the rows of the hub project, whether a call reads them or not."""
        connection = apsw.Connection(str(self.database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            with connection:
                (counters,) = connection.execute(COUNTERS, (self.hub_project,)).fetchall()
                rows: dict[str, list[Row]] = {"counters": [counters]}
                for table in JOURNAL_TABLES:
                    statement = f"SELECT * FROM {table} WHERE hub_project_key = ? ORDER BY 1, 2, 3"
                    rows[table] = connection.execute(statement, counters[:1]).fetchall()
        finally:
            connection.close()
        assert all(rows.values())
        return rows

    def refused(self, call: Callable[[], object]) -> Refusal:
        """What a call is refused with; nothing may have changed by it."""
        before = self.state()
        refusal = refusal_of(call)
        assert self.state() == before
        return refusal

    def refused_commit(self, request: messages.CommitRequest) -> Refusal:
        return self.refused(lambda: commit(self.journal, request))
