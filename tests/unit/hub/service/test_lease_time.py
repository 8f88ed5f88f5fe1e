"""Expiries that were told stay told, whatever the wall clock says after a restart."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

import pytest

from hub.core.lease_errors import LeaseExpired
from hub.core.tenure import Tenure, TenureEnd, TenureState
from hub.core.values import ResourceName
from hub.service.lease_watch import LeaseNews
from tests.unit.hub.lease_calls import SECOND, TTL, acquire, acquiring, claim, credential, taking_over
from tests.unit.hub.lease_gate import LeaseGate
from tests.unit.hub.stored_runs import WALL_NANOS

DAY: Final = 86_400 * SECOND


def lease_in(gate: LeaseGate) -> Tenure:
    lease = gate.view("r").resource.lease
    assert lease is not None
    return lease


def tell_by_renewal(gate: LeaseGate, held: Tenure) -> None:
    with pytest.raises(LeaseExpired):
        gate.answer(gate.leases.renew(gate.caller, credential(held), ttl_nanos=None))


def tell_by_renewals(gate: LeaseGate, held: Tenure) -> None:
    (outcome,) = gate.answer(gate.leases.renew_many(gate.caller, [(credential(held), None)]))
    assert isinstance(outcome, LeaseExpired)


def tell_by_check(gate: LeaseGate, held: Tenure) -> None:
    check = gate.reads.check(
        gate.caller, ResourceName("r"), fencing_token=held.fencing_token, nonce_hash=None
    )
    with pytest.raises(LeaseExpired):
        gate.answer(check)


def tell_by_reading(gate: LeaseGate, _held: Tenure) -> None:
    assert lease_in(gate).state(gate.clock.now()) is TenureState.EXPIRED


def tell_by_listing(gate: LeaseGate, _held: Tenure) -> None:
    page = gate.answer(gate.reads.leases(gate.caller, include_ended=True, after=None, entries_max=10))
    assert [tenure.state(page.now_nanos) for tenure in page.tenures] == [TenureState.EXPIRED]


def tell_by_leaving_out(gate: LeaseGate, _held: Tenure) -> None:
    page = gate.answer(gate.reads.leases(gate.caller, include_ended=False, after=None, entries_max=10))
    assert page.tenures == []


def tell_by_snapshot(gate: LeaseGate, _held: Tenure) -> None:
    watch = gate.watches.watch(gate.caller)
    news = next_news(gate, watch)
    assert (news.tenures, news.is_snapshot_complete) == ((), True)
    gate.answer(watch.aclose())


TELLERS: Final = (
    tell_by_renewal,
    tell_by_renewals,
    tell_by_check,
    tell_by_reading,
    tell_by_listing,
    tell_by_leaving_out,
    tell_by_snapshot,
)


@pytest.mark.parametrize("tell", TELLERS)
def test_an_expiry_that_was_told_is_not_revived_by_a_restart_with_an_earlier_wall_clock(
    tmp_path: Path, tell: Callable[[LeaseGate, Tenure], None]
) -> None:
    gate = LeaseGate(tmp_path, has_upkeep=False)
    held = acquire(gate, claim("a"))
    gate.pass_time(TTL)
    tell(gate, held)
    gate.close()
    after = LeaseGate(tmp_path, wall_nanos=WALL_NANOS - DAY, has_upkeep=False)
    tell_by_reading(after, held)
    tell_by_renewal(after, held)
    after.close()


def test_a_takeover_that_was_told_is_not_undone_by_a_restart_with_an_earlier_wall_clock(
    tmp_path: Path,
) -> None:
    gate = LeaseGate(tmp_path, has_upkeep=False)
    acquire(gate, claim("a"))
    gate.pass_time(TTL)
    taken = gate.answer(taking_over(gate, claim("b"))).tenure
    gate.close()
    after = LeaseGate(tmp_path, wall_nanos=WALL_NANOS - DAY)
    assert after.clock.now() == taken.acquire_nanos
    assert lease_in(after) == taken
    after.close()


def test_an_expiry_that_a_watch_told_is_not_revived(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path, has_upkeep=False)
    watch = gate.watches.watch(gate.caller)
    assert next_news(gate, watch).is_snapshot_complete
    held = acquire(gate, claim("a"))
    gate.pass_time(TTL)
    news = next_news(gate, watch)
    assert [tenure.state(news.now_nanos) for tenure in news.tenures] == [TenureState.EXPIRED]
    gate.answer(watch.aclose())
    gate.close()
    after = LeaseGate(tmp_path, wall_nanos=WALL_NANOS - DAY, has_upkeep=False)
    tell_by_renewal(after, held)
    after.close()


def next_news(gate: LeaseGate, watch: AsyncGenerator[LeaseNews, None]) -> LeaseNews:
    async def read() -> LeaseNews:
        return await anext(watch)

    return gate.answer(read())


def test_hub_time_goes_on_from_the_last_commit_where_the_wall_clock_stepped_back(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path, has_upkeep=False)
    held = acquire(gate, claim("a"))
    gate.pass_time(TTL)
    # Nobody was told of the expiry: the lease goes on where it was, and not for longer.
    gate.close()
    after = LeaseGate(tmp_path, wall_nanos=WALL_NANOS - DAY)
    assert after.clock.now() == held.acquire_nanos
    after.pass_time(TTL - 1)
    assert lease_in(after) == held
    after.pass_time(1)
    assert lease_in(after).end == TenureEnd(TenureState.EXPIRED, held.expire_nanos)
    after.close()


def test_a_wall_clock_ahead_at_a_restart_expires_what_it_has_passed(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path)
    held = acquire(gate, claim("a"))
    gate.close()
    after = LeaseGate(tmp_path, wall_nanos=held.expire_nanos)
    assert lease_in(after).end == TenureEnd(TenureState.EXPIRED, held.expire_nanos)
    after.close()


def test_an_expiry_is_noted_when_it_is_due_without_anybody_asking(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path)
    held = acquire(gate, claim("a"))
    before = gate.stored()
    gate.pass_time(TTL - 1)
    assert gate.stored() == before
    gate.pass_time(1)
    assert gate.stored() != before
    assert lease_in(gate).end == TenureEnd(TenureState.EXPIRED, held.expire_nanos)
    gate.close()


def test_an_expiry_wakes_who_waits_at_that_moment_also_after_a_shorter_renewal(tmp_path: Path) -> None:
    gate = LeaseGate(tmp_path)
    held = acquire(gate, claim("a"))
    waiting = gate.start(acquiring(gate, claim("b"), wait=60 * SECOND))
    gate.answer(gate.leases.renew(gate.caller, credential(held), ttl_nanos=SECOND))
    gate.pass_time(SECOND - 1)
    assert not waiting.done()
    gate.pass_time(1)
    assert waiting.result().tenure.acquire_nanos == held.acquire_nanos + SECOND
    gate.close()


def test_an_expiry_of_a_commit_that_was_not_announced_is_noted_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = LeaseGate(tmp_path)
    with monkeypatch.context() as unannounced:
        unannounced.setattr(gate.upkeep, "announce", lambda _changes: None)
        held = acquire(gate, claim("a"))
    # The store is asked now and then what expires next, and so learns of it.
    for _ in range(round((TTL + 10 * SECOND) / SECOND) + 2):
        gate.pass_time(SECOND)
    assert lease_in(gate).end == TenureEnd(TenureState.EXPIRED, held.expire_nanos)
    gate.close()
