"""Between the messages of ``RuntimeAgentService`` and the values of the log, both ways."""

import base64
import json

from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent import limits
from runtime_agent.core.errors import EventInvalidError
from runtime_agent.core.values import (
    AgentFacts,
    AppendRequest,
    HubLinkState,
    HubLinkStatus,
    LogEvent,
    LogTotals,
    NewEvent,
    RunKey,
    RunState,
)
from synchub.v1 import runtime_agent_service_pb2 as pb
from synchub.v1.sync_event_pb2 import SyncEvent

_NANOS_MAX = limits.NANOS_PER_SECOND - 1

LINK_STATE_TO_PROTO = {
    HubLinkState.STOPPED: pb.HUB_LINK_STATE_STOPPED,
    HubLinkState.CONNECTING: pb.HUB_LINK_STATE_CONNECTING,
    HubLinkState.CONNECTED: pb.HUB_LINK_STATE_CONNECTED,
    HubLinkState.WAITING: pb.HUB_LINK_STATE_WAITING,
    HubLinkState.DUPLICATED: pb.HUB_LINK_STATE_DUPLICATED,
}
"""How each state of the link is said on the wire."""
LINK_STATE_FROM_PROTO = {value: key for key, value in LINK_STATE_TO_PROTO.items()}
"""The way back."""


def timestamp_to_proto(nanos: int) -> Timestamp:
    """Return nanoseconds since 1970 as a timestamp, also those before 1970."""
    seconds, rest = divmod(nanos, limits.NANOS_PER_SECOND)
    return Timestamp(seconds=seconds, nanos=rest)


def timestamp_from_proto(timestamp: Timestamp) -> int:
    """Return a timestamp as nanoseconds since 1970; the caller has checked ``nanos``."""
    return timestamp.seconds * limits.NANOS_PER_SECOND + timestamp.nanos


# --- appends ----------------------------------------------------------------------------------------


def append_request_from_proto(message: pb.AppendEventsRequest) -> AppendRequest:
    """Return the append; its bounds are checked by the log. Raises: EventInvalidError."""
    return AppendRequest(
        run=RunKey(message.project_id, message.run_id),
        events=tuple(_new_event_from_proto(index, event) for index, event in enumerate(message.events)),
        append_id=message.append_id,
        expected_sequence=message.expected_sequence,
        stamp_time=not message.leave_time_absent,
    )


def _new_event_from_proto(index: int, event: SyncEvent) -> NewEvent:
    if event.sequence:
        raise EventInvalidError(f"events[{index}].sequence", "is set, but the agent gives it")
    if event.content_hash:
        raise EventInvalidError(f"events[{index}].content_hash", "is set, but the agent computes it")
    if event.payload_dropped:
        raise EventInvalidError(f"events[{index}].payload_dropped", "is set, but only an agent may say so")
    time_nanos = None
    if event.HasField("event_time"):
        if not 0 <= event.event_time.nanos <= _NANOS_MAX:
            raise EventInvalidError(f"events[{index}].event_time", "has nanos outside of 0 to 999,999,999")
        time_nanos = timestamp_from_proto(event.event_time)
    payload = event.text.encode() if event.WhichOneof("body") == "text" else event.payload
    return NewEvent(event.event_type, payload, time_nanos, dict(event.attributes), event.is_final)


def append_request_to_proto(request: AppendRequest) -> pb.AppendEventsRequest:
    """Return the message of an append.

    Raises: EventInvalidError where a text is not UTF-8, so that it cannot be said on the wire.
    """
    try:
        message = pb.AppendEventsRequest(
            project_id=request.run.project_id,
            run_id=request.run.run_id,
            append_id=request.append_id,
            expected_sequence=request.expected_sequence,
            leave_time_absent=not request.stamp_time,
        )
        for event in request.events:
            added = message.events.add(
                event_type=event.event_type, payload=event.payload, is_final=event.is_final
            )
            if event.event_time_nanos is not None:
                added.event_time.CopyFrom(timestamp_to_proto(event.event_time_nanos))
            if event.attributes:
                added.attributes.update(event.attributes)
    except (UnicodeEncodeError, ValueError) as error:
        raise EventInvalidError("request", "has a value that the wire cannot carry") from error
    return message


# --- events -----------------------------------------------------------------------------------------


