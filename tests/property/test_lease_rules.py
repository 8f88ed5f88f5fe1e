"""Leases through the real service and store beside a model of their rules: whatever is called, whenever."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hub.core.errors import LeaseExpired, LeaseHeld, Refusal, ResourceUnderMaintenance
from hub.core.lease import AbortReason, Claim, Credential, Holder, Resource, Tenure, hash_of_nonce
from hub.core.limits import Limits
from hub.core.receipt import LeaseAnswer, Repeat
from hub.core.values import HolderId, ResourceName, RuntimeId
from synchub.contract import NANOS_PER_SECOND
from tests.property.lease_model import (
    NONCES_REMEMBERED,
    NUMBER_MAX,
    LeaseModel,
    ModelClaim,
    ModelCredential,
    ModelTenure,
    ModelWaiter,
    Refused,
)
from tests.unit.hub.lease_gate import LeaseGate
from tests.unit.hub.stored_runs import WALL_NANOS

if TYPE_CHECKING:
    import asyncio

SECOND: Final = NANOS_PER_SECOND
STEP: Final = SECOND // 4
"""Leases expire at whole seconds after something, waits end between: no two things are due at once."""
HOUR: Final = 3_600 * SECOND
PURGE_EVERY: Final = HOUR
LIMITS: Final = Limits(lease_retention_days=1)
RETENTION: Final = LIMITS.lease_retention_days * 24 * HOUR

RESOURCES = st.sampled_from(["r", "r", "R"])
HOLDERS = st.sampled_from(["a", "b", "c"])
TTLS = st.sampled_from([SECOND, 3 * SECOND, 10 * SECOND])
NEW_TTLS = st.sampled_from([None, None, SECOND, 20 * SECOND])
LABELS = st.sampled_from([{}, {"pid": "1"}])
REQUEST_IDS = st.sampled_from([None, None, None, None, "q1", "q2"])
"""Mostly none, or most calls would be conflicts."""
NONCES = st.sampled_from(["new", "new", "new", "live", "ended"])
CHANGES = st.sampled_from(["", "", "", "", "nonce", "holder", "token"])
"""What of a credential is wrong; mostly nothing."""
CHOICES = st.integers(0, 1_000)


class LeaseMachine(RuleBasedStateMachine):
    """Calls of three holders on two resources, time, waits, restarts and purges."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.gate = LeaseGate(Path(self.folder.name), limits=LIMITS)
        self.model = LeaseModel()
        self.purge_due = self.now + PURGE_EVERY
        self.nonce_count = 0
        self.shown: list[ModelCredential] = []
        self.receipts: dict[str, tuple[str, ModelTenure | None]] = {}
        self.tasks: dict[ModelWaiter, asyncio.Task[LeaseAnswer]] = {}
        self.tokens: dict[str, int] = {}
        self.written_at = 0

    def teardown(self) -> None:
        self.gate.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.gate.clock.now()

    @initialize(floor=st.sampled_from([0, 0, 0, NUMBER_MAX - 4]))
    def the_store_has_a_floor(self, floor: int) -> None:
        self.gate.answer(
            self.gate.async_writer.call(lambda transaction, _now: transaction.leases.raise_floors(floor))
        )
        self.model = LeaseModel(floor)

    # --- calls that open a tenure ---

    @rule(name=RESOURCES, holder=HOLDERS, nonce=NONCES, ttl=TTLS, labels=LABELS, request_id=REQUEST_IDS)
    def somebody_acquires(
        self, name: str, holder: str, nonce: str, ttl: int, labels: Mapping[str, str], request_id: str | None
    ) -> None:
        claim = ModelClaim(holder, self._nonce(name, nonce), ttl, labels)
        self._call(
            "acquire",
            (name, claim),
            lambda repeat: self.gate.leases.acquire(
                self.gate.caller, ResourceName(name), hub_claim(claim), repeat=repeat, wait_nanos=0
            ),
            lambda: self.model.acquire(name, claim, self.now),
            request_id=request_id,
        )

    @rule(name=RESOURCES, holder=HOLDERS, nonce=NONCES, ttl=TTLS, request_id=REQUEST_IDS)
    def somebody_takes_over(
        self, name: str, holder: str, nonce: str, ttl: int, request_id: str | None
    ) -> None:
        claim = ModelClaim(holder, self._nonce(name, nonce), ttl)
        self._call(
            "takeover",
            (name, claim),
            lambda repeat: self.gate.leases.takeover(
                self.gate.caller, ResourceName(name), hub_claim(claim), repeat=repeat
            ),
            lambda: self.model.takeover(name, claim, self.now),
            request_id=request_id,
        )

    @rule(name=RESOURCES, holder=HOLDERS, nonce=NONCES, ttl=TTLS, request_id=REQUEST_IDS)
    def somebody_begins_maintenance(
        self, name: str, holder: str, nonce: str, ttl: int, request_id: str | None
    ) -> None:
        claim = ModelClaim(holder, self._nonce(name, nonce), ttl)
        self._call(
            "begin",
            (name, claim),
            lambda repeat: self.gate.leases.begin_maintenance(
                self.gate.caller, ResourceName(name), hub_claim(claim), repeat=repeat
            ),
            lambda: self.model.begin(name, claim, self.now),
            request_id=request_id,
        )

    # --- calls with a credential ---

    @rule(choice=CHOICES, change=CHANGES, ttl=NEW_TTLS)
    def somebody_renews(self, choice: int, change: str, ttl: int | None) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
            "renew",
            (shown, ttl),
            lambda _repeat: self._answered(
                self.gate.leases.renew(self.gate.caller, hub_credential(shown), ttl_nanos=ttl)
            ),
            lambda: self.model.renew(shown, self.now, ttl),
        )

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=4), change=CHANGES, ttl=NEW_TTLS)
    def somebody_renews_many(self, choices: list[int], change: str, ttl: int | None) -> None:
        several = [self._credential(choice, change) for choice in choices]
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
        self._check_turns()

    @rule(choice=CHOICES, change=CHANGES, request_id=REQUEST_IDS)
    def somebody_releases(self, choice: int, change: str, request_id: str | None) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
            "release",
            (shown,),
            lambda repeat: self.gate.leases.release(self.gate.caller, hub_credential(shown), repeat=repeat),
            lambda: self.model.release(shown, self.now),
            request_id=request_id,
        )

    @rule(choice=CHOICES, change=CHANGES, to=HOLDERS, ttl=NEW_TTLS, request_id=REQUEST_IDS)
    def somebody_transfers(
        self, choice: int, change: str, to: str, ttl: int | None, request_id: str | None
    ) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
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

    @rule(choice=CHOICES, change=CHANGES, ttl=NEW_TTLS)
    def somebody_renews_a_maintenance(self, choice: int, change: str, ttl: int | None) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
            "renew maintenance",
            (shown, ttl),
            lambda _repeat: self._answered(
                self.gate.leases.renew_maintenance(self.gate.caller, hub_credential(shown), ttl_nanos=ttl)
            ),
            lambda: self.model.renew_maintenance(shown, self.now, ttl),
        )

    @rule(choice=CHOICES, change=CHANGES, delete_state=st.booleans(), request_id=REQUEST_IDS)
    def somebody_finishes_a_maintenance(
        self, choice: int, change: str, delete_state: bool, request_id: str | None
    ) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
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
    def somebody_aborts(
        self, choice: int, name: str, with_token: bool, reason: str, request_id: str | None
    ) -> None:
        shown = self._credential(choice, "") if with_token else None
        name, token = (name, None) if shown is None else (shown.resource, shown.token)
        self._call(
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

    @rule(choice=CHOICES, change=CHANGES, with_nonce=st.booleans())
    def somebody_checks(self, choice: int, change: str, with_nonce: bool) -> None:
        if (shown := self._credential(choice, change)) is None:
            return
        self._call(
            "check",
            (shown,),
            lambda _repeat: self._answered(
                self.gate.reads.check(
                    self.gate.caller,
                    ResourceName(shown.resource),
                    fencing_token=shown.token,
                    nonce_hash=hash_of_nonce(shown.nonce) if with_nonce else None,
                )
            ),
            lambda: self.model.check(shown, with_nonce=with_nonce),
        )

    # --- who waits ---

    @rule(name=RESOURCES, holder=HOLDERS, ttl=TTLS, seconds=st.integers(0, 15))
    def somebody_waits(self, name: str, holder: str, ttl: int, seconds: int) -> None:
        self._wait(name, ModelClaim(holder, self._nonce(name, "new"), ttl), seconds * SECOND + STEP)

    @precondition(lambda self: self.tasks)
    @rule(choice=CHOICES, seconds=st.integers(0, 15))
    def who_waits_calls_again(self, choice: int, seconds: int) -> None:
        name, waiter = self._waiter(choice)
        live = self.model.resource(name).live
        assert live is not None
        task = self.tasks.pop(waiter)
        self._wait(name, waiter.claim, seconds * SECOND + STEP)
        assert outcome_of(task) == ("LEASE_SUPERSEDED", "", None)

    @precondition(lambda self: self.tasks)
    @rule(choice=CHOICES)
    def who_waits_goes_away(self, choice: int) -> None:
        name, waiter = self._waiter(choice)
        self.tasks.pop(waiter).cancel()
        self.gate.settle()
        self.model.resource(name).waiters.remove(waiter)

    # --- time ---

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps * (SECOND // STEP)):
            self._pass(STEP)

    @precondition(lambda self: not self.tasks)
    @rule(hours=st.sampled_from([1, 23, 48]))
    def a_long_time_passes(self, hours: int) -> None:
        self._pass(hours * HOUR + STEP)

    @rule(wall_step=st.sampled_from([-86_400, 0, 86_400]))
    def the_hub_restarts_with_another_wall_clock(self, wall_step: int) -> None:
        wall_nanos = max(WALL_NANOS, self.now + wall_step * SECOND)
        self.gate.close()
        for resource in self.model.resources.values():
            resource.waiters.clear()
        self.tasks.clear()
        self.gate = LeaseGate(Path(self.folder.name), limits=LIMITS, wall_nanos=wall_nanos)
        assert self.now >= self.written_at
        self.purge_due = self.now
        self._check_time()

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
            self._check_remembered(resource, expected.ended_nonces)
            assert resource.fencing_token >= self.tokens.get(name, 0)
            self.tokens[name] = resource.fencing_token

    # --- within ---

    def _check_remembered(self, resource: Resource, ended_nonces: list[str]) -> None:
        """Every ended nonce that is to be remembered is, and no more are kept than bounded."""
        assert len(resource.past_nonce_hashes) <= NONCES_REMEMBERED
        kept: set[bytes | None] = {*resource.past_nonce_hashes}
        kept |= {tenure.nonce_hash for tenure in (resource.lease, resource.maintenance) if tenure is not None}
        assert {hash_of_nonce(nonce) for nonce in ended_nonces[-NONCES_REMEMBERED:]} <= kept

    def _call(
        self,
        method: str,
        parameters: object,
        call: Callable[[Repeat | None], Coroutine[None, None, LeaseAnswer]],
        ask_model: Callable[[], ModelTenure | None],
        *,
        request_id: str | None = None,
    ) -> None:
        """Make a call and hold its outcome against the model; after a refusal nothing has changed."""
        said = f"{method} {parameters}"
        repeat = None
        if request_id is not None:
            repeat = Repeat(request_id, method, sha256(said.encode()).digest())
        stored = self.gate.stored()
        expected, is_replayed = self._expected(said, request_id, ask_model)
        if isinstance(expected, Refused):
            with pytest.raises(Refusal) as caught:
                self.gate.answer(call(repeat))
            assert told(caught.value) == expected.told
            assert self.gate.stored() == stored
            self._note_written(method)
            return
        answer = self.gate.answer(call(repeat))
        assert answer.is_replayed == is_replayed
        if expected is not None:
            assert facts_of(answer.tenure, with_nonce=not is_replayed) == facts_of_model(
                expected, with_nonce=not is_replayed
            )
            if not is_replayed:
                self._keep_credential(answer.tenure.resource, expected)
        if is_replayed:
            assert self.gate.stored() == stored
        elif request_id is not None:
            self.receipts[request_id] = (said, expected)
        self._note_written(method)
        self._check_turns()

    def _expected(
        self, said: str, request_id: str | None, ask_model: Callable[[], ModelTenure | None]
    ) -> tuple[ModelTenure | Refused | None, bool]:
        """What must come of a call, and whether it is the stored answer of an earlier one."""
        receipt = self.receipts.get(request_id) if request_id is not None else None
        if receipt is None:
            return asked(ask_model), False
        if receipt[0] != said:
            return Refused("IDEMPOTENCY_CONFLICT"), False
        return receipt[1], True

    async def _answered(self, call: Coroutine[None, None, Tenure]) -> LeaseAnswer:
        return LeaseAnswer(await call)

    def _note_written(self, method: str) -> None:
        if method != "check":
            self.written_at = self.now

    def _keep_credential(self, resource: str, tenure: ModelTenure) -> None:
        if tenure.nonce is not None:
            shown = ModelCredential(resource, tenure.holder, tenure.token, tenure.nonce)
            if shown not in self.shown:
                self.shown.append(shown)

    def _credential(self, choice: int, change: str) -> ModelCredential | None:
        """One of the credentials ever granted, the newest most often, or nearly one."""
        if not self.shown:
            return None
        newest_first = self.shown[::-1]
        shown = newest_first[0 if choice % 2 else choice % len(newest_first)]
        if change == "nonce":
            return ModelCredential(shown.resource, shown.holder, shown.token, "nobody's")
        if change == "holder":
            return ModelCredential(shown.resource, f"not {shown.holder}", shown.token, shown.nonce)
        if change == "token":
            other = shown.token + 1 if choice % 3 else max(1, shown.token - 1)
            return ModelCredential(shown.resource, shown.holder, min(other, NUMBER_MAX), shown.nonce)
        return shown

    def _nonce(self, name: str, kind: str) -> str:
        """A nonce that nobody had, that of who lives, or that of a tenure that ended."""
        resource = self.model.resource(name)
        if kind == "live" and resource.live is not None and resource.live.nonce is not None:
            return resource.live.nonce
        if kind == "ended" and resource.ended_nonces:
            remembered = resource.ended_nonces[-NONCES_REMEMBERED:]
            return remembered[self.nonce_count % len(remembered)]
        self.nonce_count += 1
        return f"nonce-{self.nonce_count}"

    def _wait(self, name: str, claim: ModelClaim, wait: int) -> None:
        stored = self.gate.stored()
        task = self.gate.start(
            self.gate.leases.acquire(
                self.gate.caller, ResourceName(name), hub_claim(claim), repeat=None, wait_nanos=wait
            )
        )
        granted = asked(lambda: self.model.acquire(name, claim, self.now, wait=wait))
        if isinstance(granted, Refused):
            assert outcome_of(task) == granted.told
            assert self.gate.stored() == stored
            return
        if granted is None:
            assert not task.done()
            assert self.gate.stored() == stored
            waiters = self.model.resource(name).waiters
            self.tasks[next(waiter for waiter in waiters if waiter.claim is claim)] = task
            return
        assert outcome_of(task) == facts_of_model(granted)
        self._keep_credential(name, granted)
        self._check_turns()

    def _waiter(self, choice: int) -> tuple[str, ModelWaiter]:
        waiting = [
            (name, waiter) for name, resource in self.model.resources.items() for waiter in resource.waiters
        ]
        return waiting[choice % len(waiting)]

    def _pass(self, nanos: int) -> None:
        self.gate.pass_time(nanos)
        self._check_time()

    def _check_time(self) -> None:
        self.model.advance(self.now)
        self._check_turns()
        for waiter, refused in self.model.end_waits(self.now):
            assert outcome_of(self.tasks.pop(waiter)) == refused.told
        if self.now >= self.purge_due:
            self.model.purge(self.now - RETENTION)
            self.purge_due = self.now + PURGE_EVERY

    def _check_turns(self) -> None:
        """Who waited and has it now is who should, in order; the others still wait."""
        for waiter, expected in self.model.grant_in_turn(self.now):
            outcome = outcome_of(self.tasks.pop(waiter))
            if isinstance(expected, Refused):
                assert outcome == expected.told
                continue
            assert outcome == facts_of_model(expected)
            self.shown.append(
                ModelCredential(self._name_of(expected), expected.holder, expected.token, waiter.claim.nonce)
            )

    def _name_of(self, tenure: ModelTenure) -> str:
        return next(name for name, resource in self.model.resources.items() if resource.lease is tenure)


Facts = tuple[object, ...]


def asked(call: Callable[[], ModelTenure | None]) -> ModelTenure | Refused | None:
    """What the model says, its refusal as a value."""
    try:
        return call()
    except Refused as refused:
        return refused


def hub_holder(name: str) -> Holder:
    return Holder(RuntimeId("runtime"), HolderId(name))


def hub_claim(claim: ModelClaim) -> Claim:
    return Claim(hub_holder(claim.holder), hash_of_nonce(claim.nonce), claim.ttl, claim.labels)


def hub_credential(shown: ModelCredential) -> Credential:
    return Credential(
        ResourceName(shown.resource),
        RuntimeId("runtime"),
        HolderId(shown.holder),
        shown.token,
        hash_of_nonce(shown.nonce),
    )


def outcome_of(task: "asyncio.Task[LeaseAnswer]") -> Facts:
    assert task.done()
    error = task.exception()
    if error is None:
        return facts_of(task.result().tenure)
    assert isinstance(error, Refusal)
    return told(error)


def told(refusal: Refusal) -> tuple[str, str, int | None]:
    """A refusal as the model tells it."""
    if isinstance(refusal, LeaseHeld | ResourceUnderMaintenance):
        return str(refusal.reason), refusal.holder_name, refusal.expire_nanos
    if isinstance(refusal, LeaseExpired):
        return str(refusal.reason), "", refusal.expire_nanos
    return str(refusal.reason), "", None


def facts_of(tenure: Tenure, *, with_nonce: bool = True) -> Facts:
    return (
        tenure.holder.holder_id,
        tenure.nonce_hash if with_nonce else None,
        tenure.fencing_token,
        tenure.epoch,
        tenure.ttl_nanos,
        tenure.acquire_nanos,
        tenure.renew_nanos,
        tenure.expire_nanos,
        dict(tenure.labels),
        tenure.abort_reason or "",
        tenure.is_maintenance,
    )


def facts_of_model(tenure: ModelTenure, *, with_nonce: bool = True) -> Facts:
    return (
        tenure.holder,
        hash_of_nonce(tenure.nonce) if with_nonce and tenure.nonce is not None else None,
        tenure.token,
        tenure.epoch,
        tenure.ttl,
        tenure.acquired,
        tenure.renewed,
        tenure.expires,
        dict(tenure.labels),
        tenure.abort,
        tenure.is_maintenance,
    )


def ended_facts_of(tenure: Tenure) -> Facts:
    """The same with how it ended; every expiry has been noted when it is looked at."""
    ended: Facts = ("LIVE", None) if tenure.end is None else (str(tenure.end.state), tenure.end.end_nanos)
    return (*facts_of(tenure), *ended)


def ended_facts_of_model(tenure: ModelTenure) -> Facts:
    return (*facts_of_model(tenure), tenure.state, tenure.ended)


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(stateful_step_count=40, max_examples=60)
