"""Between the public client's values and the messages of the wire."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.values import RunKey
from runtime_agent.hub_client.codec import push_answer_from_proto, time_nanos_from_proto
from runtime_agent.hub_client.stored_values import (
    Alert,
    AlertSample,
    BatchToPush,
    PushResult,
    RuntimeState,
    RuntimeView,
    StoredEvent,
    StoredRun,
    WatchUpdate,
)
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import alert_pb2, presence_service_pb2, sync_event_pb2, sync_service_pb2

_ALERT_PREFIX: Final = "ALERT_REASON_"
_RUNTIME_STATES: Final = {
    presence_service_pb2.RUNTIME_STATE_ONLINE: RuntimeState.ONLINE,
    presence_service_pb2.RUNTIME_STATE_OFFLINE: RuntimeState.OFFLINE,
    presence_service_pb2.RUNTIME_STATE_LOST: RuntimeState.LOST,
}


def push_request(
    batch: BatchToPush, *, hub_project: str, runtime_id: str, instance_id: str
) -> sync_service_pb2.PushEventsRequest:
    """Return the request that pushes a batch."""
    request = sync_service_pb2.PushEventsRequest(
        hub_project=hub_project,
        project_id=batch.run.project_id,
        run_id=batch.run.run_id,
        runtime_id=runtime_id,
        instance_id=instance_id,
        previous_chain_hash=batch.previous_chain_hash,
    )
    for event in batch.events:
        message = request.events.add(
            sequence=event.sequence,
            event_type=event.event_type,
            attributes=event.attributes,
            content_hash=event.content_hash,
            is_final=event.is_final,
            payload_dropped=event.payload_dropped,
        )
        if not event.payload_dropped:
            message.payload = event.payload
        if event.event_time_nanos is not None:
            seconds, nanos = divmod(event.event_time_nanos, NANOS_PER_SECOND)
            message.event_time.seconds, message.event_time.nanos = seconds, nanos
    return request


def push_result_from_proto(response: sync_service_pb2.PushEventsResponse) -> PushResult:
    """Return what became of a batch."""
    answer = push_answer_from_proto(response)
    return PushResult(
        run=answer.run,
        cursor=answer.cursor,
        chain_hash=answer.chain_hash,
        accepted_count=answer.accepted_count,
        duplicate_count=answer.duplicate_count,
        conflicts=answer.conflicts,
        go_back=answer.go_back,
        retry_delay_seconds=answer.retry_delay_seconds,
    )


def watch_request(
    hub_project: str,
    *,
    project_id: str,
    run_id: str,
    event_types: Sequence[str],
    after_position: int,
    hub_generation: str,
    from_now: bool,
) -> sync_service_pb2.WatchEventsRequest:
    """Return the request of a watch; position 0 without ``from_now`` begins at the first event."""
    request = sync_service_pb2.WatchEventsRequest(
        hub_project=hub_project,
        project_id=project_id,
        run_id=run_id,
        event_types=event_types,
        hub_generation=hub_generation,
    )
    if from_now:
        request.from_now = True
    elif after_position:
        request.after_position = after_position
    return request


def watch_update_from_proto(response: sync_service_pb2.WatchEventsResponse) -> WatchUpdate:
    """Return events and progress of a watch."""
    return WatchUpdate(
        events=tuple(map(stored_event_from_proto, response.events)),
        progress_position=response.progress_position,
        hub_generation=response.hub_generation,
    )


def stored_event_from_proto(event: sync_event_pb2.StoredEvent) -> StoredEvent:
    """Return an event as the hub holds it."""
    payload = event.text.encode() if event.WhichOneof("body") == "text" else event.payload
    return StoredEvent(
        run=RunKey(event.project_id, event.run_id),
        sequence=event.sequence,
        position=event.position,
        event_type=event.event_type,
        event_time_nanos=time_nanos_from_proto(event.event_time) if event.HasField("event_time") else None,
        attributes=dict(event.attributes),
        payload=None if event.payload_dropped else payload,
        content_hash=event.content_hash,
        is_final=event.is_final,
        receive_time_nanos=time_nanos_from_proto(event.receive_time),
    )


def stored_run_from_proto(run: sync_event_pb2.Run) -> StoredRun:
    """Return a run as the hub knows it."""
    return StoredRun(
        run=RunKey(run.project_id, run.run_id),
        home_runtime_id=run.home_runtime_id,
        cursor=run.cursor,
        highest_sequence=run.highest_sequence,
        event_count=run.event_count,
        chain_hash=run.chain_hash,
        is_complete=run.is_complete,
        first_receive_time_nanos=_moment(run.HasField("first_receive_time"), run.first_receive_time),
        last_receive_time_nanos=_moment(run.HasField("last_receive_time"), run.last_receive_time),
    )


def runtime_from_proto(runtime: presence_service_pb2.Runtime) -> RuntimeView:
    """Return a runtime as the hub last heard of it."""
    return RuntimeView(
        runtime_id=runtime.runtime_id,
        state=_RUNTIME_STATES.get(runtime.state, RuntimeState.UNKNOWN),
        instance_id=runtime.instance_id,
        host=runtime.host,
        pid=runtime.pid,
        version=runtime.version,
        labels=dict(runtime.labels),
        active_runs=tuple(RunKey(each.project_id, each.run_id) for each in runtime.active_runs),
        unsynced_event_count=runtime.unsynced_event_count,
        last_heartbeat_time_nanos=_moment(
            runtime.HasField("last_heartbeat_time"), runtime.last_heartbeat_time
        ),
        instance_start_time_nanos=_moment(
            runtime.HasField("instance_start_time"), runtime.instance_start_time
        ),
    )


def alert_from_proto(alert: alert_pb2.Alert) -> Alert:
    """Return an alert; a reason that this version does not know stays a number."""
    try:
        reason = alert_pb2.AlertReason.Name(alert.reason).removeprefix(_ALERT_PREFIX)
    except ValueError:
        reason = f"{_ALERT_PREFIX}{int(alert.reason)}"
    return Alert(
        alert_id=alert.alert_id,
        reason=reason,
        project_id=alert.project_id,
        run_id=alert.run_id,
        runtime_id=alert.runtime_id,
        first_seen_time_nanos=_moment(alert.HasField("first_seen_time"), alert.first_seen_time),
        last_seen_time_nanos=_moment(alert.HasField("last_seen_time"), alert.last_seen_time),
        seen_count=alert.seen_count,
        samples=tuple(
            AlertSample(
                sequence=each.sequence,
                last_sequence=each.last_sequence,
                stored_content_hash=each.stored_content_hash,
                offered_content_hash=each.offered_content_hash,
                peer=each.peer,
                credential_name=each.credential_name,
            )
            for each in alert.samples
        ),
        acknowledge_time_nanos=_moment(alert.HasField("acknowledge_time"), alert.acknowledge_time),
    )


def _moment(is_there: bool, time: Timestamp) -> int | None:
    return time_nanos_from_proto(time) if is_there else None
