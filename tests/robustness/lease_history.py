"""What clients asked of the leases of one hub and what became of it, as values and as lines of JSON.

Every moment of a client is read from ``client_nanos``, one clock for all clients of a machine; the
moments in an answer are hub time. An operation ends ok, refused or unknown, and unknown is neither.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter


class Call(StrEnum):
    """What was called."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    RELEASE = "release"
    TRANSFER = "transfer"
    TAKEOVER = "takeover"
    ABORT = "abort"
    CHECK = "check"
    BEGIN_MAINTENANCE = "begin_maintenance"
    RENEW_MAINTENANCE = "renew_maintenance"
    FINISH_MAINTENANCE = "finish_maintenance"
    STATE = "state"
    """GetResourceState."""
    HUB_TIME = "hub_time"
    """GetHubInfo; of no resource."""
    UNDELIVERED = "undelivered"
    """Not a call: the hub gives back by itself what it granted to a caller who was gone."""


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """No answer came: it may have taken effect, or not, or may still."""


class Reason(StrEnum):
    """The reasons that are refusals of the lease itself, as they stand on the wire."""

    HELD = "LEASE_HELD"
    MISSING = "LEASE_MISSING"
    SUPERSEDED = "LEASE_SUPERSEDED"
    EXPIRED = "LEASE_EXPIRED"
    FENCED = "LEASE_FENCED"
    UNDER_MAINTENANCE = "RESOURCE_UNDER_MAINTENANCE"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call said; what it has no field for is empty or 0."""

    runtime_id: str = ""
    holder_id: str = ""
    nonce: str = ""
    token: int = 0
    ttl_nanos: int = 0
    wait_nanos: int = 0
    next_runtime_id: str = ""
    next_holder_id: str = ""
    abort_reason: str = ""
    """INTERNAL or EXTERNAL."""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, also by a refusal; None: the answer does not say it. Moments are hub time."""

    token: int | None = None
    epoch: int | None = None
    runtime_id: str | None = None
    holder_id: str | None = None
    """Of a tenure its holder, of a LEASE_HELD the name that it gives, which is the holder's id here."""
    ttl_nanos: int | None = None
    acquire_nanos: int | None = None
    renew_nanos: int | None = None
    expire_nanos: int | None = None
    abort_reason: str | None = None
    """INTERNAL, EXTERNAL or empty."""
    is_maintenance: bool | None = None
    is_renewed: bool | None = None
    is_replayed: bool = False
    waited_nanos: int = 0
    cause: str | None = None
    """Of a check: why the token is not current; empty where it is."""
    state: str | None = None
    """Of a state: LIVE, UNCLAIMED, EXPIRED or RELEASED; empty where there never was a tenure."""
    hub_nanos: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client, from the moment before it was sent to the moment after it was answered."""

    number: int
    client: str
    call: Call
    resource: str
    arguments: Arguments
    invoke_nanos: int
    return_nanos: int
    outcome: Outcome
    reason: str = ""
    """Of a refusal its reason; of an unknown outcome the status, for people."""
    answer: Answer = Answer()
    kind: Literal["operation"] = "operation"


class Happening(StrEnum):
    """What was done to the hub."""

    STARTING = "starting"
    """It is not alive yet, and will be."""
    STARTED = "started"
    """It takes calls."""
    ENDED = "ended"
    """It is dead since before now."""
    PAUSED = "paused"
    RESUMED = "resumed"
    WALL_CLOCK_SET = "wall_clock_set"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the hub, at a moment of the clients' clock."""

    happening: Happening
    at_nanos: int
    offset_nanos: int = 0
    """Of a wall clock that was set: how far it is from the true one."""
    kind: Literal["fault"] = "fault"


Entry = Operation | Fault

_ENTRY: Final[TypeAdapter[Entry]] = TypeAdapter(Entry)


@dataclass(frozen=True, slots=True)
class History:
    """Everything that was recorded."""

    operations: tuple[Operation, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(slots=True)
class Recorder:
    """Takes down what happens, from many threads; numbers operations in the order of their ends."""

    entries: list[Entry] = field(default_factory=list)
    operation_count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_number: int = 0

    def add(self, entry: Entry) -> None:
        with self._lock:
            self.entries.append(entry)
            self.operation_count += isinstance(entry, Operation)

    def next_number(self) -> int:
        """Return a number that no other operation has."""
        with self._lock:
            self._last_number += 1
            return self._last_number

    def note(self, happening: Happening, *, offset_nanos: int = 0) -> None:
        self.add(Fault(happening, client_nanos(), offset_nanos))

    def history(self) -> History:
        with self._lock:
            return history_of(self.entries)


def client_nanos() -> int:
    """Return the clients' clock; it counts suspension and no wall clock moves it."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def history_of(entries: Iterable[Entry]) -> History:
    """Return what was recorded, operations by their sends and faults by their moments."""
    operations: list[Operation] = []
    faults: list[Fault] = []
    for entry in entries:
        if isinstance(entry, Operation):
            operations.append(entry)
        else:
            faults.append(entry)
    operations.sort(key=lambda operation: (operation.invoke_nanos, operation.number))
    return History(tuple(operations), tuple(sorted(faults, key=lambda fault: fault.at_nanos)))


def line_of(entry: Entry) -> bytes:
    """Return an operation or fault as one line."""
    return _ENTRY.dump_json(entry) + b"\n"


def entry_of(line: str | bytes) -> Entry:
    """Return what ``line_of`` made a line of."""
    return _ENTRY.validate_json(line)


def write_history(history: History, path: Path) -> None:
    """Write one line for each operation and fault, so that a run that failed can be looked at."""
    entries: list[Entry] = [*history.faults, *history.operations]
    path.write_bytes(b"".join(map(line_of, entries)))


def read_history(path: Path) -> History:
    """Return what ``write_history`` wrote."""
    return history_of(map(entry_of, path.read_bytes().splitlines()))
