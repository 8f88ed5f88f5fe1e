"""What the holder of a credential may do, what a token says, and which refusal comes first."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Final

import pytest

from hub.core.errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseMissing,
    LeaseSuperseded,
    Refusal,
    ResourceUnderMaintenance,
)
from hub.core.lease import (
    AbortReason,
    Credential,
    Granted,
    Resource,
    Tenure,
    TenureEnd,
    TenureState,
    decide_acquire,
    decide_check,
    decide_expiry,
    decide_release,
    hash_of_nonce,
)
from hub.core.maintenance import decide_finish
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
    with_counters,
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
    assert decide_release(before, credential(), now) == replace(before, lease=expected)


def test_a_release_keeps_the_token() -> None:
    assert released().fencing_token == 1
    assert acquire(released(), claim("b", "b1")).tenure.fencing_token == 2


def test_a_second_release_is_refused_as_missing() -> None:
    refused = facts_of(LeaseMissing(NAME, 1))
    assert refusal_of(decide_release, released(), credential(), NOW + 2) == refused


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
        assert refusal_of(decide_release, resource, each, NOW)[0] is LeaseSuperseded
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
    assert refusal_of(decide_release, claimed, credential(), NOW) == superseded
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
        (begin(held(), claim("m", "m1")).resource, EXPIRE, None, LeaseMissing(NAME, 2)),
    ],
)
def test_an_abort_of_what_does_not_live_is_refused(
    before: Resource, now: int, token: int | None, expected: Refusal
) -> None:
    assert refusal_of(abort, before, now, token=token) == facts_of(expected)


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


# --- the order of refusals ------------------------------------------------------------------------

TOKEN: Final = 7
"""Of the current lease; a maintenance had token 5, another lease 6."""


def worn() -> Resource:
    """A lease with token 7 after a lease with token 6, after a maintenance with token 5."""
    resource = begin(with_counters(free(), token=4, epoch=2), claim("m", "m1")).resource
    resource = decide_finish(resource, credential("m", "m1", token=5), NOW, is_state_deleted=False)
    return acquire(acquire(resource, claim("a", "a0")).resource, claim()).resource


def first_refusal(
    *, is_fenced: bool, is_missing: bool, is_superseded: bool, is_expired: bool
) -> type[Refusal] | None:
    """Which of the causes that hold comes first."""
    causes = [
        (is_fenced, LeaseFenced),
        (is_missing, LeaseMissing),
        (is_superseded, LeaseSuperseded),
        (is_expired, LeaseExpired),
    ]
    return next((refusal for holds, refusal in causes if holds), None)


CREDENTIAL_CALLS: Final[dict[str, Callable[[Resource, Credential, int], object]]] = {
    "renew": renew,
    "release": decide_release,
    "transfer": transfer,
    "check": lambda resource, shown, now: decide_check(
        resource, shown.fencing_token, now, nonce_hash=shown.nonce_hash
    ),
}


@pytest.mark.parametrize(
    ("is_fenced", "is_missing", "is_superseded", "is_expired"), list(product([False, True], repeat=4))
)
@pytest.mark.parametrize("call", CREDENTIAL_CALLS)
def test_of_several_causes_the_first_in_order_is_told(
    call: str, *, is_fenced: bool, is_missing: bool, is_superseded: bool, is_expired: bool
) -> None:
    resource = worn()
    if is_missing:
        resource = decide_release(resource, credential(token=TOKEN), NOW)
    now = EXPIRE if is_expired else NOW
    expected = first_refusal(
        is_fenced=is_fenced,
        is_missing=is_missing,
        is_superseded=is_superseded,
        # A release is for what expired and was not taken, too.
        is_expired=is_expired and call != "release",
    )
    shown = replace(credential(token=TOKEN), nonce_hash=hash_of_nonce("a0" if is_superseded else "a1"))
    if is_fenced:
        shown = replace(shown, fencing_token=4)
    before = deepcopy(resource)
    if expected is None:
        CREDENTIAL_CALLS[call](resource, shown, now)
    else:
        assert refusal_of(CREDENTIAL_CALLS[call], resource, shown, now)[0] is expected
    assert resource == before


@pytest.mark.parametrize(
    "shown",
    [
        credential(token=6),
        credential(token=8),
        credential(token=5),
        credential("b", token=TOKEN),
        credential(token=TOKEN, runtime_id="runtime-2"),
        credential(nonce="a0", token=TOKEN),
    ],
    ids=["older token", "token to come", "the maintenance's token", "holder", "runtime", "nonce"],
)
@pytest.mark.parametrize("now", [NOW, EXPIRE])
@pytest.mark.parametrize("call", ["renew", "release", "transfer"])
def test_every_part_of_a_credential_is_compared(shown: Credential, now: int, call: str) -> None:
    expected = facts_of(LeaseSuperseded(NAME, shown.fencing_token))
    assert refusal_of(CREDENTIAL_CALLS[call], worn(), shown, now) == expected


def test_a_token_from_before_the_last_maintenance_stays_fenced_under_later_leases() -> None:
    for call in CREDENTIAL_CALLS.values():
        refused = refusal_of(call, worn(), credential(token=4), NOW)
        assert refused == facts_of(LeaseFenced(NAME, 4, 5))


# --- under maintenance ----------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_under_maintenance_nobody_opens_a_tenure_not_even_who_held_it(now: int) -> None:
    resource = begin(held(), claim("m", "m1")).resource
    expected = facts_of(ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=now))
    for claimed in (claim(), claim("a", "a2"), claim("b", "b1"), claim("m", "m2"), claim("m", "m1")):
        assert refusal_of(acquire, resource, claimed, now) == expected
        assert refusal_of(takeover, resource, claimed, now) == expected


@pytest.mark.parametrize("call", ["renew", "release", "transfer"])
def test_the_lease_calls_refuse_the_credential_of_a_live_maintenance(call: str) -> None:
    resource = begin(held(), claim("m", "m1")).resource
    shown = credential("m", "m1", token=2)
    expected = facts_of(ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=NOW))
    assert refusal_of(CREDENTIAL_CALLS[call], resource, shown, NOW) == expected
    missing = facts_of(LeaseMissing(NAME, 2))
    assert refusal_of(CREDENTIAL_CALLS[call], resource, shown, EXPIRE) == missing


def test_under_maintenance_a_transfer_is_refused_and_an_old_credential_fenced() -> None:
    resource = begin(held(), claim("m", "m1")).resource
    assert refusal_of(transfer, resource, credential(token=1), NOW) == facts_of(LeaseFenced(NAME, 1, 2))
    assert refusal_of(transfer, resource, credential(token=3), NOW) == facts_of(
        ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=NOW)
    )


# --- a refusal changes nothing --------------------------------------------------------------------


def test_a_resource_that_refused_is_the_same_value_as_before() -> None:
    labels = {"pid": "1"}
    resource = abort(held(claim(labels=labels)), NOW).resource
    before = deepcopy(resource)
    for decide in (
        lambda: acquire(resource, claim("b", "b1"), NOW),
        lambda: takeover(resource, claim("b", "b1"), NOW),
        lambda: renew(resource, credential("b"), NOW),
        lambda: decide_release(resource, credential("b"), NOW),
        lambda: transfer(resource, credential("b"), NOW),
        lambda: abort(resource, NOW, token=2),
        lambda: check(resource, 2, NOW),
    ):
        refusal_of(decide)
        assert resource == before


def test_decide_acquire_keeps_no_more_nonces_than_it_is_told() -> None:
    resource = acquire(held(), claim("a", "a2")).resource
    granted = decide_acquire(resource, claim("a", "a3"), NOW, may_open=True, past_nonces_max=1)
    assert granted.resource.past_nonce_hashes == (hash_of_nonce("a2"),)
