"""The calls of ``AsyncHubClient`` about the journal: those of ``journal_methods.py``, explained there."""

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from runtime_agent import limits
from runtime_agent.core.watch_place import WatchPlace
from runtime_agent.hub_client import journal_codec as codec
from runtime_agent.hub_client.async_outbox import AsyncOutbox
from runtime_agent.hub_client.client_base import AwaitedClientBase
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
from runtime_agent.hub_client.journal_watch import AsyncJournalWatch
from runtime_agent.hub_client.lease_steps import Steps, run_steps_async
from runtime_agent.hub_client.lease_values import LeaseCredential
from runtime_agent.hub_client.outbox_core import OnFailure, OutboxCore, OutboxWish
from synchub.v1 import journal_service_pb2 as pb

Result = TypeVar("Result")


class AsyncJournalMethods(AwaitedClientBase):
    """What a client does with the journal."""

    # --- writing ---

    async def commit(
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
        """Append to a stream, all of it or nothing, once a message id; it is on stable storage then."""
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
        return await self._run(steps)

    # --- reading ---

    async def stream_events(
        self,
        stream_id: str,
        *,
        after_revision: int = 0,
        through_revision: int = 0,
        lease: Held | LeaseCredential | None = None,
    ) -> AsyncIterator[JournalEvent]:
        """Yield the events of a stream up to the revision that it had at the first page."""
        request = codec.stream_events_request(
            self._hub_project,
            stream_id,
            after_revision=after_revision,
            through_revision=through_revision,
            credential=None if lease is None else credential_of(lease),
        )
        while True:
            page = await self._run(self._journal.stream_page(request))
            for each in page.events:
                yield codec.journal_event_from_proto(each)
            if page.done:
                return
            request.after_revision, request.through_revision = page.next_revision, page.through_revision

    async def list_streams(self, *, prefix: str = "", event_type: str = "") -> AsyncIterator[JournalStream]:
        """Yield streams, ascending by the bytes of their ids."""
        request = pb.ListStreamsRequest(
            hub_project=self._hub_project, stream_id_prefix=prefix, event_type=event_type
        )
        while True:
            page = await self._run(self._journal.streams_page(request))
            for each in page.streams:
                yield codec.stream_from_proto(each)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def get_projection(self, projection_id: str) -> StoredProjection:
        """Return a projection as it was last committed. The reason is NOT_FOUND where there is none."""
        return await self._run(self._journal.projection(projection_id))

    async def list_journal(
        self, *, event_types: Sequence[str] = (), after_position: int = 0, hub_generation: str = ""
    ) -> AsyncIterator[JournalUpdate]:
        """Yield the events of all streams by position, a page at a time, up to the head."""
        request = pb.ListJournalRequest(
            hub_project=self._hub_project,
            event_types=event_types,
            after_position=after_position,
            hub_generation=hub_generation,
        )
        while True:
            page = await self._run(self._journal.journal_page(request))
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
    ) -> AsyncJournalWatch:
        """Return an iterator over the events of all streams, without end; see ``journal_watch.py``."""
        place = WatchPlace(hub_generation, after_position, from_now)
        watch = AsyncJournalWatch(self._addresses, self._journal, event_types=event_types, place=place)
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
    ) -> AsyncOutbox:
        """Return an iterator over the messages of a destination, to be delivered; see ``async_outbox.py``."""
        wish = OutboxWish(
            destination,
            visibility_seconds=visibility_seconds,
            in_flight_max=in_flight_max,
            retry_seconds_first=retry_seconds_first,
            retry_seconds_max=retry_seconds_max,
            on_failure=on_failure,
        )
        outbox = AsyncOutbox(OutboxCore(self._journal, wish))
        self._close_later(outbox)
        return outbox

    async def list_outbox(
        self, *, destination: str = "", state: OutboxState | None = None
    ) -> AsyncIterator[OutboxMessage]:
        """Yield outbox messages by availability, creation and id; all but delivered ones without a state."""
        request = self._journal.outbox_request(destination, state)
        while True:
            page = await self._run(self._journal.outbox_page(request))
            for each in page.messages:
                yield codec.outbox_message_from_proto(each)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def claim_outbox(
        self,
        destination: str,
        *,
        visibility_seconds: float = limits.OUTBOX_VISIBILITY_SECONDS,
        count_max: int = limits.OUTBOX_CLAIM_MAX,
    ) -> ClaimedMessages:
        """Claim messages, one try each; they are hidden from others for the visibility time."""
        return await self._run(
            self._journal.claim(destination, visibility_seconds=visibility_seconds, count_max=count_max)
        )

    async def acknowledge_outbox(self, outbox_id: str, claim_id: str) -> OutboxOutcome:
        """Say that a claimed message was delivered; a second time says so and changes nothing."""
        return await self._run(self._journal.acknowledge(outbox_id, claim_id))

    async def return_outbox(
        self, outbox_id: str, claim_id: str, *, delay_seconds: float = 0.0
    ) -> ReturnedMessage:
        """Give a claimed message back, to be tried again after a delay, at most a day; or dead by now."""
        return await self._run(self._journal.give_back(outbox_id, claim_id, delay_seconds=delay_seconds))

    async def release_outbox(self, outbox_id: str) -> OutboxMessage:
        """Let a dead message be tried anew, its tries counted from 0; any other stays as it is."""
        return await self._run(self._journal.release(outbox_id))

    async def _run(self, steps: Steps[Result]) -> Result:
        return await run_steps_async(steps, self._journal.channel)
