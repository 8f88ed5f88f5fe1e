"""The calls about the journal as steps, for clients that block and for event loops alike.

What may be sent twice is sent again while no hub answers: reads, a commit (its message id makes it happen
once), and answers about a claimed message (its claim id does). A claim and a release are sent once.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.hub_client import journal_codec as codec
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.held import Held
from runtime_agent.hub_client.journal_values import (
    ClaimedMessages,
    Committed,
    NewJournalEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxMessage,
    OutboxOutcome,
    OutboxState,
    ReturnedMessage,
    StoredProjection,
)
from runtime_agent.hub_client.lease_channel import Call, LeaseChannel, unary
from runtime_agent.hub_client.lease_codec import duration_to_proto
from runtime_agent.hub_client.lease_keeper import suspension_counting_seconds
from runtime_agent.hub_client.lease_steps import Steps, ask, repeat
from runtime_agent.hub_client.lease_values import LeaseCredential
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1 import journal_service_pb2 as pb

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class JournalCalls:
    """The calls of one client on one hub project; ``clock`` is in seconds and counts suspension."""

    channel: LeaseChannel
    hub_project: str
    clock: Callable[[], float] = suspension_counting_seconds
    chance: Callable[[], float] = random.random

    # --- writing ---

    def commit(
        self,
        credential: LeaseCredential,
        *,
        message_id: str,
        stream_id: str,
        expected_revision: int,
        events: Sequence[NewJournalEvent],
        outbox_messages: Sequence[NewOutboxMessage],
        projections: Sequence[NewProjection],
        reply: bytes,
        seconds_max: float,
    ) -> Steps[Committed]:
        """Commit, or find the commit that this message id was."""
        request = codec.commit_request(
            self.hub_project,
            credential,
            message_id=message_id,
            stream_id=stream_id,
            expected_revision=expected_revision,
            events=events,
            outbox_messages=outbox_messages,
            projections=projections,
            reply=reply,
        )

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.Commit, request, timeout_seconds=timeout_seconds)

        answer = yield from self._repeated(call, pb.CommitResponse, seconds_max=seconds_max)
        return codec.committed_from_proto(answer)

    # --- reading ---

    def stream_page(self, request: pb.ListStreamEventsRequest) -> Steps[pb.ListStreamEventsResponse]:
        """Read a page of a stream."""

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.ListStreamEvents, request, timeout_seconds=timeout_seconds)

        return self._read(call, pb.ListStreamEventsResponse)

    def streams_page(self, request: pb.ListStreamsRequest) -> Steps[pb.ListStreamsResponse]:
        """Read a page of streams."""

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.ListStreams, request, timeout_seconds=timeout_seconds)

        return self._read(call, pb.ListStreamsResponse)

    def journal_page(self, request: pb.ListJournalRequest) -> Steps[pb.ListJournalResponse]:
        """Read a page of the journal."""

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.ListJournal, request, timeout_seconds=timeout_seconds)

        return self._read(call, pb.ListJournalResponse)

    def projection(self, projection_id: str) -> Steps[StoredProjection]:
        """Read a projection."""
        request = pb.GetProjectionRequest(hub_project=self.hub_project, projection_id=projection_id)

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.GetProjection, request, timeout_seconds=timeout_seconds)

        answer = yield from self._read(call, pb.GetProjectionResponse)
        return codec.projection_from_proto(answer.projection)

    def outbox_page(self, request: pb.ListOutboxMessagesRequest) -> Steps[pb.ListOutboxMessagesResponse]:
        """Read a page of outbox messages."""

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.journal.ListOutboxMessages, request, timeout_seconds=timeout_seconds)

        return self._read(call, pb.ListOutboxMessagesResponse)

    def outbox_request(self, destination: str, state: OutboxState | None) -> pb.ListOutboxMessagesRequest:
        """Return the request for the first page of outbox messages."""
        return pb.ListOutboxMessagesRequest(
            hub_project=self.hub_project, destination=destination, state=codec.outbox_state_to_proto(state)
        )

    # --- the outbox ---

    def claim(self, destination: str, *, visibility_seconds: float, count_max: int) -> Steps[ClaimedMessages]:
        """Claim messages; sent once, since what a lost answer claimed is hidden until its time is over."""
        request = pb.ClaimOutboxMessagesRequest(
            hub_project=self.hub_project,
            destination=destination,
            visibility_timeout=duration_to_proto(visibility_seconds),
            max_count=count_max,
        )
        call = unary(lambda on: on.journal.ClaimOutboxMessages, request, timeout_seconds=UNARY_SECONDS_MAX)
        answer = yield from _refused_as_ours(ask(call, pb.ClaimOutboxMessagesResponse))
        return codec.claimed_from_proto(answer)

    def acknowledge(
        self, outbox_id: str, claim_id: str, *, seconds_max: float = limits.JOURNAL_READ_SECONDS_MAX
    ) -> Steps[OutboxOutcome]:
        """Say that a message was delivered."""
        request = pb.AcknowledgeOutboxMessageRequest(
            hub_project=self.hub_project, outbox_id=outbox_id, claim_id=claim_id
        )

        def call(timeout_seconds: float) -> Call:
            return unary(
                lambda on: on.journal.AcknowledgeOutboxMessage, request, timeout_seconds=timeout_seconds
            )

        answer = yield from self._repeated(call, pb.AcknowledgeOutboxMessageResponse, seconds_max=seconds_max)
        return codec.outcome_from_proto(answer.outcome)

    def return_call(
        self, outbox_id: str, claim_id: str, *, delay_seconds: float, timeout_seconds: float
    ) -> Call:
        """Return the call that gives a message back."""
        request = pb.ReturnOutboxMessageRequest(
            hub_project=self.hub_project,
            outbox_id=outbox_id,
            claim_id=claim_id,
            delay=duration_to_proto(delay_seconds) if delay_seconds > 0 else None,
        )
        return unary(lambda on: on.journal.ReturnOutboxMessage, request, timeout_seconds=timeout_seconds)

    def give_back(
        self,
        outbox_id: str,
        claim_id: str,
        *,
        delay_seconds: float,
        seconds_max: float = limits.JOURNAL_READ_SECONDS_MAX,
    ) -> Steps[ReturnedMessage]:
        """Give a message back, to be tried again after a delay.

        Where an answer got lost, the second call finds the claim over, and says CLAIM_LOST.
        """

        def call(timeout_seconds: float) -> Call:
            return self.return_call(
                outbox_id, claim_id, delay_seconds=delay_seconds, timeout_seconds=timeout_seconds
            )

        answer = yield from self._repeated(call, pb.ReturnOutboxMessageResponse, seconds_max=seconds_max)
        return codec.returned_from_proto(answer)

    def release(self, outbox_id: str) -> Steps[OutboxMessage]:
        """Let a dead message be tried anew."""
        request = pb.ReleaseOutboxMessageRequest(hub_project=self.hub_project, outbox_id=outbox_id)
        call = unary(lambda on: on.journal.ReleaseOutboxMessage, request, timeout_seconds=UNARY_SECONDS_MAX)
        answer = yield from _refused_as_ours(ask(call, pb.ReleaseOutboxMessageResponse))
        return codec.outbox_message_from_proto(answer.message)

    # --- inside ---

    def backoff(self) -> Backoff:
        """Return the waits between two tries of one call."""
        return Backoff(limits.JOURNAL_RETRY_SECONDS_FIRST, limits.JOURNAL_RETRY_SECONDS_MAX, self.chance)

    def _read(self, call: Callable[[float], Call], answer_type: type[Answer]) -> Steps[Answer]:
        return self._repeated(call, answer_type, seconds_max=limits.JOURNAL_READ_SECONDS_MAX)

    def _repeated(
        self, call: Callable[[float], Call], answer_type: type[Answer], *, seconds_max: float
    ) -> Steps[Answer]:
        steps = repeat(call, seconds_max=seconds_max, backoff=self.backoff(), clock=self.clock)
        answer = yield from _refused_as_ours(steps)
        assert isinstance(answer, answer_type)
        return answer


def credential_of(lease: Held | LeaseCredential) -> LeaseCredential:
    """Return what proves a lease. Raises: LeaseNotHeld where it never was acquired."""
    return lease if isinstance(lease, LeaseCredential) else lease.credential


def _refused_as_ours(steps: Steps[Result]) -> Steps[Result]:
    """Raise what a refusal means to a caller of the journal."""
    try:
        return (yield from steps)
    except HubCallError as error:
        meant = codec.journal_refusal(error)
        if meant is error:
            raise
        raise meant from error
