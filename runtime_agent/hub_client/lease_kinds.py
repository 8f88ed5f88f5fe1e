"""The two kinds of tenure, each with its calls: a lease, and a maintenance."""

from uuid import uuid4

from google.protobuf.message import Message

from runtime_agent import limits
from runtime_agent.core.lease import OpeningTry
from runtime_agent.hub_client import lease_codec as codec
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import Call, unary
from runtime_agent.hub_client.lease_core import Asking, TenureCore
from runtime_agent.hub_client.lease_steps import Steps
from runtime_agent.hub_client.lease_values import LeaseCredential, LeaseView, OpenedTenure, RenewedTenure
from synchub.v1 import lease_service_pb2 as pb


class LeaseCore(TenureCore):
    """A lease: acquired or taken over, renewed, released or handed on."""

    def claim(self) -> Steps[None]:
        """Acquire it, waiting as long as is wanted."""
        return self.open(_Acquire(self), wait_seconds=self.wait_seconds)

    def take_over(self) -> Steps[None]:
        """Take it where its last holder let it expire."""
        return self.open(_TakeOver(self), wait_seconds=0.0)

    def leave(self, seconds_max: float) -> Steps[None]:
        """Release it."""
        return self.end(_Acquire(self), seconds_max=seconds_max)

    def abandon(self) -> None:
        """Release it without waiting for the hub."""
        self.end_unheeded(_Acquire(self))

    def transfer(
        self,
        next_holder_id: str,
        *,
        next_runtime_id: str,
        next_holder_display_name: str,
        ttl_seconds: float | None,
    ) -> Steps[LeaseView]:
        """Hand it on; meanwhile it is not renewed, so that the next holder's tenure is no loss of this one.

        Raises: LeaseLost, LeaseNotHeld, HubCallError; then it is renewed again where it is still held.
        """
        keeper = self.keeper
        keeper.check()
        request = pb.TransferLeaseRequest(
            request_id=uuid4().hex,
            hub_project=self.place.hub_project,
            credential=codec.credential_to_proto(keeper.opened.credential),
            next_runtime_id=next_runtime_id,
            next_holder_id=next_holder_id,
            next_holder_display_name=next_holder_display_name,
            ttl=None if ttl_seconds is None else codec.duration_to_proto(ttl_seconds),
        )

        def call(timeout_seconds: float) -> Call:
            return unary(lambda on: on.leases.TransferLease, request, timeout_seconds=timeout_seconds)

        try:
            seconds_max = min(limits.HANDOVER_SECONDS_MAX, keeper.pause())
            answer = yield from self.repeat(call, seconds_max=seconds_max)
            keeper.end()
        except HubCallError as error:
            raise codec.lease_refusal(error, self.resource) from error
        finally:
            keeper.resume()
        assert isinstance(answer, pb.TransferLeaseResponse)
        return codec.lease_from_proto(answer.lease)


class MaintenanceCore(TenureCore):
    """A maintenance: begun, renewed, finished."""

    def claim(self) -> Steps[None]:
        """Begin it."""
        return self.open(_Maintain(self, delete_state=False), wait_seconds=0.0)

    def leave(self, seconds_max: float) -> Steps[None]:
        """Finish it."""
        return self.end(_Maintain(self, delete_state=False), seconds_max=seconds_max)

    def abandon(self) -> None:
        """Finish it without waiting for the hub."""
        self.end_unheeded(_Maintain(self, delete_state=False))

    def finish(self, *, delete_state: bool, seconds_max: float) -> Steps[None]:
        """Finish it, with or without the labels and flags of the last tenure.

        Raises: LeaseLost, LeaseNotHeld, HubCallError.
        """
        self.check()
        yield from self.end(_Maintain(self, delete_state=delete_state), seconds_max=seconds_max)


