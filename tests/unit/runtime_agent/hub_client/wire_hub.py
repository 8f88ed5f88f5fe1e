"""A hub in a page: real gRPC on loopback over dicts, whose answers and failures a test chooses.

It decides a proven batch as the rule table says, so that what an agent does can be seen in its runs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from runtime_agent.core.values import RunKey
from synchub import contract
from synchub.v1 import (
    hub_service_pb2,
    hub_service_pb2_grpc,
    presence_service_pb2,
    presence_service_pb2_grpc,
    sync_event_pb2,
    sync_service_pb2,
    sync_service_pb2_grpc,
)
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse

HEARTBEAT_SECONDS = 0.1


def refusal_status(
    code: grpc.StatusCode, reason: str, *, message: str = "refused", **metadata: str
) -> status_pb2.Status:
    detail = AnyMessage()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="synchub", metadata=metadata))
    number: int = code.value[0]
    return status_pb2.Status(code=number, message=message, details=[detail])


@dataclass
class WireHub:
    """Runs, and what to refuse: ``push_refusals`` are said in band, each once, by run."""

    generation: str = "g1"
    runs: dict[RunKey, list[sync_event_pb2.StoredEvent]] = field(default_factory=dict)
    push_refusals: dict[RunKey, status_pb2.Status] = field(default_factory=dict)
    foreign_projects: set[str] = field(default_factory=set)
    forbidden_projects: set[str] = field(default_factory=set)
    refused_instances: set[str] = field(default_factory=set)
    silent_pushes: int = 0
    accepted_tokens: set[str] | None = None
    """None where everybody is let in."""
    identity_refusal: status_pb2.Status | None = None
    """What is said to everybody, until it is taken away."""
    retry_delays: list[float] = field(default_factory=list)
    """How long the next push answers ask to wait, in seconds."""
    tokens_seen: set[tuple[str, str]] = field(default_factory=set)
    """Each call's name with the token that it showed."""
    batch_times: list[float] = field(default_factory=list)
    """When each batch came, in monotonic seconds."""
    batch_events_max: int = contract.BATCH_EVENTS_MAX
    counts: Counter[str] = field(default_factory=Counter)
    instances: list[str] = field(default_factory=list)
    heartbeats: list[presence_service_pb2.HeartbeatRequest] = field(default_factory=list)
    port: int = 0

    # --- the model ---

    def chain_hash(self, run: RunKey, sequence: int) -> bytes:
        hashes = [event.content_hash for event in self.runs.get(run, [])[:sequence]]
        return contract.chain_hash_after(contract.chain_hash_at_start(run.project_id, run.run_id), hashes)

    def put(self, run: RunKey, payloads: Sequence[bytes]) -> None:
        """Store events as if they had come from somewhere else."""
        stored = self.runs.setdefault(run, [])
        for payload in payloads:
            content_hash = contract.content_hash("t", None, is_final=False, attributes={}, payload=payload)
            stored.append(
                sync_event_pb2.StoredEvent(
                    sequence=len(stored) + 1, event_type="t", payload=payload, content_hash=content_hash
                )
            )

    def payloads(self, run: RunKey) -> list[bytes]:
        return [event.payload for event in self.runs.get(run, [])]

    def push(self, request: PushEventsRequest) -> PushEventsResponse:
        run = RunKey(request.project_id, request.run_id)
        response = PushEventsResponse(project_id=run.project_id, run_id=run.run_id)
        if run.project_id in self.foreign_projects:
            for event in request.events:
                response.conflicts.add(
                    sequence=event.sequence, reason=sync_service_pb2.CONFLICT_REASON_PROJECT_MISMATCH
                )
            return response
        stored = self.runs.setdefault(run, [])
        first = request.events[0].sequence
        response.go_back = first > len(stored) + 1
        is_proven = request.previous_chain_hash == self.chain_hash(run, first - 1)
        for event in [] if response.go_back else request.events:
            known = stored[event.sequence - 1] if event.sequence <= len(stored) else None
            if known is not None and known.content_hash == event.content_hash:
                response.duplicate_count += 1
            elif known is None and is_proven:
                stored.append(
                    sync_event_pb2.StoredEvent(
                        project_id=run.project_id,
                        run_id=run.run_id,
                        sequence=event.sequence,
                        event_type=event.event_type,
                        event_time=event.event_time if event.HasField("event_time") else None,
                        attributes=event.attributes,
                        payload=event.payload,
                        content_hash=event.content_hash,
                        is_final=event.is_final,
                        payload_dropped=event.payload_dropped,
                    )
                )
                response.accepted_count += 1
            else:
                is_proven = False
                reason = (
                    sync_service_pb2.CONFLICT_REASON_HISTORY_DIVERGED
                    if known is None
                    else sync_service_pb2.CONFLICT_REASON_SEQUENCE_REUSED
                )
                response.conflicts.add(sequence=event.sequence, reason=reason)
        response.cursor = len(stored)
        response.chain_hash = self.chain_hash(run, len(stored))
        return response

    def reconciled(self, run: sync_service_pb2.ReconcileRun) -> sync_service_pb2.ReconciledRun:
        key = RunKey(run.project_id, run.run_id)
        answer = sync_service_pb2.ReconciledRun(project_id=run.project_id, run_id=run.run_id)
        if run.project_id in self.foreign_projects:
            answer.state = sync_service_pb2.RECONCILE_STATE_PROJECT_MISMATCH
            return answer
        if run.project_id in self.forbidden_projects:
            answer.state = sync_service_pb2.RECONCILE_STATE_PERMISSION_DENIED
            return answer
        cursor = len(self.runs.get(key, []))
        answer.cursor = answer.highest_sequence = cursor
        answer.chain_hash = self.chain_hash(key, cursor)
        if run.sequence <= cursor and self.chain_hash(key, run.sequence) != run.chain_hash:
            answer.state = sync_service_pb2.RECONCILE_STATE_DIVERGED
        elif run.sequence == cursor:
            answer.state = sync_service_pb2.RECONCILE_STATE_IN_STEP
        elif run.sequence < cursor:
            answer.state = sync_service_pb2.RECONCILE_STATE_HUB_AHEAD
        else:
            answer.state = sync_service_pb2.RECONCILE_STATE_HUB_BEHIND
        return answer

    def refusal_of(
        self, context: "grpc.aio.ServicerContext[object, object]", name: str
    ) -> status_pb2.Status | None:
        """Return why a call is refused for what it showed."""
        metadata = dict(context.invocation_metadata() or ())
        token = str(metadata.get("authorization", "")).removeprefix("Bearer ")
        self.tokens_seen.add((name, token))
        if self.accepted_tokens is not None and token not in self.accepted_tokens:
            reason = "CREDENTIAL_REVOKED" if token else "CREDENTIAL_MISSING"
            return refusal_status(grpc.StatusCode.UNAUTHENTICATED, reason, message=f"{name} says no")
        return self.identity_refusal

    def instance_refusal(self, instance_id: str) -> status_pb2.Status | None:
        if instance_id not in self.instances:
            self.instances.append(instance_id)
        if instance_id in self.refused_instances:
            return refusal_status(grpc.StatusCode.FAILED_PRECONDITION, "RUNTIME_DUPLICATED")
        return None

    # --- the wire ---

    @asynccontextmanager
    async def serving(
        self, port: int = 0, *, credentials: grpc.ServerCredentials | None = None
    ) -> AsyncIterator[int]:
        """Listen on loopback; leaving ends every stream, as a hub that is killed."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        # What they leave out is answered UNIMPLEMENTED.
        info = _HubService(self)  # type: ignore[abstract]
        sync, presence = _SyncService(self), _PresenceService(self)  # type: ignore[abstract]
        hub_service_pb2_grpc.add_HubServiceServicer_to_server(info, server)
        sync_service_pb2_grpc.add_SyncServiceServicer_to_server(sync, server)
        presence_service_pb2_grpc.add_PresenceServiceServicer_to_server(presence, server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = server.add_insecure_port(address)
        else:
            self.port = server.add_secure_port(address, credentials)
        await server.start()
        try:
            yield self.port
        finally:
            await server.stop(0)


class _HubService(hub_service_pb2_grpc.HubServiceServicer):
    def __init__(self, hub: WireHub) -> None:
        self.hub = hub

    async def GetHubInfo(  # noqa: N802
        self,
        request: hub_service_pb2.GetHubInfoRequest,
        context: "grpc.aio.ServicerContext[object, object]",
    ) -> hub_service_pb2.GetHubInfoResponse:
        await _abort_where(self.hub.refusal_of(context, "GetHubInfo"), context)
        limits = hub_service_pb2.HubLimits(
            identifier_bytes_max=contract.IDENTIFIER_BYTES_MAX,
            event_type_bytes_max=contract.EVENT_TYPE_BYTES_MAX,
            payload_bytes_max=contract.PAYLOAD_BYTES_MAX,
            attribute_count_max=contract.ATTRIBUTE_COUNT_MAX,
            attribute_key_bytes_max=contract.ATTRIBUTE_KEY_BYTES_MAX,
            attributes_bytes_max=contract.ATTRIBUTES_BYTES_MAX,
            batch_events_max=self.hub.batch_events_max,
            batch_bytes_max=contract.BATCH_BYTES_MAX,
            message_bytes_max=contract.MESSAGE_BYTES_MAX,
            reconcile_runs_max=contract.RECONCILE_RUNS_MAX,
            active_runs_max=contract.ACTIVE_RUNS_MAX,
        )
        return hub_service_pb2.GetHubInfoResponse(
            version="test", hub_generation=self.hub.generation, limits=limits
        )


class _SyncService(sync_service_pb2_grpc.SyncServiceServicer):
    def __init__(self, hub: WireHub) -> None:
        self.hub = hub

    async def PushEvents(  # type: ignore[override]  # noqa: N802  # the stubs know iterators alone
        self,
        _: object,
        context: "grpc.aio.ServicerContext[PushEventsRequest, PushEventsResponse]",
    ) -> None:
        self.hub.counts["push_streams"] += 1
        while True:
            request: object = await context.read()
            if not isinstance(request, PushEventsRequest):
                return
            self.hub.counts["batches"] += 1
            self.hub.batch_times.append(time.monotonic())
            if self.hub.silent_pushes:
                self.hub.silent_pushes -= 1
                await asyncio.Event().wait()
            key = RunKey(request.project_id, request.run_id)
            refusal = (
                self.hub.refusal_of(context, "PushEvents")  # type: ignore[arg-type]  # only its metadata is read
                or self.hub.instance_refusal(request.instance_id)
                or self.hub.push_refusals.pop(key, None)
            )
            if refusal is not None:
                await context.write(PushEventsResponse(error=refusal))
                return
            answer = self.hub.push(request)
            if self.hub.retry_delays:
                answer.retry_delay.FromNanoseconds(int(self.hub.retry_delays.pop(0) * 1e9))
            await context.write(answer)

    async def ReconcileRuns(  # noqa: N802
        self,
        request: sync_service_pb2.ReconcileRunsRequest,
        context: "grpc.aio.ServicerContext[object, object]",
    ) -> sync_service_pb2.ReconcileRunsResponse:
        self.hub.counts["reconciles"] += 1
        await _abort_where(self.hub.refusal_of(context, "ReconcileRuns"), context)
        await _abort_where(self.hub.instance_refusal(request.instance_id), context)
        return sync_service_pb2.ReconcileRunsResponse(
            runs=[self.hub.reconciled(run) for run in request.runs], hub_generation=self.hub.generation
        )

    async def ListEvents(  # noqa: N802
        self, request: sync_service_pb2.ListEventsRequest, context: object
    ) -> sync_service_pb2.ListEventsResponse:
        events = self.hub.runs.get(RunKey(request.project_id, request.run_id), [])
        page = events[request.after_sequence : request.after_sequence + request.page_size]
        return sync_service_pb2.ListEventsResponse(events=page)


class _PresenceService(presence_service_pb2_grpc.PresenceServiceServicer):
    def __init__(self, hub: WireHub) -> None:
        self.hub = hub

    async def Heartbeat(  # type: ignore[override]  # noqa: N802  # the stubs know iterators alone
        self,
        _: object,
        context: "grpc.aio.ServicerContext[presence_service_pb2.HeartbeatRequest, presence_service_pb2.HeartbeatResponse]",  # noqa: E501
    ) -> None:
        interval = Duration()
        interval.FromMilliseconds(int(HEARTBEAT_SECONDS * 1000))
        while True:
            request: object = await context.read()
            if not isinstance(request, presence_service_pb2.HeartbeatRequest):
                return
            refusal = (
                self.hub.refusal_of(context, "Heartbeat")  # type: ignore[arg-type]  # only its metadata is read
                or self.hub.instance_refusal(request.instance_id)
            )
            if refusal is not None:
                await context.write(presence_service_pb2.HeartbeatResponse(error=refusal))
                return
            self.hub.heartbeats.append(request)
            await context.write(presence_service_pb2.HeartbeatResponse(heartbeat_interval=interval))


async def _abort_where(
    refusal: status_pb2.Status | None, context: "grpc.aio.ServicerContext[object, object]"
) -> None:
    """End a unary call with a refusal, if there is one."""
    if refusal is not None:
        code = next(each for each in grpc.StatusCode if each.value[0] == refusal.code)
        trailer = (("grpc-status-details-bin", refusal.SerializeToString()),)
        await context.abort(code, refusal.message, trailer)
