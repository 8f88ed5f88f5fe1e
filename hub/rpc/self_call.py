"""A call that the hub makes to itself, through gRPC and its handlers, over a socket that nobody else has."""

from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

CHECK_METHOD: Final = "/grpc.health.v1.Health/Check"
"""Open to everybody, and it stores nothing."""
_NO_ANSWERS: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)
"""Statuses that are not the answer of a handler."""
_NEVER_IDLE_MS: Final = 2**31 - 1
"""The connection is kept: what cleans temporary folders may have taken the socket's file away."""


class SelfCall:
    """The hub as its own client; make it inside the running loop, and close it."""

    def __init__(self, socket: Path) -> None:
        """Prepare to call over a socket on which the server listens."""
        options = (("grpc.client_idle_timeout_ms", _NEVER_IDLE_MS), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        self._check = self._channel.unary_unary(
            CHECK_METHOD,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )

    async def ask(self, seconds_max: float) -> None:
        """Return once a handler has answered, whatever it answers.

        Raises: TimeoutError where none does in time.
        """
        try:
            await self._check(HealthCheckRequest(), timeout=seconds_max, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in _NO_ANSWERS:
                raise TimeoutError from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