def local_event_to_proto(run: RunKey, event: LogEvent, *, is_acknowledged: bool) -> pb.LocalEvent:
    """Return the message of an event of the log."""
    message = pb.LocalEvent(
        project_id=run.project_id,
        run_id=run.run_id,
        event=SyncEvent(
            sequence=event.sequence,
            event_type=event.event_type,
            content_hash=event.content_hash,
            is_final=event.is_final,
        ),
        local_position=event.local_position,
        chain_hash=event.chain_hash,
        is_acknowledged=is_acknowledged,
    )
    if event.event_time_nanos is not None:
        message.event.event_time.CopyFrom(timestamp_to_proto(event.event_time_nanos))
    if event.attributes:
        message.event.attributes.update(event.attributes)
    if event.payload is None:
        message.event.payload_dropped = True
    else:
        message.event.payload = event.payload
    return message


def local_event_from_proto(message: pb.LocalEvent) -> tuple[RunKey, LogEvent, bool]:
    """Return run, event, and whether a hub acknowledged it."""
    event = message.event
    return (
        RunKey(message.project_id, message.run_id),
        LogEvent(
            sequence=event.sequence,
            event_type=event.event_type,
            event_time_nanos=timestamp_from_proto(event.event_time) if event.HasField("event_time") else None,
            attributes=dict(event.attributes),
            is_final=event.is_final,
            payload=None if event.payload_dropped else event.payload,
            content_hash=event.content_hash,
            chain_hash=message.chain_hash,
            local_position=message.local_position,
        ),
        message.is_acknowledged,
    )


# --- status and quarantine --------------------------------------------------------------------------


def status_to_proto(
    facts: AgentFacts, link: HubLinkStatus, *, totals: LogTotals, hub_generation: str
) -> pb.AgentStatus:
    """Return the message of where the agent stands."""
    status = pb.AgentStatus(
        hub_project=facts.identity.hub_project,
        runtime_id=facts.identity.runtime_id,
        instance_id=link.instance_id,
        pid=facts.pid,
        version=facts.version,
        start_time=timestamp_to_proto(facts.start_time_nanos),
        hub_link_state=LINK_STATE_TO_PROTO[link.state],
        hub_link_detail=link.detail,
        hub_address=link.hub_address,
        hub_generation=hub_generation,
        run_count=totals.run_count,
        event_count=totals.event_count,
        unsynced_event_count=totals.unsynced_event_count,
        quarantined_run_count=totals.quarantined_run_count,
        log_bytes=totals.log_bytes,
    )
    if totals.last_acknowledge_time_nanos is not None:
        status.last_acknowledge_time.CopyFrom(timestamp_to_proto(totals.last_acknowledge_time_nanos))
    return status


def quarantined_run_to_proto(state: RunState) -> pb.QuarantinedRun:
    """Return the message of a run that is quarantined."""
    assert state.quarantine is not None
    return pb.QuarantinedRun(
        project_id=state.run.project_id,
        run_id=state.run.run_id,
        reason=state.quarantine.reason,
        detail=state.quarantine.detail,
        sequence=state.quarantine.sequence,
        quarantine_time=timestamp_to_proto(state.quarantine.quarantine_time_nanos),
        last_sequence=state.last_sequence,
        acknowledged_sequence=state.acknowledged_sequence,
    )


# --- pages ------------------------------------------------------------------------------------------


def page_size(asked: int, *, default: int, largest: int) -> int:
    """Return the size of a page: 0 is the default, more than the largest is lowered."""
    if asked < 0:
        raise EventInvalidError("page_size", f"is {asked}; it may not be negative")
    return min(asked, largest) if asked else default


def token_from_sequence(sequence: int) -> str:
    """Return the token of a page that begins after a sequence."""
    return f"after-{sequence}"


def sequence_from_token(token: str) -> int:
    """Return the sequence of a token. Raises: EventInvalidError."""
    digits = token.removeprefix("after-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise EventInvalidError("page_token", "is not from a previous response")
    return int(digits)


def token_from_run(run: RunKey) -> str:
    """Return the token of a page that begins after a run."""
    return base64.urlsafe_b64encode(json.dumps([run.project_id, run.run_id]).encode()).decode()


def run_from_token(token: str) -> RunKey:
    """Return the run of a token. Raises: EventInvalidError."""
    try:
        parts: object = json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError as error:
        raise EventInvalidError("page_token", "is not from a previous response") from error
    match parts:
        case [str(project_id), str(run_id)]:
            return RunKey(project_id, run_id)
        case _:
            raise EventInvalidError("page_token", "is not from a previous response")
