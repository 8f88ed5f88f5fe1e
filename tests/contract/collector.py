"""A collector of traces: a real gRPC server that takes what an exporter sends by OTLP."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

ARRIVE_SECONDS_MAX: Final = 30.0

Context = grpc.ServicerContext


class Collector(TraceServiceServicer):
    """Takes spans for the length of a block; while ``may_answer`` is not set it answers nobody."""

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        # Generated without types.
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._spans: list[Span] = []
        self._arrived = threading.Condition()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.service_names: set[str] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.may_answer.set()
        self._server.stop(0).wait()

    def Export(  # noqa: N802 - the name of the call
        self, request: ExportTraceServiceRequest, context: Context
    ) -> ExportTraceServiceResponse:
        """Take spans."""
        self.may_answer.wait(ARRIVE_SECONDS_MAX)
        with self._arrived:
            for of_resource in request.resource_spans:
                for attribute in of_resource.resource.attributes:
                    if attribute.key == "service.name":
                        self.service_names.add(attribute.value.string_value)
                for of_scope in of_resource.scope_spans:
                    self._spans.extend(of_scope.spans)
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    def spans(self, count: int, *, is_wanted: Callable[[Span], bool] = lambda _span: True) -> list[Span]:
        """So many spans, once they have arrived."""

        def wanted() -> list[Span]:
            return [span for span in self._spans if is_wanted(span)]

        end = time.monotonic() + ARRIVE_SECONDS_MAX
        with self._arrived:
            while len(wanted()) < count:
                assert self._arrived.wait(end - time.monotonic()), [span.name for span in self._spans]
            return wanted()


def facts_of(span: Span) -> dict[str, str | int]:
    """The attributes of a span."""
    return {
        attribute.key: attribute.value.string_value or attribute.value.int_value
        for attribute in span.attributes
    }
