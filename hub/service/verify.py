"""Verifies what is stored of a hub project, page by page, while the hub goes on."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from hub.core.errors import LimitReached, NotFound
from hub.core.limits import Limits
from hub.core.selection import PageBounds
from hub.core.values import Caller, HubProject, ProjectId
from hub.core.verify import VerifyPlace, VerifyProgress
from hub.service.readers import Readers
from hub.store.contract import ReadTransaction
from hub.store.verify_contract import VerifyTotals

REST_SECONDS_MAX: Final = 0.05
"""After each page it rests for as long as the page took, and for no longer than this: computing hashes
takes half of the interpreter at most, and the other half is left to the hub."""


class Verifications:
    """The use case; of a hub project one at a time, for each takes a good part of a processor."""

    def __init__(self, readers: Readers, *, limits: Limits) -> None:
        """Bind the readers."""
        self._readers = readers
        self._bounds = PageBounds(limits.watch_page_entries_max, limits.watch_page_bytes_max)
        self._running: set[HubProject] = set()

    async def events(
        self, caller: Caller, project_id: ProjectId | None
    ) -> AsyncGenerator[VerifyProgress, None]:
        """Go through all events of a hub project, or of one of its projects, and give what is found.

        Each page is read when it is asked for, in a short transaction: nothing is held up meanwhile.

        Raises: NotFound for a project that is named and not there; LimitReached.
        """
        hub_project = caller.hub_project
        if hub_project in self._running:
            raise LimitReached("verifications_at_once_max", 1)
        self._running.add(hub_project)
        loop = asyncio.get_running_loop()
        try:
            totals = await self._readers.call(
                lambda transaction: _totals(transaction, hub_project, project_id=project_id)
            )
            progress = VerifyProgress(total_count=totals.event_count)
            place: VerifyPlace | None = VerifyPlace()
            while place is not None:
                begin, begin_seconds = place, loop.time()
                page = await self._readers.call(
                    lambda transaction, begin=begin: transaction.verification.page(  # type: ignore[misc]
                        hub_project, project_id, place=begin, bounds=self._bounds
                    )
                )
                page_seconds = loop.time() - begin_seconds
                progress = progress.after(page)
                yield progress
                await asyncio.sleep(min(page_seconds, REST_SECONDS_MAX))
                place = page.next_place
        finally:
            self._running.discard(hub_project)


def _totals(
    transaction: ReadTransaction, hub_project: HubProject, *, project_id: ProjectId | None
) -> VerifyTotals:
    if project_id is not None and not transaction.has_project(hub_project, project_id):
        raise NotFound("project", {"projectId": project_id})
    return transaction.verification.totals(hub_project, project_id)
