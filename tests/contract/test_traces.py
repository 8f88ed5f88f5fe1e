"""A trace that began at a runtime goes on in the hub, to a real collector; one that fails hurts nobody."""

import secrets
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest, PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.collector import Collector, facts_of
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread


class Trace:
    """A context that somebody traces."""

    def __init__(self, *, is_sampled: bool = True) -> None:
        self.trace_id, self.span_id = secrets.token_bytes(16), secrets.token_bytes(8)
        self.traceparent = f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{'01' if is_sampled else '00'}"


@contextmanager
def tracing_hub(folder: Path, endpoint: str, limits: Limits | None = None) -> Iterator[HubInThread]:
    settings = replace(settings_in(folder), otlp_endpoint=endpoint, limits=limits or Limits())
    with HubInThread(settings) as hub:
        yield hub


def push(hub: HubInThread, traceparents: Sequence[str | None]) -> list[PushEventsResponse]:
    """Push a batch with an event for each context; None for one without."""
    events = [
        SyncEvent(
            sequence=sequence,
            event_type="line",
            attributes={"color": "red"} if text is None else {"traceparent": text, "color": "red"},
            payload=b"the-payload",
        )
        for sequence, text in enumerate(traceparents, 1)
    ]
    request = PushEventsRequest(
        hub_project="h", project_id="p", run_id="r", runtime_id="runtime", events=events
    )
    with grpc.insecure_channel(hub.address) as channel:
        return list(SyncServiceStub(channel).PushEvents(iter([request]), timeout=20))


def spans_counted(hub: HubInThread, outcome: str) -> float:
    with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (sample.name, sample.labels) == ("synchub_trace_spans_total", {"outcome": outcome}):
                return float(sample.value)
    return 0.0


def until_counted(hub: HubInThread, outcome: str, count: float) -> None:
    end = time.monotonic() + 20.0
    while spans_counted(hub, outcome) < count:
        assert time.monotonic() < end, f"{outcome} is {spans_counted(hub, outcome)}, not {count}"


def is_ingest(span: Span) -> bool:
    return span.name == "ingest"


def test_a_batch_is_a_span_in_the_trace_of_its_first_event_and_linked_to_all(tmp_path: Path) -> None:
    first, second = Trace(), Trace()
    with Collector() as collector, tracing_hub(tmp_path, collector.endpoint) as hub:
        sent = [None, first.traceparent, second.traceparent, first.traceparent]
        before_nanos = time.time_ns()
        assert [answer.cursor for answer in push(hub, sent)] == [4]
        (span,) = collector.spans(1)
        assert collector.service_names == {"synchub"}
    assert (span.name, span.trace_id, span.parent_span_id) == ("ingest", first.trace_id, first.span_id)
    assert [(link.trace_id, link.span_id) for link in span.links] == [
        (first.trace_id, first.span_id),
        (second.trace_id, second.span_id),
    ]
    assert before_nanos <= span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns()
    assert span.status.code != Status.STATUS_CODE_ERROR
    assert facts_of(span) == {
        "synchub.hub_project": "h",
        "synchub.project_id": "p",
        "synchub.run_id": "r",
        "synchub.first_sequence": 1,
        "synchub.last_sequence": 4,
        "synchub.accepted_count": 4,
        "synchub.duplicate_count": 0,
        "synchub.conflict_count": 0,
    }


@pytest.mark.parametrize(
    "sent",
    [
        [None],
        ["nonsense"],
        ["00-" + "0" * 32 + "-" + "0" * 16 + "-01"],
        [Trace(is_sampled=False).traceparent],
    ],
    ids=["none", "nonsense", "zeros", "not sampled"],
)
def test_what_nobody_traces_is_stored_and_is_no_span(tmp_path: Path, sent: list[str | None]) -> None:
    traced = Trace()
    with Collector() as collector, tracing_hub(tmp_path, collector.endpoint) as hub:
        assert [answer.accepted_count for answer in push(hub, sent)] == [1]
        # Spans come in the order in which they ended: this one is the first.
        assert push(hub, [*sent, traced.traceparent])[0].accepted_count == 1
        (span,) = collector.spans(1)
    assert span.trace_id == traced.trace_id


def test_links_are_bounded(tmp_path: Path) -> None:
    traces = [Trace() for _ in range(5)]
    limits = Limits(trace_links_max=3)
    with Collector() as collector, tracing_hub(tmp_path, collector.endpoint, limits) as hub:
        push(hub, [trace.traceparent for trace in traces])
        (span,) = collector.spans(1)
    assert [link.trace_id for link in span.links] == [trace.trace_id for trace in traces[:3]]


def test_a_unary_call_is_a_span_of_its_callers_trace(tmp_path: Path) -> None:
    trace = Trace()
    metadata = (("traceparent", trace.traceparent), ("x-request-id", "request-1"))
    with (
        Collector() as collector,
        tracing_hub(tmp_path, collector.endpoint) as hub,
        grpc.insecure_channel(hub.address) as channel,
    ):
        request = GetRunRequest(hub_project="h", project_id="p", run_id="r")
        with pytest.raises(grpc.RpcError):
            SyncServiceStub(channel).GetRun(request, metadata=metadata, timeout=10)
        (span,) = collector.spans(1)
    assert (span.name, span.trace_id, span.parent_span_id) == ("GetRun", trace.trace_id, trace.span_id)
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "NOT_FOUND")
    assert facts_of(span) == {"rpc.method": "GetRun", "synchub.request_id": "request-1"}


def test_a_collector_that_is_away_hurts_no_ingest_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    with capture_logs() as lines, tracing_hub(tmp_path, "http://127.0.0.1:1") as hub:
        begin = time.monotonic()
        for _ in range(20):
            assert len(push(hub, [Trace().traceparent])) == 1
        assert time.monotonic() - begin < 60.0
        begin = time.monotonic()
    # The stop waits a bounded time for what cannot be exported.
    assert time.monotonic() - begin < 20.0
    told = [line for line in lines if line["event"].startswith("spans_")]
    assert [(line["event"], line["log_level"]) for line in told] == [("spans_not_exported", "warning")]


def test_spans_that_do_not_fit_are_dropped_and_counted_and_the_others_arrive(tmp_path: Path) -> None:
    limits = Limits(trace_queue_spans_max=2)
    with Collector() as collector, tracing_hub(tmp_path, collector.endpoint, limits) as hub:
        collector.may_answer.clear()
        traces = [Trace() for _ in range(30)]
        for trace in traces:
            assert len(push(hub, [trace.traceparent])) == 1
        until_counted(hub, "dropped", 1)
        collector.may_answer.set()
        arrived = collector.spans(1, is_wanted=is_ingest)
        until_counted(hub, "exported", len(arrived))
        dropped, failed = spans_counted(hub, "dropped"), spans_counted(hub, "failed")
        assert failed == 0
        until_counted(hub, "exported", len(traces) - dropped)


def test_what_is_queued_at_a_stop_is_exported(tmp_path: Path) -> None:
    trace = Trace()
    with Collector() as collector:
        with tracing_hub(tmp_path, collector.endpoint) as hub:
            push(hub, [trace.traceparent])
        (span,) = collector.spans(1)
    assert span.trace_id == trace.trace_id


def test_without_the_packages_an_endpoint_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "hub.telemetry.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = replace(settings_in(tmp_path), otlp_endpoint="http://127.0.0.1:4317")
    with (
        pytest.raises(StartRefused, match="OpenTelemetry is not installed") as refused,
        HubInThread(settings),
    ):
        pass
    assert "synchub[otel]" in (refused.value.hint or "")
