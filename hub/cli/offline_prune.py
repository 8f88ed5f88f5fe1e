"""What ``synchub prune`` does with ``--db``: the hub's own use case over a store that no hub serves."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from hub.cli.offline import OfflineStore, opened_store, refusals_told, settings_for
from hub.core.limits import Limits
from hub.core.presence import PresenceBounds
from hub.core.retention import PruneProgress
from hub.core.values import Caller, HubProject, Role
from hub.rpc.prune_handler import prune_progress_to_proto, prune_query_from_proto
from hub.rpc.requests import RequestCheck
from hub.service.prune import Prune
from hub.service.writer import Command, Lane
from hub.store.contract import ReadTransaction
from synchub.contract import NANOS_PER_SECOND
from synchub.v1.hub_service_pb2 import PruneEventsRequest, PruneEventsResponse

Result = TypeVar("Result")

_NO_PEER: Final = ""


class _Writer:
    """Runs each command at once: nobody else is there."""

    def __init__(self, store: OfflineStore) -> None:
        self._store = store

    async def call(
        self, command: Command[Result], *, lane: Lane, bytes_count: int = 0, hub_project: str = ""
    ) -> Result:
        """Run it."""
        del lane, bytes_count, hub_project
        return self._store.run(command)


class _Readers:
    """Reads at once."""

    def __init__(self, store: OfflineStore) -> None:
        self._store = store

    async def call(self, function: Callable[[ReadTransaction], Result]) -> Result:
        """Read."""
        return self._store.read(function)


@contextmanager
def opened_for_prune(db: str) -> Iterator[Callable[[PruneEventsRequest], Iterator[PruneEventsResponse]]]:
    """Give what prunes a store, for the length of a block. Raises: CommandFailed, StartRefused."""
    settings = settings_for(db)
    with opened_store(settings, is_made=False) as store:
        yield lambda request: _pruned(store, request, limits=settings.limits)


def _pruned(
    store: OfflineStore, request: PruneEventsRequest, *, limits: Limits
) -> Iterator[PruneEventsResponse]:
    """Prune, and give each step as a hub would answer it."""
    with refusals_told():
        check = RequestCheck(limits)
        query = prune_query_from_proto(request, check)
        check.refuse_violations()
    prune = Prune(
        _Writer(store),
        _Readers(store),
        limits=limits,
        # No hub runs, so nobody is heard now; who was heard lately may be again.
        bounds=PresenceBounds(
            ttl_nanos=round(limits.presence_ttl_seconds * NANOS_PER_SECOND),
            broken_stream_grace_nanos=0,
            hub_start_nanos=0,
        ),
        now_nanos=store.credential_nanos,
        wall_nanos=time.time_ns,
    )
    caller = Caller(HubProject(request.hub_project), None, Role.ADMIN, _NO_PEER, "")
    steps = prune.prune(caller, query)

    async def next_step() -> PruneProgress | None:
        return await anext(steps, None)

    with asyncio.Runner() as runner:
        while (progress := runner.run(next_step())) is not None:
            yield prune_progress_to_proto(progress)
