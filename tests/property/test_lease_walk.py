"""A long walk of random calls through the rules of leases, held to have reached every one of them."""

from random import Random
from typing import Final

import pytest

from tests.property.lease_comparison import HOUR, STEP
from tests.property.lease_model import NUMBER_MAX, ModelClaim
from tests.property.test_lease_rules import (
    CLAIM_KINDS,
    LEASE_USES,
    MAINTENANCE_USES,
    REQUEST_KINDS,
    TTL_NANOS,
    WAIT_NANOS,
    LeaseMachine,
)

LONG_FACTOR: Final = 30
STEPS_MORE_MAX: Final = 5_000
"""How much farther to walk until everything was reached."""
CALLS_TO_BE_REACHED: Final = (
    *("acquire", "renew", "release", "transfer", "takeover", "abort", "check"),
    *("begin", "renew maintenance", "finish"),
)
TO_BE_REACHED: Final = (
    *("LEASE_HELD", "LEASE_MISSING", "LEASE_SUPERSEDED", "LEASE_EXPIRED", "LEASE_FENCED"),
    *("RESOURCE_UNDER_MAINTENANCE", "IDEMPOTENCY_CONFLICT"),
    *("replayed", "granted in turn", "waited in vain", "purged"),
)
"""Without these the random calls of a run prove little."""


class LeaseWalk(LeaseMachine):
    """The same calls and times, as even chance has it: what a search draws comes in clusters."""

    def step(self, chance: Random) -> None:
        if chance.random() < 0.02:
            self.restart(chance.choice([-86_400, 0, 86_400]))
        elif chance.random() < 0.01 and not self.tasks:
            self.let_pass(chance.choice([1, 23, 48]) * HOUR)
        elif self.repeats and chance.random() < 0.03:
            chance.choice(list(self.repeats.values()))()
        elif self.tasks and chance.random() < 0.1:
            self.waiter_moves(chance.randrange(1_000), chance.choice([None, *WAIT_NANOS]))
        else:
            self._call_at_random(chance)
        for _ in range(chance.choice([0, 0, 0, 1, 1, 8])):
            self.let_pass(STEP)
        self.what_is_stored_is_the_model()

    def _call_at_random(self, chance: Random) -> None:
        name, holder = chance.choice("rrrR"), chance.choice("abc")
        ttl, request_id = chance.choice(TTL_NANOS), chance.choice(REQUEST_KINDS)
        shown = self.credential(chance.randrange(1_000), chance.choice(["", "", "", "nonce", "token"]))
        what = chance.random()
        if shown is not None and what < 0.5:
            is_fitting = chance.random() < 0.8
            is_maintenance = self.model.is_maintained(shown.resource) is is_fitting
            kind = chance.choice(MAINTENANCE_USES if is_maintenance else LEASE_USES)
            flag = chance.random() < 0.5
            self.use(kind, shown, ttl=chance.choice([None, ttl]), to=holder, flag=flag, request_id=request_id)
        elif what < 0.55:
            token = shown.token if shown is not None and chance.random() < 0.5 else None
            self.abort(name, token, reason=chance.choice(["INTERNAL", "EXTERNAL"]), request_id=request_id)
        elif what < 0.7:
            self.wait(name, ModelClaim(holder, self.nonce(name, "new"), ttl), WAIT_NANOS[-1])
        else:
            nonce = self.nonce(name, chance.choice(["new", "new", "live", "ended"]))
            self.claim(chance.choice(CLAIM_KINDS), name, ModelClaim(holder, nonce, ttl), request_id)


@pytest.mark.parametrize(
    ("floor", "steps", "expected"),
    [(0, 1_000, (*TO_BE_REACHED, *CALLS_TO_BE_REACHED)), (NUMBER_MAX - 10, 100, ("LIMIT_REACHED",))],
    ids=["from the first token", "to the last token"],
)
def test_a_random_walk_through_the_rules_reaches_all_of_them(
    rng: Random, floor: int, steps: int, expected: tuple[str, ...], long_run: bool
) -> None:
    walk = LeaseWalk()
    steps_min = steps * (LONG_FACTOR if long_run else 1)
    try:
        walk.a_store_with_a_floor_has_a_lease(floor)
        for number in range(steps_min + STEPS_MORE_MAX):
            if number >= steps_min and all(walk.reached[each] for each in expected):
                break
            walk.step(rng)
    finally:
        walk.teardown()
    print(f"reached: {sorted(walk.reached.items())}")
    assert {each for each in expected if not walk.reached[each]} == set()
