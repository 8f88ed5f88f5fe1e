"""Between the values of the journal and the messages of the wire."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.journal_errors import (
    IdempotencyConflict,
    PositionLost,
    RevisionConflict,
    StaleCause,
    StaleLease,
)
from runtime_agent.hub_client.codec import time_nanos_from_proto
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import (
    ClaimedMessage,
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
from runtime_agent.hub_client.lease_codec import credential_to_proto
from runtime_agent.hub_client.lease_values import LeaseCredential
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import journal_service_pb2 as pb

_STATES: Final = {
    pb.OUTBOX_MESSAGE_STATE_PENDING: OutboxState.PENDING,
    pb.OUTBOX_MESSAGE_STATE_CLAIMED: OutboxState.CLAIMED,
    pb.OUTBOX_MESSAGE_STATE_DEAD: OutboxState.DEAD,
    pb.OUTBOX_MESSAGE_STATE_DELIVERED: OutboxState.DELIVERED,
}
_STATES_TO_PROTO: Final = {state: number for number, state in _STATES.items()}
_OUTCOMES: Final = {
    pb.OUTBOX_OUTCOME_DONE: OutboxOutcome.DONE,
    pb.OUTBOX_OUTCOME_ALREADY_DELIVERED: OutboxOutcome.ALREADY_DELIVERED,
    pb.OUTBOX_OUTCOME_CLAIM_LOST: OutboxOutcome.CLAIM_LOST,
}
_CAUSES: Final = {cause.value: cause for cause in StaleCause}


# --- commits ----------------------------------------------------------------------------------------


def commit_request(
    hub_project: str,
    credential: LeaseCredential,
    *,
    message_id: str,
    stream_id: str,
    expected_revision: int,
    events: Sequence[NewJournalEvent],
    outbox_messages: Sequence[NewOutboxMessage],
    projections: Sequence[NewProjection],
    reply: bytes,
) -> pb.CommitRequest:
    """Return the request for a commit."""
    return pb.CommitRequest(
        hub_project=hub_project,
        message_id=message_id,
        stream_id=stream_id,
        credential=credential_to_proto(credential),
        expected_revision=expected_revision,
        events=map(_event_to_proto, events),
        outbox_messages=map(_message_to_proto, outbox_messages),
        projections=(
            pb.NewProjection(projection_id=each.projection_id, value=each.value) for each in projections
        ),
        reply=reply,
    )


def _event_to_proto(event: NewJournalEvent) -> pb.NewJournalEvent:
    return pb.NewJournalEvent(
        event_id=event.event_id,
        event_type=event.event_type,
        payload=event.payload,
        event_time=_time_to_proto(event.event_time_nanos),
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        trace_id=event.trace_id,
    )


def _message_to_proto(message: NewOutboxMessage) -> pb.NewOutboxMessage:
    return pb.NewOutboxMessage(
        outbox_id=message.outbox_id,
        event_id=message.event_id,
        destination=message.destination,
        ordering_key=message.ordering_key,
        payload=message.payload,
        available_time=_time_to_proto(message.available_time_nanos),
    )


def committed_from_proto(response: pb.CommitResponse) -> Committed:
    """Return what a commit became."""
    return Committed(
        previous_revision=response.previous_revision,
        revision=response.revision,
        commit_time_nanos=time_nanos_from_proto(response.commit_time),
        positions=tuple(response.positions),
        reply=response.reply,
        is_recovered=response.recovered,
    )


# --- reads ------------------------------------------------------------------------------------------


def stream_events_request(
    hub_project: str,
    stream_id: str,
    *,
    after_revision: int,
    through_revision: int,
    credential: LeaseCredential | None,
) -> pb.ListStreamEventsRequest:
    """Return the request for a page of a stream, up to its revision now where ``through_revision`` is 0."""
    return pb.ListStreamEventsRequest(
        hub_project=hub_project,
        stream_id=stream_id,
        after_revision=after_revision,
        through_revision=through_revision,
        credential=None if credential is None else credential_to_proto(credential),
    )


def journal_event_from_proto(event: pb.JournalEvent) -> JournalEvent:
    """Return an event as the journal has it."""
    return JournalEvent(
        stream_id=event.stream_id,
        revision=event.revision,
        position=event.position,
        event_id=event.event_id,
        event_type=event.event_type,
        payload=event.text.encode() if event.WhichOneof("body") == "text" else event.payload,
        event_time_nanos=time_nanos_from_proto(event.event_time),
        commit_time_nanos=time_nanos_from_proto(event.commit_time),
        message_id=event.message_id,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        trace_id=event.trace_id,
        fencing_token=event.fencing_token,
        epoch=event.epoch,
    )


def stream_from_proto(stream: pb.JournalStream) -> JournalStream:
    """Return a stream."""
    return JournalStream(
        stream_id=stream.stream_id,
        revision=stream.revision,
        fencing_token=stream.fencing_token,
        is_leased=stream.is_leased,
        create_time_nanos=_time(stream.HasField("create_time"), stream.create_time),
        last_commit_time_nanos=_time(stream.HasField("last_commit_time"), stream.last_commit_time),
    )


def projection_from_proto(projection: pb.Projection) -> StoredProjection:
    """Return a projection."""
    return StoredProjection(
        projection_id=projection.projection_id,
        stream_id=projection.stream_id,
        value=projection.value,
        revision=projection.revision,
        commit_time_nanos=_time(projection.HasField("commit_time"), projection.commit_time),
    )


def journal_page_from_proto(response: pb.ListJournalResponse) -> JournalUpdate:
    """Return a page of the journal."""
    events = tuple(map(journal_event_from_proto, response.events))
    return JournalUpdate(events, response.next_position, response.hub_generation)


def watch_request(
    hub_project: str,
    event_types: Sequence[str],
    *,
    after_position: int,
    hub_generation: str,
    from_now: bool,
) -> pb.WatchJournalRequest:
    """Return the request of a watch; position 0 without ``from_now`` begins at the first event."""
    request = pb.WatchJournalRequest(
        hub_project=hub_project, event_types=event_types, hub_generation=hub_generation
    )
    if from_now:
        request.from_now = True
    elif after_position:
        request.after_position = after_position
    return request


def journal_update_from_proto(response: pb.WatchJournalResponse) -> JournalUpdate:
    """Return events and progress of a watch."""
    events = tuple(map(journal_event_from_proto, response.events))
    return JournalUpdate(events, response.progress_position, response.hub_generation)


# --- the outbox -------------------------------------------------------------------------------------


def outbox_state_to_proto(state: OutboxState | None) -> "pb.OutboxMessageState.ValueType":
    """Return a state as it is asked for; None asks for all but delivered ones."""
    return pb.OUTBOX_MESSAGE_STATE_UNSPECIFIED if state is None else _STATES_TO_PROTO[state]


def outbox_message_from_proto(message: pb.OutboxMessage) -> OutboxMessage:
    """Return a message as it was told."""
    return OutboxMessage(
        outbox_id=message.outbox_id,
        event_id=message.event_id,
        destination=message.destination,
        ordering_key=message.ordering_key,
        payload=message.text.encode() if message.WhichOneof("body") == "text" else message.payload,
        state=_STATES.get(message.state, OutboxState.UNKNOWN),
        available_time_nanos=time_nanos_from_proto(message.available_time),
        create_time_nanos=time_nanos_from_proto(message.create_time),
        attempt_count=message.attempt_count,
        stream_id=message.stream_id,
        message_id=message.message_id,
    )


def claimed_from_proto(response: pb.ClaimOutboxMessagesResponse) -> ClaimedMessages:
    """Return what was claimed."""
    return ClaimedMessages(
        messages=tuple(
            ClaimedMessage(outbox_message_from_proto(each.message), each.claim_id)
            for each in response.messages
        ),
        claim_expire_time_nanos=time_nanos_from_proto(response.claim_expire_time),
        next_available_time_nanos=_time(
            response.HasField("next_available_time"), response.next_available_time
        ),
    )


def outcome_from_proto(outcome: "pb.OutboxOutcome.ValueType") -> OutboxOutcome:
    """Return what an answer changed."""
    return _OUTCOMES.get(outcome, OutboxOutcome.UNKNOWN)


def returned_from_proto(response: pb.ReturnOutboxMessageResponse) -> ReturnedMessage:
    """Return what giving a message back changed."""
    return ReturnedMessage(
        outcome_from_proto(response.outcome), _STATES.get(response.state, OutboxState.UNKNOWN)
    )


# --- refusals ---------------------------------------------------------------------------------------


def journal_refusal(error: HubCallError) -> RuntimeAgentError:
    """Return what a refused call means to its caller; where it is nothing of the journal's, ``error``."""
    metadata = error.refusal.metadata
    match error.reason:
        case "STALE_LEASE":
            return StaleLease(
                metadata.get("streamId", ""),
                _number(metadata.get("fencingToken", "")),
                _CAUSES.get(metadata.get("cause", ""), StaleCause.UNKNOWN),
            )
        case "REVISION_CONFLICT":
            return RevisionConflict(
                metadata.get("streamId", ""),
                _number(metadata.get("expectedRevision", "")),
                _number(metadata.get("actualRevision", "")),
            )
        case "IDEMPOTENCY_CONFLICT":
            return IdempotencyConflict(metadata.get("field", ""), metadata.get("id", ""))
        case "GENERATION_CHANGED":
            return PositionLost(
                metadata.get("hubGeneration", ""), _number(metadata.get("lowestPosition", ""))
            )
        case _:
            return error


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _time_to_proto(nanos: int | None) -> Timestamp | None:
    if nanos is None:
        return None
    seconds, rest = divmod(nanos, NANOS_PER_SECOND)
    return Timestamp(seconds=seconds, nanos=rest)


def _time(is_there: bool, time: Timestamp) -> int | None:
    return time_nanos_from_proto(time) if is_there else None
