"""Pushes and reconciles between protobuf and the hub's values.

Reading a batch is the hottest path of the edge: one pass over the events checks, hashes and converts
them; what is wrong is described only once something is.
"""

import json
from collections.abc import Mapping
from typing import Final

from hub.core.ingest import PushBatch
from hub.core.limits import Limits
from hub.core.reconcile import ReconciledRun, RuntimeRun
from hub.core.values import (
    ConflictReason,
    EventContent,
    HubGeneration,
    InstanceId,
    ProjectId,
    RunId,
    RuntimeId,
)
from hub.rpc.codec_time import timestamp_fault
from hub.rpc.requests import RequestCheck
from hub.service.ingest import PushOutcome
from hub.service.reconcile import ReconcileRequest
from synchub.contract import (
    EVENT_TIME_NANOS_MAX,
    EVENT_TIME_NANOS_MIN,
    HASH_BYTES,
    NANOS_PER_SECOND,
    content_hash,
)
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    ConflictReason as ConflictReasonProto,
)
from synchub.v1.sync_service_pb2 import (
    EventConflict,
    PushEventsRequest,
    PushEventsResponse,
    ReconcileRunsRequest,
    ReconcileRunsResponse,
    ReconcileState,
)
from synchub.v1.sync_service_pb2 import (
    ReconciledRun as ReconciledRunProto,
)

_CONFLICTS_TO_PROTO: Final = {
    reason: ConflictReasonProto.Value(f"CONFLICT_REASON_{reason}") for reason in ConflictReason
}


def batch_from_proto(
    request: PushEventsRequest, limits: Limits, *, bytes_count: int | None = None
) -> PushBatch:
    """Return the batch of a request, every event checked and hashed; its size where it is known.

    Raises: InvalidRequest with the run it was about, where anything breaks a bound or a type.
    """
    check = RequestCheck(limits)
    check.identifier("project_id", request.project_id)
    check.identifier("run_id", request.run_id)
    check.identifier("runtime_id", request.runtime_id)
    check.optional_identifier("instance_id", request.instance_id)
    check.optional_hash("previous_chain_hash", request.previous_chain_hash)
    if bytes_count is None:
        bytes_count = request.ByteSize()
    event_count = len(request.events)
    if not 1 <= event_count <= limits.batch_events_max:
        counts = f"1 to batch_events_max = {limits.batch_events_max}"
        check.add("events", f"has {event_count} entries; {counts} are needed")
    if bytes_count > limits.batch_bytes_max:
        most = f"at most batch_bytes_max = {limits.batch_bytes_max}"
        check.add("events", f"make a request of {bytes_count} bytes; {most} fit")
    facts = {"projectId": request.project_id, "runId": request.run_id}
    check.refuse_violations(facts)

    events, wrong_hashes = _events_from_proto(request, check, limits=limits)
    if request.previous_chain_hash:
        first = events[0].sequence
        if [event.sequence for event in events] != list(range(first, first + len(events))):
            check.add("events", "have sequences that are not consecutive, which previous_chain_hash needs")
    check.refuse_violations(facts)
    return PushBatch(
        project_id=ProjectId(request.project_id),
        run_id=RunId(request.run_id),
        runtime_id=RuntimeId(request.runtime_id),
        instance_id=InstanceId(request.instance_id) if request.instance_id else None,
        previous_chain_hash=request.previous_chain_hash or None,
        events=events,
        wrong_hashes=wrong_hashes,
        bytes_count=bytes_count,
    )


def _events_from_proto(
    request: PushEventsRequest, check: RequestCheck, *, limits: Limits
) -> tuple[list[EventContent], dict[int, bytes]]:
    """Return the events, and the carried content hashes that are wrong by the index of their event."""
    events: list[EventContent] = []
    wrong_hashes: dict[int, bytes] = {}
    payload_bytes_max = limits.payload_bytes_max
    checked_types: set[str] = set()
    append, new_tuple = events.append, tuple.__new__
    time_min, time_max = EVENT_TIME_NANOS_MIN, EVENT_TIME_NANOS_MAX
    for index, event in enumerate(request.events):
        sequence = event.sequence
        if sequence < 1:
            check.add(f"events[{index}].sequence", f"is {sequence}; 1 or more is needed")
        event_type = event.event_type
        if event_type not in checked_types:
            check.event_type(f"events[{index}].event_type", event_type)
            checked_types.add(event_type)
        payload = event.payload or event.text.encode()
        if len(payload) > payload_bytes_max:
            most = f"at most payload_bytes_max = {payload_bytes_max}"
            description = f"has {len(payload)} bytes; {most} are allowed"
            check.add(f"events[{index}].payload", description)
        event_time_nanos = None
        if event.HasField("event_time"):
            event_time = event.event_time
            nanos = event_time.nanos
            event_time_nanos = event_time.seconds * NANOS_PER_SECOND + nanos
            if not (0 <= nanos < NANOS_PER_SECOND and time_min <= event_time_nanos <= time_max):
                fault = timestamp_fault(event_time)
                assert fault is not None, event_time
                check.add(f"events[{index}].event_time", fault)
                event_time_nanos = None
        attributes: Mapping[str, str] = event.attributes
        attributes_text = None
        if attributes:
            attributes = dict(attributes)
            check.attributes(f"events[{index}].attributes", attributes)
            attributes_text = attributes_to_text(attributes)
        offered_hash = event.content_hash
        is_final = event.is_final
        kept_payload: bytes | None = payload
        if event.payload_dropped:
            _check_dropped(event, index, check=check)
            kept_payload, computed_hash = None, offered_hash
        else:
            computed_hash = content_hash(
                event_type, event_time_nanos, is_final=is_final, attributes=attributes, payload=payload
            )
            if offered_hash and offered_hash != computed_hash:
                wrong_hashes[index] = offered_hash
                check.optional_hash(f"events[{index}].content_hash", offered_hash)
        content = (
            sequence,
            event_type,
            event_time_nanos,
            attributes_text,
            is_final,
            kept_payload,
            computed_hash,
        )
        # The class's own constructor takes twice as long, and this is the hottest line of the hub.
        append(new_tuple(EventContent, content))
    check.refuse_violations({"projectId": request.project_id, "runId": request.run_id})
    return events, wrong_hashes


