"""Who is alive: takes heartbeats, and answers who was heard.

Presence is soft state. The first heartbeat of an instance makes it the runtime's current one, durably,
through the writer; every other one only changes memory and is written with others once a second at
most, so heartbeats never wait behind ingest. Whether a runtime is alive is computed when it is read.

One event loop uses this module.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Final

import structlog

from hub.core.errors import NotFound, Refusal, RuntimeDuplicated
from hub.core.instance import InstanceStanding
from hub.core.limits import Limits
from hub.core.presence import Heartbeat, PresenceBounds, PresenceState, decide_presence
from hub.core.values import Caller, HubProject, InstanceId, Runtime, RuntimeId
from hub.service.alert_book import AlertBook
from hub.service.ingest import check_instance
from hub.service.instruments import Instruments, NoInstruments
from hub.service.presence_table import Ear, Entry, PresenceCounts, PresenceTable
from hub.service.readers import Readers
from hub.service.writer import AsyncWriter
from hub.store.contract import WriteTransaction
from synchub.contract import NANOS_PER_SECOND

log = structlog.get_logger(__name__)

ADMISSIONS_MAX: Final = 3
"""How often an instance is asked for while others take over from it; it is refused at the second time."""
RUNTIMES_LOOKED_AT_MAX: Final = 10_000
"""Runtimes looked at for one page of a list that leaves some out; the page ends early then."""


@dataclass(frozen=True, slots=True)
class SeenRuntime:
    """A runtime and whether it is alive, at the moment of the read."""

    runtime: Runtime
    state: PresenceState


@dataclass(frozen=True, slots=True)
class RuntimePage:
    """Runtimes of a list; ``next_after`` is where the next page begins, None on the last one."""

    runtimes: Sequence[SeenRuntime]
    next_after: RuntimeId | None


@dataclass(frozen=True, slots=True)
class RuntimeNews:
    """Runtimes that a watcher is told; the last of the snapshot says so."""

    runtimes: Sequence[SeenRuntime]
    is_snapshot_complete: bool = False


class Presence:
    """The use cases of heartbeats and of reading runtimes."""

    def __init__(
        self,
        writer: AsyncWriter,
        readers: Readers,
        *,
        alert_book: AlertBook,
        limits: Limits,
        now_nanos: Callable[[], int],
        instruments: Instruments | None = None,
    ) -> None:
        """Bind writer and readers; ``now_nanos`` gives hub time, and this life of the hub begins.

        ``instruments`` count the runtimes that fall silent.
        """
        self._instruments = instruments or NoInstruments()
        self._writer = writer
        self._readers = readers
        self._alert_book = alert_book
        self._limits = limits
        self._now_nanos = now_nanos
        self._bounds = PresenceBounds(
            ttl_nanos=round(limits.presence_ttl_seconds * NANOS_PER_SECOND),
            broken_stream_grace_nanos=round(limits.broken_stream_grace_seconds * NANOS_PER_SECOND),
            hub_start_nanos=now_nanos(),
        )
        self._table = PresenceTable()
        self._counts: Mapping[HubProject, PresenceCounts] = {}
        self._unsaved: dict[tuple[HubProject, RuntimeId], None] = {}

    @property
    def bounds(self) -> PresenceBounds:
        """When silence means loss, in this life of the hub."""
        return self._bounds

    # --- heartbeats ---

    async def hear(self, caller: Caller, heartbeat: Heartbeat, *, ear: Ear, is_first: bool) -> int:
        """Take a heartbeat that came on a stream; return the hub time at which it was taken.

        The newest heartbeat of the current instance wins; a goodbye counts only from the stream of the
        last heartbeat, or as the first word on a new one.

        Raises: RuntimeDuplicated for an instance that has a successor, which is alerted;
        StorageUnavailable or HubStopping where a new instance cannot be stored.
        """
        hub_project = caller.hub_project
        entry = self._table.find(hub_project, heartbeat.runtime_id)
        if entry is None or entry.runtime.instance_id != heartbeat.instance_id:
            entry = await self._admit(caller, heartbeat)
        now_nanos = self._now_nanos()
        if heartbeat.is_goodbye and not is_first and entry.ear is not ear:
            return now_nanos
        entry.runtime = heartbeat.as_runtime(
            instance_start_nanos=entry.runtime.instance_start_nanos, heard_nanos=now_nanos
        )
        entry.ear = ear
        entry.break_nanos = None
        self._unsaved[hub_project, heartbeat.runtime_id] = None
        state = PresenceState.OFFLINE if heartbeat.is_goodbye else PresenceState.ONLINE
        is_same = heartbeat is entry.heartbeat or heartbeat == entry.heartbeat
        entry.heartbeat = heartbeat
        if not is_same or entry.state is not state:
            entry.state = state
            self._table.of(hub_project).announce(entry)
        return now_nanos

    def stream_broke(self, hub_project: HubProject, runtime_id: RuntimeId, *, ear: Ear) -> None:
        """Note that a stream ended; it counts where the last heartbeat came on it."""
        entry = self._table.find(hub_project, runtime_id)
        if entry is not None and entry.ear is ear:
            entry.ear = None
            entry.break_nanos = self._now_nanos()

    def instance_began(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, instance_id: InstanceId, start_nanos: int
    ) -> None:
        """Note that an instance is a runtime's current one, durably; tell the one before.

        To be called at each commit that made one current, in the order of commits.
        """
        before = self._table.find(hub_project, runtime_id)
        if before is not None and before.runtime.instance_id == instance_id:
            return
        entry = Entry(Runtime(runtime_id, instance_id, start_nanos), PresenceState.ONLINE)
        heard = self._table.of(hub_project)
        heard.put(entry)
        heard.announce(entry)
        if before is not None and before.ear is not None:
            before.ear.tell_duplicate(instance_id)

    async def _admit(self, caller: Caller, heartbeat: Heartbeat) -> Entry:
        """Make an instance its runtime's current one, durably; return what is then held of it."""
        hub_project = caller.hub_project
        runtime_id, instance_id = heartbeat.runtime_id, heartbeat.instance_id

        def command(transaction: WriteTransaction, now_nanos: int) -> None:
            standing = check_instance(
                transaction,
                caller,
                runtime_id=runtime_id,
                instance_id=instance_id,
                alert_book=self._alert_book,
            )
            if standing is InstanceStanding.NEW:
                transaction.begin_instance(
                    hub_project, runtime_id, instance_id=instance_id, now_nanos=now_nanos
                )
            else:
                transaction.retention.recall_runtime(hub_project, runtime_id)

        for _ in range(ADMISSIONS_MAX):
            await self._writer.call(command, hub_project=hub_project)
            # ``instance_began`` was told with the commit; since then others may have been, too.
            entry = self._table.find(hub_project, runtime_id) or await self._take_up(hub_project, runtime_id)
            if entry is not None and entry.runtime.instance_id == instance_id:
                return entry
            # Another instance came in between: then the writer refuses this one now.
        raise RuntimeDuplicated(runtime_id, instance_id)

    async def _take_up(self, hub_project: HubProject, runtime_id: RuntimeId) -> Entry | None:
        """Hold a runtime in memory that so far only the store knows; return what is then held."""
        stored = await self._readers.call(lambda transaction: transaction.runtime(hub_project, runtime_id))
        entry = self._table.find(hub_project, runtime_id)
        if stored is not None and entry is None:
            state = decide_presence(stored, self._now_nanos(), break_nanos=None, bounds=self._bounds)
            entry = Entry(stored, state)
            self._table.of(hub_project).put(entry)
        return entry

    # --- reading ---

    async def runtime(self, caller: Caller, runtime_id: RuntimeId) -> SeenRuntime:
        """Return one runtime.

        Raises: NotFound.
        """
        hub_project = caller.hub_project
        stored = await self._readers.call(lambda transaction: transaction.runtime(hub_project, runtime_id))
        if stored is None:
            raise NotFound("runtime", {"runtimeId": runtime_id})
        return self._seen(hub_project, stored)

    async def runtimes(
        self,
        caller: Caller,
        *,
        states: Collection[PresenceState],
        after: RuntimeId | None,
        entries_max: int,
    ) -> RuntimePage:
        """Return runtimes in these states (all where none is named), ascending by the bytes of their ids.

        A page may have fewer than it could, where many are left out.
        """
        found: list[SeenRuntime] = []
        looked_at = 0
        while looked_at < RUNTIMES_LOOKED_AT_MAX:
            stored = await self._stored_after(caller.hub_project, after)
            for runtime in stored:
                after = runtime.runtime_id
                seen = self._seen(caller.hub_project, runtime)
                if states and seen.state not in states:
                    continue
                found.append(seen)
                if len(found) == entries_max:
                    return RuntimePage(found, after)
            looked_at += len(stored)
            if len(stored) < self._limits.page_entries_max:
                return RuntimePage(found, None)
        return RuntimePage(found, after)

    async def watch(self, caller: Caller) -> AsyncGenerator[RuntimeNews, None]:
        """Give all runtimes of a hub project, then the newest state of each that changes, for ever.

        A heartbeat that says nothing new is no change. States in between may be left out.
        """
        hub_project = caller.hub_project
        heard = self._table.of(hub_project)
        wake = heard.add_watcher()
        try:
            seen_change = heard.change_number
            async for news in self._snapshot(hub_project):
                yield news
            yield RuntimeNews((), is_snapshot_complete=True)
            while True:
                wake.clear()
                if seen_change < heard.forgotten_change_number:
                    # What this watcher was slow to look at is only in the store now.
                    seen_change = heard.change_number
                    async for news in self._snapshot(hub_project):
                        yield news
                    continue
                changed = heard.changed_since(seen_change, entries_max=self._limits.page_entries_max)
                if changed:
                    seen_change = changed[-1].change_number
                    yield RuntimeNews([self._seen(hub_project, entry.runtime) for entry in changed])
                else:
                    await wake.wait()
        finally:
            heard.remove_watcher(wake)

    def counts(self) -> Mapping[HubProject, PresenceCounts]:
        """Return what is heard of the runtimes of each hub project, as of the last flush."""
        return self._counts

    async def _snapshot(self, hub_project: HubProject) -> AsyncIterator[RuntimeNews]:
        after: RuntimeId | None = None
        while stored := await self._stored_after(hub_project, after):
            yield RuntimeNews([self._seen(hub_project, runtime) for runtime in stored])
            after = stored[-1].runtime_id

    async def _stored_after(self, hub_project: HubProject, after: RuntimeId | None) -> list[Runtime]:
        return await self._readers.call(
            lambda transaction: transaction.runtimes(
                hub_project, after=after, entries_max=self._limits.page_entries_max
            )
        )

    def _seen(self, hub_project: HubProject, stored: Runtime) -> SeenRuntime:
        """Return a runtime as memory has it, where that is as new as the store."""
        entry = self._table.find(hub_project, stored.runtime_id)
        runtime, break_nanos = stored, None
        if entry is not None and entry.runtime.instance_start_nanos >= stored.instance_start_nanos:
            runtime, break_nanos = entry.runtime, entry.break_nanos
        return SeenRuntime(
            runtime,
            decide_presence(runtime, self._now_nanos(), break_nanos=break_nanos, bounds=self._bounds),
        )

    # --- in the background ---

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Announce and write, once a flush interval, until cancelled."""
        while True:
            await sleep(self._limits.presence_flush_seconds)
            self.announce_losses()
            try:
                await self.flush()
            except Refusal as refusal:
                log.warning("presence_not_written", reason=refusal.reason)

    def announce_losses(self) -> None:
        """Tell watchers of runtimes that fell silent, and forget those that the store knows as well."""
        now_nanos = self._now_nanos()
        all_counts: dict[HubProject, PresenceCounts] = {}
        for hub_project, heard in self._table.hub_projects():
            counts = PresenceCounts()
            changed: list[Entry] = []
            settled: list[Entry] = []
            for entry in heard.entries():
                state = decide_presence(
                    entry.runtime, now_nanos, break_nanos=entry.break_nanos, bounds=self._bounds
                )
                if state is not entry.state:
                    entry.state = state
                    changed.append(entry)
                    if state is PresenceState.LOST:
                        self._instruments.runtime_lost(hub_project)
                elif state is not PresenceState.ONLINE and self._is_stored(
                    hub_project, entry, now_nanos=now_nanos
                ):
                    settled.append(entry)
                    continue
                counts.add(entry)
            if counts.by_state:
                all_counts[hub_project] = counts
            for entry in changed:
                heard.announce(entry)
            for entry in settled:
                heard.forget(entry)
        self._counts = all_counts
        self._table.forget_idle()

    def _is_stored(self, hub_project: HubProject, entry: Entry, *, now_nanos: int) -> bool:
        """Whether the store alone would say the same of a runtime."""
        state = decide_presence(entry.runtime, now_nanos, break_nanos=None, bounds=self._bounds)
        return state is entry.state and (hub_project, entry.runtime.runtime_id) not in self._unsaved

    async def flush(self) -> None:
        """Write what was heard since the last time.

        Raises: StorageUnavailable, HubStopping; what could not be written stays to be written.
        """
        by_hub_project: dict[HubProject, list[RuntimeId]] = {}
        for hub_project, runtime_id in self._unsaved:
            by_hub_project.setdefault(hub_project, []).append(runtime_id)
        rows_max = self._limits.presence_flush_rows_max
        for hub_project, runtime_ids in by_hub_project.items():
            for begin in range(0, len(runtime_ids), rows_max):
                await self._flush_some(hub_project, runtime_ids[begin : begin + rows_max])

    async def _flush_some(self, hub_project: HubProject, runtime_ids: Sequence[RuntimeId]) -> None:
        runtimes: list[Runtime] = []
        for runtime_id in runtime_ids:
            self._unsaved.pop((hub_project, runtime_id), None)
            entry = self._table.find(hub_project, runtime_id)
            if entry is not None and entry.runtime.last_heartbeat_nanos is not None:
                runtimes.append(entry.runtime)
        try:
            await self._save(hub_project, runtimes)
        except BaseException:
            self._unsaved.update(dict.fromkeys((hub_project, runtime_id) for runtime_id in runtime_ids))
            raise

    async def _save(self, hub_project: HubProject, runtimes: Sequence[Runtime]) -> None:
        def command(transaction: WriteTransaction, _now_nanos: int) -> None:
            transaction.save_presence(hub_project, runtimes)

        if runtimes:
            await self._writer.call(command, hub_project=hub_project)
