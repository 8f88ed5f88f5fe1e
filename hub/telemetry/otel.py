"""Spans by OpenTelemetry, sent by OTLP over gRPC; see ``hub.service.traces`` for what they are about.

A call's span is a child of its caller's. A batch's span is a child of the context of its first event that
has one, and linked to the contexts of all; it lasts from the hub's taking it to its being durable.
"""

import json
import logging
from collections.abc import Iterator, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hub.core.ingest import PushBatch
from hub.core.limits import Limits
from hub.core.values import Caller
from hub.service.traces import TRACEPARENT, Span
from hub.telemetry.span_queue import CountSpans, SpanQueue

SERVICE_NAME = "synchub"
_QUOTED_KEY = f'"{TRACEPARENT}"'


class OtelSpan:
    """A span that was begun; see ``Span``."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        """Take over a span."""
        self._span = span

    def end(self, facts: Mapping[str, str | int], *, error: str | None) -> None:
        """Note that it ended."""
        for key, value in facts.items():
            self._span.set_attribute(key, value)
        if error is not None:
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end()


class OtelTracer:
    """Begins spans where somebody's trace goes on here and is sampled; see ``Tracer``."""

    def __init__(self, endpoint: str, *, version: str, limits: Limits, count_spans: CountSpans) -> None:
        """Prepare to export to a collector; whether it is there shows later."""
        # It logs each request that fails, for as long as the collector is away; the queue says so once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        exporter = OTLPSpanExporter(endpoint=endpoint)
        self._queue = SpanQueue(exporter, spans_max=limits.trace_queue_spans_max, count_spans=count_spans)
        self._links_max = limits.trace_links_max
        resource = Resource.create({"service.name": SERVICE_NAME, "service.version": version})
        # What is recorded is decided by whoever began the trace.
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._queue)
        self._tracer = provider.get_tracer(SERVICE_NAME, version)
        self._propagator = TraceContextTextMapPropagator()

    def begin_call(self, method: str, traceparent: str) -> Span | None:
        """Begin the span of a call."""
        found = self._context_of(traceparent)
        if found is None:
            return None
        return OtelSpan(self._tracer.start_span(method, context=found[0], kind=trace.SpanKind.SERVER))

    def begin_batch(self, caller: Caller, batch: PushBatch) -> Span | None:
        """Begin the span of a batch."""
        parent: Context | None = None
        links: list[trace.Link] = []
        for traceparent in _traceparents(batch):
            found = self._context_of(traceparent)
            if found is None:
                continue
            parent = parent or found[0]
            if len(links) == self._links_max:
                break
            links.append(trace.Link(found[1]))
        if parent is None:
            return None
        attributes: dict[str, str | int] = {
            "synchub.hub_project": caller.hub_project,
            "synchub.project_id": batch.project_id,
            "synchub.run_id": batch.run_id,
            "synchub.first_sequence": batch.events[0].sequence,
            "synchub.last_sequence": batch.events[-1].sequence,
        }
        span = self._tracer.start_span(
            "ingest", context=parent, kind=trace.SpanKind.CONSUMER, links=links, attributes=attributes
        )
        return OtelSpan(span)

    def close(self) -> None:
        """Export what is queued, in a bounded time."""
        self._queue.shutdown()

    def _context_of(self, traceparent: str) -> tuple[Context, trace.SpanContext] | None:
        """Return a context that was sent; None where it is none, or is not to be recorded."""
        context = self._propagator.extract({TRACEPARENT: traceparent}, context=Context())
        span_context = trace.get_current_span(context).get_span_context()
        if not span_context.is_valid or not span_context.trace_flags.sampled:
            return None
        return context, span_context


def _traceparents(batch: PushBatch) -> Iterator[str]:
    """Give the different contexts of a batch's events, in their order."""
    seen: set[str] = set()
    for event in batch.events:
        # Attributes are JSON by here; most have no context.
        if event.attributes is None or _QUOTED_KEY not in event.attributes:
            continue
        traceparent = json.loads(event.attributes).get(TRACEPARENT)
        if isinstance(traceparent, str) and traceparent not in seen:
            seen.add(traceparent)
            yield traceparent
