"""Between the agent's values and the messages of the wire: push, reconcile, repair, presence.

The only module besides ``reading_codec.py`` that knows both. ``encode_batch`` is the bulk path: it
runs on the log's reading thread, straight from rows to bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from runtime_agent.core.push_steps import Batch, Conflict, PushAnswer
from runtime_agent.core.reconcile import HubView, ReconciledRun
from runtime_agent.core.values import (
    NO_ATTRIBUTES,
    FetchedEvent,
    HubLimits,
    LogEvent,
    RunKey,
    RunState,
    RuntimeIdentity,
)
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import hub_service_pb2, presence_service_pb2, sync_event_pb2, sync_service_pb2

_ENVELOPE_BYTES: Final = 64
"""Tags and lengths of a push request and its hash, besides the ids themselves, at most."""

_HUB_VIEWS: Final[Mapping[int, HubView]] = {
    sync_service_pb2.RECONCILE_STATE_IN_STEP: HubView.IN_STEP,
    sync_service_pb2.RECONCILE_STATE_HUB_BEHIND: HubView.HUB_BEHIND,
    sync_service_pb2.RECONCILE_STATE_HUB_AHEAD: HubView.HUB_AHEAD,
    sync_service_pb2.RECONCILE_STATE_DIVERGED: HubView.DIVERGED,
    sync_service_pb2.RECONCILE_STATE_PROJECT_MISMATCH: HubView.PROJECT_MISMATCH,
    sync_service_pb2.RECONCILE_STATE_HOME_RUNTIME_MISMATCH: HubView.HOME_RUNTIME_MISMATCH,
    sync_service_pb2.RECONCILE_STATE_PERMISSION_DENIED: HubView.PERMISSION_DENIED,
}

_CONFLICT_PREFIX: Final = "CONFLICT_REASON_"


def time_nanos_from_proto(time: Timestamp) -> int:
    """Return nanoseconds since 1970."""
    return time.seconds * NANOS_PER_SECOND + time.nanos


def seconds_from_proto(duration: Duration) -> float:
    """Return a span in seconds."""
    return duration.seconds + duration.nanos / NANOS_PER_SECOND


# --- push -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushSender:
    """Who pushes: what stands in every request."""

    identity: RuntimeIdentity
    instance_id: str

    def envelope_bytes(self, run: RunKey) -> int:
        """Return what a request takes besides its events, at most."""
        ids = (
            self.identity.hub_project,
            self.identity.runtime_id,
            self.instance_id,
            run.project_id,
            run.run_id,
        )
        return _ENVELOPE_BYTES + sum(len(each.encode()) for each in ids)


def encode_batch(
    sender: PushSender, run: RunKey, *, events: Sequence[LogEvent], previous_chain_hash: bytes
) -> Batch:
    """Return consecutive events of a run as a batch whose message is ready for the wire."""
    request = sync_service_pb2.PushEventsRequest(
        hub_project=sender.identity.hub_project,
        project_id=run.project_id,
        run_id=run.run_id,
        runtime_id=sender.identity.runtime_id,
        instance_id=sender.instance_id,
        previous_chain_hash=previous_chain_hash,
    )
    add = request.events.add
    for event in events:
        sequence, event_type, time_nanos, attributes, is_final, payload, content_hash, _, _ = event
        message = add(sequence=sequence, event_type=event_type, content_hash=content_hash)
        if payload is None:
            message.payload_dropped = True
        elif payload:
            message.payload = payload
        if time_nanos is not None:
            seconds, nanos = divmod(time_nanos, NANOS_PER_SECOND)
            event_time = message.event_time
            event_time.seconds = seconds
            event_time.nanos = nanos
        if attributes:
            message.attributes.update(attributes)
        if is_final:
            message.is_final = True
    return Batch(
        run=run,
        first_sequence=events[0].sequence,
        last_sequence=events[-1].sequence,
        previous_chain_hash=previous_chain_hash,
        chain_hash=events[-1].chain_hash,
        message=request.SerializeToString(),
    )


def push_answer_from_proto(response: sync_service_pb2.PushEventsResponse) -> PushAnswer:
    """Return what the hub says of the oldest unanswered batch."""
    return PushAnswer(
        run=RunKey(response.project_id, response.run_id),
        cursor=response.cursor,
        chain_hash=response.chain_hash,
        accepted_count=response.accepted_count,
        duplicate_count=response.duplicate_count,
        conflicts=tuple(
            Conflict(each.sequence, conflict_reason_text(each.reason)) for each in response.conflicts
        ),
        go_back=response.go_back,
        retry_delay_seconds=seconds_from_proto(response.retry_delay)
        if response.HasField("retry_delay")
        else 0.0,
    )


def conflict_reason_text(reason: sync_service_pb2.ConflictReason.ValueType) -> str:
    """Return the bare reason; a number that this version does not know stays a number."""
    try:
        return sync_service_pb2.ConflictReason.Name(reason).removeprefix(_CONFLICT_PREFIX)
    except ValueError:
        return f"{_CONFLICT_PREFIX}{int(reason)}"


# --- reconcile and repair ---------------------------------------------------------------------------


def reconcile_request(
    sender: PushSender, runs: Sequence[RunState], *, known_hub_generation: str
) -> sync_service_pb2.ReconcileRunsRequest:
    """Return the question where the hub stands with these runs."""
    request = sync_service_pb2.ReconcileRunsRequest(
        hub_project=sender.identity.hub_project,
        runtime_id=sender.identity.runtime_id,
        instance_id=sender.instance_id,
        known_hub_generation=known_hub_generation,
    )
    for state in runs:
        request.runs.add(
            project_id=state.run.project_id,
            run_id=state.run.run_id,
            sequence=state.last_sequence,
            chain_hash=state.chain_hash,
            acknowledged_sequence=state.acknowledged_sequence,
            oldest_payload_sequence=state.oldest_payload_sequence,
        )
    return request


def reconciled_run_from_proto(run: sync_service_pb2.ReconciledRun) -> ReconciledRun:
    """Return the hub's view of one run."""
    return ReconciledRun(
        run=RunKey(run.project_id, run.run_id),
        view=_HUB_VIEWS.get(run.state, HubView.UNKNOWN),
        cursor=run.cursor,
        chain_hash=run.chain_hash,
        highest_sequence=run.highest_sequence,
    )


