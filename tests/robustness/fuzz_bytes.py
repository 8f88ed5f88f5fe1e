"""Serialised messages, broken: what no library of protobuf would send."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.robustness.fuzz_values import MARK, MESSAGE_BYTES_MAX, NO_TEXT

HUGE_VARINTS: Final = (
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x7f",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 9 + b"\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
)
"""Of 64 bits, of more than 64, too long, not the shortest form of 0, of 32 bits and around."""
REPEATED_MAX: Final = 3_000
"""How often a part is repeated at most."""


class Mutations:
    """Breaks bytes in one of many ways."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._ways: Sequence[Callable[[bytes], bytes]] = (
            self._flip_bits,
            self._flip_bits,
            self._truncate,
            self._cut_out,
            self._insert_noise,
            self._replace_byte_by_huge_varint,
            self._insert_huge_varint,
            self._say_another_wire_type,
            self._nest_deeply,
            self._open_groups,
            self._append_unknown_fields,
            self._repeat_a_part,
            self._double,
            self._noise,
        )

    def broken_texts(self, raw: bytes) -> bytes:
        """Put what no text may hold in the place of each mark; lengths stay right."""
        while (mark := MARK.encode()) in raw:
            raw = raw.replace(mark, self._rng.choice(NO_TEXT), 1)
        return raw

    def broken(self, raw: bytes) -> bytes:
        """Break it, once or a few times."""
        for _ in range(self._rng.choice((1, 1, 1, 2, 4))):
            raw = self._rng.choice(self._ways)(raw)[:MESSAGE_BYTES_MAX]
        return raw

    def _place(self, raw: bytes) -> int:
        return self._rng.randrange(len(raw) + 1)

    def _flip_bits(self, raw: bytes) -> bytes:
        changed = bytearray(raw)
        for _ in range(self._rng.choice((1, 1, 2, 8)) if raw else 0):
            changed[self._rng.randrange(len(changed))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)

    def _truncate(self, raw: bytes) -> bytes:
        return raw[: self._place(raw)]

    def _cut_out(self, raw: bytes) -> bytes:
        begin = self._place(raw)
        return raw[:begin] + raw[begin + self._rng.randrange(1, 9) :]

    def _insert_noise(self, raw: bytes) -> bytes:
        place = self._place(raw)
        return raw[:place] + self._rng.randbytes(self._rng.choice((1, 2, 10, 100))) + raw[place:]

    def _replace_byte_by_huge_varint(self, raw: bytes) -> bytes:
        place = self._place(raw)
        return raw[:place] + self._rng.choice(HUGE_VARINTS) + raw[place + 1 :]

    def _insert_huge_varint(self, raw: bytes) -> bytes:
        place = self._place(raw)
        return raw[:place] + self._rng.choice(HUGE_VARINTS) + raw[place:]

    def _say_another_wire_type(self, raw: bytes) -> bytes:
        if not raw:
            return raw
        place = self._rng.randrange(min(len(raw), 4))
        tag = raw[place] & 0xF8 | self._rng.randrange(8)
        return raw[:place] + bytes([tag]) + raw[place + 1 :]

    def _nest_deeply(self, raw: bytes) -> bytes:
        tag = self._rng.randrange(1, 16) << 3 | 2
        for _ in range(self._rng.choice((3, 99, 101, 150))):
            raw = bytes([tag]) + varint(len(raw)) + raw
        return raw

    def _open_groups(self, raw: bytes) -> bytes:
        number = self._rng.randrange(1, 16) << 3
        depth = self._rng.choice((1, 99, 101, 20_000))
        closed = bytes([number | 4]) * self._rng.choice((0, depth))
        return raw + bytes([number | 3]) * depth + closed

    def _append_unknown_fields(self, raw: bytes) -> bytes:
        field = varint(self._rng.choice((200, 19_500, 2**29 - 1)) << 3) + varint(7)
        return raw + field * self._rng.choice((1, 10, 1_000))

    def _repeat_a_part(self, raw: bytes) -> bytes:
        place = self._place(raw)
        part = raw[place : place + self._rng.randrange(1, 40)]
        return raw[:place] + part * self._rng.choice((2, 17, 200, REPEATED_MAX)) + raw[place:]

    def _double(self, raw: bytes) -> bytes:
        return raw + raw

    def _noise(self, raw: bytes) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 7, 64, 1_000)))


def varint(number: int) -> bytes:
    """Return a number as it stands on the wire."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
