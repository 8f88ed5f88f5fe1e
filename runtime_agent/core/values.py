"""The values that the agent's parts hand to each other.

Here belong the words of the local log and of the link to the hub. Times are nanoseconds since 1970
by the wall clock of this machine; hashes are 32 bytes (``synchub/contract.py``).

``NewEvent`` and ``LogEvent`` are named tuples and not dataclasses because hundreds of thousands a
second are made of them, and a frozen dataclass takes three times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
"""The attributes of an event that has none."""


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """Names a run; ordered by project, then run."""

    project_id: str
    run_id: str


class NewEvent(NamedTuple):
    """One event as a program gives it, before it has a sequence.

    With ``event_time_nanos`` None the log stamps the time, unless the request says otherwise.
    """

    event_type: str
    payload: bytes = b""
    event_time_nanos: int | None = None
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    is_final: bool = False


class LogEvent(NamedTuple):
    """One event of the local log.

    ``payload`` is None where its bytes no longer exist here (retention took them, or the hub
    itself no longer had them); ``content_hash`` is then all that stands for it.
    """

    sequence: int
    event_type: str
    event_time_nanos: int | None
    attributes: Mapping[str, str]
    is_final: bool
    payload: bytes | None
    content_hash: bytes
    chain_hash: bytes
    local_position: int


class TailedEvent(NamedTuple):
    """An event of the local log together with its run, as a tail over all runs gives it."""

    run: RunKey
    event: LogEvent
    is_acknowledged: bool


class FetchedEvent(NamedTuple):
    """One event of a run as the hub holds it, on its way into the local log.

    ``payload`` is None where the hub no longer has it.
    """

    sequence: int
    event_type: str
    event_time_nanos: int | None
    attributes: Mapping[str, str]
    is_final: bool
    payload: bytes | None
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Events to append to one run, all or none of them.

    - ``append_id``: optional name of this append, unique in the run: given again with the same
      content it is answered and not doubled. Times that the log stamped do not count as content.
    - ``expected_sequence``: refuse unless the first event would get this sequence; 0 for no such
      condition. It is not looked at where ``append_id`` is known already.
    - ``stamp_time``: give the present time to events that have none. An import says False, so
      that the same file gives the same content hashes again.
    """

    run: RunKey
    events: tuple[NewEvent, ...]
    append_id: str = ""
    expected_sequence: int = 0
    stamp_time: bool = True


@dataclass(frozen=True, slots=True)
class Appended:
    """The sequences that an append was given; with ``is_repeat``, those given the first time."""

    first_sequence: int
    last_sequence: int
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a run is kept from syncing until a person decides.

    - ``reason``: a conflict reason or an error reason, bare ("SEQUENCE_REUSED").
    - ``sequence``: where it was noticed; 0 where it is not about one event.
    - ``copied_through_sequence``: up to where its events were copied to another run; 0 for none.
    """

    reason: str
    detail: str
    sequence: int
    quarantine_time_nanos: int
    copied_through_sequence: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Where one run of the local log stands.

    - ``chain_hash``: at ``last_sequence``.
    - ``acknowledged_sequence``: the hub holds the events up to it, with equal content.
    - ``oldest_payload_sequence``: no payload below it is here; 0 where none is here at all.
    - ``is_final``: the final event lies at ``last_sequence``.
    - ``last_local_position``: of its newest event.
    """

    run: RunKey
    last_sequence: int
    chain_hash: bytes
    acknowledged_sequence: int
    oldest_payload_sequence: int
    is_final: bool
    last_local_position: int
    quarantine: Quarantine | None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The hub holds the events of ``run`` up to ``sequence`` on stable storage."""

    run: RunKey
    sequence: int


@dataclass(frozen=True, slots=True)
class HubLimits:
    """The bounds that a hub said are in force, as in ``GetHubInfo``."""

    identifier_bytes_max: int
    event_type_bytes_max: int
    payload_bytes_max: int
    attribute_count_max: int
    attribute_key_bytes_max: int
    attributes_bytes_max: int
    batch_events_max: int
    batch_bytes_max: int
    message_bytes_max: int
    reconcile_runs_max: int
    active_runs_max: int


@dataclass(frozen=True, slots=True)
class HubMemory:
    """What the log remembers of the hub: its generation ("" for none yet) and last known limits."""

    hub_generation: str
    limits: HubLimits | None


@dataclass(frozen=True, slots=True)
class RuntimeIdentity:
    """Whose log it is: pinned by the first start, never changed after it."""

    hub_project: str
    runtime_id: str


@dataclass(frozen=True, slots=True)
class LogTotals:
    """Sums over the whole local log, for status and heartbeats.

    ``unsynced_event_count`` counts quarantined runs too: no hub has acknowledged those events.
    ``log_bytes`` leaves out space that is free inside the file and will be used again.
    """

    run_count: int
    event_count: int
    unsynced_event_count: int
    quarantined_run_count: int
    log_bytes: int
    head_local_position: int
    last_acknowledge_time_nanos: int | None


class HubLinkState(Enum):
    """How the agent stands towards its hub."""

    STOPPED = "stopped"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"
    DUPLICATED = "duplicated"


@dataclass(frozen=True, slots=True)
class HubLinkStatus:
    """A moment's view of the link.

    - ``detail``: a sentence: what was refused, when the next try is; "" where all is well.
    - ``hub_address``: the hub that it is connected to or tries to reach.
    - ``instance_id``: of this start of the agent; a new one after a duplicate was noticed.
    """

    state: HubLinkState
    detail: str
    hub_address: str
    instance_id: str


class HubLink(Protocol):
    """What the local service asks of the side that talks to the hub; called on the event loop."""

    def status(self) -> HubLinkStatus:
        """Return how the link stands now. Never waits."""
        ...

    def run_released(self, run: RunKey) -> None:
        """Say that a quarantined run may sync again: reconcile it, then push. Never waits."""
        ...

    def run_dropped(self, run: RunKey) -> None:
        """Say that a run is no longer in the log: forget it. Never waits."""
        ...


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What stays the same for the life of one agent process."""

    identity: RuntimeIdentity
    pid: int
    version: str
    start_time_nanos: int
