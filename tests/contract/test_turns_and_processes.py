"""Turns on a topic, and processes that have a role: who is refused, who replaces whom, who is told."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from runtime_agent.core.errors import UsageError
from runtime_agent.core.lease import AbortReason, LossReason
from runtime_agent.core.lease_errors import (
    LeaseHeld,
    LeaseLost,
    LeaseNotHeld,
    OwnerHasRole,
    QueryHasTopic,
    ResourceUnderMaintenance,
)
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.lease_names import (
    bound_holder_id,
    process_owner_resource,
    process_resource,
    turn_query_resource,
    turn_resource,
)
from runtime_agent.hub_client.lease_values import LeaseState
from runtime_agent.hub_client.turn_lease import Turn
from tests.contract.holding import Holding, InBackground, JumpingClock, Losses, until


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


def turn(
    hub: HubClient, topic: str = "orders", *, query: str = "q1", owner: str = "a", ttl: float = 10.0
) -> Turn:
    return hub.turn(topic, query_id=query, origin="web", owner=owner, ttl_seconds=ttl)


def live(hub: HubClient) -> list[str]:
    return [each.resource for each in hub.list_leases()]


# --- turns ---


def test_a_turn_says_its_origin_and_query_and_lasts_ten_seconds(hub: HubClient) -> None:
    with hub.turn("orders", query_id="q1", origin="web", owner="a", labels={"user": "7"}) as held:
        seen = hub.get_lease(turn_resource("orders"))
        assert seen.labels == {"origin": "web", "query_id": "q1", "user": "7"}
        assert (seen.holder_id, seen.ttl_seconds, seen.fencing_token) == ("a", 10.0, held.fencing_token)
        assert (held.topic, held.query_id) == ("orders", "q1")
        assert live(hub) == ["synchub.turn-query/q1", "synchub.turn/orders"]
    assert live(hub) == []


def test_one_query_at_a_time_has_a_topic(hub: HubClient) -> None:
    with turn(hub, query="q1", owner="a") as held:
        with pytest.raises(LeaseHeld) as caught:
            turn(hub, query="q2", owner="b").acquire()
        assert (caught.value.resource, caught.value.holder_display_name) == ("synchub.turn/orders", "a")
        held.check()
        # The refused query is free for another topic.
        with turn(hub, "bills", query="q2", owner="b"):
            pass


def test_a_turn_may_be_waited_for(hub: HubClient) -> None:
    first = turn(hub, query="q1", owner="a").acquire()
    second = hub.turn("orders", query_id="q2", origin="web", owner="b", wait_seconds=20)
    waiting = InBackground(second.acquire)
    until(lambda: hub.resource_state(turn_resource("orders")).waiter_count == 1)
    first.release()
    waiting.result()
    assert second.fencing_token == 2
    second.release()


def test_a_query_holds_one_topic_only(hub: HubClient) -> None:
    with turn(hub, "orders", query="q1", owner="a") as held:
        for owner in ("a", "b"):
            with pytest.raises(QueryHasTopic) as caught:
                turn(hub, "bills", query="q1", owner=owner).acquire()
            assert (caught.value.query_id, caught.value.topic) == ("q1", "orders")
        held.check()
        assert live(hub) == ["synchub.turn-query/q1", "synchub.turn/orders"]
    with turn(hub, "bills", query="q1", owner="a"):
        pass


def test_a_claim_that_is_refused_for_its_query_does_not_end_the_owners_turn(hub: HubClient) -> None:
    with turn(hub, "bills", query="q2", owner="a") as bills, turn(hub, "orders", query="q1", owner="a"):
        with pytest.raises(QueryHasTopic):
            turn(hub, "bills", query="q1", owner="a").acquire()
        bills.check()
        assert hub.get_lease(turn_resource("bills")).fencing_token == bills.fencing_token


def test_the_same_owner_claims_again_with_a_new_query(hub: HubClient) -> None:
    losses = Losses()
    old = turn(hub, query="q1", owner="a", ttl=3)
    old.on_lost = losses
    old.acquire()
    hub.abort_turn("orders", query_id="q1")
    with turn(hub, query="q2", owner="a") as new:
        assert new.fencing_token == old.fencing_token + 1
        assert not new.abort_requested
        assert hub.get_lease(turn_resource("orders")).abort_reason is None
        # The old query's renewal fails; then it gives its query back, once.
        until(lambda: len(losses.told) == 1)
        assert losses.told[0].reason is LossReason.SUPERSEDED
        assert (losses.told[0].resource, losses.told[0].fencing_token) == ("synchub.turn/orders", 1)
        until(lambda: live(hub) == ["synchub.turn-query/q2", "synchub.turn/orders"])
        with pytest.raises(LeaseLost):
            old.check()
        old.release()
        new.check()
        assert hub.get_lease(turn_resource("orders")).state is LeaseState.LIVE
    assert len(losses.told) == 1


def test_a_release_of_the_old_query_that_does_not_know_yet_fails(hub: HubClient) -> None:
    old = turn(hub, query="q1", owner="a").acquire()
    with turn(hub, query="q2", owner="a") as new:
        old.release()
        new.check()
        assert hub.get_lease(turn_resource("orders")).fencing_token == new.fencing_token
        assert live(hub) == ["synchub.turn-query/q2", "synchub.turn/orders"]


def test_a_turn_is_lost_where_its_query_is_lost(hub: HubClient) -> None:
    losses = Losses()
    held = turn(hub, query="q1", owner="a", ttl=3)
    held.on_lost = losses
    held.acquire()
    with hub.maintenance(turn_query_resource("q1")):
        until(lambda: len(losses.told) == 1)
        assert (losses.told[0].resource, losses.told[0].reason) == ("synchub.turn/orders", LossReason.FENCED)
        with pytest.raises(LeaseLost):
            held.check()
        until(lambda: hub.get_lease(turn_resource("orders")).state is LeaseState.RELEASED)


def test_a_turn_of_which_both_leases_are_lost_at_once_is_told_once(
    hub: HubClient, grpc_addr: str, hub_project: str
) -> None:
    losses, clock = Losses(), JumpingClock()
    holding = Holding(grpc_addr, hub_project, clock)
    try:
        for round_number in (1, 2):
            held = holding.turn("orders", query_id="q1", on_lost=losses).acquire()
            clock.slept_seconds += 30.0
            until(lambda: len(losses.told) >= round_number)  # noqa: B023 - it is waited for at once
            with pytest.raises(LeaseLost):
                held.check()
            time.sleep(0.2)  # a second call would come about now
            assert [lost.fencing_token for lost in losses.told] == list(range(1, round_number + 1))
    finally:
        holding.channel.close()


@pytest.mark.parametrize("reason", list(AbortReason))
def test_a_query_is_asked_to_stop_for_a_reason(hub: HubClient, reason: AbortReason) -> None:
    with turn(hub, ttl=3) as held:
        assert (held.abort_requested, held.abort_reason) == (False, None)
        hub.abort_turn("orders", query_id="q1", reason=reason)
        until(lambda: held.abort_requested)
        assert held.abort_reason is reason
        held.check()


def test_an_abort_of_a_query_that_has_not_the_turn_meets_nobody(hub: HubClient) -> None:
    with pytest.raises(LeaseNotHeld):
        hub.abort_turn("orders")
    with turn(hub, query="q2"):
        with pytest.raises(LeaseNotHeld):
            hub.abort_turn("orders", query_id="q1")
        assert hub.get_lease(turn_resource("orders")).abort_reason is None
    with pytest.raises(LeaseNotHeld):
        hub.abort_turn("orders", query_id="q2")


def test_under_maintenance_the_live_owner_is_refused_too(hub: HubClient) -> None:
    held = turn(hub, query="q1", owner="a").acquire()
    with hub.maintenance(turn_resource("orders"), holder_id="operator"):
        for query, owner in (("q1", "a"), ("q2", "a"), ("q3", "b")):
            with pytest.raises(ResourceUnderMaintenance):
                turn(hub, query=query, owner=owner).acquire()
    with turn(hub, query="q4", owner="b") as after:
        assert (after.fencing_token, after.epoch) == (3, 1)
    held.release()


# --- processes ---


def test_a_process_says_its_pid_and_host_and_lasts_five_seconds(hub: HubClient) -> None:
    with hub.process_lease("scheduler", owner="a") as process:
        seen = hub.get_lease(process_resource("scheduler"))
        assert seen.labels == {"pid": str(os.getpid()), "host": socket.gethostname()}
        assert (seen.holder_id, seen.ttl_seconds) == ("a", 5.0)
        assert (process.role, process.owner) == ("scheduler", "a")
        assert live(hub) == ["synchub.process-owner/a", "synchub.process/scheduler"]
    assert live(hub) == []


def test_a_process_renews_every_second_however_long_its_lease_is(hub: HubClient) -> None:
    with hub.process_lease("scheduler", owner="a", ttl_seconds=60):
        begun = time.monotonic()
        first = hub.get_lease(process_resource("scheduler")).renew_time_nanos
        until(lambda: hub.get_lease(process_resource("scheduler")).renew_time_nanos != first)
        assert time.monotonic() - begun < 10


def test_a_role_has_one_owner_who_is_named(hub: HubClient) -> None:
    with hub.process_lease("scheduler", owner="a") as process:
        with pytest.raises(LeaseHeld) as caught:
            hub.process_lease("scheduler", owner="b", wait_seconds=0).acquire()
        assert caught.value.holder_display_name == "a"
        process.check()
        # Whoever was refused is free for another role.
        with hub.process_lease("sweeper", owner="b"):
            pass


def test_an_owner_has_one_role(hub: HubClient) -> None:
    with hub.process_lease("scheduler", owner="a") as process:
        with pytest.raises(OwnerHasRole) as caught:
            hub.process_lease("sweeper", owner="a", wait_seconds=0).acquire()
        assert (caught.value.owner, caught.value.role) == ("a", "scheduler")
        process.check()
    with hub.process_lease("sweeper", owner="a"):
        pass


def test_a_process_waits_until_its_predecessor_is_gone(hub: HubClient) -> None:
    first = hub.process_lease("scheduler", owner="a").acquire()
    second = hub.process_lease("scheduler", owner="b")
    waiting = InBackground(second.acquire)
    until(lambda: "synchub.process-owner/b" in live(hub))
    assert not waiting.is_over
    first.release()
    waiting.result()
    assert second.fencing_token == first.fencing_token + 1
    second.release()


def test_a_process_that_waits_in_vain_gives_up_after_its_time(hub: HubClient) -> None:
    with hub.process_lease("scheduler", owner="a"):
        begun = time.monotonic()
        with pytest.raises(LeaseHeld):
            hub.process_lease("scheduler", owner="b", wait_seconds=0.5).acquire()
        assert 0.3 < time.monotonic() - begun < 5.0
        until(lambda: live(hub) == ["synchub.process-owner/a", "synchub.process/scheduler"])


def test_a_process_that_was_started_anew_has_its_role_at_once(hub: HubClient) -> None:
    losses = Losses()
    hub.process_lease("scheduler", owner="a", on_lost=losses).acquire()
    with hub.process_lease("scheduler", owner="a", wait_seconds=0) as anew:
        assert anew.fencing_token == 2
        until(lambda: len(losses.told) == 1)
        assert losses.told[0].reason is LossReason.SUPERSEDED
        anew.check()
        assert live(hub) == ["synchub.process-owner/a", "synchub.process/scheduler"]


# --- names ---


def test_a_name_is_whole_behind_its_prefix() -> None:
    assert turn_resource("a/b") == "synchub.turn/a/b"
    assert turn_query_resource("a/b") == "synchub.turn-query/a/b"
    assert process_resource("a/b") == "synchub.process/a/b"
    assert process_owner_resource("a/b") == "synchub.process-owner/a/b"


def test_two_names_that_are_bound_together_are_no_other_two() -> None:
    pairs = [("a/b", "c"), ("a", "b/c"), ("a/", "b/c"), ("", "a/b/c"), ("a/b/c", "")]
    pairs += [("\u00e9", "c"), ("e\u0301", "c")]  # the same letter, composed and decomposed
    assert len({bound_holder_id(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("name", ["", " x", "a\nb", "x" * 256])
def test_what_can_be_no_name_is_refused_before_any_call(hub: HubClient, name: str) -> None:
    for make in (
        lambda: hub.turn(name, query_id="q", origin="web"),
        lambda: hub.turn("t", query_id=name, origin="web"),
        lambda: hub.process_lease(name),
    ):
        with pytest.raises(UsageError):
            make()
