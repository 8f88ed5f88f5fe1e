"""Which refusal comes first where several causes hold, and that a refusal changes nothing."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Final

import pytest

from hub.core.errors import Refusal
from hub.core.lease import decide_acquire, decide_check, decide_release
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
)
from hub.core.maintenance import decide_finish
from hub.core.tenure import Credential, Resource, hash_of_nonce
from tests.unit.hub.lease_values import (
    EXPIRE,
    NAME,
    NOW,
    abort,
    acquire,
    begin,
    check,
    claim,
    credential,
    facts_of,
    free,
    held,
    refusal_of,
    renew,
    takeover,
    transfer,
    with_counters,
)

# --- the order of refusals ------------------------------------------------------------------------

TOKEN: Final = 7
"""Of the current lease; a maintenance had token 5, another lease 6."""


def worn() -> Resource:
    """A lease with token 7 after a lease with token 6, after a maintenance with token 5."""
    resource = begin(with_counters(free(), token=4, epoch=2), claim("m", "m1")).resource
    resource = decide_finish(resource, credential("m", "m1", token=5), now_nanos=NOW, is_state_deleted=False)
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
    "release": lambda resource, shown, now: decide_release(resource, shown, now_nanos=now),
    "transfer": transfer,
    "check": lambda resource, shown, now: decide_check(
        resource, shown.fencing_token, now_nanos=now, nonce_hash=shown.nonce_hash
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
        resource = decide_release(resource, credential(token=TOKEN), now_nanos=NOW)
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
    assert refusal_of(transfer, resource, credential(token=2), NOW) == facts_of(
        ResourceUnderMaintenance(NAME, "m", expire_nanos=EXPIRE, now_nanos=NOW)
    )
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
        lambda: decide_release(resource, credential("b"), now_nanos=NOW),
        lambda: transfer(resource, credential("b"), NOW),
        lambda: abort(resource, NOW, token=2),
        lambda: check(resource, 2, NOW),
    ):
        refusal_of(decide)
        assert resource == before


def test_decide_acquire_keeps_no_more_nonces_than_it_is_told() -> None:
    resource = acquire(held(), claim("a", "a2")).resource
    granted = decide_acquire(resource, claim("a", "a3"), now_nanos=NOW, may_open=True, past_nonces_max=1)
    assert granted.resource.past_nonce_hashes == (hash_of_nonce("a2"),)
