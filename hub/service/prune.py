"""Retention: drops payloads of old events, ended leases, receipts, and what was heard of silent runtimes.

A prune is many small commands, each found by a reader before: nothing else waits long behind it, and where
it ends early, what was done stays done. It may be made again at any time; then it finds only what is left.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from hub.core.errors import NotFound
from hub.core.limits import Limits
from hub.core.presence import PresenceBounds
from hub.core.retention import PruneMoments, PruneProgress, PruneQuery, decide_moments
from hub.core.selection import PageBounds
from hub.core.values import Caller, HubProject, ProjectId
from hub.service.writer import Command, Lane
from hub.store.contract import ReadTransaction, WriteTransaction
from hub.store.retention_contract import DroppedPayloads, OldNames, OldPayloads, PayloadPlace

Result = TypeVar("Result")


class PruneWriter(Protocol):
    """Runs commands: the hub's writer, or a store that no hub serves."""

    async def call(
        self, command: Command[Result], *, lane: Lane, bytes_count: int = 0, hub_project: str
    ) -> Result:
        """Run a command and return its result once it is durable."""


class PruneReaders(Protocol):
    """Runs reads: those of the hub, or of a store that no hub serves."""

    async def call(self, function: Callable[[ReadTransaction], Result]) -> Result:
        """Run a function over one state of the store."""


