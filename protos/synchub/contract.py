"""What the hub and every runtime must compute alike: hashes, identifier rules, wire bounds.

Here belongs only what two programs have to agree on to the byte. Everything is pure; the test
vectors in ``tests/unit/protos/test_contract.py`` let a program in another language check itself.

Nothing in here talks to a network, a disk or a clock.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

# --- bounds of the wire (the defaults; a hub reports the ones in force in GetHubInfo) --------------

IDENTIFIER_BYTES_MAX: Final = 256
"""Longest identifier, display name, host or version, in bytes of UTF-8."""
EVENT_TYPE_BYTES_MAX: Final = 128
"""Longest event type, in bytes of UTF-8."""
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""Largest payload of one event, in bytes; 0 is allowed."""
ATTRIBUTE_COUNT_MAX: Final = 16
"""Most pairs in attributes or labels."""
ATTRIBUTE_KEY_BYTES_MAX: Final = 128
"""Longest key of an attribute or label, in bytes; keys have at least one byte, values may be empty."""
ATTRIBUTES_BYTES_MAX: Final = 4 * 1024
"""Largest sum of the bytes of all keys and values of one event's attributes."""
BATCH_EVENTS_MAX: Final = 1024
"""Most events in one push request; at least one is needed."""
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest push request, in bytes as serialised."""
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest message either side sends or accepts, in bytes."""
RECONCILE_RUNS_MAX: Final = 1000
"""Most runs in one ReconcileRuns call."""
ACTIVE_RUNS_MAX: Final = 1000
"""Most active runs named in one heartbeat."""
SEQUENCE_MAX: Final = 2**63 - 1
"""Largest sequence, position, revision, token or epoch; nothing wraps."""
EVENT_TIME_NANOS_MIN: Final = -(2**63)
"""Earliest event time, in nanoseconds since 1970."""
EVENT_TIME_NANOS_MAX: Final = 2**63 - 1
"""Latest event time, in nanoseconds since 1970."""
NANOS_PER_SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""
HASH_BYTES: Final = 32
"""Length of a content hash and of a chain hash (SHA-256)."""

# --- identifiers ------------------------------------------------------------------------------------

CONTROL_CODE_POINTS: Final = frozenset([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029])
"""Code points that may stand nowhere in an identifier: C0, DEL, C1, line and paragraph separator."""
EDGE_WHITE_SPACE_CODE_POINTS: Final = frozenset(
    [0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000]
)
"""White space that may not begin or end an identifier (it may stand inside)."""

NONCE_CHARACTERS_MIN: Final = 22
"""Shortest nonce of a lease credential: 128 random bits in URL-safe Base64."""
NONCE_CHARACTERS_MAX: Final = 128
"""Longest nonce of a lease credential."""
NONCE_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
"""What a nonce is made of."""

_CONTROL_CHARACTERS: Final = frozenset(map(chr, CONTROL_CODE_POINTS))
_EDGE_CHARACTERS: Final = frozenset(map(chr, EDGE_WHITE_SPACE_CODE_POINTS))


def identifier_fault(value: str, bytes_max: int = IDENTIFIER_BYTES_MAX) -> str | None:
    """Say what keeps ``value`` from being an identifier, or None where it is one.

    The rule: 1 to ``bytes_max`` bytes of UTF-8, no control code point anywhere, no white space at
    the ends. Identifiers are compared byte by byte: case and Unicode normal forms stay apart.

    Returns: a phrase that completes "<field> …", for people ("is empty; 1 to 256 bytes are needed").
    """
    if not value:
        return f"is empty; 1 to {bytes_max} bytes are needed"
    try:
        encoded_bytes = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        return "has a lone surrogate, which is not UTF-8"
    if encoded_bytes > bytes_max:
        return f"has {encoded_bytes} bytes; at most {bytes_max} are allowed"
    if value.isascii() and value.isprintable():
        control = None
    else:
        control = next((character for character in value if character in _CONTROL_CHARACTERS), None)
    if control is not None:
        return f"has the control code point U+{ord(control):04X}, which is not allowed"
    if value[0] in _EDGE_CHARACTERS or value[-1] in _EDGE_CHARACTERS:
        return "begins or ends with white space, which is not allowed"
    return None


def nonce_fault(nonce: str) -> str | None:
    """Say what keeps ``nonce`` from being the secret half of a lease credential, or None where it is one.

    Returns: a phrase that completes "<field> …". It never holds the nonce.
    """
    if not NONCE_CHARACTERS_MIN <= len(nonce) <= NONCE_CHARACTERS_MAX:
        bounds = f"{NONCE_CHARACTERS_MIN} to {NONCE_CHARACTERS_MAX}"
        return f"has {len(nonce)} characters; {bounds} are needed, at random"
    if not NONCE_ALPHABET.issuperset(nonce):
        return "has a character other than A-Z a-z 0-9 _ -"
    return None


