"""Leases through the real service and store beside a model of their rules: whatever is called, whenever."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hub.core.errors import Refusal
from hub.core.tenure import AbortReason, Tenure, hash_of_nonce
from hub.core.values import ResourceName
from tests.property.lease_comparison import (
    HOUR,
    LIMITS,
    SECOND,
    STEP,
    LeaseComparison,
    asked,
    ended_facts_of,
    ended_facts_of_model,
    facts_of,
    facts_of_model,
    hub_claim,
    hub_credential,
    hub_holder,
    outcome_of,
    told,
)
from tests.property.lease_model import (
    NUMBER_MAX,
    LeaseModel,
    ModelClaim,
    ModelCredential,
    Refused,
)
from tests.unit.hub.lease_gate import LeaseGate
from tests.unit.hub.stored_runs import WALL_NANOS

FIRST: Final = ModelClaim("a", "nonce-0", 30 * SECOND, {"pid": "1"})

RESOURCES = st.sampled_from(["r", "r", "r", "R"])
HOLDERS = st.sampled_from(["a", "b", "c"])
TTL_NANOS: Final = (2 * SECOND, 10 * SECOND, 30 * SECOND)
TTLS = st.sampled_from(TTL_NANOS)
WAIT_NANOS: Final = (STEP, STEP, 4 * SECOND + STEP, 40 * SECOND + STEP)
WAITS = st.sampled_from(WAIT_NANOS)
CLAIM_KINDS: Final = ("acquire", "acquire", "acquire", "takeover", "begin")
CLAIMS = st.sampled_from(CLAIM_KINDS)
LEASE_USES: Final = ("renew", "renew", "release", "transfer", "check")
MAINTENANCE_USES: Final = ("renew maintenance", "finish", "finish", "check")
USES = st.sampled_from(LEASE_USES + MAINTENANCE_USES)
NEW_TTLS = st.sampled_from([None, None, SECOND, 20 * SECOND])
LABELS = st.sampled_from([{}, {"pid": "1"}])
REQUEST_KINDS: Final = ("", "", "", "", "", "", "new", "new", "used")
REQUEST_IDS = st.sampled_from(REQUEST_KINDS)
"""Mostly none, or most calls would be conflicts."""
NONCES = st.sampled_from(["new", "new", "new", "live", "ended"])
CHANGES = st.sampled_from(["", "", "", "", "nonce", "holder", "token"])
"""What of a credential is wrong; mostly nothing."""
CHOICES = st.integers(0, 1_000)


class LeaseMachine(LeaseComparison):
    """Calls of three holders on two resources, time, waits, restarts and purges."""

    @initialize(floor=st.sampled_from([0, 0, 0, NUMBER_MAX - 4]))
    def a_store_with_a_floor_has_a_lease(self, floor: int) -> None:
        self.gate.answer(
            self.gate.async_writer.call(lambda transaction, _now: transaction.leases.raise_floors(floor))
        )
        self.model = LeaseModel(floor)
        self.call(
            "acquire",
            ("r", FIRST),
            lambda repeat: self.gate.leases.acquire(
                self.gate.caller, ResourceName("r"), claim=hub_claim(FIRST), repeat=repeat, wait_nanos=0
            ),
            lambda: self.model.acquire("r", FIRST, self.now),
        )

    # --- calls that open a tenure ---

    @rule(
        kind=CLAIMS,
        name=RESOURCES,
        holder=HOLDERS,
        nonce=NONCES,
        ttl=TTLS,
        labels=LABELS,
        request_id=REQUEST_IDS,
    )
    def somebody_claims(
        self,
        kind: str,
        name: str,
        holder: str,
        nonce: str,
        ttl: int,
        labels: Mapping[str, str],
        request_id: str,
    ) -> None:
        claim = ModelClaim(holder, self.nonce(name, nonce), ttl, labels if kind != "begin" else {})
        self.claim(kind, name, claim, request_id)

    def claim(self, kind: str, name: str, claim: ModelClaim, request_id: str) -> None:
        claims = {"acquire": self._acquires, "takeover": self._takes_over, "begin": self._begins_maintenance}
        claims[kind](name, claim, request_id)

    def _acquires(self, name: str, claim: ModelClaim, request_id: str) -> None:
        self.call(
            "acquire",
            (name, claim),
            lambda repeat: self.gate.leases.acquire(
                self.gate.caller, ResourceName(name), claim=hub_claim(claim), repeat=repeat, wait_nanos=0
            ),
            lambda: self.model.acquire(name, claim, self.now),
            request_id=request_id,
        )

    def _takes_over(self, name: str, claim: ModelClaim, request_id: str) -> None:
        self.call(
            "takeover",
            (name, claim),
            lambda repeat: self.gate.leases.takeover(
                self.gate.caller, ResourceName(name), claim=hub_claim(claim), repeat=repeat
            ),
            lambda: self.model.takeover(name, claim, self.now),
            request_id=request_id,
        )

    def _begins_maintenance(self, name: str, claim: ModelClaim, request_id: str) -> None:
        self.call(
            "begin",
            (name, claim),
            lambda repeat: self.gate.leases.begin_maintenance(
                self.gate.caller, ResourceName(name), claim=hub_claim(claim), repeat=repeat
            ),
            lambda: self.model.begin(name, claim, self.now),
            request_id=request_id,
        )

    # --- calls with a credential ---

    @rule(
        kind=USES,
        choice=CHOICES,
        change=CHANGES,
        ttl=NEW_TTLS,
        to=HOLDERS,
        flag=st.booleans(),
        request_id=REQUEST_IDS,
    )
    def somebody_shows_a_credential(
        self,
        kind: str,
        choice: int,
        change: str,
        ttl: int | None,
        to: str,
        flag: bool,
        request_id: str,
    ) -> None:
        if (shown := self.credential(choice, change)) is not None:
            self.use(kind, shown, ttl=ttl, to=to, flag=flag, request_id=request_id)

    def use(
        self,
        kind: str,
        shown: ModelCredential,
        *,
        ttl: int | None,
        to: str,
        flag: bool,
        request_id: str,
    ) -> None:
        uses: dict[str, Callable[[], None]] = {
            "renew": lambda: self._renews(shown, ttl),
            "release": lambda: self._releases(shown, request_id),
            "transfer": lambda: self._transfers(shown, to, ttl, request_id),
            "renew maintenance": lambda: self._renews_a_maintenance(shown, ttl),
            "finish": lambda: self._finishes_a_maintenance(shown, flag, request_id),
            "check": lambda: self._checks(shown, flag),
        }
        uses[kind]()

    def _renews(self, shown: ModelCredential, ttl: int | None) -> None:
        self.call(
            "renew",
            (shown, ttl),
            lambda _repeat: self.answered(
                self.gate.leases.renew(self.gate.caller, hub_credential(shown), ttl_nanos=ttl)
            ),
            lambda: self.model.renew(shown, self.now, ttl),
        )

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=4), change=CHANGES, ttl=NEW_TTLS)
    def somebody_renews_many(self, choices: list[int], change: str, ttl: int | None) -> None:
        several = [self.credential(choice, change) for choice in choices]
        renewals = [shown for shown in several if shown is not None]
        outcomes = self.gate.answer(
            self.gate.leases.renew_many(
                self.gate.caller, [(hub_credential(shown), ttl) for shown in renewals]
            )
        )
        for shown, outcome in zip(renewals, outcomes, strict=True):
            expected = asked(partial(self.model.renew, shown, self.now, ttl))
            if isinstance(expected, Refused):
                assert isinstance(outcome, Refusal)
                assert told(outcome) == expected.told
            else:
                assert isinstance(outcome, Tenure)
                assert expected is not None
                assert facts_of(outcome) == facts_of_model(expected)
        self.check_turns()

    def _releases(self, shown: ModelCredential, request_id: str) -> None:
        self.call(
            "release",
            (shown,),
            lambda repeat: self.gate.leases.release(self.gate.caller, hub_credential(shown), repeat=repeat),
            lambda: self.model.release(shown, self.now),
            request_id=request_id,
        )

    def _transfers(self, shown: ModelCredential, to: str, ttl: int | None, request_id: str) -> None:
        self.call(
            "transfer",
            (shown, to, ttl),
            lambda repeat: self.gate.leases.transfer(
                self.gate.caller,
                hub_credential(shown),
                next_holder=hub_holder(to),
                ttl_nanos=ttl,
                repeat=repeat,
            ),
            lambda: self.model.transfer(shown, self.now, to, ttl),
            request_id=request_id,
        )

    def _renews_a_maintenance(self, shown: ModelCredential, ttl: int | None) -> None:
        self.call(
            "renew maintenance",
            (shown, ttl),
            lambda _repeat: self.answered(
                self.gate.leases.renew_maintenance(self.gate.caller, hub_credential(shown), ttl_nanos=ttl)
            ),
            lambda: self.model.renew_maintenance(shown, self.now, ttl),
        )

    def _finishes_a_maintenance(self, shown: ModelCredential, delete_state: bool, request_id: str) -> None:
        self.call(
            "finish",
            (shown, delete_state),
            lambda repeat: self.gate.leases.finish_maintenance(
                self.gate.caller, hub_credential(shown), is_state_deleted=delete_state, repeat=repeat
            ),
            lambda: self.model.finish(shown, self.now, delete_state=delete_state),
            request_id=request_id,
        )

    @rule(
        choice=CHOICES,
        name=RESOURCES,
        with_token=st.booleans(),
        reason=st.sampled_from(["INTERNAL", "EXTERNAL"]),
        request_id=REQUEST_IDS,
    )
    def somebody_aborts(self, choice: int, name: str, with_token: bool, reason: str, request_id: str) -> None:
        shown = self.credential(choice, "") if with_token else None
        name, token = (name, None) if shown is None else (shown.resource, shown.token)
        self.abort(name, token, reason=reason, request_id=request_id)

    def abort(self, name: str, token: int | None, *, reason: str, request_id: str) -> None:
        self.call(
            "abort",
            (name, token, reason),
            lambda repeat: self.gate.leases.abort(
                self.gate.caller,
                ResourceName(name),
                fencing_token=token,
                reason=AbortReason(reason),
                repeat=repeat,
            ),
            lambda: self.model.abort(name, token, reason),
            request_id=request_id,
        )

    def _checks(self, shown: ModelCredential, with_nonce: bool) -> None:
        self.call(
            "check",
            (shown,),
            lambda _repeat: self.answered(
                self.gate.reads.check(
                    self.gate.caller,
                    ResourceName(shown.resource),
                    fencing_token=shown.token,
                    nonce_hash=hash_of_nonce(shown.nonce) if with_nonce else None,
                )
            ),
            lambda: self.model.check(shown, with_nonce=with_nonce),
        )

    @precondition(lambda self: self.repeats)
    @rule(choice=CHOICES)
    def a_call_with_a_request_id_comes_again(self, choice: int) -> None:
        repeats = list(self.repeats.values())
        repeats[choice % len(repeats)]()

    # --- who waits ---

    @rule(name=RESOURCES, holder=HOLDERS, ttl=TTLS, wait=WAITS)
    def somebody_waits(self, name: str, holder: str, ttl: int, wait: int) -> None:
        self.wait(name, ModelClaim(holder, self.nonce(name, "new"), ttl), wait)

    @precondition(lambda self: self.tasks)
    @rule(choice=CHOICES, wait=st.one_of(st.none(), WAITS))
    def who_waits_calls_again_or_goes_away(self, choice: int, wait: int | None) -> None:
        self.waiter_moves(choice, wait)

    def waiter_moves(self, choice: int, wait: int | None) -> None:
        """Somebody who waits calls again under the same nonce, or goes away."""
        name, waiter = self.waiter(choice)
        task = self.tasks.pop(waiter)
        if wait is not None:
            self.wait(name, waiter.claim, wait)
            assert outcome_of(task) == ("LEASE_SUPERSEDED", "", None)
            return
        task.cancel()
        self.gate.settle()
        self.model.resource(name).waiters.remove(waiter)

    # --- time ---

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        # Between two steps at most one thing is due for those who wait; else one step is as good.
        count = steps * (SECOND // STEP) if self.tasks else 1
        for _ in range(count):
            self.let_pass(steps * SECOND // count)

    @precondition(lambda self: not self.tasks)
    @rule(hours=st.sampled_from([1, 23, 48]))
    def a_long_time_passes(self, hours: int) -> None:
        self.let_pass(hours * HOUR + STEP)

    @rule(wall_step=st.sampled_from([-86_400, 0, 86_400]))
    def the_hub_restarts_with_another_wall_clock(self, wall_step: int) -> None:
        self.restart(wall_step)

    def restart(self, wall_step: int) -> None:
        wall_nanos = max(WALL_NANOS, self.now + wall_step * SECOND)
        self.gate.close()
        for resource in self.model.resources.values():
            resource.waiters.clear()
        self.tasks.clear()
        self.gate = LeaseGate(Path(self.folder.name), limits=LIMITS, wall_nanos=wall_nanos)
        assert self.now >= self.written_at
        self.purge_due = self.now
        self.check_time()

    # --- what holds after each of them ---

    @invariant()
    def what_is_stored_is_the_model(self) -> None:
        for name in ("r", "R"):
            expected = self.model.resource(name)
            view = self.gate.view(name)
            resource = view.resource
            assert (resource.fencing_token, resource.epoch, resource.maintenance_token) == (
                expected.token,
                expected.epoch,
                expected.fence,
            )
            for tenure, modelled in (
                (resource.lease, expected.lease),
                (resource.maintenance, expected.maintenance),
            ):
                assert (tenure is None) == (modelled is None)
                if tenure is not None and modelled is not None:
                    assert ended_facts_of(tenure) == ended_facts_of_model(modelled)
            waiting = [(waiter.holder.holder_id, waiter.begin_nanos) for waiter in view.waiters]
            assert waiting == [(waiter.claim.holder, waiter.began) for waiter in expected.waiters]
            self.check_remembered(resource, expected.ended_nonces)
            assert resource.fencing_token >= self.tokens.get(name, 0)
            self.tokens[name] = resource.fencing_token


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(stateful_step_count=40, max_examples=settings().max_examples * 4 // 10)
