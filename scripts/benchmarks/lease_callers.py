"""Callers that hold leases of the hub, and what the operations of any caller took."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2 import (
    AcquireLeaseRequest,
    LeaseCredential,
    LeaseRenewal,
    ReleaseLeaseRequest,
    RenewLeaseRequest,
    RenewLeasesRequest,
    RenewLeasesResponse,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

HUB_PROJECT = "bench"
TTL = Duration(seconds=10)
NONCE_BYTES = 24


class Caller(Protocol):
    """Holds one thing, again and again; each method is one operation and returns once it is done."""

    async def acquire(self) -> None:
        """Take what nobody holds."""

    async def renew(self) -> None:
        """Hold it for longer."""

    async def release(self) -> None:
        """Give it back."""

    async def close(self) -> None:
        """End what is open."""


@dataclass(slots=True)
class Timings:
    """Seconds that operations took, by what they were, and seconds in all."""

    acquire: list[float] = field(default_factory=list)
    renew: list[float] = field(default_factory=list)
    release: list[float] = field(default_factory=list)
    seconds: float = 0.0
    server_seconds: float = 0.0
    """How much processor time the server used meanwhile."""

    @property
    def operations(self) -> list[float]:
        """Seconds of all operations."""
        return self.acquire + self.renew + self.release

    @property
    def rate(self) -> float:
        """Operations a second."""
        return len(self.operations) / self.seconds


async def timed_cycles(callers: Sequence[Caller], count: int) -> Timings:
    """Let all callers acquire, renew and release at once, each waiting for each of its answers."""
    timings = Timings()

    async def cycles(caller: Caller) -> None:
        for _ in range(count):
            begin = perf_counter()
            await caller.acquire()
            acquired = perf_counter()
            await caller.renew()
            renewed = perf_counter()
            await caller.release()
            timings.acquire.append(acquired - begin)
            timings.renew.append(renewed - acquired)
            timings.release.append(perf_counter() - renewed)

    begin = perf_counter()
    await asyncio.gather(*(cycles(caller) for caller in callers))
    timings.seconds = perf_counter() - begin
    return timings


class HubCaller:
    """Holds one lease; renews it by a call, as for a single lease."""

    def __init__(self, channel: grpc.aio.Channel, resource: str) -> None:
        """Hold nothing yet."""
        self._stub = LeaseServiceStub(channel)
        self._resource = resource
        self.credential = LeaseCredential()
        """Of the lease that is held."""

    async def acquire(self) -> None:
        """Begin a new tenure, with a nonce of its own."""
        request = AcquireLeaseRequest(
            hub_project=HUB_PROJECT,
            resource=self._resource,
            runtime_id="bench-runtime",
            holder_id=self._resource,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            ttl=TTL,
        )
        self.credential = (await self._stub.AcquireLease(request)).credential

    async def renew(self) -> None:
        """Renew it."""
        await self._stub.RenewLease(RenewLeaseRequest(hub_project=HUB_PROJECT, credential=self.credential))

    async def release(self) -> None:
        """Give it back."""
        await self._stub.ReleaseLease(
            ReleaseLeaseRequest(hub_project=HUB_PROJECT, credential=self.credential)
        )

    async def close(self) -> None:
        """Nothing is open."""


class StreamingHubCaller(HubCaller):
    """Holds one lease; renews it on a stream that stays open, as a runtime with many leases does."""

    def __init__(self, channel: grpc.aio.Channel, resource: str) -> None:
        """Hold nothing yet; the stream opens with the first renewal."""
        super().__init__(channel, resource)
        self._renewing = self._stub.RenewLeases()

    async def renew(self) -> None:
        """Renew it."""
        renewals = [LeaseRenewal(credential=self.credential)]
        await self._renewing.write(RenewLeasesRequest(hub_project=HUB_PROJECT, renewals=renewals))
        refuse_other_than_renewed(await self._renewing.read())

    async def close(self) -> None:
        """End the stream."""
        await self._renewing.done_writing()
        await self._renewing.read()


async def together_renewal_rate(channel: grpc.aio.Channel, *, leases: int, requests: int) -> float:
    """Let one runtime renew all its leases by one request, again and again; return renewals a second."""
    callers = [HubCaller(channel, f"together-{number}") for number in range(leases)]
    await asyncio.gather(*(caller.acquire() for caller in callers))
    renewals = [LeaseRenewal(credential=caller.credential) for caller in callers]
    request = RenewLeasesRequest(hub_project=HUB_PROJECT, renewals=renewals)
    renewing = LeaseServiceStub(channel).RenewLeases()
    begin = perf_counter()
    for _ in range(requests):
        await renewing.write(request)
        refuse_other_than_renewed(await renewing.read())
    seconds = perf_counter() - begin
    await renewing.done_writing()
    await asyncio.gather(*(caller.release() for caller in callers))
    return leases * requests / seconds


def refuse_other_than_renewed(answer: object) -> None:
    """Return where every lease of a request was renewed; else there is nothing to measure."""
    results = answer.results if isinstance(answer, RenewLeasesResponse) else []
    if not results or not all(result.HasField("lease") for result in results):
        raise SystemExit(f"a lease was not renewed, so there is nothing to measure: {answer}")


async def bare_call_rate(channel: grpc.aio.Channel, *, callers: int, calls_each: int) -> float:
    """Let callers ask at once for what the hub answers from memory; return calls a second.

    This is what the wire alone costs: no lease operation that is a call of its own can be faster.
    """
    stub = HubServiceStub(channel)

    async def ask() -> None:
        for _ in range(calls_each):
            await stub.GetHubInfo(GetHubInfoRequest())

    begin = perf_counter()
    await asyncio.gather(*(ask() for _ in range(callers)))
    return callers * calls_each / (perf_counter() - begin)
