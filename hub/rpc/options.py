"""The options of the hub's gRPC server, each with its reason.

Unknown keys are ignored silently by gRPC, so an architecture test looks for each in gRPC's binary.
"""

from collections.abc import Sequence

PENDING_STREAMS_MAX = 100_000
"""New streams that may wait to be taken up: a storm of runtimes that reconnect after a restart."""
HANDSHAKE_SECONDS_MAX = 10
"""How long a new connection may take for TLS and the first words of HTTP/2."""
OWN_REFUSAL_BYTES = 1024 * 1024
"""By how much a request may be too large for gRPC to let it come to where it is refused with a reason."""


def server_options(*, message_bytes_max: int, is_channelz_enabled: bool) -> Sequence[tuple[str, int]]:
    """Return the options as (key, value)."""
    return (
        # Else a second hub binds the same port without an error, and half of the runtimes find it.
        ("grpc.so_reuseport", 0),
        # With the default of 1,000 a storm of new streams is refused with INTERNAL / RST.
        ("grpc.server.max_pending_requests", PENDING_STREAMS_MAX),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_STREAMS_MAX),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Its default of 60 s wins over the keepalive timeout: a frozen peer would be noticed late.
        ("grpc.http2.ping_timeout_ms", 10_000),
        # Runtimes ping every 20 s; pings more often than this are answered with GOAWAY.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # With its default of 120 s whoever opens connections and says nothing holds each for two minutes.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS_MAX * 1_000),
        ("grpc.max_send_message_length", message_bytes_max),
        # A request that is a little too large is refused by us, with the name of the limit. gRPC ends a call
        # for what is larger still, also where it gets so large only once it is decompressed.
        ("grpc.max_receive_message_length", message_bytes_max + OWN_REFUSAL_BYTES),
        ("grpc.enable_channelz", int(is_channelz_enabled)),
    )
