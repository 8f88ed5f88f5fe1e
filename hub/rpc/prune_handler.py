"""What an operator prunes: the request is checked, and each step is an answer."""

from contextlib import aclosing
from typing import Final

import grpc.aio

from hub.core.limits import Limits
from hub.core.retention import PruneProgress, PruneQuery
from hub.core.values import ProjectId
from hub.rpc.identity import hub_caller_of, refuse_mismatch
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import WatchStream, write_answer
from hub.service.prune import Prune
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import hub_service_pb2 as messages

PruneContext = grpc.aio.ServicerContext[messages.PruneEventsRequest, messages.PruneEventsResponse]

OLDER_THAN_SECONDS_MIN: Final = 1
"""Nothing younger is pruned."""


class PruneHandler:
    """Serves PruneEvents. A caller that leaves ends it between two steps."""

    def __init__(self, prune: Prune, *, open_streams: OpenStreams, limits: Limits) -> None:
        """Bind the use case."""
        self._prune = prune
        self._open_streams = open_streams
        self._limits = limits

    async def prune_events(self, request: messages.PruneEventsRequest, context: PruneContext) -> None:
        """Prune, and tell of each step. Who acts on some projects only prunes one of them."""
        check = RequestCheck(self._limits)
        caller = hub_caller_of(context, request.hub_project, check=check)
        refuse_mismatch(caller, project_id=request.project_id)
        query = prune_query_from_proto(request, check)
        check.refuse_violations()
        with WatchStream(self._open_streams, method="PruneEvents"):
            async with aclosing(self._prune.prune(caller, query)) as steps:
                async for progress in steps:
                    await write_answer(context, prune_progress_to_proto(progress), limits=self._limits)


def prune_query_from_proto(request: messages.PruneEventsRequest, check: RequestCheck) -> PruneQuery:
    """Return what a request asks for; what is wrong with it is noted in ``check``."""
    check.optional_identifier("project_id", request.project_id)
    older_than_nanos = check.span_nanos("older_than", request.older_than)
    if not request.HasField("older_than"):
        check.add("older_than", "is missing; how old it must be is never guessed")
    elif older_than_nanos < OLDER_THAN_SECONDS_MIN * NANOS_PER_SECOND and check.is_clean:
        check.add("older_than", f"is less than {OLDER_THAN_SECONDS_MIN} s")
    project_id = ProjectId(request.project_id) if request.project_id else None
    return PruneQuery(older_than_nanos, project_id, request.is_dry_run)


def prune_progress_to_proto(progress: PruneProgress) -> messages.PruneEventsResponse:
    """Return how far a prune is."""
    return messages.PruneEventsResponse(
        considered_count=progress.considered_count,
        total_count=progress.total_count,
        payload_count=progress.payload_count,
        payload_bytes=progress.payload_bytes,
        resource_count=progress.resource_count,
        receipt_count=progress.receipt_count,
        runtime_count=progress.runtime_count,
        is_done=progress.is_done,
    )
