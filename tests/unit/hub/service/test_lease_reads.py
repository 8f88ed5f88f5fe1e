"""Leases as they are read while a renewal is on its way to the disk."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path

import pytest

from hub.core.tenure import Tenure, TenureState
from hub.core.values import ResourceName
from hub.service.lease_reads import LeaseReads, ToldExpiries
from hub.service.lease_watch import LeaseNews, LeaseWatches
from tests.unit.hub.lease_calls import TTL, acquire, claim, credential
from tests.unit.hub.lease_gate import LeaseGate


class RenewalUnderWay(ToldExpiries):
    """Lets a renewal reach the disk that was decided a moment before the lease expired.

    The writer has one group at a time: whoever comes to it later waits for the renewal's COMMIT.
    """

    def __init__(self, gate: LeaseGate) -> None:
        super().__init__(gate.async_writer, gate.readers)
        self._gate = gate

    async def settle(self, tenures: Iterable[Tenure | None], now_nanos: int) -> bool:
        seen = [tenure for tenure in tenures if tenure is not None]
        for tenure in seen:
            self._gate.elapsed_nanos -= 1
            await self._gate.leases.renew(self._gate.caller, credential(tenure), ttl_nanos=None)
            self._gate.elapsed_nanos += 1
        return await super().settle(seen, now_nanos)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[LeaseGate]:
    gate = LeaseGate(tmp_path, has_upkeep=False)
    yield gate
    gate.close()


@pytest.fixture
def held(gate: LeaseGate) -> Tenure:
    held = acquire(gate, claim("a"))
    gate.pass_time(TTL)
    return held


@pytest.fixture
def reads(gate: LeaseGate, held: Tenure) -> LeaseReads:
    """They see the lease as expired, and then that it was renewed in time."""
    return LeaseReads(
        gate.readers,
        told=RenewalUnderWay(gate),
        queues=gate.queues,
        limits=gate.limits,
        now_nanos=gate.clock.now,
    )


@pytest.fixture
def watch(gate: LeaseGate) -> AsyncGenerator[LeaseNews, None]:
    """It sees an expiry as ``reads`` do."""
    watches = LeaseWatches(
        gate.readers, told=RenewalUnderWay(gate), limits=gate.limits, now_nanos=gate.clock.now
    )
    return watches.watch(gate.caller)


def next_news(gate: LeaseGate, watch: AsyncGenerator[LeaseNews, None]) -> LeaseNews:
    async def read() -> LeaseNews:
        return await anext(watch)

    return gate.answer(read())


def test_a_check_does_not_call_a_lease_expired_that_was_renewed_in_time(
    gate: LeaseGate, held: Tenure, reads: LeaseReads
) -> None:
    check = reads.check(gate.caller, held.resource, fencing_token=held.fencing_token, nonce_hash=None)
    assert gate.answer(check).expire_nanos == held.expire_nanos + TTL - 1


def test_a_resource_is_told_with_the_renewal_that_came_in_time(
    gate: LeaseGate, held: Tenure, reads: LeaseReads
) -> None:
    view = gate.answer(reads.resource(gate.caller, ResourceName("r")))
    assert view.resource.lease is not None
    assert view.resource.lease.state(view.now_nanos) is TenureState.LIVE
    assert view.resource.lease.expire_nanos == held.expire_nanos + TTL - 1


@pytest.mark.parametrize("include_ended", [False, True])
def test_a_list_has_the_renewal_that_came_in_time(
    gate: LeaseGate, held: Tenure, reads: LeaseReads, include_ended: bool
) -> None:
    page = gate.answer(reads.leases(gate.caller, include_ended=include_ended, after=None, entries_max=10))
    assert [tenure.state(page.now_nanos) for tenure in page.tenures] == [TenureState.LIVE]
    assert [tenure.expire_nanos for tenure in page.tenures] == [held.expire_nanos + TTL - 1]


def test_a_snapshot_has_the_renewal_that_came_in_time(
    gate: LeaseGate, held: Tenure, watch: AsyncGenerator[LeaseNews, None]
) -> None:
    news = next_news(gate, watch)
    assert [(tenure.fencing_token, tenure.state(news.now_nanos)) for tenure in news.tenures] == [
        (held.fencing_token, TenureState.LIVE)
    ]
    gate.answer(watch.aclose())


def test_a_watch_does_not_call_a_lease_expired_that_was_renewed_in_time(
    gate: LeaseGate, watch: AsyncGenerator[LeaseNews, None]
) -> None:
    assert next_news(gate, watch).is_snapshot_complete
    held = acquire(gate, claim("a"))
    gate.pass_time(TTL)
    news = next_news(gate, watch)
    assert [tenure.state(news.now_nanos) for tenure in news.tenures] == [TenureState.LIVE]
    assert [tenure.expire_nanos for tenure in news.tenures] == [held.expire_nanos + TTL - 1]
    gate.answer(watch.aclose())
