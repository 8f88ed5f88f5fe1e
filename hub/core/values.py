"""The words of the hub as types: ids, the caller, runs, events, alerts.

Values that more than one decision speaks of; what belongs to one decision lies beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

HubProject = NewType("HubProject", str)
"""The tenant; every read and write belongs to exactly one."""
ProjectId = NewType("ProjectId", str)
"""The thing worked on; belongs for good to one hub project."""
RunId = NewType("RunId", str)
"""One execution within a project; belongs for good to its home runtime."""
RuntimeId = NewType("RuntimeId", str)
"""One installation that executes runs, within a hub project."""
InstanceId = NewType("InstanceId", str)
"""One start of a runtime's agent."""
HubGeneration = NewType("HubGeneration", str)
"""Random id of a store's life."""
ResourceName = NewType("ResourceName", str)
"""What a lease is on, within a hub project."""
HolderId = NewType("HolderId", str)
"""Who holds a lease, within its runtime."""
AlertId = NewType("AlertId", str)
"""Names an alert within its hub project."""


TokenId = NewType("TokenId", str)
"""Public id of a bearer token."""


class Role(StrEnum):
    """What a caller may do (``core.permissions``).

    A hub without credentials takes everybody as ANONYMOUS, which may do everything.
    """

    ANONYMOUS = "anonymous"
    RUNTIME = "runtime"
    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: every use case takes one, so that identity is decided in one place.

    ``runtime_id`` is the credential's, None where it is bound to none; ``peer`` is the network
    address; ``credential_name`` is empty without credentials. ``token_id`` is None for who came without
    a token; ``project_id_prefixes`` are the credential's, none cover all projects.
    """

    hub_project: HubProject
    runtime_id: RuntimeId | None
    role: Role
    peer: str
    credential_name: str
    token_id: TokenId | None = None
    project_id_prefixes: tuple[str, ...] = ()
    is_certificate: bool = False
    """Whether a client certificate says who calls."""

    @property
    def credential_key(self) -> str:
        """What tells this credential from all others, "" where there is none; names may be the same."""
        return self.credential_name if self.token_id is None else self.token_id

    def covers(self, project_id: str) -> bool:
        """Whether the credential is for this project."""
        return not self.project_id_prefixes or project_id.startswith(self.project_id_prefixes)


class EventContent(NamedTuple):
    """One pushed event, checked and hashed. A tuple, because millions of them pass.

    ``event_time_nanos`` is None where the event has no time; ``attributes`` is JSON text with sorted
    keys, None where there are none; ``payload`` is None where its bytes no longer exist at the
    runtime. ``content_hash`` is computed from the content, or the carried one without a payload.
    """

    sequence: int
    event_type: str
    event_time_nanos: int | None
    attributes: str | None
    is_final: bool
    payload: bytes | None
    content_hash: bytes


class StoredEvent(NamedTuple):
    """One event as it is read. ``payload`` is None where it was dropped."""

    project_id: ProjectId
    run_id: RunId
    sequence: int
    position: int
    event_type: str
    event_time_nanos: int | None
    attributes: str | None
    is_final: bool
    payload: bytes | None
    content_hash: bytes
    receive_time_nanos: int


@dataclass(frozen=True, slots=True)
class RunHead:
    """What decides about the next events of a run.

    ``run_key`` is the store's, None for a run that is not stored yet; ``final_sequence`` is None
    until a final event is stored.
    """

    run_key: int | None
    project_id: ProjectId
    run_id: RunId
    home_runtime_id: RuntimeId
    cursor: int
    chain_hash: bytes
    highest_sequence: int
    event_count: int
    final_sequence: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the final event lies at the cursor."""
        return self.final_sequence is not None and self.final_sequence == self.cursor


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is read: its head, and when it was first and last written (Unix nanoseconds)."""

    head: RunHead
    first_receive_time_nanos: int
    last_receive_time_nanos: int


class ConflictReason(StrEnum):
    """Why an event of a valid request was not accepted."""

    SEQUENCE_REUSED = "SEQUENCE_REUSED"
    PROJECT_MISMATCH = "PROJECT_MISMATCH"
    HOME_RUNTIME_MISMATCH = "HOME_RUNTIME_MISMATCH"
    CONTENT_HASH_MISMATCH = "CONTENT_HASH_MISMATCH"
    HISTORY_DIVERGED = "HISTORY_DIVERGED"
    RUN_COMPLETE = "RUN_COMPLETE"


class AlertReason(StrEnum):
    """Why an alert was raised: what the hub refused or noticed and a person should look at."""

    SEQUENCE_REUSED = "SEQUENCE_REUSED"
    PROJECT_MISMATCH = "PROJECT_MISMATCH"
    HOME_RUNTIME_MISMATCH = "HOME_RUNTIME_MISMATCH"
    CONTENT_HASH_MISMATCH = "CONTENT_HASH_MISMATCH"
    HISTORY_DIVERGED = "HISTORY_DIVERGED"
    HISTORY_LOST = "HISTORY_LOST"
    IDENTITY_MISMATCH = "IDENTITY_MISMATCH"
    RUNTIME_DUPLICATED = "RUNTIME_DUPLICATED"


@dataclass(frozen=True, slots=True)
class AlertSample:
    """One observation behind an alert: a sequence or range of them, 0 where it is about none."""

    sequence: int
    last_sequence: int
    stored_content_hash: bytes
    offered_content_hash: bytes
    peer: str
    credential_name: str


@dataclass(frozen=True, slots=True)
class AlertKey:
    """What makes two observations one alert. Empty strings where it is not about a run or runtime."""

    hub_project: HubProject
    reason: AlertReason
    project_id: str
    run_id: str
    runtime_id: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as it is read; times are hub time in Unix nanoseconds."""

    alert_id: AlertId
    key: AlertKey
    first_seen_nanos: int
    last_seen_nanos: int
    seen_count: int
    samples: tuple[AlertSample, ...]
    acknowledge_nanos: int | None


@dataclass(frozen=True, slots=True)
class Project:
    """A project bound to a hub project; times are Unix nanoseconds."""

    project_id: ProjectId
    bind_time_nanos: int
    run_count: int


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the store knows of a runtime; times are hub time in Unix nanoseconds.

    ``last_heartbeat_nanos`` is None where the runtime only reconciled so far; ``is_goodbye`` says
    whether its last word was a goodbye. Whether it is alive is decided in ``core.presence``.
    """

    runtime_id: RuntimeId
    instance_id: InstanceId
    instance_start_nanos: int
    last_heartbeat_nanos: int | None = None
    is_goodbye: bool = False
    host: str = ""
    pid: int = 0
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    active_runs: tuple[tuple[ProjectId, RunId], ...] = ()
    unsynced_event_count: int = 0
