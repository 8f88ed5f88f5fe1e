"""One call in raw HTTP/2, with header fields that no client library would send."""

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

Field = tuple[bytes, bytes]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SECONDS_MAX: Final = 10.0
_SMALL_INTEGER_MAX: Final = 127


def is_answered(
    address: str, path: str, fields: Sequence[Field], *, trailers: Sequence[Field] | None = None
) -> bool:
    """Whether a call with an empty message gets a message back, and not only an end."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), SECONDS_MAX) as connection:
        connection.sendall(
            PREFACE + _frame(SETTINGS, b"") + b"".join(_call_frames(path.encode(), fields, trailers=trailers))
        )
        return _has_message(connection)


def _call_frames(
    path: bytes, fields: Sequence[Field], *, trailers: Sequence[Field] | None
) -> Iterable[bytes]:
    begin: list[Field] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"hub"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    message = struct.pack(">BI", 0, 0)
    yield _frame(HEADERS, _block([*begin, *fields]), flags=END_HEADERS, stream=1)
    yield _frame(DATA, message, flags=0 if trailers else END_STREAM, stream=1)
    if trailers:
        yield _frame(HEADERS, _block(trailers), flags=END_HEADERS | END_STREAM, stream=1)


def _has_message(connection: socket.socket) -> bool:
    """Read until the stream or the connection ends."""
    with connection.makefile("rb") as incoming:
        while len(head := incoming.read(9)) == 9:
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            payload = incoming.read(int.from_bytes(head[:3]))
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(_frame(SETTINGS, b"", flags=ACK))
            elif kind == PING and not flags & ACK:
                connection.sendall(_frame(PING, payload, flags=ACK))
            elif kind == DATA and stream == 1 and payload:
                return True
            elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
                return False
    return False


def _frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _block(fields: Iterable[Field]) -> bytes:
    """Fields as HPACK has them when nothing is compressed or remembered."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < _SMALL_INTEGER_MAX:
        return bytes([length]) + text
    rest, coded = length - _SMALL_INTEGER_MAX, bytearray([_SMALL_INTEGER_MAX])
    while rest >= 128:
        coded.append(rest % 128 + 128)
        rest //= 128
    return bytes([*coded, rest]) + text
