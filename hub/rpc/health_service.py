"""gRPC's health service with its call ``List``, which the library leaves out."""

from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import (  # type: ignore[attr-defined]  # its stubs are older
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)


class HealthService(health.aio.HealthServicer):
    """The health of the hub and of each of its services."""

    def __init__(self, service_names: Sequence[str]) -> None:
        """Have names whose health is set before the first call; the empty one is the hub's."""
        super().__init__()
        self._service_names = tuple(service_names)

    async def List(  # noqa: N802
        self,
        request: HealthListRequest,
        context: grpc.aio.ServicerContext[HealthListRequest, HealthListResponse],
    ) -> HealthListResponse:
        """Return what ``Check`` says of each; without this method anybody's call is a fault of the hub."""
        statuses: dict[str, HealthCheckResponse] = {}
        for name in self._service_names:
            statuses[name] = await self.Check(HealthCheckRequest(service=name), context)
        return HealthListResponse(statuses=statuses)