class Prune:
    """The use case of an operator who prunes."""

    def __init__(
        self,
        writer: PruneWriter,
        readers: PruneReaders,
        *,
        limits: Limits,
        bounds: PresenceBounds,
        now_nanos: Callable[[], int],
        wall_nanos: Callable[[], int],
    ) -> None:
        """Bind writer and readers; ``now_nanos`` gives hub time, ``wall_nanos`` that of receipt."""
        self._writer = writer
        self._readers = readers
        self._limits = limits
        self._bounds = bounds
        self._now_nanos = now_nanos
        self._wall_nanos = wall_nanos

    async def prune(self, caller: Caller, query: PruneQuery) -> AsyncGenerator[PruneProgress, None]:
        """Drop what is old, or count it, and say after each step how far it is; the last word is done.

        Raises: NotFound for a project that is not the hub project's; StorageUnavailable, HubStopping.
        """
        hub_project = caller.hub_project
        total_count = await self._readers.call(
            lambda transaction: _event_count(transaction, caller, project_id=query.project_id)
        )
        moments = decide_moments(
            query.older_than_nanos,
            wall_nanos=self._wall_nanos(),
            now_nanos=self._now_nanos(),
            bounds=self._bounds,
        )
        progress = PruneProgress(total_count=total_count)
        yield progress
        steps = self._prune_payloads(hub_project, query, moments=moments, progress=progress)
        async for progress in steps:
            yield progress
        if query.project_id is None:
            steps = self._prune_rest(hub_project, query, moments=moments, progress=progress)
            async for progress in steps:
                yield progress
        yield replace(progress, is_done=True)

    async def _prune_payloads(
        self, hub_project: HubProject, query: PruneQuery, *, moments: PruneMoments, progress: PruneProgress
    ) -> AsyncGenerator[PruneProgress, None]:
        place: PayloadPlace | None = PayloadPlace()
        # What is stored meanwhile is not old; along the positions it lies behind the end.
        while place is not None and (query.project_id or place.position < progress.total_count):
            found = await self._find_payloads(hub_project, query, place=place, moments=moments)
            dropped = DroppedPayloads(len(found.positions), found.payload_bytes)
            if found.positions and not query.is_dry_run:
                dropped = await self._drop_payloads(hub_project, found, moments=moments)
            considered_count = progress.considered_count + found.considered_count
            progress = replace(
                progress,
                considered_count=considered_count,
                total_count=max(progress.total_count, considered_count),
                payload_count=progress.payload_count + dropped.payload_count,
                payload_bytes=progress.payload_bytes + dropped.payload_bytes,
            )
            yield progress
            place = found.next_place

    async def _prune_rest(
        self, hub_project: HubProject, query: PruneQuery, *, moments: PruneMoments, progress: PruneProgress
    ) -> AsyncGenerator[PruneProgress, None]:
        """Drop what is of no project: resources, receipts, and what was heard of runtimes."""
        async for names in self._old_resources(hub_project, moments):
            count = len(names)
            if not query.is_dry_run:
                count = await self._drop_resources(hub_project, names, moments=moments)
            progress = replace(progress, resource_count=progress.resource_count + count)
            yield progress
        async for count in self._prune_receipts(hub_project, query, moments=moments):
            progress = replace(progress, receipt_count=progress.receipt_count + count)
            yield progress
        async for names in self._silent_runtimes(hub_project, moments):
            count = len(names)
            if not query.is_dry_run:
                count = await self._forget_runtimes(hub_project, names, moments=moments)
            progress = replace(progress, runtime_count=progress.runtime_count + count)
            yield progress

    async def _prune_receipts(
        self, hub_project: HubProject, query: PruneQuery, *, moments: PruneMoments
    ) -> AsyncGenerator[int, None]:
        """Drop receipts, or count them, and give how many at each step."""
        before_nanos = moments.ended_nanos

        def command(transaction: WriteTransaction, _now_nanos: int) -> int:
            return transaction.retention.drop_receipts(
                hub_project, created_before_nanos=before_nanos, entries_max=self._limits.prune_names_max
            )

        count = await self._readers.call(
            lambda transaction: transaction.retention.old_receipt_count(hub_project, before_nanos)
        )
        if query.is_dry_run:
            yield count
            return
        while count:
            count = await self._write(hub_project, command)
            yield count

    # --- what readers find ---

    async def _find_payloads(
        self, hub_project: HubProject, query: PruneQuery, *, place: PayloadPlace, moments: PruneMoments
    ) -> OldPayloads:
        return await self._readers.call(
            lambda transaction: transaction.retention.old_payloads(
                hub_project,
                query.project_id,
                place=place,
                received_before_nanos=moments.received_nanos,
                bounds=PageBounds(self._limits.prune_events_max, self._limits.prune_bytes_max),
            )
        )

    def _old_resources(
        self, hub_project: HubProject, moments: PruneMoments
    ) -> AsyncGenerator[Sequence[str], None]:
        return self._names(
            lambda transaction, after: transaction.retention.ended_resources(
                hub_project, ended_before_nanos=moments.ended_nanos, after=after
            )
        )

    def _silent_runtimes(
        self, hub_project: HubProject, moments: PruneMoments
    ) -> AsyncGenerator[Sequence[str], None]:
        return self._names(
            lambda transaction, after: transaction.retention.silent_runtimes(
                hub_project, heard_before_nanos=moments.heard_nanos, after=after
            )
        )

    async def _names(
        self, find: Callable[[ReadTransaction, str], OldNames]
    ) -> AsyncGenerator[Sequence[str], None]:
        """Give what is old by name, so many at a time as one command drops."""
        names_max = self._limits.prune_names_max
        after: str | None = ""
        while after is not None:
            found = await self._readers.call(partial(_found_after, find, after=after))
            for begin in range(0, len(found.names), names_max):
                yield found.names[begin : begin + names_max]
            after = found.next_after

    # --- what the writer drops ---

    async def _drop_payloads(
        self, hub_project: HubProject, found: OldPayloads, *, moments: PruneMoments
    ) -> DroppedPayloads:
        def command(transaction: WriteTransaction, _now_nanos: int) -> DroppedPayloads:
            return transaction.retention.drop_payloads(
                hub_project, found.positions, received_before_nanos=moments.received_nanos
            )

        return await self._write(hub_project, command, bytes_count=found.payload_bytes)

    async def _drop_resources(
        self, hub_project: HubProject, names: Sequence[str], *, moments: PruneMoments
    ) -> int:
        def command(transaction: WriteTransaction, _now_nanos: int) -> int:
            return transaction.retention.drop_resources(
                hub_project, names, ended_before_nanos=moments.ended_nanos
            )

        return await self._write(hub_project, command)

    async def _forget_runtimes(
        self, hub_project: HubProject, names: Sequence[str], *, moments: PruneMoments
    ) -> int:
        def command(transaction: WriteTransaction, _now_nanos: int) -> int:
            return transaction.retention.forget_runtimes(
                hub_project, names, heard_before_nanos=moments.heard_nanos
            )

        return await self._write(hub_project, command)

    async def _write(
        self, hub_project: HubProject, command: Command[Result], *, bytes_count: int = 0
    ) -> Result:
        """Run a command behind everything that cannot wait."""
        return await self._writer.call(
            command, lane=Lane.INGEST, bytes_count=bytes_count, hub_project=hub_project
        )


def _found_after(
    find: Callable[[ReadTransaction, str], OldNames], transaction: ReadTransaction, *, after: str
) -> OldNames:
    return find(transaction, after)


def _event_count(transaction: ReadTransaction, caller: Caller, *, project_id: ProjectId | None) -> int:
    """Return how many events there are to look at.

    Raises: NotFound for a project that is not the hub project's.
    """
    if project_id is not None and not transaction.has_project(caller.hub_project, project_id):
        raise NotFound("project", {"projectId": project_id})
    return transaction.retention.event_count(caller.hub_project, project_id)
