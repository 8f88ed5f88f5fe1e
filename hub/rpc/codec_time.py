"""Moments and spans between the hub's integers and protobuf."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from synchub.contract import NANOS_PER_SECOND


def timestamp_to_proto(nanos: int) -> Timestamp:
    """Return a moment given in Unix nanoseconds."""
    seconds, rest = divmod(nanos, NANOS_PER_SECOND)
    return Timestamp(seconds=seconds, nanos=rest)


def duration_to_proto(seconds: float) -> Duration:
    """Return a span that is not negative, given in seconds, to the nanosecond."""
    whole, rest = divmod(round(seconds * NANOS_PER_SECOND), NANOS_PER_SECOND)
    return Duration(seconds=whole, nanos=rest)
