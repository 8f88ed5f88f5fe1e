"""Runs, stored events, projects and alerts from the hub's values to protobuf."""

import json
from collections.abc import Iterable
from typing import Final, cast

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from hub.core.values import Alert, AlertReason, Project, Run, StoredEvent
from hub.rpc.codec_time import timestamp_to_proto
from hub.service.watch import WatchAnswer
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import alert_pb2, sync_event_pb2, sync_service_pb2

_ALERT_REASONS: Final = {
    reason: alert_pb2.AlertReason.Value(f"ALERT_REASON_{reason}") for reason in AlertReason
}


def run_to_proto(run: Run) -> sync_event_pb2.Run:
    """Return a run."""
    head = run.head
    return sync_event_pb2.Run(
        project_id=head.project_id,
        run_id=head.run_id,
        home_runtime_id=head.home_runtime_id,
        cursor=head.cursor,
        highest_sequence=head.highest_sequence,
        event_count=head.event_count,
        chain_hash=head.chain_hash,
        is_complete=head.is_complete,
        first_receive_time=timestamp_to_proto(run.first_receive_time_nanos),
        last_receive_time=timestamp_to_proto(run.last_receive_time_nanos),
    )


def add_events_to_proto(
    messages: RepeatedCompositeFieldContainer[sync_event_pb2.StoredEvent],
    events: Iterable[StoredEvent],
    *,
    payload_as_text: bool = False,
) -> None:
    """Add stored events to the events of a response, a payload as text where it is asked for and UTF-8.

    As few steps an event as possible: a catching-up watcher is given hundreds of thousands a second.
    """
    add = messages.add
    for event in events:
        (
            project_id,
            run_id,
            sequence,
            position,
            event_type,
            event_time_nanos,
            attributes,
            is_final,
            payload,
            content_hash,
            receive_time_nanos,
        ) = event
        seconds, nanos = divmod(receive_time_nanos, NANOS_PER_SECOND)
        message = add(
            project_id=project_id,
            run_id=run_id,
            sequence=sequence,
            position=position,
            event_type=event_type,
            content_hash=content_hash,
            is_final=is_final,
            payload=payload,
            # A message may be given as the dict of its fields, which is faster than making one.
            receive_time={"seconds": seconds, "nanos": nanos},
        )
        if event_time_nanos is not None:
            message.event_time.seconds, message.event_time.nanos = divmod(event_time_nanos, NANOS_PER_SECOND)
        if attributes is not None:
            message.attributes.update(cast("dict[str, str]", json.loads(attributes)))
        if payload is None:
            message.payload_dropped = True
        elif payload_as_text and (text := text_of(payload)) is not None:
            # The two are one oneof: this takes the place of the bytes.
            message.text = text


def watch_answer_to_proto(answer: WatchAnswer, hub_generation: str) -> sync_service_pb2.WatchEventsResponse:
    """Return what a watcher is told."""
    response = sync_service_pb2.WatchEventsResponse(
        progress_position=answer.progress_position, hub_generation=hub_generation
    )
    add_events_to_proto(response.events, answer.events)
    return response


def project_to_proto(project: Project) -> sync_service_pb2.Project:
    """Return a project."""
    return sync_service_pb2.Project(
        project_id=project.project_id,
        bind_time=timestamp_to_proto(project.bind_time_nanos),
        run_count=project.run_count,
    )


def alert_to_proto(alert: Alert) -> alert_pb2.Alert:
    """Return an alert."""
    acknowledged = alert.acknowledge_nanos
    return alert_pb2.Alert(
        alert_id=alert.alert_id,
        reason=_ALERT_REASONS[alert.key.reason],
        project_id=alert.key.project_id,
        run_id=alert.key.run_id,
        runtime_id=alert.key.runtime_id,
        first_seen_time=timestamp_to_proto(alert.first_seen_nanos),
        last_seen_time=timestamp_to_proto(alert.last_seen_nanos),
        seen_count=alert.seen_count,
        samples=[
            alert_pb2.AlertSample(
                sequence=sample.sequence,
                last_sequence=sample.last_sequence,
                stored_content_hash=sample.stored_content_hash,
                offered_content_hash=sample.offered_content_hash,
                peer=sample.peer,
                credential_name=sample.credential_name,
            )
            for sample in alert.samples
        ],
        acknowledge_time=None if acknowledged is None else timestamp_to_proto(acknowledged),
    )


def text_of(payload: bytes) -> str | None:
    """Return a payload as text, None where it is no UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
