"""What services may rely on of resources, tenures and receipts, the same over every engine.

Parts of ``WriteTransaction`` and ``ReadTransaction``, and what is said there holds here.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hub.core.receipt import Receipt
from hub.core.selection import LeasePlace
from hub.core.tenure import Resource, Tenure
from hub.core.values import HubProject, ResourceName


class TenureChanges(NamedTuple):
    """Tenures in the order in which they last changed; read on after ``change_number``."""

    tenures: Sequence[Tenure]
    change_number: int


class LeaseWrites(Protocol):
    """What may be changed of leases within the open transaction."""

    def resource(self, hub_project: HubProject, name: ResourceName) -> Resource:
        """Return a resource; one of which nothing is stored reads as the floor."""

    def save_resource(self, hub_project: HubProject, before: Resource, *, after: Resource) -> None:
        """Store a resource as it is now, given as it was loaded; what is the same is not written."""

    def overdue_resources(self, now_nanos: int, *, entries_max: int) -> list[tuple[HubProject, ResourceName]]:
        """Return resources with a tenure whose expiry has passed and is not noted, oldest first."""

    def purge_resources(self, ended_before_nanos: int, *, entries_max: int) -> int:
        """Drop resources of which everything ended before a moment, floors raised first; return how many."""

    def raise_floors(self, floor: int) -> None:
        """Let tokens and epochs of all hub projects, those to come as well, be above this."""

    def receipt(self, hub_project: HubProject, caller: str, *, request_id: str) -> Receipt | None:
        """Return the stored answer of a call."""

    def save_receipt(
        self, hub_project: HubProject, caller: str, *, receipt: Receipt, receipts_max: int, now_nanos: int
    ) -> None:
        """Store the answer of a call, made now; past so many in the hub project, the oldest is dropped."""

    def drop_receipt(self, hub_project: HubProject, caller: str, *, request_id: str) -> None:
        """Forget the answer of a call, where there is one."""


class LeaseReads(Protocol):
    """One state of leases."""

    def resource(self, hub_project: HubProject, name: ResourceName) -> Resource:
        """Return a resource; one of which nothing is stored reads as the floor."""

    def tenures(
        self,
        hub_project: HubProject,
        *,
        live_at_nanos: int | None,
        after: LeasePlace | None,
        entries_max: int,
    ) -> list[Tenure]:
        """Return tenures after a place, in order: those live at a moment, or all."""

    def change_number(self, hub_project: HubProject) -> int:
        """Return the number of the newest change of a tenure, 0 where there was none."""

    def tenure_changes(
        self, hub_project: HubProject, *, after_change_number: int, entries_max: int
    ) -> TenureChanges:
        """Return tenures that changed after a change, each in its newest state, oldest change first.

        Reading on from the change number of each answer misses no tenure's newest state.
        """

    def next_expiry_nanos(self) -> int | None:
        """Return when, of all hub projects, the next tenure expires whose end is not noted."""

    def tenures_to_abort(self) -> list[tuple[HubProject, Tenure]]:
        """Return the leases of all hub projects that did not end and are to be aborted."""

    def open_count(self, counted_max: int) -> int:
        """Return how many tenures of all hub projects have no end that was noted, counted so far at most."""
