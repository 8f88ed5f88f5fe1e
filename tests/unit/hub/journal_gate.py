"""The journal over a real store beside its leases, with writer, loop and clock in the hands of a test."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from hub.core.journal import Commit, StreamId, stream_resource
from hub.core.journal_selection import JournalEvent, OutboxFilter
from hub.core.limits import Limits
from hub.core.outbox import OutboxMessage, OutboxState
from hub.core.selection import PageBounds
from hub.core.tenure import Claim, Credential, Tenure, hash_of_nonce
from hub.service.instruments import NoInstruments
from hub.service.journal import Claimed, Committed, Journal
from hub.service.journal_reads import JournalReads
from hub.service.journal_watch import JournalWatches
from hub.service.rates import HubRates
from hub.store.contract import Changes
from tests.unit.hub.journal_values import MINUTE, credential_of, holder_of
from tests.unit.hub.lease_gate import LeaseGate
from tests.unit.hub.stored_runs import WALL_NANOS

EVERYTHING = PageBounds(100_000, 1 << 40)


class JournalGate(LeaseGate):
    """One life of a hub's journal and leases over the store in a folder."""

    def __init__(self, folder: Path, *, limits: Limits | None = None, wall_nanos: int = WALL_NANOS) -> None:
        self.claim_numbers = count(1)
        self.changes: list[Changes] = []
        self.loses_announcements = False
        """Whether commits are not announced, as one whose outcome was unknown."""
        super().__init__(folder, limits=limits, wall_nanos=wall_nanos)

    def _make_services(self) -> None:
        super()._make_services()
        self.journal = Journal(
            self.async_writer,
            rates=HubRates(limits=self.limits, instruments=NoInstruments(), monotonic_seconds=self.loop.time),
            limits=self.limits,
            new_claim_id=lambda: f"claim-{next(self.claim_numbers)}",
            credential_nanos=self.clock.now,
        )
        self.journal_reads = JournalReads(self.readers, self.async_writer, now_nanos=self.clock.now)
        self.journal_watches = JournalWatches(
            self.readers, limits=self.limits, monotonic_seconds=self.loop.time
        )

    def _announce(self, changes: Changes) -> None:
        self.changes.append(changes)
        super()._announce(changes)
        if not self.loses_announcements:
            self.journal_watches.announce(changes)

    # --- short ways ---

    def acquire(
        self, stream: str = "s", holder: str = "a", *, nonce: str = "nonce", ttl_nanos: int = MINUTE
    ) -> Tenure:
        claim = Claim(holder_of(holder), hash_of_nonce(nonce), ttl_nanos)
        name = stream_resource(StreamId(stream))
        answer = self.answer(self.leases.acquire(self.caller, name, claim=claim, repeat=None, wait_nanos=0))
        return answer.tenure

    def credential(
        self, stream: str = "s", holder: str = "a", *, nonce: str = "nonce", ttl_nanos: int = MINUTE
    ) -> Credential:
        """The credential of a lease that is acquired for it."""
        token = self.acquire(stream, holder, nonce=nonce, ttl_nanos=ttl_nanos).fencing_token
        return credential_of(stream, holder, nonce=nonce, token=token)

    def commit(self, commit: Commit) -> Committed:
        return self.answer(self.journal.commit(self.caller, commit, bytes_count=1))

    def claim(
        self,
        destination: str = "d",
        *,
        visible_nanos: int = MINUTE,
        entries_max: int = 100,
        bytes_max: int = 1 << 30,
    ) -> Claimed:
        return self.answer(
            self.journal.claim(
                self.caller,
                destination,
                visible_nanos=visible_nanos,
                entries_max=entries_max,
                bytes_max=bytes_max,
            )
        )

    def events(self) -> Sequence[JournalEvent]:
        """All events of the journal by position."""
        with self.store.reading() as transaction:
            return transaction.journal.events_after(
                self.caller.hub_project, after_position=0, event_types=(), bounds=EVERYTHING
            ).events

    def messages(
        self, state: OutboxState | None = None, destination: str | None = None
    ) -> Sequence[OutboxMessage]:
        """All outbox messages in a state, in their order."""
        outbox_filter = OutboxFilter(destination, state)
        page = self.answer(
            self.journal_reads.outbox_messages(self.caller, outbox_filter, after=None, bounds=EVERYTHING)
        )
        assert page.next_place is None
        return page.messages
