"""Who gets a resource: what opens a tenure, which nonce opens none, and how the counters rise."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hub.core.errors import LimitReached
from hub.core.lease import decide_expiry, decide_release
from hub.core.lease_errors import LeaseHeld, LeaseMissing, LeaseSuperseded, ResourceUnderMaintenance
from hub.core.maintenance import decide_finish
from hub.core.tenure import AbortReason, Claim, Granted, Holder, Resource, Tenure, hash_of_nonce
from hub.core.values import HolderId, RuntimeId
from synchub.contract import SEQUENCE_MAX
from tests.unit.hub.lease_values import (
    EXPIRE,
    NAME,
    NOW,
    TTL,
    abort,
    acquire,
    begin,
    claim,
    credential,
    facts_of,
    free,
    held,
    held_by,
    holder,
    lease_of,
    maintenance_of,
    refusal_of,
    released,
    renew,
    takeover,
    transfer,
    with_counters,
)

# --- acquire --------------------------------------------------------------------------------------


def test_what_nobody_holds_is_granted_as_a_new_tenure() -> None:
    granted = acquire(free(), claim(labels={"pid": "1"}))
    tenure = Tenure(
        resource=NAME,
        holder=holder("a"),
        fencing_token=1,
        epoch=0,
        ttl_nanos=TTL,
        acquire_nanos=NOW,
        renew_nanos=NOW,
        expire_nanos=EXPIRE,
        nonce_hash=hash_of_nonce("a1"),
        labels={"pid": "1"},
    )
    assert granted == Granted(replace(free(), fencing_token=1, lease=tenure), tenure, False)


@pytest.mark.parametrize(
    ("before", "now"), [(released(), NOW + 2), (held(), EXPIRE), (decide_expiry(held(), EXPIRE), EXPIRE)]
)
@pytest.mark.parametrize("claimed", [claim("b", "b1"), claim("a", "a2")])
def test_what_was_released_or_expired_is_granted_to_anybody_under_the_next_token(
    before: Resource, now: int, claimed: Claim
) -> None:
    granted = acquire(before, claimed, now)
    assert (granted.tenure.fencing_token, granted.tenure.acquire_nanos) == (2, now)
    assert granted.tenure.holder == claimed.holder
    assert not granted.is_renewed


def test_a_new_tenure_has_neither_flag_nor_labels_of_the_one_before() -> None:
    before = abort(held(claim(labels={"pid": "1"})), NOW, reason=AbortReason.EXTERNAL).resource
    granted = acquire(before, claim("b", "b1"), EXPIRE)
    assert (granted.tenure.abort_reason, granted.tenure.labels) == (None, {})


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_the_same_holder_and_nonce_renews_the_same_tenure(now: int) -> None:
    before = abort(held(claim(labels={"pid": "1"})), NOW, reason=AbortReason.EXTERNAL).resource
    again = replace(claim(ttl=TTL // 2, labels={"host": "h"}), holder=holder("a", "Anna"))
    granted = acquire(before, again, now)
    expected = replace(
        lease_of(before),
        holder=holder("a", "Anna"),
        labels={"host": "h"},
        ttl_nanos=TTL // 2,
        renew_nanos=now,
        expire_nanos=now + TTL // 2,
    )
    assert granted == Granted(replace(before, lease=expected), expected, True)
    assert expected.abort_reason is AbortReason.EXTERNAL


def test_the_same_holder_with_another_nonce_supersedes_its_former_self_at_once() -> None:
    before = abort(held(), NOW).resource
    granted = acquire(before, claim("a", "a2"), NOW + 1)
    assert (granted.tenure.fencing_token, granted.is_renewed) == (2, False)
    assert granted.tenure.abort_reason is None
    superseded = facts_of(LeaseSuperseded(NAME, 1))
    assert refusal_of(renew, granted.resource, credential(), NOW + 2) == superseded
    assert refusal_of(decide_release, granted.resource, credential(), now_nanos=NOW + 2) == superseded


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_what_another_holds_is_refused_with_its_name_and_expire_time(now: int) -> None:
    before = held(replace(claim(), holder=holder("a", "Anna")))
    assert refusal_of(acquire, before, claim("b", "b1"), now) == held_by("Anna", EXPIRE, now)


def test_a_holder_without_a_name_is_named_by_its_id() -> None:
    assert refusal_of(acquire, held(), claim("b", "b1"), NOW) == held_by("a", EXPIRE, NOW)


def test_the_same_holder_id_of_another_runtime_is_another_holder() -> None:
    other = replace(claim(), holder=Holder(RuntimeId("runtime-2"), HolderId("a")))
    assert refusal_of(acquire, held(), other, NOW) == held_by("a", EXPIRE, NOW)


def test_while_others_wait_a_free_resource_is_refused_without_an_expire_time() -> None:
    refused = facts_of(LeaseHeld(NAME, "", expire_nanos=None, now_nanos=EXPIRE))
    assert refusal_of(acquire, held(), claim("b", "b1"), EXPIRE, may_open=False) == refused
    # Its holder is nobody special any more, whatever its nonce.
    assert refusal_of(acquire, held(), claim("a", "a2"), EXPIRE, may_open=False) == refused


@pytest.mark.parametrize(("nonce", "token"), [("a1", 1), ("a2", 2)])
def test_while_others_wait_the_live_holder_itself_passes(nonce: str, token: int) -> None:
    assert acquire(held(), claim("a", nonce), EXPIRE - 1, may_open=False).tenure.fencing_token == token


# --- nonces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (released(), NOW + 2),
        (held(), EXPIRE),
        (decide_expiry(held(), EXPIRE), EXPIRE),
        (acquire(held(), claim("a", "a2"), NOW).resource, NOW),
        (acquire(held(), claim("b", "b1"), EXPIRE).resource, EXPIRE),
        (transfer(held(), credential(), NOW).resource, NOW),
        (transfer(held(), credential(), NOW, to="a").resource, NOW),
        (begin(held(), claim("m", "m1")).resource, NOW + TTL),
    ],
    ids=["released", "expired", "noted", "superseded", "taken", "handed on", "handed to itself", "fenced"],
)
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_nonce_of_an_ended_tenure_opens_nothing(before: Resource, now: int, name: str) -> None:
    refused = facts_of(LeaseSuperseded(NAME, 0, "the nonce of an ended tenure"))
    assert refusal_of(acquire, before, claim(name, "a1"), now) == refused


def test_the_last_eight_ended_nonces_are_remembered_and_the_ninth_is_forgotten() -> None:
    resource = free()
    for number in range(1, 11):
        resource = acquire(resource, claim("a", f"nonce-{number}")).resource
    # The tenth lives, nine have ended.
    assert resource.past_nonce_hashes == tuple(hash_of_nonce(f"nonce-{number}") for number in range(2, 10))
    for number in range(2, 10):
        ended = claim("a", f"nonce-{number}")
        assert refusal_of(acquire, resource, ended)[0] is LeaseSuperseded
    assert acquire(resource, claim("a", "nonce-1")).tenure.fencing_token == 11


def test_a_transferred_lease_that_nobody_claimed_leaves_no_nonce_behind() -> None:
    resource = transfer(held(), credential(), NOW).resource
    assert resource.past_nonce_hashes == (hash_of_nonce("a1"),)
    assert acquire(resource, claim("c", "c1"), EXPIRE).resource.past_nonce_hashes == (hash_of_nonce("a1"),)


# --- takeover -------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [held(), decide_expiry(held(), EXPIRE)])
@pytest.mark.parametrize("claimed", [claim("b", "b1"), claim("a", "a2")])
def test_what_expired_is_taken_over_under_the_next_token(before: Resource, claimed: Claim) -> None:
    granted = takeover(before, claimed, EXPIRE)
    assert granted == acquire(before, claimed, EXPIRE)
    assert (granted.tenure.fencing_token, granted.is_renewed) == (2, False)


@pytest.mark.parametrize("claimed", [claim("b", "b1"), claim("a", "a1"), claim("a", "a2")])
def test_what_lives_is_not_taken_over_by_its_own_holder_either(claimed: Claim) -> None:
    refused = held_by("a", EXPIRE, EXPIRE - 1)
    assert refusal_of(takeover, held(), claimed, EXPIRE - 1) == refused


@pytest.mark.parametrize("before", [free(), free(token=9, epoch=9), released()])
def test_what_was_never_held_or_was_released_is_not_there_to_be_taken_over(before: Resource) -> None:
    refused = facts_of(LeaseMissing(NAME, 0))
    assert refusal_of(takeover, before, claim("b", "b1"), EXPIRE) == refused


@pytest.mark.parametrize("is_finished", [True, False])
def test_after_a_maintenance_there_is_nothing_to_take_over(is_finished: bool) -> None:
    resource = begin(held(), claim("m", "m1")).resource
    if is_finished:
        resource = decide_finish(
            resource, credential("m", "m1", token=2), now_nanos=NOW, is_state_deleted=False
        )
    assert refusal_of(takeover, resource, claim("b", "b1"), EXPIRE) == facts_of(LeaseMissing(NAME, 0))


def test_a_takeover_does_not_pass_those_who_wait() -> None:
    refused = facts_of(LeaseHeld(NAME, "", expire_nanos=None, now_nanos=EXPIRE))
    assert refusal_of(takeover, held(), claim("b", "b1"), EXPIRE, may_open=False) == refused


def test_two_takeovers_one_after_the_other_are_one() -> None:
    first = takeover(held(), claim("b", "b1"), EXPIRE)
    refused = held_by("b", EXPIRE + TTL, EXPIRE)
    assert refusal_of(takeover, first.resource, claim("c", "c1"), EXPIRE) == refused


# --- the order where a tenure is to be opened -----------------------------------------------------


def test_an_ended_nonce_is_told_before_who_holds_it() -> None:
    resource = acquire(held(), claim("b", "b1"), EXPIRE).resource
    assert refusal_of(acquire, resource, claim("a", "a1"), EXPIRE)[0] is LeaseSuperseded
    assert refusal_of(takeover, resource, claim("a", "a1"), EXPIRE)[0] is LeaseSuperseded


def test_a_takeover_of_what_was_released_is_missing_whatever_the_nonce() -> None:
    assert refusal_of(takeover, released(), claim("a", "a1"), EXPIRE)[0] is LeaseMissing


def test_maintenance_is_told_before_an_ended_nonce() -> None:
    resource = begin(held(), claim("m", "m1")).resource
    assert refusal_of(acquire, resource, claim("a", "a1"), NOW)[0] is ResourceUnderMaintenance


# --- counters -------------------------------------------------------------------------------------


def test_a_resource_without_a_row_reads_as_the_floor() -> None:
    resource = free(token=40, epoch=3)
    assert (resource.fencing_token, resource.epoch, resource.current) == (40, 3, None)
    granted = acquire(resource)
    assert (granted.tenure.fencing_token, granted.tenure.epoch) == (41, 3)


@pytest.mark.parametrize(("last", "floor", "token"), [(7, 3, 8), (7, 7, 8), (7, 90, 91)])
def test_the_next_token_is_above_the_last_one_and_the_floor(last: int, floor: int, token: int) -> None:
    resource = with_counters(free(token=floor), token=last, epoch=0)
    assert acquire(resource).resource.fencing_token == token


@pytest.mark.parametrize(
    "open_one",
    [
        lambda resource: acquire(resource, claim("a", "a2"), NOW),
        lambda resource: acquire(resource, claim("b", "b1"), EXPIRE),
        lambda resource: takeover(resource, claim("b", "b1"), EXPIRE),
        lambda resource: transfer(resource, credential(token=resource.fencing_token), NOW),
        lambda resource: begin(resource, claim("m", "m1"), NOW),
    ],
    ids=["acquire", "acquire expired", "takeover", "transfer", "maintenance"],
)
def test_the_last_token_is_given_and_after_it_nothing_wraps(
    open_one: Callable[[Resource], Granted],
) -> None:
    nearly = held(token=SEQUENCE_MAX - 2)
    assert open_one(nearly).tenure.fencing_token == SEQUENCE_MAX
    full = held(token=SEQUENCE_MAX - 1)
    assert lease_of(full).fencing_token == SEQUENCE_MAX
    reached = facts_of(LimitReached("fencing_token", SEQUENCE_MAX))
    assert refusal_of(open_one, full) == reached


def test_the_last_token_is_held_renewed_and_released_like_any_other() -> None:
    full = held(token=SEQUENCE_MAX - 1)
    shown = credential(token=SEQUENCE_MAX)
    assert acquire(full).is_renewed
    assert renew(full, shown, NOW).tenure.fencing_token == SEQUENCE_MAX
    freed = decide_release(full, shown, now_nanos=NOW)
    reached = facts_of(LimitReached("fencing_token", SEQUENCE_MAX))
    assert refusal_of(acquire, freed, claim("b", "b1")) == reached


def test_a_floor_at_the_end_stops_a_resource_that_is_far_from_it() -> None:
    resource = with_counters(free(token=SEQUENCE_MAX), token=1, epoch=0)
    assert refusal_of(acquire, resource)[0] is LimitReached


def test_tokens_only_rise_over_release_expiry_transfer_takeover_and_maintenance() -> None:
    tokens = []
    resource = acquire(free()).resource
    tokens.append(resource.fencing_token)
    resource = acquire(decide_release(resource, credential(), now_nanos=NOW), claim("b", "b1")).resource
    tokens.append(resource.fencing_token)
    resource = takeover(resource, claim("c", "c1"), EXPIRE).resource
    tokens.append(resource.fencing_token)
    resource = transfer(resource, credential("c", "c1", token=3), EXPIRE).resource
    tokens.append(resource.fencing_token)
    resource = begin(resource, claim("m", "m1"), EXPIRE).resource
    tokens.append(maintenance_of(resource).fencing_token)
    shown = credential("m", "m1", token=5)
    resource = decide_finish(resource, shown, now_nanos=EXPIRE, is_state_deleted=True)
    resource = acquire(resource, claim("d", "d1"), EXPIRE).resource
    tokens.append(resource.fencing_token)
    assert tokens == [1, 2, 3, 4, 5, 6]
