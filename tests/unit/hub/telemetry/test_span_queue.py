"""Spans wait in a bounded queue, and whatever an exporter does hurts nobody else."""

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from hub.telemetry.span_queue import EXPORTED_AT_ONCE_MAX, SpanQueue

SECONDS_MAX = 10.0


class Exporter(SpanExporter):
    """Exports by what it is told to do, and waits until it may."""

    def __init__(self, result: SpanExportResult | Exception = SpanExportResult.SUCCESS) -> None:
        self.result = result
        self.batches: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.may_go_on.wait(SECONDS_MAX)
        self.batches.append(len(spans))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def shutdown(self) -> None:
        self.is_shut_down = True


def span() -> ReadableSpan:
    return ReadableSpan("span")


class Counts(Counter[str]):
    """What became of spans."""

    def add(self, outcome: str, count: int) -> None:
        self[outcome] += count


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (SpanExportResult.SUCCESS, "exported"),
        (SpanExportResult.FAILURE, "failed"),
        (ValueError("a fault"), "failed"),
    ],
)
def test_every_span_is_counted_by_what_became_of_it(
    result: SpanExportResult | Exception, outcome: str
) -> None:
    exporter, counts = Exporter(result), Counts()
    queue = SpanQueue(exporter, spans_max=10_000, count_spans=counts.add)
    with capture_logs() as lines:
        for _ in range(EXPORTED_AT_ONCE_MAX + 10):
            queue.on_end(span())
        queue.shutdown()
    assert counts == {outcome: EXPORTED_AT_ONCE_MAX + 10}
    assert max(exporter.batches) <= EXPORTED_AT_ONCE_MAX
    assert exporter.is_shut_down
    # However many requests failed, it is said once.
    warnings = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert warnings == (["spans_not_exported"] if outcome == "failed" else [])


def test_what_does_not_fit_is_dropped_and_the_rest_is_exported() -> None:
    exporter, counts = Exporter(), Counts()
    exporter.may_go_on.clear()
    queue = SpanQueue(exporter, spans_max=3, count_spans=counts.add)
    for _ in range(100):
        queue.on_end(span())
    assert counts["dropped"] >= 100 - 3 - 3
    exporter.may_go_on.set()
    queue.shutdown()
    assert counts["exported"] + counts["dropped"] == 100
    assert counts["exported"] >= 3


def test_after_a_stop_nothing_is_taken_any_more() -> None:
    counts = Counts()
    queue = SpanQueue(Exporter(), spans_max=3, count_spans=counts.add)
    queue.shutdown()
    queue.on_end(span())
    assert counts == {"dropped": 1}
