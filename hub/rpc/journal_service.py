"""JournalService: streams that many share under a lease. Each call is checked, handed on, and answered."""

from typing import TypeVar

import grpc.aio

from hub.core.journal import OutboxId, ProjectionId, StreamId
from hub.core.journal_selection import OutboxFilter, OutboxPlace
from hub.core.limits import Limits
from hub.core.selection import PageBounds
from hub.rpc.codec_journal import (
    add_journal_events_to_proto,
    claimed_to_proto,
    commit_from_proto,
    committed_to_proto,
    delay_nanos_from_proto,
    journal_query_from_proto,
    outbox_message_to_proto,
    outbox_outcome_to_proto,
    outbox_state_from_proto,
    outbox_state_to_proto,
    projection_to_proto,
    stream_query_from_proto,
    stream_to_proto,
    visible_nanos_from_proto,
)
from hub.rpc.identity import caller_of
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck, page_token_after
from hub.rpc.streams import WatchStream, write_answer
from hub.service.journal import Journal
from hub.service.journal_reads import JournalReads
from hub.service.journal_watch import JournalWatches
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceServicer

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]


class JournalService(JournalServiceServicer):
    """Serves the calls of the service."""

    def __init__(
        self,
        journal: Journal,
        *,
        reads: JournalReads,
        watches: JournalWatches,
        open_streams: OpenStreams,
        limits: Limits,
    ) -> None:
        """Bind the use cases."""
        self._journal = journal
        self._reads = reads
        self._watches = watches
        self._open_streams = open_streams
        self._limits = limits

    # --- streams ---

    async def Commit(  # noqa: N802
        self,
        request: messages.CommitRequest,
        context: Context[messages.CommitRequest, messages.CommitResponse],
    ) -> messages.CommitResponse:
        """Store all of a commit or nothing, once a message id."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        commit = commit_from_proto(request, self._limits, check=check)
        committed = await self._journal.commit(caller, commit, bytes_count=request.ByteSize())
        return committed_to_proto(committed)

    async def ListStreamEvents(  # noqa: N802
        self,
        request: messages.ListStreamEventsRequest,
        context: Context[messages.ListStreamEventsRequest, messages.ListStreamEventsResponse],
    ) -> messages.ListStreamEventsResponse:
        """Return a page of a stream."""
        check = RequestCheck(self._limits)
        caller = caller_of(
            context, request.hub_project, check=check, runtime_id=request.credential.runtime_id
        )
        query = stream_query_from_proto(request, check)
        bounds = self._event_bounds(check.journal_page_size(request.page_size))
        check.refuse_violations()
        page = await self._reads.stream_events(caller, query, bounds=bounds)
        response = messages.ListStreamEventsResponse(
            next_revision=page.next_revision, through_revision=page.through_revision, done=page.is_done
        )
        add_journal_events_to_proto(response.events, page.events, payload_as_text=request.payload_as_text)
        return response

    async def ListStreams(  # noqa: N802
        self,
        request: messages.ListStreamsRequest,
        context: Context[messages.ListStreamsRequest, messages.ListStreamsResponse],
    ) -> messages.ListStreamsResponse:
        """Return a page of streams."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.prefix("stream_id_prefix", request.stream_id_prefix)
        if request.event_type:
            check.event_type("event_type", request.event_type)
        entries_max = check.stream_page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=1)
        check.refuse_violations()
        # One too many, so that the last page is known as such.
        view = await self._reads.streams(
            caller,
            prefix=request.stream_id_prefix,
            event_type=request.event_type or None,
            after=None if key is None else StreamId(key[0]),
            entries_max=entries_max + 1,
        )
        response = messages.ListStreamsResponse(
            streams=[stream_to_proto(stream, view.now_nanos) for stream in view.streams[:entries_max]]
        )
        if len(view.streams) > entries_max:
            response.next_page_token = page_token_after(request, response.streams[-1].stream_id)
        return response

    async def GetProjection(  # noqa: N802
        self,
        request: messages.GetProjectionRequest,
        context: Context[messages.GetProjectionRequest, messages.GetProjectionResponse],
    ) -> messages.GetProjectionResponse:
        """Return one projection."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("projection_id", request.projection_id)
        check.refuse_violations()
        projection = await self._reads.projection(caller, ProjectionId(request.projection_id))
        return messages.GetProjectionResponse(projection=projection_to_proto(projection))

    # --- the journal over all streams ---

    async def ListJournal(  # noqa: N802
        self,
        request: messages.ListJournalRequest,
        context: Context[messages.ListJournalRequest, messages.ListJournalResponse],
    ) -> messages.ListJournalResponse:
        """Return a page of the journal."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        query = journal_query_from_proto(request, self._limits, check=check)
        bounds = self._event_bounds(check.journal_page_size(request.page_size))
        check.refuse_violations()
        page = await self._reads.journal(caller, query, bounds=bounds)
        response = messages.ListJournalResponse(
            next_position=page.next_position, hub_generation=page.hub_generation, done=page.is_done
        )
        add_journal_events_to_proto(response.events, page.events, payload_as_text=request.payload_as_text)
        return response

    async def WatchJournal(  # type: ignore[override]  # noqa: N802
        self,
        request: messages.WatchJournalRequest,
        context: Context[messages.WatchJournalRequest, messages.WatchJournalResponse],
    ) -> None:
        """Stream events of the journal by position, stored ones and live ones."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        query = journal_query_from_proto(request, self._limits, check=check)
        check.refuse_violations()
        with WatchStream(self._open_streams, method="WatchJournal"):
            async with self._watches.watching(caller, query) as watch:
                while True:
                    answer = await watch.next_answer()
                    response = messages.WatchJournalResponse(
                        progress_position=answer.progress_position, hub_generation=watch.hub_generation
                    )
                    add_journal_events_to_proto(response.events, answer.events)
                    await write_answer(context, response, limits=self._limits)

    # --- the outbox ---

    async def ListOutboxMessages(  # noqa: N802
        self,
        request: messages.ListOutboxMessagesRequest,
        context: Context[messages.ListOutboxMessagesRequest, messages.ListOutboxMessagesResponse],
    ) -> messages.ListOutboxMessagesResponse:
        """Return a page of outbox messages."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.optional_identifier("destination", request.destination)
        state = outbox_state_from_proto(request.state, check)
        entries_max = check.page_size(request.page_size)
        key = check.number_page_keys(request, request.page_token, count=2)
        check.refuse_violations()
        page = await self._reads.outbox_messages(
            caller,
            OutboxFilter(request.destination or None, state),
            after=None if key is None else OutboxPlace(*key),
            bounds=PageBounds(entries_max, self._limits.page_bytes_max),
        )
        response = messages.ListOutboxMessagesResponse(
            messages=[
                outbox_message_to_proto(message, page.now_nanos, payload_as_text=request.payload_as_text)
                for message in page.messages
            ]
        )
        if page.next_place is not None:
            response.next_page_token = page_token_after(request, *page.next_place)
        return response

    async def ClaimOutboxMessages(  # noqa: N802
        self,
        request: messages.ClaimOutboxMessagesRequest,
        context: Context[messages.ClaimOutboxMessagesRequest, messages.ClaimOutboxMessagesResponse],
    ) -> messages.ClaimOutboxMessagesResponse:
        """Claim messages of a destination."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("destination", request.destination)
        visible_nanos = visible_nanos_from_proto(request, self._limits, check=check)
        entries_max = check.claim_count(request.max_count)
        check.refuse_violations()
        claimed = await self._journal.claim(
            caller,
            request.destination,
            visible_nanos=visible_nanos,
            entries_max=entries_max,
            bytes_max=self._limits.page_bytes_max,
        )
        return claimed_to_proto(claimed)

    async def AcknowledgeOutboxMessage(  # noqa: N802
        self,
        request: messages.AcknowledgeOutboxMessageRequest,
        context: Context[messages.AcknowledgeOutboxMessageRequest, messages.AcknowledgeOutboxMessageResponse],
    ) -> messages.AcknowledgeOutboxMessageResponse:
        """Note that a claimed message was delivered."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("outbox_id", request.outbox_id)
        check.identifier("claim_id", request.claim_id)
        check.refuse_violations()
        answer = await self._journal.acknowledge(
            caller, OutboxId(request.outbox_id), claim_id=request.claim_id
        )
        return messages.AcknowledgeOutboxMessageResponse(outcome=outbox_outcome_to_proto(answer.outcome))

    async def ReturnOutboxMessage(  # noqa: N802
        self,
        request: messages.ReturnOutboxMessageRequest,
        context: Context[messages.ReturnOutboxMessageRequest, messages.ReturnOutboxMessageResponse],
    ) -> messages.ReturnOutboxMessageResponse:
        """Take a claimed message back."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("outbox_id", request.outbox_id)
        check.identifier("claim_id", request.claim_id)
        delay_nanos = delay_nanos_from_proto(request, self._limits, check=check)
        check.refuse_violations()
        answer = await self._journal.return_(
            caller, OutboxId(request.outbox_id), claim_id=request.claim_id, delay_nanos=delay_nanos
        )
        return messages.ReturnOutboxMessageResponse(
            outcome=outbox_outcome_to_proto(answer.outcome),
            state=outbox_state_to_proto(answer.message.state(answer.now_nanos)),
        )

    async def ReleaseOutboxMessage(  # noqa: N802
        self,
        request: messages.ReleaseOutboxMessageRequest,
        context: Context[messages.ReleaseOutboxMessageRequest, messages.ReleaseOutboxMessageResponse],
    ) -> messages.ReleaseOutboxMessageResponse:
        """Let a dead message be tried anew."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check)
        check.identifier("outbox_id", request.outbox_id)
        check.refuse_violations()
        view = await self._journal.release(caller, OutboxId(request.outbox_id))
        return messages.ReleaseOutboxMessageResponse(
            message=outbox_message_to_proto(view.message, view.now_nanos)
        )

    def _event_bounds(self, entries_max: int) -> PageBounds:
        return PageBounds(entries_max, self._limits.journal_page_bytes_max)
