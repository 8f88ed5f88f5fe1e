"""What services tell of the work that they do for somebody who traces it; ``hub.telemetry`` exports it.

A trace context comes as the text of W3C's ``traceparent``: in a call's metadata, or in an event's attribute
of that name, where it travelled from the program that appended the event.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from hub.core.ingest import PushBatch
from hub.core.values import Caller

TRACEPARENT: Final = "traceparent"
"""The key, in metadata and among attributes."""


class Span(Protocol):
    """Work that was begun."""

    def end(self, facts: Mapping[str, str | int], *, error: str | None) -> None:
        """Note that it ended, and by which error."""


class Tracer(Protocol):
    """Begins spans. Never raises, never waits."""

    def begin_call(self, method: str, traceparent: str) -> Span | None:
        """Begin the span of a call, within the caller's trace; None where that is not to be recorded."""

    def begin_batch(self, caller: Caller, batch: PushBatch) -> Span | None:
        """Begin the span of a pushed batch, linked to the contexts of its events; None where none has one."""