class _Acquire:
    """How a lease is acquired, renewed and released."""

    def __init__(self, core: TenureCore) -> None:
        self._hub_project = core.place.hub_project
        self._wish = core.wish

    def open_call(self, asking: Asking, this: OpeningTry) -> Call:
        request = codec.acquire_request(
            self._hub_project, self._wish, nonce=asking.nonce, wait_seconds=this.wait_seconds
        )
        return unary(
            lambda on: on.leases.AcquireLease,
            request,
            timeout_seconds=this.timeout_seconds,
            undo=self._undo,
        )

    def read_opened(self, answer: Message) -> OpenedTenure:
        assert isinstance(answer, (pb.AcquireLeaseResponse, pb.TakeoverLeaseResponse))
        return codec.opened_from_proto(answer)

    def renew_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        request = pb.RenewLeaseRequest(
            hub_project=self._hub_project, credential=codec.credential_to_proto(credential)
        )
        return unary(lambda on: on.leases.RenewLease, request, timeout_seconds=timeout_seconds)

    def read_renewed(self, answer: Message) -> RenewedTenure:
        assert isinstance(answer, pb.RenewLeaseResponse)
        return codec.renewed_from_proto(answer)

    def end_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        request = pb.ReleaseLeaseRequest(
            hub_project=self._hub_project, credential=codec.credential_to_proto(credential)
        )
        return unary(lambda on: on.leases.ReleaseLease, request, timeout_seconds=timeout_seconds)

    def _undo(self, answer: Message) -> Call:
        credential = self.read_opened(answer).credential
        return self.end_call(credential, timeout_seconds=limits.LEASE_LEAVE_SECONDS_MAX)


class _TakeOver(_Acquire):
    """How a lease that expired is taken over.

    A second takeover with the same nonce would be refused, as the first one's tenure lives; with the same
    request id it is answered as the first one was.
    """

    def open_call(self, asking: Asking, this: OpeningTry) -> Call:
        request = codec.takeover_request(
            self._hub_project, self._wish, nonce=asking.nonce, request_id=asking.request_id
        )
        return unary(
            lambda on: on.leases.TakeoverLease,
            request,
            timeout_seconds=this.timeout_seconds,
            undo=self._undo,
        )


class _Maintain:
    """How a maintenance is begun, renewed and finished."""

    def __init__(self, core: TenureCore, *, delete_state: bool) -> None:
        self._hub_project = core.place.hub_project
        self._wish = core.wish
        self._delete_state = delete_state

    def open_call(self, asking: Asking, this: OpeningTry) -> Call:
        request = codec.begin_maintenance_request(self._hub_project, self._wish, nonce=asking.nonce)
        return unary(
            lambda on: on.leases.BeginMaintenance,
            request,
            timeout_seconds=this.timeout_seconds,
            undo=self._undo,
        )

    def read_opened(self, answer: Message) -> OpenedTenure:
        assert isinstance(answer, pb.BeginMaintenanceResponse)
        return codec.begun_from_proto(answer)

    def renew_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        request = codec.renew_maintenance_request(self._hub_project, credential, ttl_seconds=None)
        return unary(lambda on: on.leases.RenewMaintenance, request, timeout_seconds=timeout_seconds)

    def read_renewed(self, answer: Message) -> RenewedTenure:
        assert isinstance(answer, pb.RenewMaintenanceResponse)
        return RenewedTenure(codec.maintenance_from_proto(answer).ttl_seconds, abort_reason=None)

    def end_call(self, credential: LeaseCredential, *, timeout_seconds: float) -> Call:
        request = codec.finish_maintenance_request(
            self._hub_project, credential, delete_state=self._delete_state
        )
        return unary(lambda on: on.leases.FinishMaintenance, request, timeout_seconds=timeout_seconds)

    def _undo(self, answer: Message) -> Call:
        credential = self.read_opened(answer).credential
        return self.end_call(credential, timeout_seconds=limits.LEASE_LEAVE_SECONDS_MAX)
