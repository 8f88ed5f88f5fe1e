"""The races of leases by name, each against a real hub whose clock stands still until the test moves it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.channel import refusal_from_status
from synchub.contract import NANOS_PER_SECOND, SEQUENCE_MAX
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.lease_calls import LeaseCalls, outcome_of, reason_of, refused

TTL: Final = 10.0
MILLISECOND: Final = 0.001
ROUNDS: Final = 20
RIVALS: Final = 8
FENCED: Final = messages.LEASE_STATE_FENCED
RELEASED: Final = messages.LEASE_STATE_RELEASED
Renewals = Conversation[messages.RenewLeasesRequest, messages.RenewLeasesResponse]


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def grpc_server(
    tmp_path_factory: pytest.TempPathFactory, clock: HandClock, hub_limits: Limits
) -> Iterator[HubInThread]:
    with hub_in_hand(tmp_path_factory.mktemp("hub"), clock, limits=hub_limits) as hub:
        yield hub


@pytest.fixture
def calls(lease_stub: LeaseServiceStub, hub_project: str) -> LeaseCalls:
    return LeaseCalls(lease_stub, hub_project)


def ends_at(answer: messages.AcquireLeaseResponse | messages.TakeoverLeaseResponse) -> int:
    return answer.lease.expire_time.ToNanoseconds()


# --- late calls of who held it --------------------------------------------------------------------


def test_a_late_release_after_a_takeover_does_not_free_it(calls: LeaseCalls, clock: HandClock) -> None:
    late = calls.acquire()
    clock.pass_time(TTL)
    taken = calls.takeover()
    before = calls.state()
    assert refused(calls.release, late.credential) == "LEASE_SUPERSEDED"
    assert calls.state() == before
    assert before.lease == taken.lease


def test_a_delayed_renewal_after_a_takeover_does_not_bring_it_back(
    calls: LeaseCalls, clock: HandClock
) -> None:
    late = calls.acquire()
    clock.pass_time(TTL)
    calls.takeover()
    before = calls.state()
    assert refused(calls.renew, late.credential, ttl=3_600) == "LEASE_SUPERSEDED"
    with Renewals(calls.stub.RenewLeases) as stream:
        request = messages.RenewLeasesRequest(hub_project=calls.hub_project)
        request.renewals.add(credential=late.credential)
        (result,) = stream.ask(request).results
    assert refusal_from_status(result.refusal).reason == "LEASE_SUPERSEDED"
    assert calls.state() == before


def test_a_renewal_one_millisecond_after_the_expiry_is_refused_with_nobody_else_there(
    calls: LeaseCalls, clock: HandClock
) -> None:
    held = calls.acquire()
    clock.pass_time(TTL + MILLISECOND)
    refusal = refusal_of(lambda: calls.renew(held.credential))
    assert (refusal.reason, refusal.metadata["expireTime"]) == (
        "LEASE_EXPIRED",
        held.lease.expire_time.ToJsonString(),
    )
    assert calls.stale_cause(1, "a1") == "LEASE_EXPIRED"
    # And a millisecond before it, it is extended.
    again = calls.acquire(secret="a2")
    clock.pass_time(TTL - MILLISECOND)
    assert calls.renew(again.credential).lease.expire_time.ToNanoseconds() == ends_at(again) + round(
        (TTL - MILLISECOND) * NANOS_PER_SECOND
    )


def test_a_fenced_holder_that_renews_on_is_told_so_for_ever(calls: LeaseCalls, clock: HandClock) -> None:
    held = calls.acquire()
    maintenance = calls.begin()
    request = messages.RenewLeasesRequest(hub_project=calls.hub_project)
    request.renewals.add(credential=held.credential)
    with Renewals(calls.stub.RenewLeases) as stream:

        def renewed() -> list[str]:
            (result,) = stream.ask(request).results
            return [refused(calls.renew, held.credential), refusal_from_status(result.refusal).reason]

        told = [renewed()]
        calls.finish(maintenance.credential)
        told.append(renewed())
        calls.acquire("b", "b1")
        told.append(renewed())
        clock.pass_time(TTL)
        told.append(renewed())
    assert told == [["LEASE_FENCED"] * 2] * 4
    for call in (calls.release, calls.transfer, calls.renew_maintenance, calls.finish):
        assert refused(call, held.credential) == "LEASE_FENCED"
    assert calls.stale_cause(1) == "LEASE_FENCED"


def test_a_restarted_holder_with_the_same_id_supersedes_its_former_self_at_once(calls: LeaseCalls) -> None:
    former = calls.acquire(labels={"pid": "1"})
    calls.abort()
    latter = calls.acquire(secret="a2", labels={"pid": "2"})
    assert (latter.renewed, latter.lease.fencing_token) == (False, 2)
    assert not latter.lease.is_abort_requested
    for call in (calls.renew, calls.release, calls.transfer):
        assert refused(call, former.credential) == "LEASE_SUPERSEDED"
    # The former self cannot come back under the nonce that it knows.
    assert refused(calls.acquire, "a", "a1") == "LEASE_SUPERSEDED"
    assert calls.state().lease == latter.lease


# --- at once --------------------------------------------------------------------------------------


def test_of_many_takeovers_at_once_one_is_granted(calls: LeaseCalls, clock: HandClock) -> None:
    calls.acquire()
    for round_number in range(ROUNDS):
        clock.pass_time(TTL)

        def take(rival: int, number: int = round_number) -> messages.TakeoverLeaseResponse | str:
            return outcome_of(calls.takeover, f"rival-{rival}", f"{number}-{rival}-")

        with ThreadPoolExecutor(RIVALS) as threads:
            outcomes = list(threads.map(take, range(RIVALS)))
        granted = [each for each in outcomes if isinstance(each, messages.TakeoverLeaseResponse)]
        assert [each.lease.fencing_token for each in granted] == [round_number + 2]
        assert calls.state().lease == granted[0].lease
        assert {each for each in outcomes if isinstance(each, str)} == {"LEASE_HELD"}


def test_an_acquire_while_a_maintenance_begins_is_fenced_or_refused(calls: LeaseCalls) -> None:
    for round_number in range(ROUNDS):
        with ThreadPoolExecutor(2) as threads:
            acquiring = threads.submit(outcome_of, calls.acquire, "a", f"a{round_number}-")
            beginning = threads.submit(calls.begin, "m", f"m{round_number}-")
            outcome, begun = acquiring.result(), beginning.result()
        state = calls.state()
        assert state.epoch == begun.epoch == round_number + 1
        assert state.fencing_token == begun.credential.fencing_token
        assert calls.check(begun.credential.fencing_token, f"m{round_number}-").is_current
        if isinstance(outcome, messages.AcquireLeaseResponse):
            assert state.lease.state == FENCED
            assert state.lease.fencing_token == begun.credential.fencing_token - 1
            assert calls.stale_cause(state.lease.fencing_token) == "LEASE_FENCED"
        else:
            assert outcome == "RESOURCE_UNDER_MAINTENANCE"
        calls.finish(begun.credential)


def test_a_maintenance_begun_twice_is_one(calls: LeaseCalls) -> None:
    first = calls.begin()
    again = calls.begin()
    assert (again.credential, again.epoch, again.expire_time) == (
        first.credential,
        first.epoch,
        first.expire_time,
    )
    assert refused(calls.begin, "m", "m2") == "RESOURCE_UNDER_MAINTENANCE"
    assert refused(calls.begin, "n", "n1") == "RESOURCE_UNDER_MAINTENANCE"
    state = calls.state()
    assert (state.epoch, state.fencing_token) == (1, 1)
    calls.finish(first.credential)
    # What has ended does not begin again.
    assert refused(calls.begin) == "LEASE_SUPERSEDED"


def test_a_maintenance_begun_twice_at_once_is_one(calls: LeaseCalls) -> None:
    for round_number in range(ROUNDS):

        def begin(name: str, number: int = round_number) -> messages.BeginMaintenanceResponse | str:
            return outcome_of(calls.begin, name, f"{name}{number}-")

        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(begin, "mn"))
        assert [each for each in outcomes if isinstance(each, str)] == ["RESOURCE_UNDER_MAINTENANCE"]
        (begun,) = (each for each in outcomes if isinstance(each, messages.BeginMaintenanceResponse))
        assert (calls.state().epoch, begun.epoch) == (round_number + 1, round_number + 1)
        calls.finish(begun.credential)


# --- lost and repeated answers --------------------------------------------------------------------


def test_a_lost_acquire_answer_is_found_again_under_the_same_nonce(
    calls: LeaseCalls, clock: HandClock
) -> None:
    lost = calls.acquire()
    clock.pass_time(TTL / 2)
    found = calls.acquire()
    assert (found.renewed, found.credential) == (True, lost.credential)
    assert found.lease.acquire_time == lost.lease.acquire_time
    assert ends_at(found) == ends_at(lost) + round(TTL / 2 * NANOS_PER_SECOND)


def test_a_lost_acquire_answer_is_replayed_under_the_same_request_id(
    calls: LeaseCalls, clock: HandClock
) -> None:
    lost = calls.acquire(request_id="q")
    clock.pass_time(TTL / 2)
    before = calls.state()
    replayed = calls.acquire(request_id="q")
    assert (replayed.replayed, replayed.lease, replayed.credential) == (True, lost.lease, lost.credential)
    assert calls.state() == before
    assert calls.renew(replayed.credential).lease.fencing_token == 1


def test_a_replayed_answer_that_arrives_after_the_expiry_opens_nothing(
    calls: LeaseCalls, clock: HandClock
) -> None:
    first = calls.acquire(request_id="q")
    clock.pass_time(TTL)
    before = calls.state()
    assert before.lease.state == messages.LEASE_STATE_EXPIRED
    replayed = calls.acquire(request_id="q")
    assert (replayed.replayed, replayed.lease) == (True, first.lease)
    assert calls.state() == before
    assert calls.stale_cause(1, "a1") == "LEASE_EXPIRED"
    assert refused(calls.renew, replayed.credential) == "LEASE_EXPIRED"
    taken = calls.takeover()
    assert calls.acquire(request_id="q").replayed
    assert calls.state().lease == taken.lease


def test_a_release_replayed_frees_nothing_of_who_came_after(calls: LeaseCalls) -> None:
    held = calls.acquire()
    assert not calls.release(held.credential, request_id="q").replayed
    assert calls.release(held.credential, request_id="q").replayed
    assert refused(calls.release, held.credential) == "LEASE_MISSING"
    after = calls.acquire("b", "b1")
    assert calls.release(held.credential, request_id="q").replayed
    assert refused(calls.release, held.credential) == "LEASE_SUPERSEDED"
    assert calls.state().lease == after.lease


# --- aborts and transfers -------------------------------------------------------------------------


def test_an_abort_on_an_expired_lease_is_refused(calls: LeaseCalls, clock: HandClock) -> None:
    calls.acquire()
    clock.pass_time(TTL)
    before = calls.state()
    assert refused(calls.abort) == "LEASE_EXPIRED"
    assert refused(calls.abort, 1) == "LEASE_EXPIRED"
    assert calls.state() == before
    assert not before.lease.is_abort_requested


def test_an_abort_aimed_at_the_previous_tenure_does_not_reach_the_next(
    calls: LeaseCalls, clock: HandClock
) -> None:
    calls.acquire()
    clock.pass_time(TTL)
    taken = calls.takeover()
    assert refused(calls.abort, 1) == "LEASE_SUPERSEDED"
    assert not calls.renew(taken.credential).lease.is_abort_requested
    assert calls.abort(2).lease.is_abort_requested


def test_a_transfer_to_a_holder_that_dies_ends_with_its_ttl(calls: LeaseCalls, clock: HandClock) -> None:
    held = calls.acquire()
    clock.pass_time(TTL - MILLISECOND)
    given = calls.transfer(held.credential).lease
    assert (given.state, given.fencing_token) == (messages.LEASE_STATE_UNCLAIMED, 2)
    clock.pass_time(TTL - MILLISECOND)
    # It is the dead one's until then: neither the former holder nor a third one gets it.
    assert refused(calls.acquire, "a", "a2") == "LEASE_HELD"
    assert refused(calls.takeover, "c", "c1") == "LEASE_HELD"
    assert calls.stale_cause(2) == "LEASE_SUPERSEDED"
    clock.pass_time(MILLISECOND)
    assert refused(calls.release, held.credential) == "LEASE_SUPERSEDED"
    assert calls.takeover("c", "c1").lease.fencing_token == 3
    # Back from the dead, it gets no token that it was promised.
    assert refused(calls.acquire, "b", "b1") == "LEASE_HELD"


# --- waits ----------------------------------------------------------------------------------------


def test_a_wait_longer_than_the_ttl_ends_with_a_whole_ttl(calls: LeaseCalls, clock: HandClock) -> None:
    held = calls.acquire()
    begun = held.lease.acquire_time.ToNanoseconds()
    waiting = calls.waiting(ttl=5)
    for _ in range(5):
        clock.pass_time(TTL - MILLISECOND)
        calls.renew(held.credential)
    assert not waiting.done()
    calls.release(held.credential)
    granted = waiting.result()
    waited_nanos = round(5 * (TTL - MILLISECOND) * NANOS_PER_SECOND)
    assert granted.waited.ToNanoseconds() == waited_nanos
    assert granted.lease.acquire_time.ToNanoseconds() == begun + waited_nanos
    assert ends_at(granted) == begun + waited_nanos + 5 * NANOS_PER_SECOND
    assert calls.check(2, "b1").is_current


def test_a_wait_that_ends_in_vain_leaves_nothing_behind(calls: LeaseCalls, clock: HandClock) -> None:
    held = calls.acquire(ttl=3_600)
    before = calls.state()
    waiting = calls.waiting(wait=0.2)
    clock.pass_time(1)
    assert reason_of(waiting) == "LEASE_HELD"
    assert calls.state() == before
    calls.release(held.credential)
    assert calls.acquire("c", "c1").lease.fencing_token == 2


# --- the last numbers -----------------------------------------------------------------------------


def test_a_counter_near_its_end_is_used_up_and_never_wraps(tmp_path: Path, clock: HandClock) -> None:
    limits = Limits()
    with opened_engine(tmp_path / "hub.db", limits=limits) as engine:
        store = SqlStore(engine, limits=limits, wall_nanos=0)
        store.writing.begin().leases.raise_floors(SEQUENCE_MAX - 3)
        store.writing.commit(0)
        store.close()
    with hub_in_hand(tmp_path, clock) as hub, grpc.insecure_channel(hub.address) as channel:
        calls = LeaseCalls(LeaseServiceStub(channel), "h")
        held = calls.acquire()
        maintenance = calls.begin()
        assert (held.lease.fencing_token, maintenance.credential.fencing_token) == (
            SEQUENCE_MAX - 2,
            SEQUENCE_MAX - 1,
        )
        calls.finish(maintenance.credential)
        last = calls.acquire("b", "b1")
        assert last.lease.fencing_token == SEQUENCE_MAX
        assert calls.renew(last.credential).lease.fencing_token == SEQUENCE_MAX
        before = calls.state()
        for call in (
            lambda: calls.acquire("b", "b2"),
            lambda: calls.transfer(last.credential),
            lambda: calls.begin("m", "m2"),
        ):
            refusal = refusal_of(call)
            assert (refusal.code, refusal.reason) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "LIMIT_REACHED",
            )
            assert refusal.metadata == {"limit": "fencing_token", "limitValue": str(SEQUENCE_MAX)}
        assert calls.state() == before
        assert calls.check(SEQUENCE_MAX, "b1").is_current
        calls.release(last.credential)
        assert refused(calls.acquire, "c", "c1") == "LIMIT_REACHED"
        assert calls.state().fencing_token == SEQUENCE_MAX
