"""Heartbeats and runtimes between protobuf and the hub's values."""

from collections.abc import Iterable, Mapping
from typing import Final

from hub.core.limits import Limits
from hub.core.presence import Heartbeat, PresenceState
from hub.core.values import Caller, InstanceId, ProjectId, RunId, RuntimeId
from hub.rpc.codec_time import timestamp_to_proto
from hub.rpc.requests import RequestCheck
from hub.service.presence import SeenRuntime
from synchub.v1.presence_service_pb2 import (
    HeartbeatRequest,
    Runtime,
    RuntimeState,
)
from synchub.v1.sync_event_pb2 import RunKey

_STATES_TO_PROTO: Final = {state: RuntimeState.Value(f"RUNTIME_STATE_{state}") for state in PresenceState}
_STATES_FROM_PROTO: Final[Mapping[int, PresenceState]] = {
    number: state for state, number in _STATES_TO_PROTO.items()
}


def heartbeat_from_proto(request: HeartbeatRequest, limits: Limits, *, check: RequestCheck) -> Heartbeat:
    """Return a heartbeat; what breaks a bound is noted in ``check`` and to be refused before its use."""
    check.identifier("runtime_id", request.runtime_id)
    check.identifier("instance_id", request.instance_id)
    check.optional_identifier("host", request.host)
    check.not_negative("pid", request.pid)
    check.optional_identifier("version", request.version)
    labels = dict(request.labels)
    if labels:
        check.attributes("labels", labels)
    check.not_negative("unsynced_event_count", request.unsynced_event_count)
    check.at_most("active_runs", len(request.active_runs), count_max=limits.active_runs_max)
    if check.is_clean:
        for index, run in enumerate(request.active_runs):
            check.identifier(f"active_runs[{index}].project_id", run.project_id)
            check.identifier(f"active_runs[{index}].run_id", run.run_id)
    return Heartbeat(
        runtime_id=RuntimeId(request.runtime_id),
        instance_id=InstanceId(request.instance_id),
        host=request.host,
        pid=request.pid,
        version=request.version,
        labels=labels,
        active_runs=tuple((ProjectId(run.project_id), RunId(run.run_id)) for run in request.active_runs),
        unsynced_event_count=request.unsynced_event_count,
        is_goodbye=request.is_goodbye,
    )


def states_from_proto(states: Iterable[int], check: RequestCheck) -> frozenset[PresenceState]:
    """Return the states to list; one that is not known is noted in ``check``."""
    found: set[PresenceState] = set()
    for index, number in enumerate(states):
        state = _STATES_FROM_PROTO.get(number)
        if state is None:
            check.add(f"states[{index}]", f"is {number}, which is no state")
        else:
            found.add(state)
    return frozenset(found)


def runtime_to_proto(seen: SeenRuntime, caller: Caller) -> Runtime:
    """Return a runtime and whether it is alive; of its active runs those that the caller may know of."""
    runtime = seen.runtime
    message = Runtime(
        runtime_id=runtime.runtime_id,
        state=_STATES_TO_PROTO[seen.state],
        instance_id=runtime.instance_id,
        host=runtime.host,
        pid=runtime.pid,
        version=runtime.version,
        labels=runtime.labels,
        active_runs=[
            RunKey(project_id=project_id, run_id=run_id)
            for project_id, run_id in runtime.active_runs
            if caller.covers(project_id)
        ],
        unsynced_event_count=runtime.unsynced_event_count,
        instance_start_time=timestamp_to_proto(runtime.instance_start_nanos),
    )
    if runtime.last_heartbeat_nanos is not None:
        message.last_heartbeat_time.CopyFrom(timestamp_to_proto(runtime.last_heartbeat_nanos))
    return message
