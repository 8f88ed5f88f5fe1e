"""Ten thousand short leases come and go, and nothing of them is left but the floors."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hub.core.limits import Limits
from hub.core.tenure import AbortReason, Claim, Tenure
from hub.core.values import ResourceName
from hub.service.lease_queue import Waiter
from hub.store.contract import Changes
from tests.unit.hub.lease_calls import SECOND, acquiring, begin, claim, credential, finish
from tests.unit.hub.lease_gate import LeaseGate

LEASES_COUNT: Final = 10_000
AT_ONCE: Final = 500
DAY: Final = 86_400 * SECOND
KEPT_KINDS: Final = (Tenure, Claim, Waiter, Changes, asyncio.Task)
"""Of none of these may more be there afterwards than before."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[LeaseGate]:
    gate = LeaseGate(tmp_path, limits=Limits(lease_retention_days=1))
    yield gate
    gate.close()


def counts_in_memory() -> dict[str, int]:
    gc.collect()
    alive = gc.get_objects()
    return {kind.__name__: sum(isinstance(each, kind) for each in alive) for kind in KEPT_KINDS}


def short_lives(gate: LeaseGate, first: int) -> None:
    """Some leases at once: released, superseded, aborted, waited for in vain, or left to expire."""
    names = [f"r{number}" if number % 2 else "the same" for number in range(first, first + AT_ONCE)]
    claims = [claim("a", nonce=f"n{number}", ttl=SECOND) for number in range(first, first + AT_ONCE)]
    calls = [
        gate.loop.create_task(acquiring(gate, each, resource=name))
        for name, each in zip(names, claims, strict=True)
    ]
    gate.settle()
    held = [call.result().tenure for call in calls]
    for number, (name, tenure) in enumerate(zip(names, held, strict=True)):
        if name == "the same":
            continue
        match number % 5:
            case 1:
                shown = credential(tenure, nonce=f"n{first + number}")
                gate.loop.create_task(gate.leases.release(gate.caller, shown, repeat=None))
            case 2:
                gate.loop.create_task(acquiring(gate, claim("a", nonce="other", ttl=SECOND), resource=name))
            case 3:
                gate.loop.create_task(
                    gate.leases.abort(
                        gate.caller,
                        ResourceName(name),
                        fencing_token=None,
                        reason=AbortReason.EXTERNAL,
                        repeat=None,
                    )
                )
            case 4:
                waiting = gate.loop.create_task(
                    acquiring(gate, claim("b", nonce=f"w{number}"), resource=name, wait=60 * SECOND)
                )
                gate.run_without_commits()
                waiting.cancel()
    gate.settle()
    gate.pass_time(SECOND)


def test_of_ten_thousand_short_leases_nothing_is_left_but_floors(gate: LeaseGate) -> None:
    stored_before, memory_before = gate.stored(), counts_in_memory()
    for first in range(0, LEASES_COUNT, AT_ONCE):
        short_lives(gate, first)
    finish(gate, begin(gate, claim("m")))
    stored = gate.stored()
    assert len(stored["resource"]) == LEASES_COUNT // 2 + 2
    highest = gate.view("the same").resource.fencing_token
    assert highest == LEASES_COUNT // 2
    gate.pass_time(2 * DAY)

    stored = gate.stored()
    assert (stored["resource"], stored["tenure"], stored["receipt"]) == ([], [], [])
    without_tenant = {name: rows for name, rows in stored.items() if name != "hub_project"}
    assert without_tenant == {name: rows for name, rows in stored_before.items() if name != "hub_project"}
    for name in ("the same", "r1", "never used"):
        resource = gate.view(name).resource
        assert (resource.fencing_token, resource.epoch, resource.current) == (highest, 1, None)
    memory_after = counts_in_memory()
    assert {kind: count for kind, count in memory_after.items() if count > memory_before[kind]} == {}
    assert (gate.queues._queues, gate.aborts._by_resource, gate.aborts._by_runtime) == ({}, {}, {})
    assert (gate.leases._claim_calls._under_way, gate.leases._background) == ({}, set())
    assert set(gate.async_writer.bytes_queued().values()) == {0}
