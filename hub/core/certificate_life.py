"""From when until when a certificate counts, read from its DER (RFC 5280, section 4.1).

Python's own ``ssl`` tells it of a peer's certificate only. What is wrong with the rest of a certificate is
not seen here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_EXPLICIT_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LENGTH_BYTES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class CertificateLife:
    """Its first and last second, as Unix time."""

    begin_seconds: int
    end_seconds: int

    def is_over(self, now_seconds: float) -> bool:
        """Whether nobody takes it any more."""
        return now_seconds > self.end_seconds

    def ends_soon(self, now_seconds: float) -> bool:
        """Whether less than a tenth of it is left: one that is renewed by itself was renewed long before."""
        return self.end_seconds - now_seconds < (self.end_seconds - self.begin_seconds) / 10


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of DER: its tag, and where in the data its contents are."""

    tag: int
    begin: int
    end: int


def life_of_certificate(certificate: bytes) -> CertificateLife:
    """Return the life of a certificate. Raises: ValueError where it is not the DER of one."""
    signed = _element(certificate, 0, tag=_SEQUENCE)
    contents = _element(certificate, signed.begin, tag=_SEQUENCE)
    # [0] version (not in version 1), serial number, signature algorithm, issuer, validity
    at = contents.begin
    if _element(certificate, at).tag == _EXPLICIT_VERSION:
        at = _element(certificate, at).end
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):
        at = _element(certificate, at, tag=tag).end
    validity = _element(certificate, at, tag=_SEQUENCE)
    begin = _element(certificate, validity.begin)
    end = _element(certificate, begin.end)
    return CertificateLife(_unix_seconds(certificate, begin), _unix_seconds(certificate, end))


def _element(data: bytes, at: int, *, tag: int | None = None) -> _Element:
    """Return the element that begins at an offset. Raises: ValueError where there is none of that tag."""
    if at + 2 > len(data) or (tag is not None and data[at] != tag):
        raise ValueError("this is not the DER of a certificate")
    begin, length = at + 2, data[at + 1]
    if length >= 0x80:
        count = length - 0x80
        if not 1 <= count <= _LENGTH_BYTES_MAX:
            raise ValueError("an element of a certificate has no length")
        begin += count
        length = int.from_bytes(data[at + 2 : begin], "big")
    if begin + length > len(data):
        raise ValueError("a certificate ends too early")
    return _Element(data[at], begin, begin + length)


def _unix_seconds(data: bytes, element: _Element) -> int:
    text = data[element.begin : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        # Two digits of a year: 50 to 99 are of the last century.
        text = ("19" if text >= "50" else "20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("a certificate's validity has no time")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
