"""The pages of the HTTP port.

- ``/healthz``: 200 while the hub works: its loop answers, what runs in the background
  runs, and its writer ran a command in time;
- ``/readyz``: 200 while it also takes new streams; says besides what an operator should look at;
- ``/metrics``: for Prometheus.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub.core.errors import Refusal
from hub.http.metrics import HubMetrics
from hub.http.metrics_guard import MetricsGuard

PROBE_SECONDS_MAX: Final = 5.0
"""How long the writer may take to run a command that does nothing."""
CLOCKS_APART_SECONDS_MAX: Final = 60.0
"""Hub time and the wall clock may differ by so much before ``/readyz`` says so."""
METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Probes:
    """What the pages ask the hub.

    ``run_through_writer`` returns once the writer has run and committed a command that does nothing.
    """

    run_through_writer: Callable[[], Awaitable[None]]
    is_stopping: Callable[[], bool]
    dead_part: Callable[[], str | None]
    """Names what should run for ever and has ended by a fault; None while all is well."""
    hub_time_ahead_seconds: Callable[[], float]


def make_http_app(probes: Probes, metrics: HubMetrics, *, guard: MetricsGuard | None = None) -> Starlette:
    """Return the application that serves the pages; without a guard ``/metrics`` is for everybody."""

    async def healthz(_request: Request) -> Response:
        fault = await _fault(probes)
        if fault is not None:
            return JSONResponse({"status": "failing", "problem": fault}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        if probes.is_stopping():
            return JSONResponse({"status": "stopping"}, status_code=503)
        fault = await _fault(probes)
        if fault is not None:
            return JSONResponse({"status": "failing", "problem": fault}, status_code=503)
        ahead_seconds = probes.hub_time_ahead_seconds()
        if abs(ahead_seconds) >= CLOCKS_APART_SECONDS_MAX:
            warning = f"hub time is {ahead_seconds:.0f} s ahead of the wall clock"
            return JSONResponse({"status": "ready", "warnings": [warning]})
        return JSONResponse({"status": "ready", "warnings": []})

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


async def _fault(probes: Probes) -> str | None:
    """Return what keeps the hub from working, None where it works."""
    dead_part = probes.dead_part()
    if dead_part is not None:
        return f"{dead_part} has ended by a fault; the log has the details"
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            await probes.run_through_writer()
    except TimeoutError:
        return f"the writer did not answer within {PROBE_SECONDS_MAX:.0f} s"
    except Refusal as refusal:
        return str(refusal)
    return None