def fetched_event_from_proto(event: sync_event_pb2.StoredEvent) -> FetchedEvent:
    """Return an event of the hub on its way into the local log."""
    payload = event.text.encode() if event.WhichOneof("body") == "text" else event.payload
    return FetchedEvent(
        sequence=event.sequence,
        event_type=event.event_type,
        event_time_nanos=time_nanos_from_proto(event.event_time) if event.HasField("event_time") else None,
        attributes=dict(event.attributes) if event.attributes else NO_ATTRIBUTES,
        is_final=event.is_final,
        payload=None if event.payload_dropped else payload,
        content_hash=event.content_hash,
    )


# --- what the hub says of itself --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HubFacts:
    """What a hub says of itself when an agent connects."""

    version: str
    hub_generation: str
    limits: HubLimits


def hub_facts_from_proto(response: hub_service_pb2.GetHubInfoResponse) -> HubFacts:
    """Return what the agent needs to know of the hub."""
    said = response.limits
    return HubFacts(
        version=response.version,
        hub_generation=response.hub_generation,
        limits=HubLimits(
            identifier_bytes_max=said.identifier_bytes_max,
            event_type_bytes_max=said.event_type_bytes_max,
            payload_bytes_max=said.payload_bytes_max,
            attribute_count_max=said.attribute_count_max,
            attribute_key_bytes_max=said.attribute_key_bytes_max,
            attributes_bytes_max=said.attributes_bytes_max,
            batch_events_max=said.batch_events_max,
            batch_bytes_max=said.batch_bytes_max,
            message_bytes_max=said.message_bytes_max,
            reconcile_runs_max=said.reconcile_runs_max,
            active_runs_max=said.active_runs_max,
        ),
    )


# --- presence ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a runtime says of itself."""

    host: str
    pid: int
    version: str
    labels: Mapping[str, str]
    active_runs: tuple[RunKey, ...]
    unsynced_event_count: int
    is_goodbye: bool = False


@dataclass(frozen=True, slots=True)
class DuplicateNotice:
    """Another instance of this runtime was heard after this one."""

    current_instance_id: str


@dataclass(frozen=True, slots=True)
class DrainNotice:
    """The hub will stop: connect again after the delay."""

    reconnect_delay_seconds: float


HeartbeatNotice: TypeAlias = DuplicateNotice | DrainNotice


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The hub's answer to a heartbeat, or a notice without one; the interval is 0 where none is said."""

    interval_seconds: float
    notices: tuple[HeartbeatNotice, ...]


def heartbeat_to_proto(sender: PushSender, heartbeat: Heartbeat) -> presence_service_pb2.HeartbeatRequest:
    """Return the message of a heartbeat."""
    return presence_service_pb2.HeartbeatRequest(
        hub_project=sender.identity.hub_project,
        runtime_id=sender.identity.runtime_id,
        instance_id=sender.instance_id,
        host=heartbeat.host,
        pid=heartbeat.pid,
        version=heartbeat.version,
        labels=heartbeat.labels,
        active_runs=[
            sync_event_pb2.RunKey(project_id=run.project_id, run_id=run.run_id)
            for run in heartbeat.active_runs
        ],
        unsynced_event_count=heartbeat.unsynced_event_count,
        is_goodbye=heartbeat.is_goodbye,
    )


def heartbeat_answer_from_proto(response: presence_service_pb2.HeartbeatResponse) -> HeartbeatAnswer:
    """Return what the hub says; notices of kinds that this version does not know are left out."""
    notices: list[HeartbeatNotice] = []
    for notice in response.notices:
        match notice.WhichOneof("notice"):
            case "duplicate_instance":
                notices.append(DuplicateNotice(notice.duplicate_instance.current_instance_id))
            case "drain":
                notices.append(DrainNotice(seconds_from_proto(notice.drain.reconnect_delay)))
            case _:
                pass
    interval = (
        seconds_from_proto(response.heartbeat_interval) if response.HasField("heartbeat_interval") else 0.0
    )
    return HeartbeatAnswer(interval, tuple(notices))
