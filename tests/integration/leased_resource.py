"""A resource of one test: short ways to the calls on it, as a program in any language makes them."""

import time
from collections.abc import Callable
from typing import Final

import grpc

from synchub.channel import refusal_from_error
from synchub.v1.lease_service_pb2 import (
    AcquireLeaseRequest,
    AcquireLeaseResponse,
    GetResourceStateRequest,
    GetResourceStateResponse,
    Lease,
    LeaseCredential,
    LeaseState,
    ReleaseLeaseRequest,
    RenewLeaseRequest,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.integration.hub_process import HUB_PROJECT, SECONDS_MAX

POLL_SECONDS: Final = 0.02
NO_HUB: Final = "no hub answered"


class Resource:
    """A resource of one test, and short ways to the calls on it."""

    def __init__(self, stub: LeaseServiceStub, name: str) -> None:
        self.name = name
        self._stub = stub

    def acquire(
        self, holder: str = "worker", *, ttl: float = 60.0, wait: float = 0.0
    ) -> AcquireLeaseResponse:
        request = AcquireLeaseRequest(
            hub_project=HUB_PROJECT,
            resource=self.name,
            runtime_id="laptop",
            holder_id=holder,
            holder_display_name=f"The {holder}",
            labels={"note": "red \x1b[31m\n", "pid": "7"},
        )
        request.ttl.FromNanoseconds(int(ttl * 1e9))
        request.wait_timeout.FromNanoseconds(int(wait * 1e9))
        return self._stub.AcquireLease(request, timeout=SECONDS_MAX)

    def release(self, credential: LeaseCredential) -> None:
        request = ReleaseLeaseRequest(hub_project=HUB_PROJECT, credential=credential)
        self._stub.ReleaseLease(request, timeout=SECONDS_MAX)

    def renew(self, credential: LeaseCredential) -> Lease:
        request = RenewLeaseRequest(hub_project=HUB_PROJECT, credential=credential)
        return self._stub.RenewLease(request, timeout=SECONDS_MAX).lease

    def renewal_refused(self, credential: LeaseCredential) -> str:
        """The reason why a renewal is refused; empty where it is not."""
        return refused(lambda: self.renew(credential))

    def wait_until_free(self) -> None:
        wait_until(lambda: not self.is_under_maintenance())

    def is_under_maintenance(self) -> bool:
        return self.state().maintenance.state == LeaseState.LEASE_STATE_LIVE

    def state(self) -> GetResourceStateResponse:
        request = GetResourceStateRequest(hub_project=HUB_PROJECT, resource=self.name)
        return self._stub.GetResourceState(request, timeout=SECONDS_MAX)


def refused(call: Callable[[], object]) -> str:
    """The reason why a call is refused; empty where it is not."""
    try:
        call()
    except grpc.RpcError as error:
        return refusal_from_error(error).reason or NO_HUB
    return ""


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so in time"
        time.sleep(POLL_SECONDS)


def wait_until_answered(call: Callable[[], object]) -> None:
    """Call until a hub answers that is being started."""
    wait_until(lambda: refused(call) != NO_HUB)
