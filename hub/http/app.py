"""The pages of the HTTP port.

- ``/healthz``: 200 while the hub works, whatever becomes of its disk; else 503 with what does not;
- ``/readyz``: 200 while it also stores and takes new streams; says besides what an operator should look at;
- ``/metrics``: for Prometheus.
"""

from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub.http.metrics import HubMetrics
from hub.http.metrics_guard import MetricsGuard
from hub.service.health import Health

METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def make_http_app(health: Health, metrics: HubMetrics, *, guard: MetricsGuard | None = None) -> Starlette:
    """Return the application that serves the pages; without a guard ``/metrics`` is for everybody."""

    async def healthz(_request: Request) -> Response:
        found = await health.findings()
        if not found.is_well:
            body = {"status": "failing", "problems": found.problems, "warnings": found.warnings}
            return JSONResponse(body, status_code=503)
        warnings = (*found.obstacles, *found.warnings)
        return JSONResponse({"status": "ok", "warnings": warnings} if warnings else {"status": "ok"})

    async def readyz(_request: Request) -> Response:
        if health.is_stopping:
            return JSONResponse({"status": "stopping"}, status_code=503)
        found = await health.findings()
        if found.is_ready:
            return JSONResponse({"status": "ready", "warnings": found.warnings})
        status = "not ready" if found.is_well else "failing"
        problems = (*found.problems, *found.obstacles)
        body = {"status": status, "problems": problems, "warnings": found.warnings}
        return JSONResponse(body, status_code=503)

    async def metrics_page(request: Request) -> Response:
        refusal = None if guard is None else guard.refusal_of(request)
        if refusal is not None:
            return refusal
        return Response(await metrics.page(), media_type=METRICS_MEDIA_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics_page),
        ]
    )
