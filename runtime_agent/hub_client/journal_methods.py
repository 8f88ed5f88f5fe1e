"""The calls of ``HubClient`` about the journal; ``async_journal_methods.py`` has their twins.

::

    with hub.lease("orders/7", wait_seconds=30) as lease:
        revision = 0
        for event in hub.stream_events("orders/7"):
            revision = event.revision
        hub.commit(
            "pay order 7",
            "orders/7",
            lease=lease,
            expected_revision=revision,
            events=[NewJournalEvent("order 7 paid", "order.paid", b"{}")],
            outbox_messages=[NewOutboxMessage("receipt 7", "mail", b"{}")],
        )

Refusals are the errors of ``core/journal_errors.py``, all others ``HubCallError``. What may be sent twice
is sent again for a while where no hub answers.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from runtime_agent import limits
from runtime_agent.core.watch_place import WatchPlace
from runtime_agent.hub_client import journal_codec as codec
from runtime_agent.hub_client.client_base import BlockingClientBase
from runtime_agent.hub_client.held import Held
from runtime_agent.hub_client.journal_calls import credential_of
from runtime_agent.hub_client.journal_values import (
    ClaimedMessages,
    Committed,
    JournalEvent,
    JournalStream,
    JournalUpdate,
    NewJournalEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxMessage,
    OutboxOutcome,
    OutboxState,
    ReturnedMessage,
    StoredProjection,
)
from runtime_agent.hub_client.journal_watch import JournalWatch
from runtime_agent.hub_client.lease_steps import Steps, run_steps
from runtime_agent.hub_client.lease_values import LeaseCredential
from runtime_agent.hub_client.outbox import Outbox
from runtime_agent.hub_client.outbox_core import OnFailure, OutboxCore, OutboxWish
from synchub.v1 import journal_service_pb2 as pb

Result = TypeVar("Result")


class JournalMethods(BlockingClientBase):
    """What a client does with the journal."""

    # --- writing ---

    def commit(
        self,
        message_id: str,
        stream_id: str,
        *,
        lease: Held | LeaseCredential,
        expected_revision: int,
        events: Sequence[NewJournalEvent] = (),
        outbox_messages: Sequence[NewOutboxMessage] = (),
        projections: Sequence[NewProjection] = (),
        reply: bytes = b"",
        seconds_max: float = limits.COMMIT_SECONDS_MAX,
    ) -> Committed:
        """Append to a stream, all of it or nothing, once a message id; it is on stable storage then.

        - ``message_id``: makes the commit happen once, for ever. Give the same one, with the same content and
          expected revision, when it is tried again: then its stored result comes, whoever has the lease now.
        - ``lease``: of the resource of the stream's name, or its credential. The hub checks it in the same
          transaction; this side does not ask itself first, so that a result is found after a loss too.
        - ``expected_revision``: where the stream was when this was decided; 0 for one without events.
        - ``reply``: kept with the commit and given back by it.
        - ``seconds_max``: how long it is sent again where no hub answers. What is raised then says nothing
          about whether it happened; the same call with the same message id does.

        Raises: StaleLease, RevisionConflict, IdempotencyConflict, HubCallError; LeaseNotHeld where the
        lease never was acquired.
        """
        steps = self._journal.commit(
            credential_of(lease),
            message_id=message_id,
            stream_id=stream_id,
            expected_revision=expected_revision,
            events=events,
            outbox_messages=outbox_messages,
            projections=projections,
            reply=reply,
            seconds_max=seconds_max,
        )
        return self._run(steps)

    # --- reading ---

    def stream_events(
        self,
        stream_id: str,
        *,
        after_revision: int = 0,
        through_revision: int = 0,
        lease: Held | LeaseCredential | None = None,
    ) -> Iterator[JournalEvent]:
        """Yield the events of a stream, ascending by revision, page by page.

        It ends at the revision that the stream had at the first page, or at ``through_revision`` where that
        is not 0; what is appended meanwhile is not in it. With a lease each page is refused unless the lease
        is current: then whoever reads may write. Raises: StaleLease, HubCallError.
        """
        request = codec.stream_events_request(
            self._hub_project,
            stream_id,
            after_revision=after_revision,
            through_revision=through_revision,
            credential=None if lease is None else credential_of(lease),
        )
        while True:
            page = self._run(self._journal.stream_page(request))
            yield from map(codec.journal_event_from_proto, page.events)
            if page.done:
                return
            request.after_revision, request.through_revision = page.next_revision, page.through_revision

    def list_streams(self, *, prefix: str = "", event_type: str = "") -> Iterator[JournalStream]:
        """Yield streams, ascending by the bytes of their ids; those with an event of a type only, if given.

        ``prefix`` is what an id begins with; it knows no wildcards.
        """
        request = pb.ListStreamsRequest(
            hub_project=self._hub_project, stream_id_prefix=prefix, event_type=event_type
        )
        while True:
            page = self._run(self._journal.streams_page(request))
            yield from map(codec.stream_from_proto, page.streams)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def get_projection(self, projection_id: str) -> StoredProjection:
        """Return a projection as it was last committed. The reason is NOT_FOUND where there is none."""
        return self._run(self._journal.projection(projection_id))

    def list_journal(
        self, *, event_types: Sequence[str] = (), after_position: int = 0, hub_generation: str = ""
    ) -> Iterator[JournalUpdate]:
        """Yield the events of all streams by position, a page at a time, up to the head.

        A position above 0 goes with the generation that it was received under. Raises: PositionLost where
        the hub was restored to before it, HubCallError.
        """
        request = pb.ListJournalRequest(
            hub_project=self._hub_project,
            event_types=event_types,
            after_position=after_position,
            hub_generation=hub_generation,
        )
        while True:
            page = self._run(self._journal.journal_page(request))
            yield codec.journal_page_from_proto(page)
            if page.done:
                return
            request.after_position, request.hub_generation = page.next_position, page.hub_generation

    def watch_journal(
        self,
        *,
        event_types: Sequence[str] = (),
        after_position: int = 0,
        hub_generation: str = "",
        from_now: bool = False,
    ) -> JournalWatch:
        """Return an iterator over the events of all streams: first what is stored, then live, without end.

        It connects again by itself, and no event is left out or comes twice. The first update without events
        says that everything stored was told; then one comes every 10 s at least. To go on in another
        program, give the last ``progress_position`` and ``hub_generation``. With ``from_now`` it begins
        where its first update says. Close it to end it. Raises while iterated: PositionLost, HubCallError.
        """
        place = WatchPlace(hub_generation, after_position, from_now)
        watch = JournalWatch(self._addresses, self._journal, event_types=event_types, place=place)
        self._close_later(watch)
        return watch

    # --- the outbox ---

    def outbox(
        self,
        destination: str,
        *,
        visibility_seconds: float = limits.OUTBOX_VISIBILITY_SECONDS,
        in_flight_max: int = limits.OUTBOX_IN_FLIGHT_MAX,
        retry_seconds_first: float = limits.OUTBOX_RETRY_SECONDS_FIRST,
        retry_seconds_max: float = limits.OUTBOX_RETRY_SECONDS_MAX,
        on_failure: OnFailure | None = None,
    ) -> Outbox:
        """Return an iterator over the messages of a destination, to be delivered; see ``async_outbox.py``.

        - ``visibility_seconds``: how long a message is hidden from others; longer than it takes to deliver.
        - ``in_flight_max``: most messages that are claimed and not answered.
        - ``retry_seconds_first``, ``retry_seconds_max``: a message that failed is left alone for a time
          between 0 and a ceiling that begins with the first and doubles with each try up to the second.
        - ``on_failure``: told each message with the error that its block raised; what it raises itself ends
          the loop.

        Raises: UsageError.
        """
        wish = OutboxWish(
            destination,
            visibility_seconds=visibility_seconds,
            in_flight_max=in_flight_max,
            retry_seconds_first=retry_seconds_first,
            retry_seconds_max=retry_seconds_max,
            on_failure=on_failure,
        )
        outbox = Outbox(OutboxCore(self._journal, wish))
        self._close_later(outbox)
        return outbox

    def list_outbox(
        self, *, destination: str = "", state: OutboxState | None = None
    ) -> Iterator[OutboxMessage]:
        """Yield outbox messages by availability, creation and id; all but delivered ones without a state."""
        request = self._journal.outbox_request(destination, state)
        while True:
            page = self._run(self._journal.outbox_page(request))
            yield from map(codec.outbox_message_from_proto, page.messages)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def claim_outbox(
        self,
        destination: str,
        *,
        visibility_seconds: float = limits.OUTBOX_VISIBILITY_SECONDS,
        count_max: int = limits.OUTBOX_CLAIM_MAX,
    ) -> ClaimedMessages:
        """Claim messages, one try each; they are hidden from others for the visibility time.

        It is sent once: what a lost answer had claimed becomes available after that time.
        """
        return self._run(
            self._journal.claim(destination, visibility_seconds=visibility_seconds, count_max=count_max)
        )

    def acknowledge_outbox(self, outbox_id: str, claim_id: str) -> OutboxOutcome:
        """Say that a claimed message was delivered; a second time says so and changes nothing."""
        return self._run(self._journal.acknowledge(outbox_id, claim_id))

    def return_outbox(self, outbox_id: str, claim_id: str, *, delay_seconds: float = 0.0) -> ReturnedMessage:
        """Give a claimed message back, to be tried again after a delay, at most a day; or dead by now."""
        return self._run(self._journal.give_back(outbox_id, claim_id, delay_seconds=delay_seconds))

    def release_outbox(self, outbox_id: str) -> OutboxMessage:
        """Let a dead message be tried anew, its tries counted from 0; any other stays as it is."""
        return self._run(self._journal.release(outbox_id))

    def _run(self, steps: Steps[Result]) -> Result:
        return run_steps(steps, self._journal.channel)
