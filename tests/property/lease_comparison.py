"""The real service and store and the model side by side: each call is made to both, and compared."""

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from hub.core.errors import Refusal
from hub.core.lease_errors import LeaseExpired, LeaseHeld, ResourceUnderMaintenance
from hub.core.limits import Limits
from hub.core.receipt import LeaseAnswer, Repeat
from hub.core.tenure import Claim, Credential, Holder, Resource, Tenure, hash_of_nonce
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

if TYPE_CHECKING:
    import asyncio

SECOND: Final = NANOS_PER_SECOND
STEP: Final = SECOND // 4
"""Leases expire at whole seconds after something, waits end between: no two things are due at once."""
HOUR: Final = 3_600 * SECOND
PURGE_EVERY: Final = HOUR
LIMITS: Final = Limits(lease_retention_days=1)
RECENT_COUNT: Final = 8
"""Credentials that are shown again, whether they are current or not."""
RETENTION: Final = LIMITS.lease_retention_days * 24 * HOUR


Facts = tuple[object, ...]


class LeaseComparison(RuleBasedStateMachine):
    """What both are asked, and what has to be the same; the rules are those of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.gate = LeaseGate(Path(self.folder.name), limits=LIMITS)
        self.model = LeaseModel()
        self.purge_due = self.now + PURGE_EVERY
        self.nonce_count = 0
        self.shown: list[ModelCredential] = []
        self.receipts: dict[str, tuple[str, ModelTenure | None]] = {}
        self.repeats: dict[str, Callable[[], None]] = {}
        self.tasks: dict[ModelWaiter, asyncio.Task[LeaseAnswer]] = {}
        self.tokens: dict[str, int] = {}
        self.written_at = 0
        self.reached: Counter[str] = Counter()
        """What came of calls and of time."""

    def teardown(self) -> None:
        self.gate.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.gate.clock.now()

    def check_remembered(self, resource: Resource, ended_nonces: list[str]) -> None:
        """Every ended nonce that is to be remembered is, and no more are kept than bounded."""
        assert len(resource.past_nonce_hashes) <= NONCES_REMEMBERED
        kept: set[bytes | None] = {*resource.past_nonce_hashes}
        kept |= {tenure.nonce_hash for tenure in (resource.lease, resource.maintenance) if tenure is not None}
        assert {hash_of_nonce(nonce) for nonce in ended_nonces[-NONCES_REMEMBERED:]} <= kept

    def call(
        self,
        method: str,
        parameters: object,
        call: Callable[[Repeat | None], Coroutine[None, None, LeaseAnswer]],
        ask_model: Callable[[], ModelTenure | None],
        *,
        request_id: str = "",
    ) -> None:
        """Make a call and hold its outcome against the model; after a refusal nothing has changed."""
        said = f"{method} {parameters}"
        request_id = self.request_id(request_id)
        repeat = None
        if request_id:
            repeat = Repeat(request_id, method, sha256(said.encode()).digest())
        stored = self.gate.stored()
        expected, is_replayed = self._expected(said, request_id, ask_model)
        if isinstance(expected, Refused):
            with pytest.raises(Refusal) as caught:
                self.gate.answer(call(repeat))
            self.reached[expected.told[0]] += 1
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
        self.reached["replayed" if is_replayed else method] += 1
        if is_replayed:
            assert self.gate.stored() == stored
        elif request_id:
            self.receipts[request_id] = (said, expected)
            self.repeats[request_id] = partial(
                self.call, method, parameters, call, ask_model, request_id=request_id
            )
        self._note_written(method)
        self.check_turns()

    def _expected(
        self, said: str, request_id: str, ask_model: Callable[[], ModelTenure | None]
    ) -> tuple[ModelTenure | Refused | None, bool]:
        """What must come of a call, and whether it is the stored answer of an earlier one."""
        receipt = self.receipts.get(request_id)
        if receipt is None:
            return asked(ask_model), False
        if receipt[0] != said:
            return Refused("IDEMPOTENCY_CONFLICT"), False
        return receipt[1], True

    async def answered(self, call: Coroutine[None, None, Tenure]) -> LeaseAnswer:
        return LeaseAnswer(await call)

    def _note_written(self, method: str) -> None:
        if method != "check":
            self.written_at = self.now

    def _keep_credential(self, resource: str, tenure: ModelTenure) -> None:
        if tenure.nonce is not None:
            shown = ModelCredential(resource, tenure.holder, tenure.token, tenure.nonce)
            if shown not in self.shown:
                self.shown.append(shown)

    def credential(self, choice: int, change: str) -> ModelCredential | None:
        """One of the credentials ever granted, mostly one that may be current, or nearly one."""
        if not self.shown:
            return None
        current = [shown for shown in self.shown if self.model.is_live(shown)]
        among = current if current and choice % 4 else self.shown[-RECENT_COUNT:]
        shown = among[choice % len(among)]
        if change == "nonce":
            return ModelCredential(shown.resource, shown.holder, shown.token, "nobody's")
        if change == "holder":
            return ModelCredential(shown.resource, f"not {shown.holder}", shown.token, shown.nonce)
        if change == "token":
            other = shown.token + 1 if choice % 3 else max(1, shown.token - 1)
            return ModelCredential(shown.resource, shown.holder, min(other, NUMBER_MAX), shown.nonce)
        return shown

    def request_id(self, kind: str) -> str:
        """None, a new one, that of an earlier call, or just this one."""
        if kind == "new":
            return f"q{len(self.receipts)}"
        if kind == "used":
            return next(reversed(self.receipts), "")
        return kind

    def nonce(self, name: str, kind: str) -> str:
        """A nonce that nobody had, that of who lives, or that of a tenure that ended."""
        resource = self.model.resource(name)
        if kind == "live" and resource.live is not None and resource.live.nonce is not None:
            return resource.live.nonce
        if kind == "ended" and resource.ended_nonces:
            remembered = resource.ended_nonces[-NONCES_REMEMBERED:]
            return remembered[self.nonce_count % len(remembered)]
        self.nonce_count += 1
        return f"nonce-{self.nonce_count}"

    def wait(self, name: str, claim: ModelClaim, wait: int) -> None:
        stored = self.gate.stored()
        task = self.gate.start(
            self.gate.leases.acquire(
                self.gate.caller, ResourceName(name), claim=hub_claim(claim), repeat=None, wait_nanos=wait
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
        self.check_turns()

    def waiter(self, choice: int) -> tuple[str, ModelWaiter]:
        waiting = [
            (name, waiter) for name, resource in self.model.resources.items() for waiter in resource.waiters
        ]
        return waiting[choice % len(waiting)]

    def let_pass(self, nanos: int) -> None:
        self.gate.pass_time(nanos)
        self.check_time()

    def check_time(self) -> None:
        self.model.advance(self.now)
        self.check_turns()
        for waiter, refused in self.model.end_waits(self.now):
            self.reached["waited in vain"] += 1
            assert outcome_of(self.tasks.pop(waiter)) == refused.told
        if self.now >= self.purge_due:
            self.reached["purged"] += self.model.purge(self.now - RETENTION)
            self.purge_due = self.now + PURGE_EVERY

    def check_turns(self) -> None:
        """Who waited and has it now is who should, in order; the others still wait."""
        for waiter, expected in self.model.grant_in_turn(self.now):
            outcome = outcome_of(self.tasks.pop(waiter))
            if isinstance(expected, Refused):
                assert outcome == expected.told
                continue
            self.reached["granted in turn"] += 1
            assert outcome == facts_of_model(expected)
            self.shown.append(
                ModelCredential(self._name_of(expected), expected.holder, expected.token, waiter.claim.nonce)
            )

    def _name_of(self, tenure: ModelTenure) -> str:
        return next(name for name, resource in self.model.resources.items() if resource.lease is tenure)


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
