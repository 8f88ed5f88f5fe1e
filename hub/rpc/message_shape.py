"""Whether a message is worth decoding, told from its bytes: an empty part is two bytes on the wire and a
hundred in memory, so that some megabytes of them would take gigabytes, and the loop's time.

Nothing is judged here but how many fields there are; what they say is checked once they are decoded.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hub.core.errors import InvalidRequest, LimitReached, Violation

Request = TypeVar("Request")

FIELDS_MAX: Final = 16_384
"""Fields of a request, with those of its larger parts and packed numbers: none of ours comes near."""
COUNTED_BYTES_MIN: Final = 512 * 1024
"""In a smaller request fields are not counted: whatever it holds takes 50 MB at most, for a moment."""
PART_BYTES_MIN: Final = 4 * 1024
"""In smaller parts of a request fields are not counted."""

_VARINT, _EIGHT_BYTES, _LENGTH, _GROUP_BEGIN, _GROUP_END, _FOUR_BYTES = range(6)
_LISTS_OF_TEXT: Final = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_GROUP,
    FieldDescriptor.TYPE_MESSAGE,
)
"""What is never packed."""


def bounded_deserializer(
    deserializer: Callable[[bytes], Request], *, message_bytes_max: int, limit: str = "message_bytes_max"
) -> Callable[[bytes], Request]:
    """Return a deserializer (``FromString`` of a message's class) that refuses what is too large or has too
    many fields; ``limit`` is the name of the bound.

    It raises LimitReached or InvalidRequest for it.
    """
    request_class = cast("type[Message]", getattr(deserializer, "__self__"))  # noqa: B009 - no callable says it
    descriptor = cast("Descriptor", request_class.DESCRIPTOR)

    def deserialize(raw: bytes) -> Request:
        if len(raw) > message_bytes_max:
            raise LimitReached(limit, message_bytes_max)
        if has_too_many_fields(raw, descriptor):
            sentence = f"has more than {FIELDS_MAX} fields, with those of its parts"
            raise InvalidRequest([Violation("request", sentence)])
        return deserializer(raw)

    return deserialize


def has_too_many_fields(raw: bytes, descriptor: Descriptor, *, fields_max: int = FIELDS_MAX) -> bool:
    """Whether a message of this type has more fields than any request of ours.

    What cannot be decoded is looked at as far as it can be: the decoder gives up at the same place.
    """
    if len(raw) < COUNTED_BYTES_MIN:
        return False
    todo = [(0, len(raw), descriptor)]
    count = 0
    try:
        while todo:
            place, end, message = todo.pop()
            parts = _parts(message)
            while place < end:
                count += 1
                if count > fields_max:
                    return True
                tag = raw[place]
                place += 1
                if tag > 0x7F:
                    tag, place = _varint(raw, place - 1)
                wire_type = tag & 7
                if wire_type == _LENGTH:
                    length = raw[place]
                    place += 1
                    if length > 0x7F:
                        second = raw[place]
                        if second > 0x7F:
                            length, place = _varint(raw, place - 1)
                        else:
                            length, place = length & 0x7F | second << 7, place + 1
                    if length >= PART_BYTES_MIN and tag >> 3 in parts:
                        part = parts[tag >> 3]
                        if part is None:
                            count += length
                        else:
                            todo.append((place, min(end, place + length), part))
                    place += length
                elif wire_type == _VARINT:
                    while raw[place] > 0x7F:
                        place += 1
                    place += 1
                elif wire_type == _EIGHT_BYTES:
                    place += 8
                elif wire_type == _FOUR_BYTES:
                    place += 4
                elif wire_type not in (_GROUP_BEGIN, _GROUP_END):
                    return False
    except IndexError:
        return False  # it ends within a field
    return count > fields_max


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """Return a number of the wire and where it ends.

    Raises: IndexError where the bytes end before.
    """
    number, shift = 0, 0
    while raw[place] > 0x7F:
        number |= (raw[place] & 0x7F) << shift
        shift += 7
        place += 1
    return number | raw[place] << shift, place + 1


@lru_cache(maxsize=256)  # the contract has fewer messages
def _parts(message: Descriptor) -> Mapping[int, Descriptor | None]:
    """Return the messages in a message by their field's number, None for a list of numbers."""
    parts: dict[int, Descriptor | None] = {}
    for field in message.fields:
        if field.message_type is not None:
            parts[field.number] = field.message_type
        elif field.is_repeated and field.type not in _LISTS_OF_TEXT:
            parts[field.number] = None
    return parts
