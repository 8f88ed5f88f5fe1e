"""Commits, journal events, streams and outbox messages between protobuf and the hub's values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.timestamp_pb2 import Timestamp

from hub.core.journal import (
    Commit,
    JournalEventId,
    MessageId,
    NewEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxId,
    ProjectionId,
    StreamId,
)
from hub.core.journal_selection import JournalEvent, JournalQuery, JournalStream, Projection, StreamQuery
from hub.core.limits import Limits
from hub.core.outbox import OutboxMessage, OutboxOutcome, OutboxState
from hub.rpc.codec_lease import credential_from_proto
from hub.rpc.codec_read import text_of
from hub.rpc.codec_time import timestamp_to_proto
from hub.rpc.read_handlers import check_event_types
from hub.rpc.requests import RequestCheck
from hub.service.journal import Claimed, Committed
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import journal_service_pb2 as messages

_OUTCOMES: Final = {
    outcome: messages.OutboxOutcome.Value(f"OUTBOX_OUTCOME_{outcome}") for outcome in OutboxOutcome
}
_STATES_TO_PROTO: Final = {
    state: messages.OutboxMessageState.Value(f"OUTBOX_MESSAGE_STATE_{state}") for state in OutboxState
}
_STATES_FROM_PROTO: Final[Mapping[int, OutboxState]] = {
    number: state for state, number in _STATES_TO_PROTO.items()
}


# --- what comes in ----------------------------------------------------------------------------------


def commit_from_proto(request: messages.CommitRequest, limits: Limits, *, check: RequestCheck) -> Commit:
    """Return a commit, every field checked; the nonce of its credential is hashed.

    Raises: InvalidRequest with all that ``check`` has noted, where anything breaks a bound or a type.
    """
    check.identifier("message_id", request.message_id)
    check.identifier("stream_id", request.stream_id)
    credential = credential_from_proto(request.credential, check)
    check.not_negative("expected_revision", request.expected_revision)
    check.at_most("events", len(request.events), count_max=limits.commit_events_max)
    check.at_most(
        "outbox_messages", len(request.outbox_messages), count_max=limits.commit_outbox_messages_max
    )
    check.at_most("projections", len(request.projections), count_max=limits.commit_projections_max)
    check.payload("reply", request.reply)
    bytes_count = request.ByteSize()
    if bytes_count > limits.commit_bytes_max:
        description = f"has {bytes_count} bytes; at most commit_bytes_max = {limits.commit_bytes_max} fit"
        check.add("request", description)
    # What is too much is not looked at one by one.
    check.refuse_violations()
    commit = Commit(
        message_id=MessageId(request.message_id),
        stream_id=StreamId(request.stream_id),
        credential=credential,
        expected_revision=request.expected_revision,
        events=_events_from_proto(request.events, check),
        outbox_messages=_outbox_messages_from_proto(request.outbox_messages, check),
        projections=_projections_from_proto(request.projections, check),
        reply=request.reply,
    )
    check.refuse_violations()
    return commit


def _events_from_proto(events: Sequence[messages.NewJournalEvent], check: RequestCheck) -> list[NewEvent]:
    made: list[NewEvent] = []
    for index, event in enumerate(events):
        field = f"events[{index}]"
        payload = event.payload or event.text.encode()
        check.identifier(f"{field}.event_id", event.event_id)
        check.event_type(f"{field}.event_type", event.event_type)
        check.payload(f"{field}.payload", payload)
        check.optional_identifier(f"{field}.correlation_id", event.correlation_id)
        check.optional_identifier(f"{field}.causation_id", event.causation_id)
        check.optional_trace_id(f"{field}.trace_id", event.trace_id)
        event_time = event.event_time if event.HasField("event_time") else None
        made.append(
            NewEvent(
                event_id=JournalEventId(event.event_id),
                event_type=event.event_type,
                payload=payload,
                event_time_nanos=_moment_nanos(f"{field}.event_time", event_time, check=check),
                correlation_id=event.correlation_id,
                causation_id=event.causation_id,
                trace_id=event.trace_id,
            )
        )
    return made


def _outbox_messages_from_proto(
    outbox_messages: Sequence[messages.NewOutboxMessage], check: RequestCheck
) -> list[NewOutboxMessage]:
    made: list[NewOutboxMessage] = []
    for index, message in enumerate(outbox_messages):
        field = f"outbox_messages[{index}]"
        payload = message.payload or message.text.encode()
        check.identifier(f"{field}.outbox_id", message.outbox_id)
        check.optional_identifier(f"{field}.event_id", message.event_id)
        check.identifier(f"{field}.destination", message.destination)
        check.optional_identifier(f"{field}.ordering_key", message.ordering_key)
        check.payload(f"{field}.payload", payload)
        available_time = message.available_time if message.HasField("available_time") else None
        made.append(
            NewOutboxMessage(
                outbox_id=OutboxId(message.outbox_id),
                event_id=message.event_id,
                destination=message.destination,
                ordering_key=message.ordering_key,
                payload=payload,
                available_nanos=_moment_nanos(f"{field}.available_time", available_time, check=check),
            )
        )
    return made


def _projections_from_proto(
    projections: Sequence[messages.NewProjection], check: RequestCheck
) -> list[NewProjection]:
    for index, projection in enumerate(projections):
        check.identifier(f"projections[{index}].projection_id", projection.projection_id)
        check.payload(f"projections[{index}].value", projection.value)
    return [NewProjection(ProjectionId(each.projection_id), each.value) for each in projections]


def _moment_nanos(field: str, moment: Timestamp | None, *, check: RequestCheck) -> int | None:
    return None if moment is None else check.moment_nanos(field, moment)


def outbox_state_from_proto(number: int, check: RequestCheck) -> OutboxState | None:
    """Return the state that is asked for, None for all but the delivered; an unknown one is noted."""
    if number == messages.OUTBOX_MESSAGE_STATE_UNSPECIFIED:
        return None
    state = _STATES_FROM_PROTO.get(number)
    if state is None:
        check.add("state", f"is {number}, which is no state of an outbox message")
    return state


def visible_nanos_from_proto(
    request: messages.ClaimOutboxMessagesRequest, limits: Limits, *, check: RequestCheck
) -> int:
    """Return for how long a claim hides; the default where nothing or 0 is asked for."""
    nanos = check.span_nanos_at_most(
        "visibility_timeout",
        request.visibility_timeout,
        limit="outbox_visibility_seconds_max",
        seconds_max=limits.outbox_visibility_seconds_max,
    )
    return nanos or round(limits.outbox_visibility_seconds_default * NANOS_PER_SECOND)


def delay_nanos_from_proto(
    request: messages.ReturnOutboxMessageRequest, limits: Limits, *, check: RequestCheck
) -> int:
    """Return after how long a returned message may be tried again."""
    return check.span_nanos_at_most(
        "delay",
        request.delay,
        limit="outbox_return_delay_seconds_max",
        seconds_max=limits.outbox_return_delay_seconds_max,
    )


def stream_query_from_proto(request: messages.ListStreamEventsRequest, check: RequestCheck) -> StreamQuery:
    """Return which events of a stream are asked for; what is wrong is noted in ``check``."""
    after, through = request.after_revision, request.through_revision
    check.identifier("stream_id", request.stream_id)
    check.not_negative("after_revision", after)
    check.not_negative("through_revision", through)
    if 0 < through < after:
        check.add("through_revision", f"is {through}, before after_revision, which is {after}")
    has_credential = request.HasField("credential")
    return StreamQuery(
        StreamId(request.stream_id),
        after_revision=after,
        through_revision=through or None,
        credential=credential_from_proto(request.credential, check) if has_credential else None,
    )


def journal_query_from_proto(
    request: messages.ListJournalRequest | messages.WatchJournalRequest,
    limits: Limits,
    *,
    check: RequestCheck,
) -> JournalQuery:
    """Return which events of the journal are asked for, and from where; what is wrong is noted."""
    check_event_types(check, request.event_types, limits=limits)
    check.optional_identifier("hub_generation", request.hub_generation)
    check.not_negative("after_position", request.after_position)
    is_from_now = request.WhichOneof("start") == "from_now"
    if is_from_now and not request.from_now:
        check.add("from_now", "is false; leave it out to begin with the first event")
    return JournalQuery(
        event_types=tuple(request.event_types),
        hub_generation=request.hub_generation,
        after_position=request.after_position,
        is_from_now=is_from_now,
    )


# --- what goes out ----------------------------------------------------------------------------------


def committed_to_proto(committed: Committed) -> messages.CommitResponse:
    """Return what a commit became, now or when it happened."""
    result = committed.result
    return messages.CommitResponse(
        previous_revision=result.previous_revision,
        revision=result.revision,
        commit_time=timestamp_to_proto(result.commit_nanos),
        positions=result.positions,
        reply=result.reply,
        recovered=committed.is_recovered,
    )


def add_journal_events_to_proto(
    container: RepeatedCompositeFieldContainer[messages.JournalEvent],
    events: Iterable[JournalEvent],
    *,
    payload_as_text: bool = False,
) -> None:
    """Add events to those of a response, a payload as text where it is asked for and UTF-8."""
    for event in events:
        event_seconds, event_nanos = divmod(event.event_time_nanos, NANOS_PER_SECOND)
        commit_seconds, commit_nanos = divmod(event.commit_nanos, NANOS_PER_SECOND)
        message = container.add(
            stream_id=event.stream_id,
            revision=event.revision,
            position=event.position,
            event_id=event.event_id,
            event_type=event.event_type,
            payload=event.payload,
            # A message may be given as the dict of its fields, which is faster than making one.
            event_time={"seconds": event_seconds, "nanos": event_nanos},
            commit_time={"seconds": commit_seconds, "nanos": commit_nanos},
            message_id=event.message_id,
            correlation_id=event.correlation_id,
            causation_id=event.causation_id,
            trace_id=event.trace_id,
            fencing_token=event.fencing_token,
            epoch=event.epoch,
        )
        if payload_as_text and (text := text_of(event.payload)) is not None:
            # The two are one oneof: this takes the place of the bytes.
            message.text = text


def stream_to_proto(stream: JournalStream, now_nanos: int) -> messages.JournalStream:
    """Return a stream as it stands at a moment."""
    return messages.JournalStream(
        stream_id=stream.stream_id,
        revision=stream.revision,
        fencing_token=stream.fencing_token,
        is_leased=stream.is_leased(now_nanos),
        create_time=timestamp_to_proto(stream.create_nanos),
        last_commit_time=timestamp_to_proto(stream.last_commit_nanos),
    )


def projection_to_proto(projection: Projection) -> messages.Projection:
    """Return a projection."""
    return messages.Projection(
        projection_id=projection.projection_id,
        stream_id=projection.stream_id,
        value=projection.value,
        revision=projection.revision,
        commit_time=timestamp_to_proto(projection.commit_nanos),
    )


def outbox_message_to_proto(
    message: OutboxMessage, now_nanos: int, *, payload_as_text: bool = False
) -> messages.OutboxMessage:
    """Return a message as it stands at a moment; its claim is told only to who claims it."""
    made = messages.OutboxMessage(
        outbox_id=message.outbox_id,
        event_id=message.event_id,
        destination=message.destination,
        ordering_key=message.ordering_key,
        payload=message.payload,
        state=_STATES_TO_PROTO[message.state(now_nanos)],
        available_time=timestamp_to_proto(message.available_nanos),
        create_time=timestamp_to_proto(message.create_nanos),
        attempt_count=message.attempt_count,
        stream_id=message.stream_id,
        message_id=message.message_id,
    )
    if payload_as_text and (text := text_of(message.payload)) is not None:
        made.text = text
    return made


def claimed_to_proto(claimed: Claimed) -> messages.ClaimOutboxMessagesResponse:
    """Return what was claimed, and when to ask again."""
    available_nanos = claimed.next_available_nanos
    return messages.ClaimOutboxMessagesResponse(
        messages=[
            messages.ClaimedOutboxMessage(
                message=outbox_message_to_proto(message, claimed.now_nanos), claim_id=message.claim_id
            )
            for message in claimed.messages
        ],
        claim_expire_time=timestamp_to_proto(claimed.claim_expire_nanos),
        next_available_time=None if available_nanos is None else timestamp_to_proto(available_nanos),
    )


def outbox_outcome_to_proto(outcome: OutboxOutcome) -> "messages.OutboxOutcome.ValueType":
    """Return what an answer about a message changed."""
    return _OUTCOMES[outcome]


def outbox_state_to_proto(state: OutboxState) -> "messages.OutboxMessageState.ValueType":
    """Return where a message stands."""
    return _STATES_TO_PROTO[state]
