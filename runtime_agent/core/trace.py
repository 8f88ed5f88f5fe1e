"""Whose trace an event belongs to: the text of W3C's ``traceparent``, carried in an event's attributes.

It is put there before the event is hashed, so it is part of what was appended for good, and comes to the
hub with it. Where nobody traces, there is no such attribute.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from runtime_agent.core.values import AppendRequest, NewEvent
from synchub.contract import attributes_fault

TRACEPARENT: Final = "traceparent"
"""The attribute."""
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_UNKNOWN_VERSION: Final = "ff"


def is_traceparent(text: str) -> bool:
    """Whether a text names a trace and a span, as W3C's recommendation writes it."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return False
    version, trace_id, span_id = found.groups()
    return version != _UNKNOWN_VERSION and set(trace_id) != {"0"} and set(span_id) != {"0"}


def traced(request: AppendRequest, traceparent: str | None) -> AppendRequest:
    """Return a request whose events carry a context.

    An event that has one of its own keeps it, and one that has no room for it goes without: no append is
    refused for a trace. A text that is no context is left out too.
    """
    if traceparent is None or not is_traceparent(traceparent):
        return request
    return replace(request, events=_traced_events(request.events, traceparent))


def _traced_events(events: Sequence[NewEvent], traceparent: str) -> tuple[NewEvent, ...]:
    carried: list[NewEvent] = []
    for event in events:
        attributes = {**event.attributes, TRACEPARENT: traceparent}
        has_room = TRACEPARENT not in event.attributes and attributes_fault(attributes) is None
        carried.append(event._replace(attributes=attributes) if has_room else event)
    return tuple(carried)
