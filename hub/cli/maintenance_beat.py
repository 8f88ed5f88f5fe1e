"""A maintenance that is kept alive: renewed every second, and lost where that fails for too long."""

import time
from typing import Final

import grpc

from hub.cli.reconnecting import PASSING_REASONS
from synchub.channel import Refusal, refusal_from_error
from synchub.contract import NANOS_PER_SECOND
from synchub.v1.lease_service_pb2 import (
    BeginMaintenanceRequest,
    BeginMaintenanceResponse,
    FinishMaintenanceRequest,
    RenewMaintenanceRequest,
    RenewMaintenanceResponse,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

BEAT_NANOS: Final = NANOS_PER_SECOND
"""How often it is renewed; where the TTL is short, three times in it."""
MARGIN_NANOS: Final = NANOS_PER_SECOND // 2
"""How much earlier than the hub this side takes it for ended."""
CALL_SECONDS_MAX: Final = 5.0
"""How long the hub may take to answer a call before it is asked again."""
FINISH_ATTEMPTS_MAX: Final = 3
"""How often the hub is told the end, where it does not answer."""


def boot_nanos() -> int:
    """Return a clock that goes on while the machine sleeps (macOS: its monotonic clock does)."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class MaintenanceBeat:
    """One maintenance from begin to finish. ``step`` is to be called many times a second in between."""

    def __init__(self, stub: LeaseServiceStub, request: BeginMaintenanceRequest) -> None:
        """Begin it. Raises: grpc.RpcError."""
        self._stub = stub
        sent_nanos = boot_nanos()
        self.begun: BeginMaintenanceResponse = stub.BeginMaintenance(request, timeout=CALL_SECONDS_MAX)
        self.loss: Refusal | None = None
        """Why it was lost; None while it is held."""
        self.silence: Refusal | None = None
        """Why the last renewal was not answered; None where it was."""
        self._ttl_nanos = self.begun.ttl.ToNanoseconds()
        self._beat_nanos = min(BEAT_NANOS, self._ttl_nanos // 3)
        self._deadline_nanos = sent_nanos + self._ttl_nanos - MARGIN_NANOS
        self._renewal = RenewMaintenanceRequest(
            hub_project=request.hub_project, credential=self.begun.credential
        )
        self._sent_nanos = sent_nanos
        self._call: grpc.Future[RenewMaintenanceResponse] | None = None

    def step(self) -> None:
        """Send a renewal where it is time to, take its answer where it has come; never waits."""
        if self._call is not None and self._call.done():
            self._take_answer(self._call)
            self._call = None
        now = boot_nanos()
        if now >= self._deadline_nanos and self.loss is None:
            # Also after a suspension: by now somebody else may hold the resource.
            text = "it could not be renewed in time"
            self.loss = self.silence or Refusal(
                grpc.StatusCode.DEADLINE_EXCEEDED, text, reason="LEASE_EXPIRED"
            )
        if self._call is None and self.loss is None and now - self._sent_nanos >= self._beat_nanos:
            self._sent_nanos = now
            self._call = self._stub.RenewMaintenance.future(self._renewal, timeout=CALL_SECONDS_MAX)

    def _take_answer(self, call: "grpc.Future[RenewMaintenanceResponse]") -> None:
        try:
            call.result()
        except grpc.RpcError as error:
            self.silence = refusal_from_error(error)
            if self.silence.reason not in PASSING_REASONS:
                self.loss = self.silence
            return
        self.silence = None
        self._deadline_nanos = self._sent_nanos + self._ttl_nanos - MARGIN_NANOS

    def finish(self, request_id: str) -> Refusal | None:
        """Give the resource back; return why that failed, or None. Where the hub is silent it is asked again.

        Also after a loss, but once only: a credential that is over changes nothing.
        """
        request = FinishMaintenanceRequest(
            request_id=request_id,
            hub_project=self._renewal.hub_project,
            credential=self._renewal.credential,
        )
        refusal = None
        for _ in range(FINISH_ATTEMPTS_MAX if self.loss is None else 1):
            try:
                self._stub.FinishMaintenance(request, timeout=CALL_SECONDS_MAX)
                return None
            except grpc.RpcError as error:
                refusal = refusal_from_error(error)
            if refusal.reason not in PASSING_REASONS:
                break
            time.sleep(BEAT_NANOS / NANOS_PER_SECOND)
        return refusal
