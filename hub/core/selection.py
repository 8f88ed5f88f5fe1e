"""What a reader asks for, and what it gets at a time: scopes, bounds, pages."""

from dataclasses import dataclass
from typing import NamedTuple

from hub.core.values import Alert, ProjectId, ResourceName, RunId, RuntimeId, StoredEvent


@dataclass(frozen=True, slots=True)
class EventScope:
    """Whose events: all of a hub project (both None), those of a project, or those of a run.

    ``run_id`` is given with ``project_id`` only.
    """

    project_id: ProjectId | None = None
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs of a hub project; None where it does not matter."""

    project_id: ProjectId | None = None
    runtime_id: RuntimeId | None = None
    is_complete: bool | None = None


@dataclass(frozen=True, slots=True)
class PageBounds:
    """How much a page of events holds at most; always at least one event where there is one."""

    entries_max: int
    bytes_max: int


class LeasePlace(NamedTuple):
    """A place in the order of tenures: by the bytes of the resource, the lease before the maintenance."""

    resource: ResourceName
    is_maintenance: bool


class RunPlace(NamedTuple):
    """A place in the order of runs, by the bytes of their ids."""

    project_id: ProjectId
    run_id: RunId


class EventPlace(NamedTuple):
    """A place in the order of an export: project, run, sequence."""

    project_id: ProjectId
    run_id: RunId
    sequence: int


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Events of one run, ascending; ``is_cut`` says that a bound, not the run, ended them."""

    events: list[StoredEvent]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Events of an export; ``next_place`` is after which to go on, None at the end."""

    events: list[StoredEvent]
    next_place: EventPlace | None


@dataclass(frozen=True, slots=True)
class PositionedEvents:
    """Events ascending by position, of one state of the store.

    Everything up to ``considered_position`` was looked at, whether it was asked for or not;
    ``head_position`` is the head of that state: where both are equal, there is no more.
    """

    events: list[StoredEvent]
    considered_position: int
    head_position: int


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """Alerts in the order in which they last changed; read on after ``change_number``."""

    alerts: list[Alert]
    change_number: int