def attributes_fault(
    attributes: Mapping[str, str],
    *,
    count_max: int = ATTRIBUTE_COUNT_MAX,
    key_bytes_max: int = ATTRIBUTE_KEY_BYTES_MAX,
    bytes_max: int = ATTRIBUTES_BYTES_MAX,
) -> str | None:
    """Say what keeps ``attributes`` (or labels) from being allowed, or None where they are.

    The rule: at most 16 pairs, keys of 1 to 128 bytes, 4 KiB in all, U+0000 nowhere.

    Returns: a phrase that completes "<field> …".
    """
    if len(attributes) > count_max:
        return f"has {len(attributes)} pairs; at most attribute_count_max = {count_max} are allowed"
    bytes_sum = 0
    for key, value in attributes.items():
        try:
            key_bytes, value_bytes = len(key.encode()), len(value.encode())
        except UnicodeEncodeError:
            return "has a lone surrogate, which is not UTF-8"
        if not 1 <= key_bytes <= key_bytes_max:
            return (
                f"has a key of {key_bytes} bytes; 1 to attribute_key_bytes_max = {key_bytes_max} are allowed"
            )
        if "\0" in key or "\0" in value:
            return "has U+0000, which is allowed in payloads only"
        bytes_sum += key_bytes + value_bytes
    if bytes_sum > bytes_max:
        most = f"at most attributes_bytes_max = {bytes_max}"
        return f"has {bytes_sum} bytes of keys and values; {most} are allowed"
    return None


# --- hashes -----------------------------------------------------------------------------------------

_pack_length = struct.Struct(">I").pack
# Time, final and the length of what follows, each part behind its own length, in one step.
_pack_timed = struct.Struct(">IqIBI").pack
_pack_timeless = struct.Struct(">IIBI").pack
_pack_timed_final = struct.Struct(">IqIB").pack
_pack_timeless_final = struct.Struct(">IIB").pack
_TYPE_PARTS_CACHED_MAX: Final = 1024


def length_prefixed(part: bytes) -> bytes:
    """Return ``part`` behind its length as 4 bytes big-endian, the form in which parts are hashed."""
    return _pack_length(len(part)) + part


def content_hash(
    event_type: str,
    event_time_nanos: int | None,
    *,
    is_final: bool,
    attributes: Mapping[str, str],
    payload: bytes,
) -> bytes:
    """Return the SHA-256 that stands for the content of one event, 32 bytes.

    Hashed are these parts in this order, each behind its length as 4 bytes big-endian: the event
    type; the event time as nanoseconds since 1970 in 8 bytes big-endian signed, or a part of length
    0 where there is none; one byte, 1 if final, else 0; the attributes sorted by the bytes of their
    keys, as key, value, key, value …; last the payload. An absent and an empty payload are equal.
    """
    if not attributes:
        if event_time_nanos is None:
            middle = _pack_timeless(0, 1, is_final, len(payload))
        else:
            middle = _pack_timed(8, event_time_nanos, 1, is_final, len(payload))
        return sha256(_type_part(event_type) + middle + payload).digest()
    if event_time_nanos is None:
        middle = _pack_timeless_final(0, 1, is_final)
    else:
        middle = _pack_timed_final(8, event_time_nanos, 1, is_final)
    encoded = sorted((key.encode(), value.encode()) for key, value in attributes.items())
    middle += b"".join(length_prefixed(key) + length_prefixed(value) for key, value in encoded)
    return sha256(_type_part(event_type) + middle + length_prefixed(payload)).digest()


@lru_cache(maxsize=_TYPE_PARTS_CACHED_MAX)
def _type_part(event_type: str) -> bytes:
    """Return the first part of what is hashed; a run has few types and many events."""
    return length_prefixed(event_type.encode())


def chain_hash_at_start(project_id: str, run_id: str) -> bytes:
    """Return the chain hash of a run before its first event, 32 bytes.

    It is the SHA-256 over project id and run id, each behind its length as 4 bytes big-endian.
    """
    return sha256(length_prefixed(project_id.encode()) + length_prefixed(run_id.encode())).digest()


def chain_hash_after(chain_hash: bytes, content_hashes: Iterable[bytes]) -> bytes:
    """Return the chain hash after events of these content hashes, in order of sequence, 32 bytes.

    The chain hash at n is SHA-256(chain hash at n-1 || content hash of n).
    """
    for each in content_hashes:
        chain_hash = sha256(chain_hash + each).digest()
    return chain_hash
