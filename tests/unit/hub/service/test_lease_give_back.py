"""A grant that nobody heard of, and that somebody did something to before it could be given back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.core.tenure import AbortReason
from hub.core.values import ResourceName
from tests.unit.hub.lease_calls import acquiring, claim
from tests.unit.hub.lease_gate import LeaseGate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[LeaseGate]:
    gate = LeaseGate(tmp_path)
    yield gate
    gate.close()


def test_a_grant_that_was_aborted_before_it_could_be_given_back_is_told_to_a_repeat(gate: LeaseGate) -> None:
    lost = gate.loop.create_task(acquiring(gate, claim("a"), request_id="q"))
    gate.run_without_commits()
    aborting = gate.loop.create_task(
        gate.leases.abort(
            gate.caller, ResourceName("r"), fencing_token=None, reason=AbortReason.EXTERNAL, repeat=None
        )
    )
    gate.run_without_commits()
    # Both are in one commit; the caller of the first is gone before it.
    lost.cancel()
    gate.settle()
    repeated = gate.answer(acquiring(gate, claim("a"), request_id="q"))
    assert (lost.cancelled(), aborting.done()) == (True, True)
    assert (repeated.is_replayed, repeated.is_renewed, repeated.tenure.fencing_token) == (True, False, 1)
    lease = gate.view("r").resource.lease
    assert lease is not None
    assert (lease.fencing_token, lease.renew_nanos) == (1, repeated.tenure.renew_nanos)
    assert lease.abort_reason is AbortReason.EXTERNAL
