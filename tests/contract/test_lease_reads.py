"""Leases as lists, watches and other tenants see them, over the wire."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from hub.core.limits import Limits
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import STREAM_SECONDS_MAX, refusal_of
from tests.contract.leasing import (
    acquire,
    acquire_request,
    begin_request,
    expired,
    nonce,
    release,
    state_of,
    takeover_request,
)

LIVE: Final = messages.LEASE_STATE_LIVE


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """Leases may be short, and watchers are given a few bytes at a time."""
    return Limits(lease_ttl_seconds_min=0.05, watch_page_bytes_max=1_000, page_bytes_max=10_000)


def listed(
    stub: LeaseServiceStub, hub_project: str, *, page_size: int = 0, include_ended: bool = False
) -> list[list[tuple[str, int]]]:
    """The pages of a list, each lease as its resource and token."""
    pages: list[list[tuple[str, int]]] = []
    request = messages.ListLeasesRequest(
        hub_project=hub_project, page_size=page_size, include_ended=include_ended
    )
    while True:
        page = stub.ListLeases(request)
        pages.append([(lease.resource, lease.fencing_token) for lease in page.leases])
        if not page.next_page_token:
            return pages
        request.page_token = page.next_page_token


def test_live_leases_are_listed_by_the_bytes_of_their_resources_page_by_page(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    resources = ["a", "B", "ä", "z", "A/b"]
    for resource in resources:
        acquire(lease_stub, hub_project, resource)
    release(lease_stub, hub_project, acquire(lease_stub, hub_project, "released"))
    ordered = [(resource, 1) for resource in sorted(resources, key=str.encode)]
    assert listed(lease_stub, hub_project, page_size=2) == [ordered[:2], ordered[2:4], ordered[4:]]
    assert listed(lease_stub, hub_project, page_size=5) == [ordered]
    assert listed(lease_stub, hub_project) == [ordered]


def test_ended_tenures_are_listed_where_they_are_asked_for_a_lease_before_its_maintenance(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    acquire(lease_stub, hub_project, "b")
    lease_stub.BeginMaintenance(begin_request(hub_project, "b"))
    acquire(lease_stub, hub_project, "c")
    release(lease_stub, hub_project, acquire(lease_stub, hub_project, "a"))
    assert listed(lease_stub, hub_project, page_size=1) == [[("b", 2)], [("c", 1)]]
    every = [[("a", 1)], [("b", 1)], [("b", 2)], [("c", 1)]]
    assert listed(lease_stub, hub_project, page_size=1, include_ended=True) == every
    page = lease_stub.ListLeases(messages.ListLeasesRequest(hub_project=hub_project, include_ended=True))
    assert [(lease.state, lease.is_maintenance) for lease in page.leases] == [
        (messages.LEASE_STATE_RELEASED, False),
        (messages.LEASE_STATE_FENCED, False),
        (LIVE, True),
        (LIVE, False),
    ]
    assert nonce("a1") not in str(page)


def test_a_page_is_cut_at_its_bytes_and_no_lease_is_left_out(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    for number in range(8):
        labels = {"note": "x" * 3_000}
        lease_stub.AcquireLease(acquire_request(hub_project, f"r{number}", labels=labels))
    pages = listed(lease_stub, hub_project)
    assert [len(page) for page in pages] == [3, 3, 2]
    assert [resource for page in pages for resource, _ in page] == [f"r{number}" for number in range(8)]


def test_a_page_token_is_of_its_own_request_only(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    for resource in "ab":
        acquire(lease_stub, hub_project, resource)
    request = messages.ListLeasesRequest(hub_project=hub_project, page_size=1)
    request.page_token = lease_stub.ListLeases(request).next_page_token
    request.include_ended = True
    refusal = refusal_of(lambda: lease_stub.ListLeases(request))
    assert [each.field for each in refusal.violations] == ["page_token"]


@contextmanager
def watching(stub: LeaseServiceStub, hub_project: str) -> Iterator[Iterator[messages.WatchLeasesResponse]]:
    call = stub.WatchLeases(messages.WatchLeasesRequest(hub_project=hub_project), timeout=STREAM_SECONDS_MAX)
    try:
        yield call
    finally:
        call.cancel()


def snapshot_of(watch: Iterator[messages.WatchLeasesResponse]) -> list[messages.Lease]:
    leases: list[messages.Lease] = []
    while not (news := next(watch)).is_snapshot_complete:
        leases.extend(news.leases)
    assert not news.leases
    return leases


def change_in(watch: Iterator[messages.WatchLeasesResponse]) -> list[tuple[str, int, int, bool]]:
    """The next news: each lease as its resource, token, state and whether it is to be aborted."""
    news = next(watch)
    assert not news.is_snapshot_complete
    return [
        (lease.resource, lease.fencing_token, lease.state, lease.is_abort_requested) for lease in news.leases
    ]


def test_a_watch_gives_the_live_leases_and_then_what_changes(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    held = acquire(lease_stub, hub_project, "held")
    release(lease_stub, hub_project, acquire(lease_stub, hub_project, "released"))
    with watching(lease_stub, hub_project) as watch:
        assert snapshot_of(watch) == [held.lease]

        new = acquire(lease_stub, hub_project, "new")
        assert change_in(watch) == [("new", 1, LIVE, False)]
        abort = messages.AbortLeaseRequest(
            hub_project=hub_project, resource="new", reason=messages.ABORT_REASON_INTERNAL
        )
        lease_stub.AbortLease(abort)
        assert change_in(watch) == [("new", 1, LIVE, True)]
        release(lease_stub, hub_project, new)
        assert change_in(watch) == [("new", 1, messages.LEASE_STATE_RELEASED, True)]
        lease_stub.BeginMaintenance(begin_request(hub_project, "held"))
        assert sorted(change_in(watch)) == [
            ("held", 1, messages.LEASE_STATE_FENCED, False),
            ("held", 2, LIVE, False),
        ]


def test_a_watch_tells_of_an_expiry_that_nobody_asked_about(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    with watching(lease_stub, hub_project) as watch:
        assert snapshot_of(watch) == []
        lease_stub.AcquireLease(acquire_request(hub_project, ttl=0.05))
        # That it lived in between may be left out.
        while (change := change_in(watch)) == [("r", 1, LIVE, False)]:
            pass
        assert change == [("r", 1, messages.LEASE_STATE_EXPIRED, False)]


def test_a_large_snapshot_comes_in_parts_and_is_complete_once(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    resources = [f"r{number:02}" for number in range(30)]
    for resource in resources:
        acquire(lease_stub, hub_project, resource)
    with watching(lease_stub, hub_project) as watch:
        sizes: list[int] = []
        seen: list[str] = []
        while not (news := next(watch)).is_snapshot_complete:
            sizes.append(news.ByteSize())
            seen.extend(lease.resource for lease in news.leases)
        assert seen == resources
        assert len(sizes) > 1
        assert max(sizes) <= 1_100


def test_two_hub_projects_see_nothing_of_each_other(lease_stub: LeaseServiceStub, hub_project: str) -> None:
    other = f"{hub_project}-other"
    held = acquire(lease_stub, hub_project)
    with watching(lease_stub, other) as watch:
        assert snapshot_of(watch) == []
        assert state_of(lease_stub, other) == messages.GetResourceStateResponse()
        assert listed(lease_stub, other, include_ended=True) == [[]]
        get = messages.GetLeaseRequest(hub_project=other, resource="r")
        assert refusal_of(lambda: lease_stub.GetLease(get)).reason == "NOT_FOUND"

        renewal = messages.RenewLeaseRequest(hub_project=other, credential=held.credential)
        assert refusal_of(lambda: lease_stub.RenewLease(renewal)).reason == "LEASE_MISSING"
        theirs = acquire(lease_stub, other, holder_id="b", secret="b1")
        assert theirs.lease.fencing_token == 1
        assert change_in(watch) == [("r", 1, LIVE, False)]
        assert state_of(lease_stub, hub_project).lease == held.lease


def test_an_expired_lease_of_another_hub_project_is_not_taken_over(
    lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    expired(lease_stub, hub_project)
    refusal = refusal_of(lambda: lease_stub.TakeoverLease(takeover_request(f"{hub_project}-other")))
    assert refusal.reason == "LEASE_MISSING"
    assert state_of(lease_stub, hub_project).lease.state == messages.LEASE_STATE_EXPIRED
