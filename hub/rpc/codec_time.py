"""Moments and spans between the hub's integers and protobuf."""

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from synchub.contract import EVENT_TIME_NANOS_MAX, EVENT_TIME_NANOS_MIN, NANOS_PER_SECOND

DURATION_SECONDS_MAX: Final = 315_576_000_000
"""Longest span that protobuf allows, about 10,000 years."""


def timestamp_to_proto(nanos: int) -> Timestamp:
    """Return a moment given in Unix nanoseconds."""
    seconds, rest = divmod(nanos, NANOS_PER_SECOND)
    return Timestamp(seconds=seconds, nanos=rest)


def timestamp_fault(timestamp: Timestamp) -> str | None:
    """Say what keeps a message from being a moment that is stored to the nanosecond, None where it is one.

    Returns: a phrase that completes "<field> …".
    """
    if not 0 <= timestamp.nanos < NANOS_PER_SECOND:
        return f"has {timestamp.nanos} nanos; 0 to 999,999,999 are allowed"
    if not EVENT_TIME_NANOS_MIN <= nanos_from_timestamp(timestamp) <= EVENT_TIME_NANOS_MAX:
        return "is not within 2^63 nanoseconds of 1970"
    return None


def nanos_from_timestamp(timestamp: Timestamp) -> int:
    """Return a moment in Unix nanoseconds."""
    return timestamp.seconds * NANOS_PER_SECOND + timestamp.nanos


def duration_to_proto(seconds: float) -> Duration:
    """Return a span that is not negative, given in seconds, to the nanosecond."""
    return nanos_to_duration(round(seconds * NANOS_PER_SECOND))


def nanos_to_duration(nanos: int) -> Duration:
    """Return a span that is not negative, given in nanoseconds."""
    whole, rest = divmod(nanos, NANOS_PER_SECOND)
    return Duration(seconds=whole, nanos=rest)


def duration_fault(duration: Duration) -> str | None:
    """Say what keeps a message from being a span of 0 or more, or None where it is one.

    Returns: a phrase that completes "<field> …".
    """
    seconds, nanos = duration.seconds, duration.nanos
    if not -NANOS_PER_SECOND < nanos < NANOS_PER_SECOND:
        return f"has {nanos} nanos; -999,999,999 to 999,999,999 are allowed"
    if (seconds < 0 < nanos) or (nanos < 0 < seconds):
        return f"has {seconds} seconds and {nanos} nanos; their signs must be the same"
    if abs(seconds) > DURATION_SECONDS_MAX:
        return f"has {seconds} seconds; at most {DURATION_SECONDS_MAX} are allowed"
    if seconds < 0 or nanos < 0:
        return "is negative; 0 or more is needed"
    return None


def nanos_from_duration(duration: Duration) -> int:
    """Return a span in nanoseconds."""
    return duration.seconds * NANOS_PER_SECOND + duration.nanos
