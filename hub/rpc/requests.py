"""Whether a request keeps the bounds: field checks, page sizes and page tokens, for every handler.

A handler makes one ``RequestCheck``, asks it about each field, and calls ``refuse_violations`` before
it touches a service: so the caller hears of all that is wrong at once (at most 16 violations). What a
field means is not decided here.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final, NewType

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hub.core.errors import VIOLATIONS_MAX, InvalidRequest, Violation
from hub.core.limits import Limits
from hub.rpc.codec_time import (
    duration_fault,
    nanos_from_duration,
    nanos_from_timestamp,
    timestamp_fault,
)
from synchub.contract import (
    HASH_BYTES,
    NANOS_PER_SECOND,
    SEQUENCE_MAX,
    attributes_fault,
    identifier_fault,
    length_prefixed,
    nonce_fault,
)

PageToken = NewType("PageToken", str)
"""Opaque to callers: where the next page of the same request begins."""

PAGE_TOKEN_BYTES_MAX: Final = 8 * 1024
"""Longest page token that is looked at; ours hold at most two identifiers."""
_CHECKSUM_BYTES: Final = 12
_PAGE_TOKEN_FAULT: Final = "is not from a response to the same request"
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")


class RequestCheck:
    """Collects what is wrong with one request."""

    def __init__(self, limits: Limits) -> None:
        """Begin with nothing wrong; the limits are those in force."""
        self._limits = limits
        self._violations: list[Violation] = []

    def add(self, field: str, description: str) -> None:
        """Note a violation: the field's path, and a phrase that goes on from it ("is negative")."""
        if len(self._violations) < VIOLATIONS_MAX:
            self._violations.append(Violation(field, description))

    def refuse_violations(self, facts: Mapping[str, str] | None = None) -> None:
        """Return if nothing is wrong.

        ``facts`` are more metadata of the error, such as the run that the request was about.

        Raises: InvalidRequest with all violations noted.
        """
        if self._violations:
            raise InvalidRequest(self._violations, dict(facts or {}))

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self._violations

    def identifier(self, field: str, value: str) -> None:
        """Require an identifier."""
        fault = identifier_fault(value, self._limits.identifier_bytes_max)
        if fault is not None:
            self.add(field, fault)

    def optional_identifier(self, field: str, value: str) -> None:
        """Require an identifier where anything is given."""
        if value:
            self.identifier(field, value)

    def event_type(self, field: str, value: str) -> None:
        """Require an event type."""
        fault = identifier_fault(value, self._limits.event_type_bytes_max)
        if fault is not None:
            self.add(field, fault)

    def attributes(self, field: str, value: Mapping[str, str]) -> None:
        """Require attributes or labels within their bounds."""
        fault = attributes_fault(
            value,
            count_max=self._limits.attribute_count_max,
            key_bytes_max=self._limits.attribute_key_bytes_max,
            bytes_max=self._limits.attributes_bytes_max,
        )
        if fault is not None:
            self.add(field, fault)

    def not_negative(self, field: str, value: int) -> None:
        """Require 0 or more."""
        if value < 0:
            self.add(field, f"is {value}; 0 or more is needed")

    def positive(self, field: str, value: int) -> None:
        """Require 1 or more."""
        if value < 1:
            self.add(field, f"is {value}; 1 or more is needed")

    def nonce(self, field: str, value: str) -> None:
        """Require the secret half of a lease credential; no violation holds it."""
        fault = nonce_fault(value)
        if fault is not None:
            self.add(field, fault)

    def optional_nonce(self, field: str, value: str) -> None:
        """Require a nonce where anything is given."""
        if value:
            self.nonce(field, value)

    def span_nanos(self, field: str, value: Duration) -> int:
        """Require a span of 0 or more and return it in nanoseconds; 0 where it is none."""
        fault = duration_fault(value)
        if fault is not None:
            self.add(field, fault)
            return 0
        return nanos_from_duration(value)

    def span_nanos_at_most(self, field: str, value: Duration, *, limit: str, seconds_max: float) -> int:
        """Require a span of at most so many seconds, a limit of this name, like ``span_nanos``."""
        nanos = self.span_nanos(field, value)
        if nanos > round(seconds_max * NANOS_PER_SECOND):
            self.add(field, f"is {nanos / NANOS_PER_SECOND:g} s; at most {limit} = {seconds_max:g} s")
        return nanos

    def moment_nanos(self, field: str, value: Timestamp) -> int:
        """Require a moment and return it in Unix nanoseconds; 0 where it is none."""
        fault = timestamp_fault(value)
        if fault is not None:
            self.add(field, fault)
            return 0
        return nanos_from_timestamp(value)

    def payload(self, field: str, value: bytes) -> None:
        """Require a payload that is not too large."""
        bytes_max = self._limits.payload_bytes_max
        if len(value) > bytes_max:
            self.add(field, f"has {len(value)} bytes; at most payload_bytes_max = {bytes_max} are allowed")

    def prefix(self, field: str, value: str) -> None:
        """Require what identifiers can begin with, or what is longer than none of them."""
        bytes_count = len(value.encode())
        if "\0" in value:
            self.add(field, "has U+0000, which nothing begins with")
        if bytes_count > self._limits.identifier_bytes_max:
            bytes_max = self._limits.identifier_bytes_max
            self.add(field, f"has {bytes_count} bytes; at most {bytes_max} are allowed")

    def optional_trace_id(self, field: str, value: str) -> None:
        """Require a W3C trace id where anything is given."""
        if value and _TRACE_ID.fullmatch(value) is None:
            self.add(field, "is no W3C trace id: 32 lowercase hexadecimal digits, not all 0")

    def hash(self, field: str, value: bytes) -> None:
        """Require a hash of 32 bytes."""
        if len(value) != HASH_BYTES:
            self.add(field, f"has {len(value)} bytes; {HASH_BYTES} are needed")

    def optional_hash(self, field: str, value: bytes) -> None:
        """Require a hash of 32 bytes where anything is given."""
        if value:
            self.hash(field, value)

    def at_most(self, field: str, count: int, *, count_max: int) -> None:
        """Require a repeated field of at most so many entries."""
        if count > count_max:
            self.add(field, f"has {count} entries; at most {count_max} are allowed")

    def page_size(self, page_size: int) -> int:
        """Return how many entries a page shall have: the default for 0, larger than allowed lowered."""
        return self._page_size(
            page_size, self._limits.page_entries_default, largest=self._limits.page_entries_max
        )

    def event_page_size(self, page_size: int) -> int:
        """Return how many events a page shall have, like ``page_size``."""
        limits = self._limits
        return self._page_size(
            page_size, limits.event_page_entries_default, largest=limits.event_page_entries_max
        )

    def journal_page_size(self, page_size: int) -> int:
        """Return how many events a page of the journal shall have, like ``page_size``."""
        largest = self._limits.journal_page_entries_max
        return self._page_size(page_size, largest, largest=largest)

    def stream_page_size(self, page_size: int) -> int:
        """Return how many streams a page shall have, like ``page_size``."""
        limits = self._limits
        return self._page_size(
            page_size, limits.stream_page_entries_default, largest=limits.stream_page_entries_max
        )

    def claim_count(self, max_count: int) -> int:
        """Return how many outbox messages a claim shall take, like ``page_size``."""
        self.not_negative("max_count", max_count)
        largest = self._limits.outbox_claim_messages_max
        return min(max_count, largest) if max_count > 0 else largest

    def text_page_key(self, request: Message, page_token: str, *, count: int) -> tuple[str, ...] | None:
        """Return the key of so many texts that a page token of this request holds, None without token."""
        key = self._page_key(request, page_token)
        if key is None:
            return None
        texts = tuple(part for part in key if isinstance(part, str))
        if len(texts) != count or len(key) != count:
            self.add("page_token", _PAGE_TOKEN_FAULT)
            return None
        return texts

    def number_page_key(self, request: Message, page_token: str) -> int | None:
        """Return the number that a page token of this request holds, None without token."""
        key = self.number_page_keys(request, page_token, count=1)
        return None if key is None else key[0]

    def number_page_keys(self, request: Message, page_token: str, *, count: int) -> tuple[int, ...] | None:
        """Return the key of so many numbers that a page token of this request holds, None without token."""
        key = self._page_key(request, page_token)
        if key is None:
            return None
        numbers = tuple(part for part in key if isinstance(part, int))
        if len(numbers) != count or len(key) != count:
            self.add("page_token", _PAGE_TOKEN_FAULT)
            return None
        return numbers

    def _page_size(self, page_size: int, default: int, *, largest: int) -> int:
        self.not_negative("page_size", page_size)
        return min(page_size, largest) if page_size > 0 else default

    def _page_key(self, request: Message, page_token: str) -> list[str | int] | None:
        if not page_token:
            return None
        try:
            if len(page_token) > PAGE_TOKEN_BYTES_MAX:
                raise ValueError("longer than any token of ours")
            raw = base64.urlsafe_b64decode(page_token.encode("ascii"))
            checksum, body = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
            if checksum != _page_checksum(request, body):
                raise ValueError("made for another request")
            key: object = json.loads(body)
            if not isinstance(key, list) or not all(map(_is_key_part, key)):
                raise ValueError("no key")
        except (ValueError, RecursionError):  # of all ways of being wrong, none is worth telling apart
            self.add("page_token", _PAGE_TOKEN_FAULT)
            return None
        return key


