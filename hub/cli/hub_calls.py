"""What commands need that ask a hub: a channel for the length of a block, pages, and messages as JSON."""

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol, TypeVar, cast

import grpc
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli.options import hub_addresses
from hub.cli.output import EXIT_USAGE, CommandFailed, Json, failures_told
from hub.cli.shown_credentials import credential_source
from synchub.channel import UNARY_SECONDS_MAX, dial
from synchub.v1.journal_service_pb2 import JournalEvent, OutboxMessage
from synchub.v1.sync_event_pb2 import StoredEvent

PAGE_SIZE_MAX: Final = 1_000
"""Entries asked for at a time; a hub lowers what is too large for it."""
SHOWN_CHARACTERS_MAX: Final = 200
"""Characters of a payload that a table or line shows; --json has all."""
SHOWN_BYTES_MAX: Final = 32
"""Bytes of a payload that is no text which are shown, in hexadecimal."""

WithBody = StoredEvent | JournalEvent | OutboxMessage
"""What has a payload, as bytes or as text."""

Found = TypeVar("Found")
Request = TypeVar("Request", bound="PagedRequest")
Response = TypeVar("Response", bound="PagedResponse")
Number_co = TypeVar("Number_co", bound=int, covariant=True)


class PagedRequest(Protocol):
    """The fields of every List request."""

    page_size: int
    page_token: str


class PagedResponse(Protocol):
    """The field of every List response that says whether there is more."""

    next_page_token: str


class EnumClass(Protocol[Number_co]):
    """An enum as the generated code has it."""

    @property
    def DESCRIPTOR(self) -> EnumDescriptor:  # noqa: N802
        """What the contract says of it."""

    def values(self) -> Sequence[Number_co]:
        """Return its numbers, the unspecified one first."""


@contextmanager
def channel_to(hub: str) -> Iterator[grpc.Channel]:
    """Give a channel to a hub for the length of a block; what goes wrong is told and ends the process.

    It shows and trusts what the command was given.
    """
    with failures_told():
        addresses = hub_addresses(hub)
    with failures_told(addresses), dial(addresses, credentials=credential_source()) as channel:
        yield channel


def pages_of(
    call: Callable[[Request, float], Response], request: Request, *, entries_max: int
) -> Iterator[Response]:
    """Give the pages of a list until it has so many entries (0 for all) or ends.

    A page may have more than are still wanted, so the caller counts.
    """
    request.page_size = min(entries_max or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    while True:
        page = call(request, UNARY_SECONDS_MAX)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def first_of(found: Iterable[Found], limit: int) -> Iterator[Found]:
    """Give so many of what is found, all for 0, and say on standard error where that was not all of it."""
    rest = iter(found)
    yield from islice(rest, limit or None)
    if limit and next(rest, None) is not None:
        print(f"synchub: there are more than these {limit}: give --limit, 0 for all", file=sys.stderr)


def message_to_json(message: Message) -> dict[str, Json]:
    """Return a message as JSON for programs: names as in the contract, numbers as numbers, hashes in
    hexadecimal, other bytes in base64, moments in RFC 3339, spans in seconds, enums by their bare names.

    A field that is absent is left out where absence means something, else it has its default.
    """
    result: dict[str, Json] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value: object = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            result[field.name] = dict(cast("Mapping[str, str]", value))
        elif field.is_repeated:
            enum = _enum_of(field.enum_type)
            values = cast("Iterable[object]", value)
            result[field.name] = [_value_to_json(field.name, each, enum=enum) for each in values]
        else:
            result[field.name] = _value_to_json(field.name, value, enum=_enum_of(field.enum_type))
    return result


def event_to_json(event: WithBody) -> dict[str, Json]:
    """Return an event or message as JSON: its payload as ``text`` where it is UTF-8, else in base64."""
    if event.WhichOneof("body") == "payload":
        text = text_of(event.payload)
        if text is not None:
            event.text = text
    return message_to_json(event)


def shown_body(event: WithBody) -> str:
    """Return a payload for people: its text, cut, or the first of its bytes."""
    payload = event.text.encode() if event.WhichOneof("body") == "text" else event.payload
    text = text_of(payload)
    if text is None:
        more = "…" if len(payload) > SHOWN_BYTES_MAX else ""
        return f"({len(payload)} bytes) {payload[:SHOWN_BYTES_MAX].hex(' ')}{more}"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


def text_of(payload: bytes) -> str | None:
    """Return a payload as text, None where it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def moment_text(moment: Timestamp) -> str:
    """Return a moment for people, in UTC, to the millisecond; a moment that no calendar has as number."""
    seconds, millis = moment.seconds, moment.nanos // 1_000_000
    try:
        whole = Timestamp(seconds=seconds).ToJsonString().removesuffix("Z").replace("T", " ")
    except ValueError:
        return str(seconds)
    return f"{whole}.{millis:03d}"


def _enum_of(described: object) -> EnumDescriptor | None:
    """Return an enum's description; the two implementations of protobuf have a class each, alike."""
    return cast("EnumDescriptor | None", described)


def _value_to_json(name: str, value: object, *, enum: EnumDescriptor | None) -> Json:
    match value:
        case Timestamp():
            return value.ToJsonString()
        case Duration():
            return value.ToNanoseconds() / 1e9
        case Message():
            return message_to_json(value)
        case bytes():
            return value.hex() if name.endswith("_hash") else base64.b64encode(value).decode()
        case int() if enum is not None:
            return bare_enum_name(enum, value)
        case bool() | int() | float() | str():
            return value
    raise TypeError(f"no JSON for {name}")


def bare_enum_name(enum: EnumDescriptor, number: int) -> str:
    """Return the name of an enum value without the enum's own; a number that is not known as text."""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return value.name.removeprefix(prefix)


def enum_number(name: str, enum: EnumClass[Number_co], *, flag: str) -> Number_co:
    """Return the value of an enum that a person names without the enum's own name, in any case.

    Raises: CommandFailed, naming the flag and what is known.
    """
    known = {bare_enum_name(enum.DESCRIPTOR, number): number for number in enum.values()[1:]}
    number = known.get(name.upper())
    if number is None:
        sentence = f"{flag} {name!r} is not one of {', '.join(each.lower() for each in known)}"
        raise CommandFailed(sentence, exit_code=EXIT_USAGE)
    return number
