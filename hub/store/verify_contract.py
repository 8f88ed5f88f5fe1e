"""What services may rely on when they verify what is stored, the same over every engine.

A part of ``ReadTransaction``, and what is said there holds here.
"""

from typing import NamedTuple, Protocol

from hub.core.selection import PageBounds
from hub.core.values import HubProject, ProjectId
from hub.core.verify import VerifiedPage, VerifyPlace


class VerifyTotals(NamedTuple):
    """How much there is to go through."""

    run_count: int
    event_count: int


class VerifyReads(Protocol):
    """Goes through runs and their events, page by page."""

    def totals(self, hub_project: HubProject, project_id: ProjectId | None) -> VerifyTotals:
        """Return how much there is of a hub project, or of one of its projects."""

    def page(
        self,
        hub_project: HubProject,
        project_id: ProjectId | None,
        *,
        place: VerifyPlace,
        bounds: PageBounds,
    ) -> VerifiedPage:
        """Go through events from a place on, by project, run and sequence, and say what does not fit.

        Each page is of one state of the store; a run that goes on between two pages is no finding.
        """
