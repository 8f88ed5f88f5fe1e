"""HTTP/2 by hand, for what no library of gRPC would send: calls that are begun and not gone on with."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM: Final = 1
END_HEADERS: Final = 4
ACKNOWLEDGE: Final = 1
HEADER_BYTES: Final = 9
SECONDS_MAX: Final = 20.0


class Frame(NamedTuple):
    """What HTTP/2 consists of; see RFC 9113."""

    kind: int
    flags: int
    stream_id: int
    body: bytes


class RawConnection:
    """A connection to a hub, byte by byte."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, raw: bytes) -> None:
        # The hub may have hung up meanwhile; what is read next says so.
        with suppress(ConnectionError):
            self._socket.sendall(raw)

    def greet(self) -> None:
        """Say what opens a connection."""
        self.send(PREFACE)
        self.send_frame(SETTINGS, 0, 0, b"")

    def send_frame(self, kind: int, flags: int, stream_id: int, body: bytes) -> None:
        header = len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big")
        self.send(header + body)

    def begin_call(self, path: str, *headers: tuple[bytes, bytes], stream_id: int = 1) -> None:
        """Send what opens a call, without any of its message."""
        usual = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"hub"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
        named = dict(headers)
        kept = [(name, named.pop(name, value)) for name, value in usual]
        left = [(name, value) for name, value in headers if name in named]
        self.send_frame(HEADERS, END_HEADERS, stream_id, literal_headers([*kept, *left]))

    def send_message(self, message: bytes, *, stream_id: int = 1) -> None:
        """Send a call's only message, and close its side."""
        self.send_frame(DATA, END_STREAM, stream_id, b"\0" + len(message).to_bytes(4, "big") + message)

    def frame(self) -> Frame | None:
        """Wait for a frame; None where the hub has closed the connection."""
        header = self._exactly(HEADER_BYTES)
        if header is None:
            return None
        body = self._exactly(int.from_bytes(header[:3], "big"))
        if body is None:
            return None
        found = Frame(header[3], header[4], int.from_bytes(header[5:9], "big") & 0x7FFFFFFF, body)
        if found.kind in (SETTINGS, PING) and not found.flags & ACKNOWLEDGE:
            self.send_frame(found.kind, ACKNOWLEDGE, 0, found.body if found.kind == PING else b"")
        return found

    def end_of_call(self, stream_id: int = 1) -> Frame | None:
        """Wait until a call has ended: by its last headers, a reset, or with the connection (None)."""
        while (found := self.frame()) is not None:
            if found.stream_id == stream_id and (found.kind == RST_STREAM or found.flags & END_STREAM):
                return found
        return None

    def is_closed(self) -> bool:
        """Wait until the hub closes the connection; whatever comes before is not looked at."""
        while self.frame() is not None:
            pass
        return True

    def _exactly(self, count: int) -> bytes | None:
        while len(self._read) < count:
            try:
                more = self._socket.recv(65_536)
            except ConnectionError:
                return None
            if not more:
                return None
            self._read += more
        taken, self._read = self._read[:count], self._read[count:]
        return taken


def literal_headers(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return headers as HPACK writes those that it has no index for (RFC 7541, 6.2.2), as they are."""
    return b"".join(b"\0" + _string(name) + _string(value) for name, value in headers)


def _string(text: bytes) -> bytes:
    if len(text) < 0x7F:
        return bytes([len(text)]) + text
    left, made = len(text) - 0x7F, bytearray([0x7F])
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left]) + text