def page_token_after(request: Message, *key: str | int) -> PageToken:
    """Return the token that gives the page after the entry of this key, for the same request only.

    The request's page size may change between pages. The token keeps over a restart of the hub. It is
    no secret and grants nothing: it says where to go on within what the caller may read anyway; its
    checksum tells a token of another request from one of this.
    """
    body = json.dumps(key, ensure_ascii=False, separators=(",", ":")).encode()
    return PageToken(base64.urlsafe_b64encode(_page_checksum(request, body) + body).decode("ascii"))


def _is_key_part(part: object) -> bool:
    """Return whether something may be looked for in a store: a text that is UTF-8, or 64 bits."""
    if isinstance(part, str):
        return not any("\ud800" <= character <= "\udfff" for character in part)
    return type(part) is int and -SEQUENCE_MAX - 1 <= part <= SEQUENCE_MAX


def _page_checksum(request: Message, body: bytes) -> bytes:
    """Return what binds the body of a page token to its request."""
    parameters = type(request)()
    parameters.CopyFrom(request)
    parameters.ClearField("page_token")
    parameters.ClearField("page_size")
    parts = (
        request.DESCRIPTOR.full_name.encode(),
        parameters.SerializeToString(deterministic=True),
        body,
    )
    return hashlib.sha256(b"".join(map(length_prefixed, parts))).digest()[:_CHECKSUM_BYTES]
