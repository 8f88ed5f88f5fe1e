"""What the hub holds in memory of the runtimes it hears, in the order in which they last changed.

One event loop uses it; nothing here waits. The order makes a watcher cheap: it remembers one number,
and what changed since is the end of the order, each runtime once in its newest state.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from hub.core.presence import Heartbeat, PresenceState
from hub.core.values import HubProject, InstanceId, Runtime, RuntimeId


class Ear(Protocol):
    """The stream on which a runtime is heard; also the way to tell it something."""

    def tell_duplicate(self, current_instance_id: InstanceId) -> None:
        """Tell the runtime that another instance was heard after it. Returns at once."""


@dataclass(slots=True)
class Entry:
    """A runtime as it is heard.

    ``ear`` is the stream of the last heartbeat, None where it is from an earlier life of the hub or
    has none; ``break_nanos`` is when that stream broke; ``state`` is what watchers were told.
    """

    runtime: Runtime
    state: PresenceState
    heartbeat: Heartbeat | None = None
    ear: Ear | None = None
    break_nanos: int | None = None
    change_number: int = 0


@dataclass(slots=True)
class PresenceCounts:
    """Runtimes of a hub project by state, and how much those that are ONLINE did not push yet."""

    by_state: Counter[PresenceState] = field(default_factory=Counter)
    unsynced_events: int = 0

    def add(self, entry: Entry) -> None:
        """Count a runtime in."""
        self.by_state[entry.state] += 1
        if entry.state is PresenceState.ONLINE and entry.heartbeat is not None:
            self.unsynced_events += entry.heartbeat.unsynced_event_count


class HeardRuntimes:
    """The runtimes of one hub project that were heard lately."""

    def __init__(self) -> None:
        """Begin with none."""
        self.change_number = 0
        """Rises with each change that watchers are told."""
        self.forgotten_change_number = 0
        """A watcher that has not seen this change must look at the store again."""
        self._entries: OrderedDict[RuntimeId, Entry] = OrderedDict()
        self._watchers: set[asyncio.Event] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is heard and nobody watches."""
        return not self._entries and not self._watchers

    def find(self, runtime_id: RuntimeId) -> Entry | None:
        """Return a runtime, None where it was not heard lately."""
        return self._entries.get(runtime_id)

    def put(self, entry: Entry) -> None:
        """Take a runtime up, in place of what was held of it."""
        self._entries[entry.runtime.runtime_id] = entry

    def entries(self) -> Iterator[Entry]:
        """Give all runtimes."""
        return iter(self._entries.values())

    def announce(self, entry: Entry) -> None:
        """Tell watchers that a runtime changed."""
        self.change_number += 1
        entry.change_number = self.change_number
        self._entries.move_to_end(entry.runtime.runtime_id)
        for wake in self._watchers:
            wake.set()

    def forget(self, entry: Entry) -> None:
        """Drop a runtime of which the store says the same."""
        del self._entries[entry.runtime.runtime_id]
        self.forgotten_change_number = max(self.forgotten_change_number, entry.change_number)

    def changed_since(self, change_number: int, *, entries_max: int) -> list[Entry]:
        """Return the runtimes that changed after a change, oldest change first."""
        changed: list[Entry] = []
        for entry in reversed(self._entries.values()):
            if entry.change_number <= change_number:
                break
            changed.append(entry)
        changed.reverse()
        return changed[:entries_max]

    def add_watcher(self) -> asyncio.Event:
        """Return an event that is set at each change, until ``remove_watcher``."""
        wake = asyncio.Event()
        self._watchers.add(wake)
        return wake

    def remove_watcher(self, wake: asyncio.Event) -> None:
        """Set it no more."""
        self._watchers.discard(wake)


class PresenceTable:
    """Heard runtimes by hub project; a hub project in which nothing is heard takes no room."""

    def __init__(self) -> None:
        """Begin empty."""
        self._heard: dict[HubProject, HeardRuntimes] = {}

    def of(self, hub_project: HubProject) -> HeardRuntimes:
        """Return the heard runtimes of a hub project."""
        heard = self._heard.get(hub_project)
        if heard is None:
            heard = self._heard[hub_project] = HeardRuntimes()
        return heard

    def find(self, hub_project: HubProject, runtime_id: RuntimeId) -> Entry | None:
        """Return a runtime, None where it was not heard lately."""
        heard = self._heard.get(hub_project)
        return None if heard is None else heard.find(runtime_id)

    def hub_projects(self) -> list[tuple[HubProject, HeardRuntimes]]:
        """Return all hub projects in which something is heard or watched."""
        return list(self._heard.items())

    def forget_idle(self) -> None:
        """Drop the hub projects in which nothing is heard or watched."""
        for hub_project, heard in self.hub_projects():
            if heard.is_idle:
                del self._heard[hub_project]
