"""Calls of a hub's LeaseService over the wire, each recorded with what became of it.

Nothing of the client library is used: what is recorded is what was sent and what was answered. Nothing
is sent twice by the channel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from synchub.channel import refusal_from_error, refusal_from_status
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.robustness.lease_history import (
    Answer,
    Arguments,
    Call,
    Operation,
    Outcome,
    Reason,
    Recorder,
    client_nanos,
)

HUB_PROJECT: Final = "leases"
NANOS_PER_SECOND: Final = 1_000_000_000
CHANNEL_OPTIONS: Final = (
    # A call that was sent twice would be recorded once.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)
REFUSALS: Final = frozenset({*Reason, "LIMIT_REACHED", "IDEMPOTENCY_CONFLICT"})
"""What is surely a refusal, which changes nothing. Everything else that is no answer is unknown."""

REACHABLE_SECONDS_MAX: Final = 5.0
"""After a call that found no hub, how long to wait for one before the next."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What proves a tenure."""

    resource: str
    runtime_id: str
    holder_id: str
    token: int
    nonce: str
    is_maintenance: bool = False

    @property
    def arguments(self) -> Arguments:
        return Arguments(self.runtime_id, self.holder_id, self.nonce, self.token)

    def proto(self) -> messages.LeaseCredential:
        return messages.LeaseCredential(
            resource=self.resource,
            runtime_id=self.runtime_id,
            holder_id=self.holder_id,
            fencing_token=self.token,
            nonce=self.nonce,
        )


