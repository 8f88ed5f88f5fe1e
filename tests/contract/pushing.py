"""A short way to push events over the wire."""

from collections.abc import Sequence

from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import PushEventsRequest, PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import STREAM_SECONDS_MAX


def events(first: int, last: int, *, event_type: str = "line", is_final: bool = False) -> list[SyncEvent]:
    """Events of these sequences; the payload tells which. The last one may be final."""
    made = [SyncEvent(sequence=n, event_type=event_type, text=f"payload {n}") for n in range(first, last + 1)]
    made[-1].is_final = is_final
    return made


def push(
    stub: SyncServiceStub,
    hub_project: str,
    *,
    project_id: str = "p",
    run_id: str = "r",
    runtime_id: str = "runtime",
    batch: Sequence[SyncEvent],
) -> PushEventsResponse:
    """Push one batch on a stream of its own; it is durable when this returns."""
    request = PushEventsRequest(
        hub_project=hub_project, project_id=project_id, run_id=run_id, runtime_id=runtime_id, events=batch
    )
    (response,) = stub.PushEvents(iter([request]), timeout=STREAM_SECONDS_MAX)
    return response
