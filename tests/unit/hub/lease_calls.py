"""Calls of holders at a ``LeaseGate``, in one line each."""

import asyncio
from collections.abc import Coroutine, Mapping
from hashlib import sha256
from typing import Final

from hub.core.receipt import LeaseAnswer, Repeat
from hub.core.tenure import Claim, Credential, Holder, Tenure, hash_of_nonce
from hub.core.values import HolderId, ResourceName, RuntimeId
from synchub.contract import NANOS_PER_SECOND
from tests.unit.hub.lease_gate import LeaseGate

SECOND: Final = NANOS_PER_SECOND
TTL: Final = 10 * SECOND

Call = Coroutine[None, None, LeaseAnswer]
Waiting = asyncio.Task[LeaseAnswer]


def claim(name: str, *, nonce: str = "", ttl: int = TTL, labels: Mapping[str, str] | None = None) -> Claim:
    """Of a holder; its nonce is called as itself where none is named."""
    return Claim(
        Holder(RuntimeId("runtime"), HolderId(name)), hash_of_nonce(nonce or name), ttl, labels or {}
    )


def repeat(request_id: str, *, method: str = "AcquireLease", said: str = "") -> Repeat:
    return Repeat(request_id, method, sha256(said.encode()).digest())


def credential(tenure: Tenure, *, nonce: str = "") -> Credential:
    holder = tenure.holder
    return Credential(
        tenure.resource,
        holder.runtime_id,
        holder.holder_id,
        tenure.fencing_token,
        hash_of_nonce(nonce or holder.holder_id),
    )


def acquiring(
    gate: LeaseGate,
    claimed: Claim,
    *,
    resource: str = "r",
    wait: int = 0,
    request_id: str | None = None,
) -> Call:
    return gate.leases.acquire(
        gate.caller,
        ResourceName(resource),
        claim=claimed,
        repeat=None if request_id is None else repeat(request_id),
        wait_nanos=wait,
    )


def acquire(gate: LeaseGate, claimed: Claim, *, resource: str = "r") -> Tenure:
    return gate.answer(acquiring(gate, claimed, resource=resource)).tenure


def wait(gate: LeaseGate, claimed: Claim, *, seconds: int = 600) -> Waiting:
    """Somebody who does not get it at once."""
    task = gate.start(acquiring(gate, claimed, wait=seconds * SECOND))
    assert not task.done()
    return task


def release(gate: LeaseGate, tenure: Tenure, *, nonce: str = "") -> None:
    gate.answer(gate.leases.release(gate.caller, credential(tenure, nonce=nonce), repeat=None))


def taking_over(gate: LeaseGate, claimed: Claim) -> Call:
    return gate.leases.takeover(gate.caller, ResourceName("r"), claim=claimed, repeat=None)


def beginning(gate: LeaseGate, claimed: Claim) -> Call:
    return gate.leases.begin_maintenance(gate.caller, ResourceName("r"), claim=claimed, repeat=None)


def begin(gate: LeaseGate, claimed: Claim) -> Tenure:
    return gate.answer(beginning(gate, claimed)).tenure


def finish(gate: LeaseGate, tenure: Tenure) -> None:
    gate.answer(
        gate.leases.finish_maintenance(gate.caller, credential(tenure), is_state_deleted=False, repeat=None)
    )
