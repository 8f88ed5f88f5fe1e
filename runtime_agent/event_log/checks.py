"""What the log refuses before it writes: the hub's rules, applied where the event is born."""

from runtime_agent import limits
from runtime_agent.core.errors import EventInvalidError
from runtime_agent.core.values import AppendRequest, HubLimits, NewEvent, RunKey
from synchub import contract

DEFAULT_LIMITS = HubLimits(
    identifier_bytes_max=contract.IDENTIFIER_BYTES_MAX,
    event_type_bytes_max=contract.EVENT_TYPE_BYTES_MAX,
    payload_bytes_max=contract.PAYLOAD_BYTES_MAX,
    attribute_count_max=contract.ATTRIBUTE_COUNT_MAX,
    attribute_key_bytes_max=contract.ATTRIBUTE_KEY_BYTES_MAX,
    attributes_bytes_max=contract.ATTRIBUTES_BYTES_MAX,
    batch_events_max=contract.BATCH_EVENTS_MAX,
    batch_bytes_max=contract.BATCH_BYTES_MAX,
    message_bytes_max=contract.MESSAGE_BYTES_MAX,
    reconcile_runs_max=contract.RECONCILE_RUNS_MAX,
    active_runs_max=contract.ACTIVE_RUNS_MAX,
)
"""The limits that hold until a hub told its own."""


def run_fault(run: RunKey, hub_limits: HubLimits) -> EventInvalidError | None:
    """Say what keeps the ids of a run from being identifiers, or None."""
    for field, value in (("project_id", run.project_id), ("run_id", run.run_id)):
        fault = contract.identifier_fault(value, hub_limits.identifier_bytes_max)
        if fault is not None:
            return EventInvalidError(field, fault)
    return None


def request_fault(request: AppendRequest, hub_limits: HubLimits) -> EventInvalidError | None:
    """Say what in an append breaks a bound or a type, or None where it is allowed."""
    fault = run_fault(request.run, hub_limits)
    if fault is not None:
        return fault
    if request.append_id:
        text = contract.identifier_fault(request.append_id)
        if text is not None:
            return EventInvalidError("append_id", text)
    if not 0 <= request.expected_sequence <= contract.SEQUENCE_MAX:
        return EventInvalidError(
            "expected_sequence", f"is {request.expected_sequence}; 0 to 2^63-1 are allowed"
        )
    count = len(request.events)
    if not 1 <= count <= contract.BATCH_EVENTS_MAX:
        return EventInvalidError(
            "events", f"has {count} entries; 1 to {contract.BATCH_EVENTS_MAX} are allowed"
        )
    return _events_fault(request.events, hub_limits)


def _events_fault(events: tuple[NewEvent, ...], hub_limits: HubLimits) -> EventInvalidError | None:
    good_type: str | None = None  # the last one found good: most events of a request have the same type
    payload_bytes_max = hub_limits.payload_bytes_max
    bytes_sum = 0
    last = len(events) - 1
    for index, event in enumerate(events):
        event_type, payload, time_nanos, attributes, is_final = event
        if event_type != good_type:
            fault = contract.identifier_fault(event_type, hub_limits.event_type_bytes_max)
            if fault is not None:
                return EventInvalidError(f"events[{index}].event_type", fault)
            good_type = event_type
        if len(payload) > payload_bytes_max:
            return EventInvalidError(
                f"events[{index}].payload",
                f"has {len(payload)} bytes; at most {payload_bytes_max} are allowed",
            )
        if attributes:
            fault = contract.attributes_fault(attributes) or _hub_attributes_fault(event, hub_limits)
            if fault is not None:
                return EventInvalidError(f"events[{index}].attributes", fault)
        if time_nanos is not None and not (
            contract.EVENT_TIME_NANOS_MIN <= time_nanos <= contract.EVENT_TIME_NANOS_MAX
        ):
            return EventInvalidError(f"events[{index}].event_time", "is outside of 64 bits of nanoseconds")
        if is_final and index != last:
            return EventInvalidError(f"events[{index}].is_final", "is set, but it is not the last event")
        bytes_sum += len(payload)
    if bytes_sum > limits.APPEND_BYTES_MAX:
        return EventInvalidError(
            "events", f"have {bytes_sum} bytes of payload; at most {limits.APPEND_BYTES_MAX} are allowed"
        )
    return None


def _hub_attributes_fault(event: NewEvent, hub_limits: HubLimits) -> str | None:
    """Apply the hub's own limits where they are tighter than the contract's."""
    if len(event.attributes) > hub_limits.attribute_count_max:
        return f"has {len(event.attributes)} pairs; at most {hub_limits.attribute_count_max} are allowed"
    sizes = [(len(key.encode()), len(value.encode())) for key, value in event.attributes.items()]
    if max(key for key, _ in sizes) > hub_limits.attribute_key_bytes_max:
        return f"has a key of more than {hub_limits.attribute_key_bytes_max} bytes"
    bytes_sum = sum(key + value for key, value in sizes)
    if bytes_sum > hub_limits.attributes_bytes_max:
        return (
            f"has {bytes_sum} bytes of keys and values; at most {hub_limits.attributes_bytes_max} are allowed"
        )
    return None
