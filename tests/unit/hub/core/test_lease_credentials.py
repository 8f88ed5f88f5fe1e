"""What the holder of a credential may do, what a token says, and what is given back."""

from dataclasses import replace
from typing import Final

import pytest

from hub.core.errors import Refusal
from hub.core.lease import decide_expiry, decide_give_back, decide_release
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
)
from hub.core.tenure import AbortReason, Granted, Resource, Tenure, TenureEnd, TenureState, hash_of_nonce
from tests.unit.hub.lease_values import (
    EXPIRE,
    NAME,
    NOW,
    TTL,
    abort,
    acquire,
    begin,
    check,
    claim,
    credential,
    facts_of,
    free,
    held,
    held_by,
    holder,
    lease_of,
    refusal_of,
    released,
    renew,
    takeover,
    transfer,
)

EXTERNAL: Final = AbortReason.EXTERNAL
INTERNAL: Final = AbortReason.INTERNAL


# --- renew ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
@pytest.mark.parametrize(("ttl", "granted_ttl"), [(None, TTL), (1, 1), (3 * TTL, 3 * TTL)])
def test_a_renewal_counts_from_now_also_when_that_is_shorter(
    now: int, ttl: int | None, granted_ttl: int
) -> None:
    before = abort(held(claim(labels={"pid": "1"})), NOW, reason=EXTERNAL).resource
    granted = renew(before, credential(), now, ttl=ttl)
    expected = replace(
        lease_of(before), ttl_nanos=granted_ttl, renew_nanos=now, expire_nanos=now + granted_ttl
    )
    assert granted == Granted(replace(before, lease=expected), expected, True)
    assert expected.abort_reason is EXTERNAL


@pytest.mark.parametrize("now", [EXPIRE, EXPIRE + 1])
def test_a_lost_lease_never_comes_back_though_nobody_took_it(now: int) -> None:
    refused = facts_of(LeaseExpired(NAME, 1, EXPIRE))
    assert refusal_of(renew, held(), credential(), now) == refused
    assert refusal_of(renew, decide_expiry(held(), now), credential(), now) == refused


def test_an_expiry_that_was_noted_stays_though_the_clock_were_back_before_it() -> None:
    noted = decide_expiry(held(), EXPIRE)
    assert lease_of(noted) == replace(lease_of(held()), end=TenureEnd(TenureState.EXPIRED, EXPIRE))
    assert refusal_of(renew, noted, credential(), NOW)[0] is LeaseExpired
    assert refusal_of(check, noted, 1, NOW)[0] is LeaseExpired
    assert acquire(noted, claim("b", "b1"), NOW).tenure.fencing_token == 2


def test_what_lives_is_not_noted_as_expired() -> None:
    assert decide_expiry(held(), EXPIRE - 1) == held()
    assert decide_expiry(free(), EXPIRE) == free()
    assert decide_expiry(released(), EXPIRE) == released()


# --- release --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "end"),
    [
        (held(), NOW + 5, NOW + 5),
        (held(), EXPIRE, EXPIRE),
        (held(), EXPIRE + 9, EXPIRE),
        (decide_expiry(held(), EXPIRE), EXPIRE + 9, EXPIRE),
    ],
)
def test_a_release_makes_it_free_also_where_it_expired_and_nobody_took_it(
    before: Resource, now: int, end: int
) -> None:
    expected = replace(lease_of(held()), end=TenureEnd(TenureState.RELEASED, end))
    assert decide_release(before, credential(), now_nanos=now) == replace(before, lease=expected)


def test_a_release_keeps_the_token() -> None:
    assert released().fencing_token == 1
    assert acquire(released(), claim("b", "b1")).tenure.fencing_token == 2


def test_a_second_release_is_refused_as_missing() -> None:
    refused = facts_of(LeaseMissing(NAME, 1))
    assert refusal_of(decide_release, released(), credential(), now_nanos=NOW + 2) == refused


# --- given back -----------------------------------------------------------------------------------


def test_a_grant_that_nobody_heard_of_is_free_at_once() -> None:
    granted = acquire(free())
    expected = replace(granted.tenure, end=TenureEnd(TenureState.RELEASED, NOW + 1))
    assert decide_give_back(granted.resource, granted.tenure, now_nanos=NOW + 1) == replace(
        granted.resource, lease=expected
    )


@pytest.mark.parametrize(
    ("since", "now"),
    [
        (acquire(held(), claim(), NOW + 1).resource, NOW + 1),
        (acquire(held(), claim("a", "a2")).resource, NOW),
        (abort(held(), NOW).resource, NOW),
        (held(), EXPIRE),
        (released(), NOW + 2),
        (begin(held(), claim("m", "m1")).resource, NOW),
        (free(token=1), NOW),
    ],
    ids=["asked again", "superseded", "aborted", "expired", "released", "maintained", "purged"],
)
def test_what_changed_since_it_was_granted_is_not_given_back(since: Resource, now: int) -> None:
    assert decide_give_back(since, lease_of(held()), now_nanos=now) == since