def _check_dropped(event: SyncEvent, index: int, *, check: RequestCheck) -> None:
    """Require of an event without its payload that it has the hash, and no payload after all."""
    if len(event.content_hash) != HASH_BYTES:
        description = f"has {len(event.content_hash)} bytes; payload_dropped needs one of {HASH_BYTES}"
        check.add(f"events[{index}].content_hash", description)
    if event.payload or event.text:
        check.add(f"events[{index}].payload", "is there although payload_dropped says that it is not")


def attributes_to_text(attributes: Mapping[str, str]) -> str:
    """Return attributes as they are stored: JSON, the keys sorted by their bytes."""
    pairs = sorted(attributes.items(), key=lambda pair: pair[0].encode())
    return json.dumps(dict(pairs), ensure_ascii=False, separators=(",", ":"))


def outcome_to_proto(project_id: str, run_id: str, *, outcome: PushOutcome) -> PushEventsResponse:
    """Return the response to a batch."""
    decision, head = outcome.decision, outcome.head
    response = PushEventsResponse(
        project_id=project_id,
        run_id=run_id,
        accepted_count=len(decision.accepted),
        duplicate_count=decision.duplicate_count,
        go_back=decision.go_back,
    )
    if head is not None:
        response.cursor = head.cursor
        response.chain_hash = head.chain_hash
    if decision.conflicts:
        response.conflicts.extend(
            EventConflict(
                sequence=conflict.sequence,
                reason=_CONFLICTS_TO_PROTO[conflict.reason],
                stored_content_hash=conflict.stored_content_hash,
            )
            for conflict in decision.conflicts
        )
    return response


def reconcile_from_proto(request: ReconcileRunsRequest, limits: Limits) -> ReconcileRequest:
    """Return a reconcile request, checked.

    Raises: InvalidRequest.
    """
    check = RequestCheck(limits)
    check.identifier("runtime_id", request.runtime_id)
    check.identifier("instance_id", request.instance_id)
    check.optional_identifier("known_hub_generation", request.known_hub_generation)
    check.at_most("runs", len(request.runs), count_max=limits.reconcile_runs_max)
    check.refuse_violations()
    for index, run in enumerate(request.runs):
        check.identifier(f"runs[{index}].project_id", run.project_id)
        check.identifier(f"runs[{index}].run_id", run.run_id)
        check.not_negative(f"runs[{index}].sequence", run.sequence)
        check.not_negative(f"runs[{index}].acknowledged_sequence", run.acknowledged_sequence)
        check.not_negative(f"runs[{index}].oldest_payload_sequence", run.oldest_payload_sequence)
        check.hash(f"runs[{index}].chain_hash", run.chain_hash)
    check.refuse_violations()
    runs = [
        RuntimeRun(
            ProjectId(run.project_id),
            RunId(run.run_id),
            run.sequence,
            run.chain_hash,
            run.acknowledged_sequence,
        )
        for run in request.runs
    ]
    return ReconcileRequest(
        RuntimeId(request.runtime_id), InstanceId(request.instance_id), request.known_hub_generation, runs
    )


def reconciled_to_proto(hub_generation: HubGeneration, runs: list[ReconciledRun]) -> ReconcileRunsResponse:
    """Return the response to a reconcile."""
    return ReconcileRunsResponse(
        runs=[
            ReconciledRunProto(
                project_id=run.project_id,
                run_id=run.run_id,
                cursor=run.cursor,
                chain_hash=run.chain_hash,
                highest_sequence=run.highest_sequence,
                state=ReconcileState.Value(f"RECONCILE_STATE_{run.state}"),
            )
            for run in runs
        ],
        hub_generation=hub_generation,
    )
