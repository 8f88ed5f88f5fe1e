"""What maintenance does to a resource: begun, renewed, finished, and who is fenced by it."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Final

import pytest

from hub.core.errors import LimitReached, Refusal
from hub.core.lease import decide_abort, decide_check, decide_expiry, decide_release, decide_renew
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
)
from hub.core.maintenance import decide_finish, decide_renew_maintenance
from hub.core.tenure import (
    AbortReason,
    Claim,
    Credential,
    Granted,
    Holder,
    Resource,
    Tenure,
    TenureEnd,
    TenureState,
    hash_of_nonce,
)
from hub.core.values import HolderId, RuntimeId
from synchub.contract import SEQUENCE_MAX
from tests.unit.hub.lease_values import (
    EXPIRE,
    NAME,
    NOW,
    TTL,
    acquire,
    begin,
    claim,
    credential,
    facts_of,
    free,
    held,
    holder,
    lease_of,
    maintenance_of,
    refusal_of,
    with_counters,
)

CLAIM: Final = claim("m", "m1")
SHOWN: Final = credential("m", "m1", token=2)
"""Proves the maintenance that follows one lease."""


def maintained() -> Resource:
    """Held from ``NOW`` on, and at once maintained."""
    return begin(held(claim(labels={"pid": "1"})), CLAIM).resource


def finish(
    resource: Resource, shown: Credential = SHOWN, now: int = NOW, *, is_state_deleted: bool = False
) -> Resource:
    return decide_finish(resource, shown, now_nanos=now, is_state_deleted=is_state_deleted)


def renew(resource: Resource, shown: Credential, now: int, *, ttl: int | None = None) -> Granted:
    return decide_renew_maintenance(resource, shown, now_nanos=now, ttl_nanos=ttl)


def under(now: int, name: str = "m", expire: int = EXPIRE) -> tuple[type[Refusal], dict[str, object]]:
    return facts_of(ResourceUnderMaintenance(NAME, name, expire_nanos=expire, now_nanos=now))


# --- begin ----------------------------------------------------------------------------------------


def test_a_maintenance_takes_the_next_epoch_and_token() -> None:
    granted = begin(free(token=6, epoch=4), CLAIM)
    tenure = Tenure(
        resource=NAME,
        holder=holder("m"),
        fencing_token=7,
        epoch=5,
        ttl_nanos=TTL,
        acquire_nanos=NOW,
        renew_nanos=NOW,
        expire_nanos=EXPIRE,
        nonce_hash=hash_of_nonce("m1"),
        is_maintenance=True,
    )
    expected = replace(
        free(token=6, epoch=4), fencing_token=7, epoch=5, maintenance_token=7, maintenance=tenure
    )
    assert granted == Granted(expected, tenure, False)


@pytest.mark.parametrize("now", [NOW + 1, EXPIRE - 1])
def test_the_live_lease_ends_when_a_maintenance_begins(now: int) -> None:
    resource = begin(held(), CLAIM, now).resource
    assert lease_of(resource) == replace(lease_of(held()), end=TenureEnd(TenureState.FENCED, now))
    assert resource.current is maintenance_of(resource)
    assert resource.past_nonce_hashes == (hash_of_nonce("a1"),)


def test_a_lease_that_had_expired_is_fenced_from_then_on_whether_that_was_noted_or_not() -> None:
    for before in (held(), decide_expiry(held(), EXPIRE)):
        lease = lease_of(begin(before, CLAIM, EXPIRE + 5).resource)
        assert lease.end == TenureEnd(TenureState.FENCED, EXPIRE)


def test_a_lease_that_was_released_stays_released() -> None:
    released = decide_release(held(), credential(), now_nanos=NOW + 1)
    assert lease_of(begin(released, CLAIM, NOW + 2).resource) == lease_of(released)


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
def test_the_same_begin_again_is_the_same_maintenance_with_a_new_deadline(now: int) -> None:
    before = maintained()
    again = replace(CLAIM, holder=holder("m", "Mia"), ttl_nanos=2 * TTL)
    expected = replace(
        maintenance_of(before),
        holder=holder("m", "Mia"),
        ttl_nanos=2 * TTL,
        renew_nanos=now,
        expire_nanos=now + 2 * TTL,
    )
    assert begin(before, again, now) == Granted(replace(before, maintenance=expected), expected, True)


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
@pytest.mark.parametrize("claimed", [claim("m", "m2"), claim("n", "m1"), claim("n", "n1"), claim("a", "a1")])
def test_while_one_lives_no_other_begins(claimed: Claim, now: int) -> None:
    assert refusal_of(begin, maintained(), claimed, now) == under(now)


def test_the_same_holder_id_of_another_runtime_does_not_share_a_maintenance() -> None:
    other = replace(CLAIM, holder=Holder(RuntimeId("runtime-2"), HolderId("m")))
    assert refusal_of(begin, maintained(), other) == under(NOW)


@pytest.mark.parametrize("before", [maintained(), decide_expiry(maintained(), EXPIRE), finish(maintained())])
def test_after_one_expired_or_was_finished_the_next_begins_and_fences_it(before: Resource) -> None:
    granted = begin(before, claim("n", "n1"), EXPIRE)
    assert (granted.tenure.fencing_token, granted.tenure.epoch) == (3, 2)
    assert granted.resource.maintenance_token == 3
    fenced = facts_of(LeaseFenced(NAME, 2, 3))
    assert refusal_of(renew, granted.resource, SHOWN, EXPIRE) == fenced
    assert refusal_of(finish, granted.resource, SHOWN, EXPIRE) == fenced


@pytest.mark.parametrize(
    ("before", "nonce"),
    [
        (held(), "a1"),
        (decide_release(held(), credential(), now_nanos=NOW), "a1"),
        (acquire(held(), claim("a", "a2")).resource, "a1"),
        (finish(maintained()), "m1"),
        (finish(maintained()), "a1"),
        (acquire(finish(maintained()), claim("b", "b1")).resource, "m1"),
    ],
    ids=["of the lease that it ends", "released", "superseded", "finished", "fenced", "before the lease"],
)
@pytest.mark.parametrize("name", ["a", "m"])
def test_a_nonce_that_opened_another_tenure_begins_no_maintenance(
    before: Resource, nonce: str, name: str
) -> None:
    refused = facts_of(LeaseSuperseded(NAME, 0, "the nonce of an ended tenure"))
    assert refusal_of(begin, before, claim(name, nonce)) == refused


def test_the_nonce_of_a_maintenance_that_expired_begins_nothing() -> None:
    refused = facts_of(LeaseSuperseded(NAME, 0, "the nonce of an ended tenure"))
    assert refusal_of(begin, maintained(), CLAIM, EXPIRE) == refused
    assert refusal_of(acquire, maintained(), CLAIM, EXPIRE) == refused


# --- fenced ---------------------------------------------------------------------------------------


def test_every_credential_from_before_is_fenced_for_good() -> None:
    under_way = maintained()
    later = acquire(finish(under_way), claim("b", "b1")).resource
    expired = decide_expiry(under_way, EXPIRE)
    for resource, now in ((under_way, NOW), (finish(under_way), NOW), (later, NOW), (expired, EXPIRE)):
        fenced = facts_of(LeaseFenced(NAME, 1, 2))
        assert refusal_of(decide_renew, resource, credential(), now_nanos=now, ttl_nanos=None) == fenced
        assert refusal_of(decide_release, resource, credential(), now_nanos=now) == fenced
        assert refusal_of(decide_check, resource, 1, now_nanos=now, nonce_hash=None) == fenced
        assert refusal_of(renew, resource, credential(), now) == fenced
        assert refusal_of(finish, resource, credential(), now) == fenced


@pytest.mark.parametrize("nonce_hash", [None, hash_of_nonce("m1")])
def test_its_own_token_is_current_for_check_until_it_expires(nonce_hash: bytes | None) -> None:
    resource = maintained()
    checked = decide_check(resource, 2, now_nanos=EXPIRE - 1, nonce_hash=nonce_hash)
    assert checked == maintenance_of(resource)
    expired = facts_of(LeaseExpired(NAME, 2, EXPIRE))
    assert refusal_of(decide_check, resource, 2, now_nanos=EXPIRE, nonce_hash=nonce_hash) == expired


# --- renew ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOW, EXPIRE - 1])
@pytest.mark.parametrize(("ttl", "granted_ttl"), [(None, TTL), (1, 1), (3 * TTL, 3 * TTL)])
def test_a_renewal_counts_from_now(now: int, ttl: int | None, granted_ttl: int) -> None:
    before = maintained()
    expected = replace(
        maintenance_of(before), ttl_nanos=granted_ttl, renew_nanos=now, expire_nanos=now + granted_ttl
    )
    assert renew(before, SHOWN, now, ttl=ttl) == Granted(
        replace(before, maintenance=expected), expected, True
    )


@pytest.mark.parametrize("before", [maintained(), decide_expiry(maintained(), EXPIRE)])
def test_one_that_expired_is_not_renewed(before: Resource) -> None:
    assert refusal_of(renew, before, SHOWN, EXPIRE) == facts_of(LeaseExpired(NAME, 2, EXPIRE))


# --- finish ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "end"),
    [
        (maintained(), NOW + 5, NOW + 5),
        (maintained(), EXPIRE + 5, EXPIRE),
        (decide_expiry(maintained(), EXPIRE), EXPIRE + 5, EXPIRE),
    ],
)
def test_finish_frees_the_resource_also_after_it_expired_and_keeps_token_and_epoch(
    before: Resource, now: int, end: int
) -> None:
    ended = replace(maintenance_of(maintained()), end=TenureEnd(TenureState.RELEASED, end))
    assert finish(before, SHOWN, now) == replace(before, maintenance=ended)
    granted = acquire(finish(before, SHOWN, now), claim("b", "b1"), now)
    assert (granted.tenure.fencing_token, granted.tenure.epoch) == (3, 1)


@pytest.mark.parametrize(
    ("is_state_deleted", "labels", "abort_reason"),
    [(False, {"pid": "1"}, AbortReason.EXTERNAL), (True, {}, None)],
)
def test_finish_forgets_labels_and_flags_of_the_last_lease_where_asked(
    is_state_deleted: bool, labels: dict[str, str], abort_reason: AbortReason | None
) -> None:
    flagged = decide_abort(
        held(claim(labels={"pid": "1"})), NOW, fencing_token=None, reason=AbortReason.EXTERNAL
    )
    before = begin(flagged.resource, CLAIM).resource
    finished = finish(before, is_state_deleted=is_state_deleted)
    assert lease_of(finished) == replace(lease_of(before), labels=labels, abort_reason=abort_reason)
    assert (finished.fencing_token, finished.epoch) == (before.fencing_token, before.epoch)
    assert (finished.maintenance_token, finished.past_nonce_hashes) == (
        before.maintenance_token,
        before.past_nonce_hashes,
    )


def test_finish_may_forget_where_there_never_was_a_lease() -> None:
    before = begin(free(), CLAIM).resource
    finished = finish(before, credential("m", "m1", token=1), is_state_deleted=True)
    assert finished.lease is None


def test_a_second_finish_is_refused_as_missing() -> None:
    missing = facts_of(LeaseMissing(NAME, 2))
    assert refusal_of(finish, finish(maintained())) == missing
    assert refusal_of(renew, finish(maintained()), SHOWN, NOW) == missing


def test_one_that_another_lease_followed_is_superseded() -> None:
    resource = acquire(maintained(), claim("b", "b1"), EXPIRE).resource
    superseded = facts_of(LeaseSuperseded(NAME, 2))
    assert refusal_of(renew, resource, SHOWN, EXPIRE) == superseded
    assert refusal_of(finish, resource, SHOWN, EXPIRE) == superseded


def test_the_credential_of_a_lease_opens_no_maintenance_call() -> None:
    missing = facts_of(LeaseMissing(NAME, 1))
    assert refusal_of(renew, held(), credential(), NOW) == missing
    assert refusal_of(finish, held(), credential()) == missing


# --- the order of refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_fenced", "is_missing", "is_superseded", "is_expired"), list(product([False, True], repeat=4))
)
@pytest.mark.parametrize("call", [renew, finish])
def test_of_several_causes_the_first_in_order_is_told(
    call: Callable[[Resource, Credential, int], object],
    *,
    is_fenced: bool,
    is_missing: bool,
    is_superseded: bool,
    is_expired: bool,
) -> None:
    resource = finish(maintained()) if is_missing else maintained()
    shown = credential("m", "m2" if is_superseded else "m1", token=1 if is_fenced else 2)
    causes = [
        (is_fenced, LeaseFenced),
        (is_missing, LeaseMissing),
        (is_superseded, LeaseSuperseded),
        (is_expired and call is renew, LeaseExpired),
    ]
    expected = next((refusal for holds, refusal in causes if holds), None)
    now = EXPIRE if is_expired else NOW
    before = deepcopy(resource)
    if expected is None:
        call(resource, shown, now)
    else:
        assert refusal_of(call, resource, shown, now)[0] is expected
    assert resource == before


@pytest.mark.parametrize(
    "shown",
    [
        credential("m", "m1", token=3),
        credential("n", "m1", token=2),
        credential("m", "m1", token=2, runtime_id="runtime-2"),
        credential("m", "a1", token=2),
    ],
    ids=["token to come", "holder", "runtime", "nonce"],
)
@pytest.mark.parametrize("call", [renew, finish])
def test_every_part_of_the_credential_is_compared(
    call: Callable[[Resource, Credential, int], object], shown: Credential
) -> None:
    expected = facts_of(LeaseSuperseded(NAME, shown.fencing_token))
    assert refusal_of(call, maintained(), shown, NOW) == expected
    assert refusal_of(call, maintained(), shown, EXPIRE) == expected


# --- counters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "floor", "epoch"), [(7, 3, 8), (7, 7, 8), (7, 90, 91)])
def test_the_next_epoch_is_above_the_last_one_and_the_floor(last: int, floor: int, epoch: int) -> None:
    resource = with_counters(free(epoch=floor), token=0, epoch=last)
    granted = begin(resource, CLAIM)
    assert (granted.tenure.epoch, granted.resource.epoch) == (epoch, epoch)


def test_the_last_epoch_is_given_and_after_it_nothing_wraps() -> None:
    resource = begin(free(epoch=SEQUENCE_MAX - 1), CLAIM).resource
    assert resource.epoch == SEQUENCE_MAX
    finished = finish(resource, credential("m", "m1", token=1))
    reached = facts_of(LimitReached("epoch", SEQUENCE_MAX))
    assert refusal_of(begin, finished, claim("m", "m2")) == reached
    # Leases need no epoch.
    assert acquire(finished, claim("b", "b1")).tenure.epoch == SEQUENCE_MAX