# --- transfer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl", "granted_ttl"), [(None, TTL), (7, 7)])
def test_a_transfer_gives_the_next_holder_a_new_tenure_without_a_nonce(
    ttl: int | None, granted_ttl: int
) -> None:
    before = abort(held(claim(labels={"pid": "1"})), NOW).resource
    now = EXPIRE - 1
    granted = transfer(before, credential(), now, ttl=ttl)
    expected = Tenure(
        resource=NAME,
        holder=holder("b"),
        fencing_token=2,
        epoch=0,
        ttl_nanos=granted_ttl,
        acquire_nanos=now,
        renew_nanos=now,
        expire_nanos=now + granted_ttl,
        nonce_hash=None,
    )
    assert granted.tenure == expected
    assert granted.resource == replace(
        before, fencing_token=2, past_nonce_hashes=(hash_of_nonce("a1"),), lease=expected
    )
    assert expected.state(now) is TenureState.UNCLAIMED


def test_until_the_next_holder_claims_it_nothing_is_current() -> None:
    resource = transfer(held(), credential(), NOW).resource
    for nonce in (None, "a1", "b1", ""):
        assert refusal_of(check, resource, 2, NOW, nonce=nonce) == facts_of(LeaseSuperseded(NAME, 2))
    shown = [credential("a", "a1", token=1), credential("a", "a1", token=2), credential("b", "b1", token=2)]
    for each in shown:
        assert refusal_of(renew, resource, each, NOW)[0] is LeaseSuperseded
        assert refusal_of(decide_release, resource, each, now_nanos=NOW)[0] is LeaseSuperseded
        assert refusal_of(transfer, resource, each, NOW)[0] is LeaseSuperseded


def test_the_first_acquire_of_the_next_holder_sets_its_nonce_and_keeps_the_token() -> None:
    resource = transfer(held(), credential(), NOW).resource
    granted = acquire(resource, claim("b", "b1", labels={"pid": "2"}, ttl=5), NOW + 3)
    expected = replace(
        lease_of(resource),
        nonce_hash=hash_of_nonce("b1"),
        labels={"pid": "2"},
        ttl_nanos=5,
        renew_nanos=NOW + 3,
        expire_nanos=NOW + 8,
    )
    assert granted == Granted(replace(resource, lease=expected), expected, True)
    assert check(granted.resource, 2, NOW + 3, nonce="b1") == expected


def test_nobody_but_the_named_holder_gets_an_unclaimed_lease() -> None:
    resource = transfer(held(), credential(), NOW).resource
    assert refusal_of(acquire, resource, claim("c", "c1"), NOW) == held_by("b", EXPIRE, NOW)
    assert refusal_of(acquire, resource, claim("a", "a2"), NOW) == held_by("b", EXPIRE, NOW)
    assert refusal_of(takeover, resource, claim("c", "c1"), NOW) == held_by("b", EXPIRE, NOW)


def test_an_unclaimed_lease_expires_like_any_other() -> None:
    resource = transfer(held(), credential(), NOW).resource
    assert lease_of(resource).state(EXPIRE) is TenureState.EXPIRED
    assert takeover(resource, claim("c", "c1"), EXPIRE).tenure.fencing_token == 3
    # Its named holder has no right to the old token any more either.
    assert acquire(resource, claim("b", "b1"), EXPIRE).tenure.fencing_token == 3


def test_the_former_holder_is_superseded_by_a_transfer() -> None:
    claimed = acquire(transfer(held(), credential(), NOW).resource, claim("b", "b1"), NOW).resource
    superseded = facts_of(LeaseSuperseded(NAME, 1))
    assert refusal_of(renew, claimed, credential(), NOW) == superseded
    assert refusal_of(decide_release, claimed, credential(), now_nanos=NOW) == superseded
    assert refusal_of(transfer, claimed, credential(), NOW) == superseded


def test_an_abort_of_an_unclaimed_lease_reaches_who_claims_it() -> None:
    resource = abort(transfer(held(), credential(), NOW).resource, NOW, reason=EXTERNAL).resource
    assert acquire(resource, claim("b", "b1"), NOW).tenure.abort_reason is EXTERNAL


