"""Stands before a hub and records what a client library asks of its leases, and what the hub answers.

Every call is passed on as it came, once, with the time that its caller left it; what is recorded lies
within what the caller saw. So clients that hide their calls are part of the history as well.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Self, cast

import grpc

from synchub.channel import refusal_from_error
from synchub.v1 import lease_service_pb2 as messages
from tests.robustness.lease_calls import CHANNEL_OPTIONS, answer_of_lease, outcome_of
from tests.robustness.lease_history import (
    Answer,
    Arguments,
    Call,
    Operation,
    Outcome,
    Recorder,
    client_nanos,
)

SERVICE: Final = "/synchub.v1.LeaseService/"
CALLERS_MAX: Final = 32
CLIENT: Final = "behind-the-front"

Opening = messages.AcquireLeaseRequest | messages.TakeoverLeaseRequest


@dataclass(frozen=True, slots=True)
class Recorded:
    """How a call is read: what it asks, and what its answer tells."""

    call: Call
    asked: Callable[[bytes], tuple[str, Arguments]]
    told: Callable[[bytes], Answer]


class RecordingFront:
    """Listens on loopback and passes calls on to a hub; a context manager."""

    def __init__(self, hub_address: str, *, recorder: Recorder) -> None:
        self._recorder = recorder
        self._channel = grpc.insecure_channel(hub_address, options=CHANNEL_OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(CALLERS_MAX, thread_name_prefix="front"))
        self._server.add_generic_rpc_handlers((_Handlers(self._pass_on),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()
        self._channel.close()

    def _pass_on(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        call = self._channel.unary_unary(method, _same_bytes, _same_bytes)
        invoke_nanos = client_nanos()
        try:
            response = call(request, timeout=context.time_remaining())
        except grpc.RpcError as error:
            refusal = refusal_from_error(error)
            ended = outcome_of(refusal.reason, dict(refusal.metadata), otherwise=refusal.code.name)
            self._record(method, request, invoke_nanos=invoke_nanos, ended=ended)
            failed = cast(grpc.Call, error)
            context.set_trailing_metadata(failed.trailing_metadata() or ())
            context.abort(failed.code(), failed.details() or "")
        read = RECORDED.get(method.removeprefix(SERVICE))
        if read is not None:
            self._record(
                method, request, invoke_nanos=invoke_nanos, ended=(Outcome.OK, "", read.told(response))
            )
        return response

    def _record(
        self, method: str, request: bytes, *, invoke_nanos: int, ended: tuple[Outcome, str, Answer]
    ) -> None:
        read = RECORDED.get(method.removeprefix(SERVICE))
        if read is None:
            return
        resource, asked = read.asked(request)
        number, returned = self._recorder.next_number(), client_nanos()
        self._recorder.add(
            Operation(number, CLIENT, read.call, resource, asked, invoke_nanos, returned, *ended)
        )


class _Handlers(grpc.GenericRpcHandler):
    """Takes every unary call as bytes."""

    def __init__(self, pass_on: Callable[[str, bytes, grpc.ServicerContext], bytes]) -> None:
        self._pass_on = pass_on

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = handler_call_details.method
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._pass_on(method, request, context)
        )


def _same_bytes(message: bytes) -> bytes:
    return message


# --- what requests and answers say ------------------------------------------------------------------


def _opening(request: Opening) -> tuple[str, Arguments]:
    asked = Arguments(
        request.runtime_id,
        request.holder_id,
        request.nonce,
        ttl_nanos=request.ttl.ToNanoseconds(),
        request_id=request.request_id,
    )
    return request.resource, asked


def _acquire(raw: bytes) -> tuple[str, Arguments]:
    request = messages.AcquireLeaseRequest.FromString(raw)
    resource, asked = _opening(request)
    return resource, replace(asked, wait_nanos=request.wait_timeout.ToNanoseconds())


def _proven(credential: messages.LeaseCredential) -> tuple[str, Arguments]:
    asked = Arguments(credential.runtime_id, credential.holder_id, credential.nonce, credential.fencing_token)
    return credential.resource, asked


def _renew(raw: bytes) -> tuple[str, Arguments]:
    request = messages.RenewLeaseRequest.FromString(raw)
    resource, asked = _proven(request.credential)
    return resource, replace(asked, ttl_nanos=request.ttl.ToNanoseconds())


def _release(raw: bytes) -> tuple[str, Arguments]:
    request = messages.ReleaseLeaseRequest.FromString(raw)
    resource, asked = _proven(request.credential)
    return resource, replace(asked, request_id=request.request_id)


def _transfer(raw: bytes) -> tuple[str, Arguments]:
    request = messages.TransferLeaseRequest.FromString(raw)
    resource, asked = _proven(request.credential)
    next_one = replace(
        asked,
        ttl_nanos=request.ttl.ToNanoseconds(),
        next_runtime_id=request.next_runtime_id,
        next_holder_id=request.next_holder_id,
        request_id=request.request_id,
    )
    return resource, next_one


def _acquired(raw: bytes) -> Answer:
    told = messages.AcquireLeaseResponse.FromString(raw)
    return replace(
        answer_of_lease(told.lease),
        is_renewed=told.renewed,
        waited_nanos=told.waited.ToNanoseconds(),
        is_replayed=told.replayed,
    )


def _taken_over(raw: bytes) -> Answer:
    told = messages.TakeoverLeaseResponse.FromString(raw)
    return replace(answer_of_lease(told.lease), is_replayed=told.replayed)


def _transferred(raw: bytes) -> Answer:
    told = messages.TransferLeaseResponse.FromString(raw)
    return replace(answer_of_lease(told.lease), is_replayed=told.replayed)


RECORDED: Final[Mapping[str, Recorded]] = {
    "AcquireLease": Recorded(Call.ACQUIRE, _acquire, _acquired),
    "TakeoverLease": Recorded(
        Call.TAKEOVER, lambda raw: _opening(messages.TakeoverLeaseRequest.FromString(raw)), _taken_over
    ),
    "RenewLease": Recorded(
        Call.RENEW, _renew, lambda raw: answer_of_lease(messages.RenewLeaseResponse.FromString(raw).lease)
    ),
    "ReleaseLease": Recorded(
        Call.RELEASE,
        _release,
        lambda raw: Answer(is_replayed=messages.ReleaseLeaseResponse.FromString(raw).replayed),
    ),
    "TransferLease": Recorded(Call.TRANSFER, _transfer, _transferred),
}
"""The calls of the library that are part of the history; it may make others, which change nothing."""
