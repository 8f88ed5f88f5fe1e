"""Spans on their way to the collector: a bounded queue, emptied by a thread of its own.

Nothing of the hub waits for it. What does not fit is dropped, what the collector does not take is lost, and
both are counted.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

import structlog
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = structlog.get_logger(__name__)

EXPORTED_AT_ONCE_MAX: Final = 512
"""Spans in one request to the collector."""
GATHER_SECONDS: Final = 0.5
"""How long the first span waits for others."""
CLOSE_SECONDS_MAX: Final = 1.0
"""How long a stop waits for what is queued."""

CountSpans = Callable[[str, int], None]
"""(what became of them: exported, failed, dropped; how many)"""


class SpanQueue(SpanProcessor):
    """Takes spans from any thread; begins its thread with the first one."""

    def __init__(self, exporter: SpanExporter, *, spans_max: int, count_spans: CountSpans) -> None:
        """Bind the exporter, which this alone uses."""
        self._exporter = exporter
        self._spans_max = spans_max
        self._count_spans = count_spans
        self._spans: deque[ReadableSpan] = deque()
        self._changed = Condition()
        self._is_closing = False
        self._is_failing = False
        self._thread: Thread | None = None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take no notice of it yet."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or drop it. Returns at once."""
        with self._changed:
            is_kept = len(self._spans) < self._spans_max and not self._is_closing
            if is_kept:
                self._spans.append(span)
                self._changed.notify()
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="traces", daemon=True)
                    self._thread.start()
        if not is_kept:
            self._count_spans("dropped", 1)

    def shutdown(self) -> None:
        """Export what is queued, in a bounded time; then nothing is taken any more."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)
        # Ends a retry that is under way, and the thread with it.
        self._exporter.shutdown()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nobody asks for it: a stop is the only moment at which something is waited for."""
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._spans and not self._is_closing:
                    self._changed.wait()
                if not self._is_closing and len(self._spans) < EXPORTED_AT_ONCE_MAX:
                    self._changed.wait_for(
                        lambda: self._is_closing or len(self._spans) >= EXPORTED_AT_ONCE_MAX,
                        GATHER_SECONDS,
                    )
                if not self._spans:
                    return
                batch = [self._spans.popleft() for _ in range(min(len(self._spans), EXPORTED_AT_ONCE_MAX))]
            self._export(batch)

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            is_exported = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - whatever an exporter raises, the hub goes on
            is_exported = False
            log.debug("spans_not_exported", error=type(error).__name__)
        self._count_spans("exported" if is_exported else "failed", len(batch))
        if is_exported == self._is_failing:
            self._is_failing = not is_exported
            # Once, not at each request: a collector may be away for days.
            if is_exported:
                log.info("spans_exported_again")
            else:
                log.warning("spans_not_exported", spans_count=len(batch))
