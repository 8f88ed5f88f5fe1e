"""Messages of the contract with values that are mostly right, and now and then hostile.

Names that the hub gave away (tokens, positions, hashes, claims) are learned from its answers, so that what is
sent gets past the first checks and reaches all the rules behind them.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

LEARNED_MAX: Final = 48
"""Values of one field, or messages of one type, that are remembered."""
DEPTH_MAX: Final = 6
MEBIBYTE: Final = 1024 * 1024
MESSAGE_BYTES_MAX: Final = 9 * MEBIBYTE
"""A little more than a hub takes."""

MARK: Final = "QZJ"
"""Three bytes of a text that are replaced by what no text may hold, once it is bytes."""
NO_TEXT: Final = (b"\xed\xa0\x80", b"\xc0\x80a", b"\xff\xfe\xfd", b"\xf4\x90\x80", b"\xe2\x28\xa1")
"""A lone surrogate, an overlong NUL, bytes that never occur, beyond the last code point, broken."""

HOSTILE_TEXTS: Final = (
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "\u202eabc",
    "\ufeffa",
    "é" * 128,
    "x" * 128,
    "x" * 129,
    "x" * 256,
    "x" * 257,
    "y" * 5_000,
    "%s%n{0}{}",
    "';DROP TABLE event;--",
    "../../etc/passwd",
    "\U0010ffff",
    "\ud7ff",
    "\x7f",
    "\u2028",
    "null",
    MARK,
    f"a{MARK}b",
)
HOSTILE_INTEGERS: Final = (0, 1, -1, 2, 255, 1_024, 2**31 - 1, -(2**31))
HOSTILE_LONGS: Final = (*HOSTILE_INTEGERS, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63 - 2, -(2**63))
HOSTILE_BYTES: Final = (b"", b"\0", bytes(31), bytes(32), bytes(33), b"\xff" * 32, bytes(4_096))

USUAL_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "hub_project": ("tenant-a", "tenant-a", "tenant-a", "tenant-b"),
    "project_id": ("p1", "p2", "p3", "taken"),
    "run_id": ("r1", "r2", "r3", "r4", "r5"),
    "runtime_id": ("rt1", "rt2", "rt3"),
    "next_runtime_id": ("rt1", "rt2"),
    "instance_id": ("", "i1", "i2", "i3", "i4", "i5"),
    "resource": ("s1", "s2", "s3", "s4"),
    "stream_id": ("s1", "s2", "s3", "s4"),
    "stream_id_prefix": ("", "s", "s1", "%"),
    "holder_id": ("h1", "h2", "h3"),
    "next_holder_id": ("h1", "h2"),
    "nonce": ("n" * 22, "m" * 30, "Az09_-" * 5, "q" * 128),
    "request_id": ("", "", "q1", "q2", "q3"),
    "message_id": tuple(f"m{n}" for n in range(2_000)),
    "event_id": tuple(f"e{n}" for n in range(2_000)),
    "outbox_id": tuple(f"o{n}" for n in range(2_000)),
    "projection_id": ("x1", "x2", "x3"),
    "destination": ("mail", "mail", "other"),
    "ordering_key": ("", "k1", "k2"),
    "event_type": ("line", "step.done", "x"),
    "event_types": ("line", "step.done"),
    "trace_id": ("", "0af7651916cd43dd8448eb211c80319c"),
    "page_token": ("", "", ""),
    "hub_generation": ("", ""),
    "known_hub_generation": ("", ""),
    "display_name": ("somebody",),
    "file_name": ("backup.db",),
    "project_id_prefixes": ("p", "q"),
}
_USUAL_LONGS: Final[Mapping[str, tuple[int, ...]]] = {
    "sequence": (1, 2, 3, 4, 5, 6, 7, 8),
    "fencing_token": (1, 2, 3),
    "expected_revision": (0, 0, 1, 2),
    "page_size": (0, 1, 2, 100),
    "max_count": (0, 1, 10),
    "after_position": (0, 0, 1),
    "after_sequence": (0, 1),
    "newest_count": (0, 0, 3),
}
_MOSTLY_ABSENT: Final = frozenset(("ttl", "visibility_timeout", "available_time", "delay"))
"""Spans that would soon be over, and times that are far off."""
_LEARNED_AS: Final[Mapping[str, str]] = {
    "revision": "expected_revision",
    "position": "after_position",
    "next_position": "after_position",
    "progress_position": "after_position",
    "cursor": "sequence",
    "next_page_token": "page_token",
    "chain_hash": "previous_chain_hash",
    "hub_generation": "known_hub_generation",
}
"""Under which other name what an answer says can be sent back."""


class Values:
    """Makes messages from chance alone."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._hostility = 0.0
        self.usual_texts = dict(USUAL_TEXTS)
        self._learned: dict[str, deque[object]] = defaultdict(lambda: deque(maxlen=LEARNED_MAX))
        self._learned_messages: dict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=LEARNED_MAX))

    def learn(self, message: Message) -> None:
        """Remember what an answer says, to be sent back."""
        for field, value in message.ListFields():
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                continue
            for each in [*value][:4] if _is_repeated(field) else [value]:
                if isinstance(each, Message):
                    name = each.DESCRIPTOR.full_name
                    self._learned_messages[name].append(each.SerializeToString())
                    if name.startswith("synchub."):
                        self.learn(each)
                else:
                    self._learned[field.name].append(each)
                    if field.name in _LEARNED_AS:
                        self._learned[_LEARNED_AS[field.name]].append(each)

    def request(self, descriptor: Descriptor) -> Message:
        """Make a request: every other one has only usual values, the others some, or many, that are not."""
        self._hostility = self._rng.choice((0.0, 0.0, 0.03, 0.15))
        return self._message(descriptor)

    def _message(self, descriptor: Descriptor, *, depth: int = 0) -> Message:
        made = GetMessageClass(descriptor)()
        known = self._learned_messages.get(descriptor.full_name)
        if known and self._rng.random() < (0.85 if descriptor.name == "LeaseCredential" else 0.1):
            made.ParseFromString(known[-1 - min(len(known) - 1, int(self._rng.expovariate(0.3)))])
            if self._rng.random() < 0.85:
                return made
        if descriptor.full_name == "google.protobuf.Duration":
            return self._span(made, most=3)
        if descriptor.full_name == "google.protobuf.Timestamp":
            return self._span(made, most=2_000_000_000)
        for oneof in descriptor.oneofs:
            if self._rng.random() < 0.6:
                self._set(made, self._rng.choice(oneof.fields), depth)
        for field in descriptor.fields:
            if field.containing_oneof is None and self._rng.random() < self._given_share(field):
                self._set(made, field, depth)
        if descriptor.name == "CommitRequest" and self._rng.random() < 0.8:
            # Else hardly any would get as far as the journal.
            made.stream_id = made.credential.resource or "s1"  # type: ignore[attr-defined]  # it is that one
        if descriptor.name == "NewOutboxMessage" and self._rng.random() < 0.8:
            made.event_id = ""  # type: ignore[attr-defined]  # it is that one
        return made

    def _given_share(self, field: FieldDescriptor) -> float:
        """How likely a field is set at all; one that has to be is, in a usual message."""
        is_needed = field.message_type is None and "" not in self.usual_texts.get(field.name, ("",))
        return 1.0 if is_needed and self._hostility == 0 else 0.8

    def _is_hostile(self) -> bool:
        return self._rng.random() < self._hostility

    def _span(self, made: Message, *, most: int) -> Message:
        seconds, nanos = self._rng.randrange(most), self._rng.choice((0, 0, 1, 999_999_999))
        if self._is_hostile():
            seconds = self._rng.choice(HOSTILE_LONGS)
        if self._is_hostile():
            nanos = self._rng.choice(HOSTILE_INTEGERS)
        made.seconds, made.nanos = seconds, nanos  # type: ignore[attr-defined]  # both have them
        return made

    def _set(self, made: Message, field: FieldDescriptor, depth: int) -> None:
        if not _is_repeated(field):
            if field.message_type is None:
                setattr(made, field.name, self._scalar(field))
            elif depth < DEPTH_MAX and (field.name not in _MOSTLY_ABSENT or self._rng.random() < 0.2):
                getattr(made, field.name).CopyFrom(self._message(field.message_type, depth=depth + 1))
            return
        count = self._rng.choice((0, 1, 1, 2, 3))
        if self._rng.random() < self._hostility / 8:
            count = self._rng.choice((17, 129, 1_001, 1_025))
        if field.message_type is None:
            getattr(made, field.name).extend(self._scalar(field) for _ in range(count))
        elif field.message_type.GetOptions().map_entry:
            entries = getattr(made, field.name)
            for n in range(count):
                text = self._rng.choice(HOSTILE_TEXTS) if self._is_hostile() else str(n)
                entries[text if self._is_hostile() else f"k{n}"] = text
        elif depth < DEPTH_MAX:
            few = [self._message(field.message_type, depth=depth + 1) for _ in range(min(count, 4))]
            largest = max((each.ByteSize() for each in few), default=0)
            count = min(count, max(1, MESSAGE_BYTES_MAX // max(1, largest)))
            getattr(made, field.name).extend(self._rng.choice(few) for _ in range(count if few else 0))

    def _scalar(self, field: FieldDescriptor) -> object:
        learned = self._learned.get(field.name)
        if learned and not self._is_hostile() and self._rng.random() < _learned_share(field.name):
            return self._rng.choice(learned)
        return self._makers()[field.cpp_type](field)

    def _makers(self) -> Mapping[int, Callable[[FieldDescriptor], object]]:
        return {
            FieldDescriptor.CPPTYPE_STRING: self._text_or_bytes,
            FieldDescriptor.CPPTYPE_INT64: lambda field: self._integer(field, HOSTILE_LONGS),
            FieldDescriptor.CPPTYPE_INT32: lambda field: self._integer(field, HOSTILE_INTEGERS),
            FieldDescriptor.CPPTYPE_BOOL: lambda _: self._rng.random() < 0.08,
            FieldDescriptor.CPPTYPE_ENUM: self._enum,
        }

    def _integer(self, field: FieldDescriptor, hostile: tuple[int, ...]) -> int:
        if self._is_hostile():
            return self._rng.choice(hostile)
        return self._rng.choice(_USUAL_LONGS.get(field.name, (0, 1, 2, 3)))

    def _enum(self, field: FieldDescriptor) -> int:
        assert field.enum_type is not None
        if self._is_hostile():
            return self._rng.choice((-1, 99, 2**31 - 1, -(2**31)))
        return self._rng.choice([value.number for value in field.enum_type.values])

    def _text_or_bytes(self, field: FieldDescriptor) -> str | bytes:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._bytes(field)
        if self._is_hostile():
            return self._rng.choice(HOSTILE_TEXTS)
        return self._rng.choice(self.usual_texts.get(field.name, ("", "a text", "grün")))

    def _bytes(self, field: FieldDescriptor) -> bytes:
        if self._rng.random() < self._hostility / 20:
            return bytes(self._rng.choice((MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1)))
        if self._is_hostile():
            return self._rng.choice(HOSTILE_BYTES)
        if field.name in ("payload", "value", "reply"):
            return self._rng.choice((b"", b"a", b"\0\xff", b"payload"))
        return b""


def descriptor_of(kind: type[Message]) -> Descriptor:
    """Return the descriptor of a class, which its stubs give two types."""
    return cast("Descriptor", kind.DESCRIPTOR)


def _learned_share(name: str) -> float:
    """How likely what was learned is sent instead of the usual; what acts on nothing else is always."""
    return {"claim_id": 0.9, "alert_id": 0.9, "token_id": 0.9, "outbox_id": 0.6, "page_token": 0.15}.get(
        name, 0.25
    )


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)