# --- abort ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, 1])
@pytest.mark.parametrize("reason", [INTERNAL, EXTERNAL])
@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_an_abort_flags_the_live_lease_and_nothing_else(
    token: int | None, reason: AbortReason, now: int
) -> None:
    expected = replace(lease_of(held()), abort_reason=reason)
    granted = abort(held(), now, token=token, reason=reason)
    assert granted == Granted(replace(held(), lease=expected), expected, True)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (INTERNAL, EXTERNAL, EXTERNAL),
        (EXTERNAL, INTERNAL, EXTERNAL),
        (INTERNAL, INTERNAL, INTERNAL),
        (EXTERNAL, EXTERNAL, EXTERNAL),
    ],
)
def test_external_is_never_overwritten_by_internal(
    first: AbortReason, second: AbortReason, kept: AbortReason
) -> None:
    resource = abort(held(), NOW, reason=first).resource
    assert abort(resource, NOW, reason=second).tenure.abort_reason is kept


@pytest.mark.parametrize(
    ("before", "now", "token", "expected"),
    [
        (free(), NOW, None, LeaseMissing(NAME, 0)),
        (free(), NOW, 1, LeaseMissing(NAME, 1)),
        (released(), NOW + 2, None, LeaseMissing(NAME, 1)),
        (released(), NOW + 2, 1, LeaseMissing(NAME, 1)),
        (held(), EXPIRE, None, LeaseExpired(NAME, 1, EXPIRE)),
        (held(), EXPIRE, 1, LeaseExpired(NAME, 1, EXPIRE)),
        (acquire(held(), claim("a", "a2")).resource, NOW, 1, LeaseSuperseded(NAME, 1)),
        (acquire(held(), claim("a", "a2")).resource, NOW, 3, LeaseSuperseded(NAME, 3)),
        (acquire(held(), claim("a", "a2")).resource, NOW + TTL, 1, LeaseSuperseded(NAME, 1)),
        (begin(held(), claim("m", "m1")).resource, NOW, 1, LeaseFenced(NAME, 1, 2)),
        (begin(held(), claim("m", "m1")).resource, NOW + TTL, 1, LeaseFenced(NAME, 1, 2)),
        (
            begin(held(), claim("m", "m1")).resource,
            NOW,
            None,
            ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=NOW),
        ),
        (
            begin(held(), claim("m", "m1")).resource,
            NOW,
            2,
            ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=NOW),
        ),
        (begin(held(), claim("m", "m1")).resource, EXPIRE, None, LeaseMissing(NAME, 2)),
        (begin(held(), claim("m", "m1")).resource, EXPIRE, 2, LeaseMissing(NAME, 2)),
    ],
)
def test_an_abort_of_what_does_not_live_is_refused(
    before: Resource, now: int, token: int | None, expected: Refusal
) -> None:
    assert refusal_of(abort, before, now, token=token) == facts_of(expected)


# --- where it stands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "now", "state"),
    [
        (held(), EXPIRE - 1, TenureState.LIVE),
        (held(), EXPIRE, TenureState.EXPIRED),
        (decide_expiry(held(), EXPIRE), NOW, TenureState.EXPIRED),
        (transfer(held(), credential(), NOW).resource, EXPIRE - 1, TenureState.UNCLAIMED),
        (transfer(held(), credential(), NOW).resource, EXPIRE, TenureState.EXPIRED),
        (released(), EXPIRE, TenureState.RELEASED),
        (begin(held(), claim("m", "m1")).resource, EXPIRE, TenureState.FENCED),
    ],
)
def test_a_tenure_says_where_it_stands(resource: Resource, now: int, state: TenureState) -> None:
    assert lease_of(resource).state(now) is state


# --- check ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonce", [None, "a1"])
@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_the_token_of_a_live_lease_is_current(nonce: str | None, now: int) -> None:
    assert check(held(), 1, now, nonce=nonce) == lease_of(held())


@pytest.mark.parametrize(
    ("before", "token", "now", "nonce", "expected"),
    [
        (free(), 1, NOW, None, LeaseMissing(NAME, 1)),
        (released(), 1, NOW + 2, "a1", LeaseMissing(NAME, 1)),
        (held(), 2, NOW, None, LeaseSuperseded(NAME, 2)),
        (held(), 1, NOW, "a2", LeaseSuperseded(NAME, 1)),
        (held(), 1, EXPIRE, None, LeaseExpired(NAME, 1, EXPIRE)),
        (held(), 1, EXPIRE, "a2", LeaseSuperseded(NAME, 1)),
        (begin(held(), claim("m", "m1")).resource, 1, NOW, "a1", LeaseFenced(NAME, 1, 2)),
    ],
)
def test_a_token_that_is_not_current_says_why(
    before: Resource, token: int, now: int, nonce: str | None, expected: Refusal
) -> None:
    assert refusal_of(check, before, token, now, nonce=nonce) == facts_of(expected)
