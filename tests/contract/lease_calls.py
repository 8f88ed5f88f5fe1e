"""Every call of LeaseService in one line, for tests that make many of them in one tenant."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

import grpc

from synchub.channel import refusal_from_error
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.leasing import (
    CALL_SECONDS_MAX,
    acquire_request,
    begin_request,
    nonce,
    seconds,
    state_of,
    takeover_request,
)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Credential = messages.LeaseCredential
EXTERNAL: Final = messages.ABORT_REASON_EXTERNAL
INTERNAL: Final = messages.ABORT_REASON_INTERNAL
LOOK_SECONDS: Final = 0.005


@dataclass(frozen=True)
class LeaseCalls:
    """Calls about one resource of one tenant; a holder's nonce is named, and made long enough."""

    stub: LeaseServiceStub
    hub_project: str
    resource: str = "r"

    # --- what opens a tenure ---

    def acquire(
        self,
        holder_id: str = "a",
        secret: str = "a1",
        *,
        ttl: float = 10,
        request_id: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> messages.AcquireLeaseResponse:
        request = acquire_request(
            self.hub_project,
            self.resource,
            holder_id=holder_id,
            secret=secret,
            ttl=ttl,
            request_id=request_id,
            labels=labels,
        )
        return self.stub.AcquireLease(request, timeout=CALL_SECONDS_MAX)

    def waiting(
        self, holder_id: str = "b", secret: str = "b1", *, wait: float = 600, ttl: float = 10
    ) -> "grpc.Future[messages.AcquireLeaseResponse]":
        """A call that is in the queue when this returns, as one more than before."""
        request = acquire_request(
            self.hub_project, self.resource, holder_id=holder_id, secret=secret, ttl=ttl, wait=wait
        )
        before = self.state().waiter_count
        call = self.stub.AcquireLease.future(request, timeout=CALL_SECONDS_MAX)
        self.until_waiters(before + 1)
        return call

    def takeover(
        self, holder_id: str = "b", secret: str = "b1", *, request_id: str = ""
    ) -> messages.TakeoverLeaseResponse:
        request = takeover_request(
            self.hub_project, self.resource, holder_id=holder_id, secret=secret, request_id=request_id
        )
        return self.stub.TakeoverLease(request, timeout=CALL_SECONDS_MAX)

    def begin(
        self, holder_id: str = "m", secret: str = "m1", *, request_id: str = ""
    ) -> messages.BeginMaintenanceResponse:
        request = begin_request(
            self.hub_project, self.resource, holder_id=holder_id, secret=secret, request_id=request_id
        )
        return self.stub.BeginMaintenance(request, timeout=CALL_SECONDS_MAX)

    # --- what a credential allows ---

    def renew(self, credential: Credential, *, ttl: float = 0) -> messages.RenewLeaseResponse:
        request = messages.RenewLeaseRequest(
            hub_project=self.hub_project, credential=credential, ttl=seconds(ttl) if ttl else None
        )
        return self.stub.RenewLease(request, timeout=CALL_SECONDS_MAX)

    def release(self, credential: Credential, *, request_id: str = "") -> messages.ReleaseLeaseResponse:
        request = messages.ReleaseLeaseRequest(
            hub_project=self.hub_project, credential=credential, request_id=request_id
        )
        return self.stub.ReleaseLease(request, timeout=CALL_SECONDS_MAX)

    def transfer(
        self, credential: Credential, *, to: str = "b", request_id: str = ""
    ) -> messages.TransferLeaseResponse:
        request = messages.TransferLeaseRequest(
            hub_project=self.hub_project,
            credential=credential,
            next_runtime_id="runtime",
            next_holder_id=to,
            request_id=request_id,
        )
        return self.stub.TransferLease(request, timeout=CALL_SECONDS_MAX)

    def renew_maintenance(self, credential: Credential) -> messages.RenewMaintenanceResponse:
        request = messages.RenewMaintenanceRequest(hub_project=self.hub_project, credential=credential)
        return self.stub.RenewMaintenance(request, timeout=CALL_SECONDS_MAX)

    def finish(self, credential: Credential, *, request_id: str = "") -> messages.FinishMaintenanceResponse:
        request = messages.FinishMaintenanceRequest(
            hub_project=self.hub_project, credential=credential, request_id=request_id
        )
        return self.stub.FinishMaintenance(request, timeout=CALL_SECONDS_MAX)

    # --- the rest ---

    def abort(
        self,
        token: int = 0,
        *,
        reason: messages.AbortReason.ValueType = EXTERNAL,
        request_id: str = "",
    ) -> messages.AbortLeaseResponse:
        request = messages.AbortLeaseRequest(
            hub_project=self.hub_project,
            resource=self.resource,
            fencing_token=token,
            reason=reason,
            request_id=request_id,
        )
        return self.stub.AbortLease(request, timeout=CALL_SECONDS_MAX)

    def check(self, token: int, secret: str = "") -> messages.CheckLeaseResponse:
        request = messages.CheckLeaseRequest(
            hub_project=self.hub_project,
            resource=self.resource,
            fencing_token=token,
            nonce=nonce(secret) if secret else "",
        )
        return self.stub.CheckLease(request, timeout=CALL_SECONDS_MAX)

    def stale_cause(self, token: int, secret: str = "") -> str:
        """Why a token is not current; it must not be."""
        answer = self.check(token, secret)
        assert not answer.is_current
        return messages.StaleCause.Name(answer.reason).removeprefix("STALE_CAUSE_")

    def state(self) -> messages.GetResourceStateResponse:
        return state_of(self.stub, self.hub_project, self.resource)

    def until_waiters(self, count: int) -> None:
        """Wait until so many calls wait: they are on their way, or go away."""
        deadline = time.monotonic() + CALL_SECONDS_MAX
        while (now := self.state().waiter_count) != count:
            assert time.monotonic() < deadline, f"{now} wait instead of {count}"
            time.sleep(LOOK_SECONDS)


def reason_of(call: "grpc.Future[messages.AcquireLeaseResponse]") -> str:
    """What a call that waited is refused with."""
    return refusal_of(call.result).reason


def refused(call: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
    """The reason that a call is refused with."""
    return refusal_of(lambda: call(*args, **kwargs)).reason


def outcome_of(
    call: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Answer | str:
    """What a call is answered, or the reason that it is refused with."""
    try:
        return call(*args, **kwargs)
    except grpc.RpcError as error:
        return refusal_from_error(error).reason
