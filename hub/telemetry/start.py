"""Makes what traces, where somebody asks for it; without the extra ``otel`` only this module is there."""

from typing import Protocol

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.service.traces import Tracer


class CountSpans(Protocol):
    """Counts what became of spans: exported, failed, dropped."""

    def __call__(self, outcome: str, count: int) -> None:
        """Count some."""


class ClosableTracer(Tracer, Protocol):
    """A tracer that exports until it is closed."""

    def close(self) -> None:
        """Export what is queued, in a bounded time."""


def start_tracer(
    endpoint: str | None, *, version: str, limits: Limits, count_spans: CountSpans
) -> ClosableTracer | None:
    """Return what traces to a collector, None where there is no endpoint.

    Raises: StartRefused where the packages that it needs are not installed.
    """
    if endpoint is None:
        return None
    try:
        # Imported only here: most hubs do without, and need not have it.
        from hub.telemetry.otel import OtelTracer
    except ImportError as error:
        sentence = "traces were asked for (--otlp-endpoint), and OpenTelemetry is not installed."
        hint = "Install the extra: pip install 'synchub[otel]', or start without an endpoint."
        raise StartRefused(sentence, hint) from error
    return OtelTracer(endpoint, version=version, limits=limits, count_spans=count_spans)
