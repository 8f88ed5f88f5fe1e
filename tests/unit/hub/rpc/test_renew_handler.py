"""The stream of renewals where an abort and a renewal meet in one commit."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import grpc.aio
import pytest

from hub.core.tenure import AbortReason, Claim, Holder, hash_of_nonce
from hub.core.values import HolderId, ResourceName, RuntimeId
from hub.rpc.interceptors import FaultReporter
from hub.rpc.open_streams import OpenStreams
from hub.rpc.renew_handler import RenewContext, RenewHandler
from synchub.v1 import lease_service_pb2 as messages
from tests.unit.hub.lease_gate import LeaseGate
from tests.unit.hub.rpc.admitting import open_admission

NONCE: Final = "n" * 22
TTL_NANOS: Final = 10_000_000_000
NAMES: Final = (ResourceName("r"), ResourceName("s"))


class Call:
    """gRPC's side of one call: what the client sent, and what it was told."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[messages.RenewLeasesRequest | object] = asyncio.Queue()
        self.responses: list[messages.RenewLeasesResponse] = []

    async def read(self) -> object:
        return await self.requests.get()

    async def write(self, response: messages.RenewLeasesResponse) -> None:
        self.responses.append(response)

    async def abort_with_status(self, status: grpc.Status) -> None:
        raise grpc.aio.AbortError(status)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def told(self) -> list[tuple[int, list[tuple[str, int, int]]]]:
        """Of each response: how many results it has, and which aborts."""
        responses, self.responses = self.responses, []
        return [
            (
                len(response.results),
                [(each.resource, each.fencing_token, each.reason) for each in response.aborts],
            )
            for response in responses
        ]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[LeaseGate]:
    gate = LeaseGate(tmp_path)
    for name in NAMES:
        claim = Claim(Holder(RuntimeId("runtime"), HolderId("a")), hash_of_nonce(NONCE), ttl_nanos=TTL_NANOS)
        gate.answer(gate.leases.acquire(gate.caller, name, claim=claim, repeat=None, wait_nanos=0))
    yield gate
    gate.close()


@pytest.fixture
def call(gate: LeaseGate) -> Call:
    """A stream that is open and on which nothing was renewed yet."""
    open_streams = OpenStreams(limits=gate.limits, reporter=FaultReporter(lambda: "reference"))
    handler = RenewHandler(gate.leases, aborts=gate.aborts, open_streams=open_streams, limits=gate.limits)
    call = Call()

    async def serve() -> None:
        context = cast("RenewContext", call)
        open_admission().begin(context, "/synchub.v1.LeaseService/RenewLeases")
        await handler.renew_leases(context)

    gate.start(serve())
    return call


def renew(gate: LeaseGate, call: Call, *names: ResourceName) -> None:
    """Have the client ask; the hub has read it when this returns, and not committed yet."""
    credentials = [
        messages.LeaseCredential(
            resource=name, runtime_id="runtime", holder_id="a", fencing_token=1, nonce=NONCE
        )
        for name in names
    ]
    request = messages.RenewLeasesRequest(
        hub_project="h", renewals=[messages.LeaseRenewal(credential=each) for each in credentials]
    )
    call.requests.put_nowait(request)
    gate.run_without_commits()


def abort(gate: LeaseGate, name: ResourceName) -> None:
    """Have somebody abort a lease; it is not committed yet."""
    gate.loop.create_task(
        gate.leases.abort(gate.caller, name, fencing_token=None, reason=AbortReason.EXTERNAL, repeat=None)
    )
    gate.run_without_commits()


def aborted(*names: ResourceName) -> list[tuple[str, int, int]]:
    return [(name, 1, messages.ABORT_REASON_EXTERNAL) for name in names]


def test_an_abort_in_the_commit_of_the_first_renewal_is_told_with_its_answer(
    gate: LeaseGate, call: Call
) -> None:
    renew(gate, call, *NAMES)
    abort(gate, NAMES[1])
    assert call.told() == []
    gate.settle()
    assert call.told() == [(2, aborted(NAMES[1]))]


def test_an_abort_in_the_commit_of_a_later_renewal_is_pushed_once(gate: LeaseGate, call: Call) -> None:
    renew(gate, call, *NAMES)
    gate.settle()
    assert call.told() == [(2, [])]
    renew(gate, call, *NAMES)
    abort(gate, NAMES[0])
    gate.settle()
    assert sorted(call.told()) == [(0, aborted(NAMES[0])), (2, [])]


def test_an_abort_before_the_first_renewal_is_said_by_its_lease_alone(gate: LeaseGate, call: Call) -> None:
    abort(gate, NAMES[0])
    gate.settle()
    renew(gate, call, *NAMES)
    gate.settle()
    assert [result.lease.is_abort_requested for result in call.responses[0].results] == [True, False]
    assert call.told() == [(2, [])]


def test_an_abort_of_who_came_after_a_first_renewal_is_not_told_with_its_answer(
    gate: LeaseGate, call: Call
) -> None:
    renew(gate, call, *NAMES)
    newer_self = Claim(Holder(RuntimeId("runtime"), HolderId("a")), hash_of_nonce("m" * 22), TTL_NANOS)
    gate.loop.create_task(
        gate.leases.acquire(gate.caller, NAMES[0], claim=newer_self, repeat=None, wait_nanos=0)
    )
    gate.run_without_commits()
    abort(gate, NAMES[0])
    gate.settle()
    assert call.told() == [(2, [])]


def test_aborts_of_one_commit_are_pushed_together(gate: LeaseGate, call: Call) -> None:
    renew(gate, call, *NAMES)
    gate.settle()
    call.told()
    for name in NAMES:
        abort(gate, name)
    gate.settle()
    assert call.told() == [(0, aborted(*NAMES))]


def test_a_stream_that_ended_listens_to_nothing(gate: LeaseGate, call: Call) -> None:
    renew(gate, call, *NAMES)
    gate.settle()
    call.requests.put_nowait(grpc.aio.EOF)
    gate.settle()
    call.told()
    abort(gate, NAMES[0])
    gate.settle()
    assert call.told() == []
    assert not gate.aborts._of_resources
