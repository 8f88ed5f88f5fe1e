"""The trace that a program is in now, where it traces by OpenTelemetry; nothing is imported for it."""

import os
import sys
from typing import Final

from runtime_agent.core.trace import TRACEPARENT

ENVIRONMENT_VARIABLE: Final = TRACEPARENT.upper()
"""Where a program that runs another one says whose trace that belongs to."""
_API: Final = "opentelemetry.trace"


def current_traceparent() -> str | None:
    """Return the context of the running span; None where the program has not imported OpenTelemetry itself,
    or is in no span.
    """
    api = sys.modules.get(_API)
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def traceparent_of_environment() -> str | None:
    """Return the context that whoever started this program gave it, None where there is none."""
    return os.environ.get(ENVIRONMENT_VARIABLE) or None