class LeaseCalls:
    """One client's calls; each returns the operation as it was recorded."""

    def __init__(self, client: str, address: str, *, recorder: Recorder) -> None:
        self.client = client
        self._recorder = recorder
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = LeaseServiceStub(self._channel)
        self._hub_stub = HubServiceStub(self._channel)
        self.seconds_max = 3.0
        """Deadline of the next calls, besides how long they wait."""

    def close(self) -> None:
        self._channel.close()

    # --- tenures that are opened ---

    def acquire(self, resource: str, asked: Arguments) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.AcquireLeaseRequest(
                request_id=asked.request_id,
                hub_project=HUB_PROJECT,
                resource=resource,
                runtime_id=asked.runtime_id,
                holder_id=asked.holder_id,
                nonce=asked.nonce,
                ttl=duration_of(asked.ttl_nanos),
                wait_timeout=duration_of(asked.wait_nanos),
            )
            told = self._stub.AcquireLease(request, timeout=seconds)
            assert told.credential.nonce == asked.nonce
            return replace(
                answer_of_lease(told.lease),
                is_renewed=told.renewed,
                waited_nanos=told.waited.ToNanoseconds(),
                is_replayed=told.replayed,
            )

        return self._record(Call.ACQUIRE, resource, asked, send=send)

    def takeover(self, resource: str, asked: Arguments) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.TakeoverLeaseRequest(
                request_id=asked.request_id,
                hub_project=HUB_PROJECT,
                resource=resource,
                runtime_id=asked.runtime_id,
                holder_id=asked.holder_id,
                nonce=asked.nonce,
                ttl=duration_of(asked.ttl_nanos),
            )
            told = self._stub.TakeoverLease(request, timeout=seconds)
            return replace(answer_of_lease(told.lease), is_replayed=told.replayed)

        return self._record(Call.TAKEOVER, resource, asked, send=send)

    def begin_maintenance(self, resource: str, asked: Arguments) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.BeginMaintenanceRequest(
                request_id=asked.request_id,
                hub_project=HUB_PROJECT,
                resource=resource,
                runtime_id=asked.runtime_id,
                holder_id=asked.holder_id,
                nonce=asked.nonce,
                ttl=duration_of(asked.ttl_nanos),
            )
            told = self._stub.BeginMaintenance(request, timeout=seconds)
            return Answer(
                token=told.credential.fencing_token,
                epoch=told.epoch,
                ttl_nanos=told.ttl.ToNanoseconds(),
                expire_nanos=told.expire_time.ToNanoseconds(),
                is_replayed=told.replayed,
            )

        return self._record(Call.BEGIN_MAINTENANCE, resource, asked, send=send)

    # --- tenures that go on, or end ---

    def renew(self, credential: Credential, *, ttl_nanos: int = 0) -> Operation:
        asked = replace(credential.arguments, ttl_nanos=ttl_nanos)

        def send(seconds: float) -> Answer:
            request = messages.RenewLeaseRequest(
                hub_project=HUB_PROJECT, credential=credential.proto(), ttl=duration_of(ttl_nanos)
            )
            return answer_of_lease(self._stub.RenewLease(request, timeout=seconds).lease)

        return self._record(Call.RENEW, credential.resource, asked, send=send)

    def renew_together(self, credentials: Sequence[Credential]) -> list[Operation]:
        """Renew several on a RenewLeases stream, as one operation each."""
        request = messages.RenewLeasesRequest(
            hub_project=HUB_PROJECT,
            renewals=[messages.LeaseRenewal(credential=each.proto()) for each in credentials],
        )
        invoke_nanos = client_nanos()
        results: Sequence[messages.LeaseRenewalResult] = ()
        failure = ""
        call = self._stub.RenewLeases(iter([request]), timeout=self.seconds_max)
        try:
            for response in call:
                results = results or response.results
        except grpc.RpcError as error:
            failure = str(refusal_from_error(error).code.name)
        return [
            self._add_renewal(
                credential,
                results[place] if place < len(results) else None,
                invoke_nanos=invoke_nanos,
                failure=failure,
            )
            for place, credential in enumerate(credentials)
        ]

    def release(self, credential: Credential, *, request_id: str = "") -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.ReleaseLeaseRequest(
                request_id=request_id, hub_project=HUB_PROJECT, credential=credential.proto()
            )
            return Answer(is_replayed=self._stub.ReleaseLease(request, timeout=seconds).replayed)

        asked = replace(credential.arguments, request_id=request_id)
        return self._record(Call.RELEASE, credential.resource, asked, send=send)

    def transfer(
        self, credential: Credential, next_one: Arguments, *, ttl_nanos: int = 0, request_id: str = ""
    ) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.TransferLeaseRequest(
                request_id=request_id,
                hub_project=HUB_PROJECT,
                credential=credential.proto(),
                next_runtime_id=next_one.runtime_id,
                next_holder_id=next_one.holder_id,
                ttl=duration_of(ttl_nanos),
            )
            told = self._stub.TransferLease(request, timeout=seconds)
            return replace(answer_of_lease(told.lease), is_replayed=told.replayed)

        asked = replace(
            credential.arguments,
            ttl_nanos=ttl_nanos,
            next_runtime_id=next_one.runtime_id,
            next_holder_id=next_one.holder_id,
            request_id=request_id,
        )
        return self._record(Call.TRANSFER, credential.resource, asked, send=send)

    def abort(self, resource: str, *, token: int, reason: str, request_id: str = "") -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.AbortLeaseRequest(
                request_id=request_id,
                hub_project=HUB_PROJECT,
                resource=resource,
                fencing_token=token,
                reason=messages.AbortReason.Value(f"ABORT_REASON_{reason}"),
            )
            told = self._stub.AbortLease(request, timeout=seconds)
            return replace(answer_of_lease(told.lease), is_replayed=told.replayed)

        asked = Arguments(token=token, abort_reason=reason, request_id=request_id)
        return self._record(Call.ABORT, resource, asked, send=send)

    def renew_maintenance(self, credential: Credential, *, ttl_nanos: int = 0) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.RenewMaintenanceRequest(
                hub_project=HUB_PROJECT, credential=credential.proto(), ttl=duration_of(ttl_nanos)
            )
            told = self._stub.RenewMaintenance(request, timeout=seconds)
            return Answer(
                epoch=told.epoch,
                ttl_nanos=told.ttl.ToNanoseconds(),
                expire_nanos=told.expire_time.ToNanoseconds(),
            )

        asked = replace(credential.arguments, ttl_nanos=ttl_nanos)
        return self._record(Call.RENEW_MAINTENANCE, credential.resource, asked, send=send)

    def finish_maintenance(self, credential: Credential, *, request_id: str = "") -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.FinishMaintenanceRequest(
                request_id=request_id, hub_project=HUB_PROJECT, credential=credential.proto()
            )
            told = self._stub.FinishMaintenance(request, timeout=seconds)
            return Answer(epoch=told.epoch, is_replayed=told.replayed)

        asked = replace(credential.arguments, request_id=request_id)
        return self._record(Call.FINISH_MAINTENANCE, credential.resource, asked, send=send)

    # --- reads ---

    def check(self, resource: str, *, token: int, nonce: str = "") -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.CheckLeaseRequest(
                hub_project=HUB_PROJECT, resource=resource, fencing_token=token, nonce=nonce
            )
            told = self._stub.CheckLease(request, timeout=seconds)
            if told.is_current:
                return Answer(cause="", expire_nanos=told.expire_time.ToNanoseconds())
            return Answer(cause=messages.StaleCause.Name(told.reason).removeprefix("STALE_CAUSE_"))

        return self._record(Call.CHECK, resource, Arguments(nonce=nonce, token=token), send=send)

    def state(self, resource: str) -> Operation:
        def send(seconds: float) -> Answer:
            request = messages.GetResourceStateRequest(hub_project=HUB_PROJECT, resource=resource)
            told = self._stub.GetResourceState(request, timeout=seconds)
            whole = Answer(token=told.fencing_token, epoch=told.epoch, state="")
            for lease in (told.lease, told.maintenance):
                if lease.fencing_token and lease.fencing_token == told.fencing_token:
                    name = messages.LeaseState.Name(lease.state).removeprefix("LEASE_STATE_")
                    whole = replace(answer_of_lease(lease), epoch=told.epoch, state=name)
            return whole

        return self._record(Call.STATE, resource, Arguments(), send=send)

    def hub_time(self) -> Operation:
        def send(seconds: float) -> Answer:
            told = self._hub_stub.GetHubInfo(GetHubInfoRequest(), timeout=seconds)
            return Answer(hub_nanos=told.hub_time.ToNanoseconds())

        return self._record(Call.HUB_TIME, "", Arguments(), send=send)

    # --- within ---

    def _record(
        self, call: Call, resource: str, asked: Arguments, *, send: Callable[[float], Answer]
    ) -> Operation:
        """Send, and take down what became of it."""
        invoke_nanos = client_nanos()
        outcome, reason, answer = Outcome.OK, "", Answer()
        try:
            answer = send(self.seconds_max + asked.wait_nanos / NANOS_PER_SECOND)
        except grpc.RpcError as error:
            refusal = refusal_from_error(error)
            outcome, reason, answer = outcome_of(
                refusal.reason, dict(refusal.metadata), otherwise=refusal.code.name
            )
        return self._add(
            Operation(
                self._recorder.next_number(),
                self.client,
                call,
                resource,
                asked,
                invoke_nanos,
                client_nanos(),
                outcome,
                reason,
                answer,
            )
        )

    def _add_renewal(
        self,
        credential: Credential,
        result: messages.LeaseRenewalResult | None,
        *,
        invoke_nanos: int,
        failure: str,
    ) -> Operation:
        outcome, reason, answer = Outcome.UNKNOWN, failure, Answer()
        if result is not None and result.HasField("lease"):
            outcome, reason, answer = Outcome.OK, "", answer_of_lease(result.lease)
        elif result is not None:
            refusal = refusal_from_status(result.refusal)
            outcome, reason, answer = outcome_of(
                refusal.reason, dict(refusal.metadata), otherwise=refusal.code.name
            )
        return self._add(
            Operation(
                self._recorder.next_number(),
                self.client,
                Call.RENEW,
                credential.resource,
                credential.arguments,
                invoke_nanos,
                client_nanos(),
                outcome,
                reason,
                answer,
            )
        )

    def _wait_until_reachable(self) -> None:
        """Return once a hub can be called, or after a while; this is no part of what is recorded."""
        try:
            self._hub_stub.GetHubInfo(GetHubInfoRequest(), timeout=REACHABLE_SECONDS_MAX, wait_for_ready=True)
        except grpc.RpcError:
            pass  # whoever calls now is not answered, which is recorded

    def _add(self, operation: Operation) -> Operation:
        self._recorder.add(operation)
        if operation.reason == grpc.StatusCode.UNAVAILABLE.name:
            self._wait_until_reachable()
        return operation


