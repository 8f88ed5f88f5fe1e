"""Runs are gone through page by page, and a hub that goes on meanwhile is no finding."""

import pytest

from hub.core.selection import PageBounds
from hub.core.values import HubProject, ProjectId
from hub.core.verify import VerifiedPage, VerifyPlace
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate, batch
from tests.unit.hub.stored_runs import StoreWriter, event

H = HubProject("h")


def page(store: SqlStore, place: VerifyPlace, *, entries_max: int = 2, project: str = "") -> VerifiedPage:
    bounds = PageBounds(entries_max, 1 << 20)
    with store.reading() as transaction:
        project_id = ProjectId(project) if project else None
        return transaction.verification.page(H, project_id, place=place, bounds=bounds)


def pages(store: SqlStore, *, entries_max: int, project: str = "") -> list[VerifiedPage]:
    found: list[VerifiedPage] = []
    place: VerifyPlace | None = VerifyPlace()
    while place is not None:
        found.append(page(store, place, entries_max=entries_max, project=project))
        place = found[-1].next_place
    return found


@pytest.mark.parametrize("entries_max", [1, 2, 3, 100])
def test_every_event_is_looked_at_once_whatever_the_pages(
    store: SqlStore, writer: StoreWriter, entries_max: int
) -> None:
    writer.push("h", "p", "a", events=[event(n) for n in range(1, 6)])
    writer.push("h", "p", "b", events=[event(1), event(3)])
    writer.push("h", "q", "c", events=[event(1, is_final=True)])
    writer.push("other", "o", "d", events=[event(1)])
    found = pages(store, entries_max=entries_max)
    assert sum(each.event_count for each in found) == 8
    assert sum(each.run_count for each in found) == 3
    assert sum(each.active_run_count for each in found) == 2
    assert [finding for each in found for finding in each.findings] == []
    of_q = pages(store, entries_max=entries_max, project="q")
    assert sum(each.event_count for each in of_q) == 1


def test_a_gap_that_closes_behind_the_place_is_no_finding(store: SqlStore) -> None:
    gate = Gate(store)
    gate.push(batch(event(1), event(3), event(4), event(5)))
    first = page(store, VerifyPlace())
    assert first.next_place is not None
    gate.push(batch(event(2)))
    second = page(store, first.next_place, entries_max=100)
    # It is gone through again, for what was seen of it is not what there is now.
    assert second.findings == ()
    assert second.next_place is not None
    assert second.next_place.fold is not None
    assert second.next_place.fold.sequence == 0
    third = page(store, second.next_place, entries_max=100)
    assert (third.findings, third.run_count, third.next_place) == ((), 1, None)


def test_a_run_that_goes_on_is_no_finding(store: SqlStore, writer: StoreWriter) -> None:
    writer.push("h", "p", "r", events=[event(1), event(2)])
    first = page(store, VerifyPlace())
    assert first.next_place is not None
    writer.push("h", "p", "r", events=[event(3), event(4)])
    second = page(store, first.next_place, entries_max=100)
    assert (second.findings, second.event_count, second.next_place) == ((), 2, None)


def test_what_does_not_fit_is_found_also_where_the_run_goes_on(store: SqlStore, writer: StoreWriter) -> None:
    wrong = event(2)._replace(payload=b"another")
    writer.push("h", "p", "r", events=[event(1), wrong])
    first = page(store, VerifyPlace())
    assert first.next_place is not None
    writer.push("h", "p", "r", events=[event(3)])
    second = page(store, first.next_place, entries_max=100)
    assert [(each.run_id, each.sequence) for each in second.findings] == [("r", 2)]