def outcome_of(reason: str, metadata: dict[str, str], *, otherwise: str) -> tuple[Outcome, str, Answer]:
    """Return how a call ended that was not granted, and what its error tells."""
    if reason not in REFUSALS:
        return Outcome.UNKNOWN, reason or otherwise, Answer()
    answer = Answer()
    if "expireTime" in metadata:
        moment = Timestamp()
        moment.FromJsonString(metadata["expireTime"])
        holder = metadata.get("holderDisplayName")
        answer = Answer(holder_id=holder, expire_nanos=moment.ToNanoseconds())
    return Outcome.REFUSED, reason, answer


def answer_of_lease(lease: messages.Lease) -> Answer:
    reason = messages.AbortReason.Name(lease.abort_reason).removeprefix("ABORT_REASON_")
    return Answer(
        token=lease.fencing_token,
        epoch=lease.epoch,
        runtime_id=lease.runtime_id,
        holder_id=lease.holder_id,
        ttl_nanos=lease.ttl.ToNanoseconds(),
        acquire_nanos=lease.acquire_time.ToNanoseconds(),
        renew_nanos=lease.renew_time.ToNanoseconds(),
        expire_nanos=lease.expire_time.ToNanoseconds(),
        abort_reason=reason if lease.is_abort_requested else "",
        is_maintenance=lease.is_maintenance,
    )


def duration_of(nanos: int) -> Duration | None:
    """Return a span for the wire; none where it is 0, which means the same."""
    if not nanos:
        return None
    span = Duration()
    span.FromNanoseconds(nanos)
    return span
