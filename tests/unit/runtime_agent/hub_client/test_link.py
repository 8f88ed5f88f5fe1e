"""The link over real gRPC and a real log: whatever a hub does, the log and the hub come into step."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from runtime_agent.core.instance import InstanceLife
from runtime_agent.core.values import (
    AppendRequest,
    HubLinkState,
    NewEvent,
    RunKey,
    RunState,
    RuntimeIdentity,
)
from runtime_agent.event_log.log_thread import LogThread
from runtime_agent.event_log.opening import take_folder
from runtime_agent.hub_client.link import PUSH_BOUNDS, Link
from runtime_agent.hub_client.presence import Machine, Presence, PresenceListeners
from runtime_agent.hub_client.surroundings import Surroundings
from synchub.channel import HubAddress
from tests.unit.runtime_agent.hub_client.wire_hub import WireHub, refusal_status

IDENTITY = RuntimeIdentity("hp", "r1")
RUN = RunKey("p", "n1")
OTHER = RunKey("p", "n2")
EVENTUALLY_SECONDS = 20.0


class Notes:
    """The program's log, kept to be looked at."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def info(self, event: str, **facts: str | float) -> None:
        pass

    def warning(self, event: str, **facts: str | float) -> None:
        pass

    def exception(self, event: str, **facts: str | float) -> None:
        self.mistakes.append(event)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(EVENTUALLY_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in the test's hub
            await asyncio.sleep(0.01)


class Runtime:
    """A log with its link and presence, as the agent puts them together."""

    def __init__(self, folder: Path) -> None:
        self.log = LogThread(take_folder(str(folder), role="test"))
        self.log.start()
        self.notes = Notes()
        self.bounds = PUSH_BOUNDS
        ids = (f"i{n}" for n in count(1))
        self.instance = InstanceLife(
            new_instance_id=lambda: next(ids), wait_seconds_first=0.2, wait_seconds_max=1.0, calm_seconds=60.0
        )
        self.surroundings = Surroundings(
            clock=time.monotonic, wall_clock_nanos=time.time_ns, chance=lambda: 0.05, program_log=self.notes
        )

    async def append(self, run: RunKey, payloads: Sequence[bytes]) -> None:
        events = tuple(NewEvent("t", payload) for payload in payloads)
        await asyncio.wrap_future(self.log.append(AppendRequest(run, events, stamp_time=False)))

    async def state(self, run: RunKey) -> RunState:
        state = await asyncio.wrap_future(self.log.read(lambda reader: reader.load_run(run)))
        assert state is not None
        return state

    async def until(self, run: RunKey, condition: Callable[[RunState], bool]) -> RunState:
        async with asyncio.timeout(EVENTUALLY_SECONDS):
            while not condition(state := await self.state(run)):  # noqa: ASYNC110 - it is in the log
                await asyncio.sleep(0.01)
        return state

    async def until_synced(self, run: RunKey, sequence: int) -> RunState:
        return await self.until(run, lambda state: state.acknowledged_sequence == sequence)

    async def until_quarantined(self, run: RunKey) -> str:
        state = await self.until(run, lambda state: state.quarantine is not None)
        assert state.quarantine is not None
        return state.quarantine.reason

    def new_link(self, port: int) -> Link:
        return Link(
            (HubAddress("127.0.0.1", port),),
            identity=IDENTITY,
            instance=self.instance,
            log=self.log,
            surroundings=self.surroundings,
            bounds=self.bounds,
        )

    @asynccontextmanager
    async def linked(self, port: int) -> AsyncIterator[Link]:
        link = self.new_link(port)
        task = asyncio.create_task(link.run())
        try:
            yield link
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime(tmp_path)
    yield runtime
    await asyncio.to_thread(runtime.log.stop)
    assert runtime.notes.mistakes == []


@pytest.fixture
def hub() -> WireHub:
    return WireHub()


async def test_what_was_appended_before_and_after_connecting_reaches_the_hub(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2"])
    async with hub.serving() as port, runtime.linked(port) as link:
        await runtime.until_synced(RUN, 2)
        await runtime.append(RUN, [b"3"])
        await runtime.append(OTHER, [b"a"])
        await runtime.until_synced(RUN, 3)
        await runtime.until_synced(OTHER, 1)
        assert link.status().state is HubLinkState.CONNECTED
        assert await link.drain(5.0)
    assert hub.payloads(RUN) == [b"1", b"2", b"3"]
    assert hub.payloads(OTHER) == [b"a"]
    assert link.status().state is HubLinkState.STOPPED


async def test_a_large_backlog_arrives_in_order_in_full_batches(runtime: Runtime, hub: WireHub) -> None:
    payloads = [b"%d" % n for n in range(5_000)]
    for begin in range(0, len(payloads), 1_000):
        await runtime.append(RUN, payloads[begin : begin + 1_000])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, len(payloads))
    assert hub.payloads(RUN) == payloads
    assert hub.counts["batches"] == 5


async def test_a_hub_that_takes_smaller_batches_gets_smaller_batches(runtime: Runtime, hub: WireHub) -> None:
    hub.batch_events_max = 3
    await runtime.append(RUN, [b"%d" % n for n in range(10)])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 10)
    assert hub.counts["batches"] == 4


async def test_a_hub_that_was_away_gets_everything_when_it_comes_back(runtime: Runtime, hub: WireHub) -> None:
    async with hub.serving() as port:
        pass
    async with runtime.linked(port) as link:
        await runtime.append(RUN, [b"1"])
        await eventually(lambda: link.status().state is HubLinkState.WAITING)
        assert "no hub can be reached" in link.status().detail
        async with hub.serving(port):
            await runtime.until_synced(RUN, 1)
        await runtime.append(RUN, [b"2"])
        async with hub.serving(port):
            await runtime.until_synced(RUN, 2)
    assert hub.payloads(RUN) == [b"1", b"2"]


async def test_a_batch_that_is_never_answered_is_sent_again_on_a_new_stream(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.silent_pushes = 1
    runtime.bounds = replace(PUSH_BOUNDS, first_answer_seconds_max=0.2)
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 1)
    assert hub.payloads(RUN) == [b"1"]
    assert hub.counts["push_streams"] == 2


async def test_a_restored_hub_of_a_new_generation_gets_its_lost_tail_again(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2", b"3"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 3)
    del hub.runs[RUN][1:]
    hub.generation = "g2"
    async with hub.serving() as port, runtime.linked(port):
        await eventually(lambda: hub.payloads(RUN) == [b"1", b"2", b"3"])
        await runtime.until_synced(RUN, 3)
    memory = await asyncio.wrap_future(runtime.log.read(lambda reader: reader.load_hub_memory()))
    assert memory.hub_generation == "g2"


async def test_a_hub_restored_while_the_agent_has_nothing_to_say_is_noticed(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2"])
    async with hub.serving() as port:
        async with runtime.linked(port) as link:
            await runtime.until_synced(RUN, 2)
        link_again = runtime.linked(port)
        async with link_again as link:
            # An idle connection: no push stream is open on it.
            await eventually(lambda: link.status().state is HubLinkState.CONNECTED)
            hub.runs.clear()
            hub.generation = "g2"
            link.doubt()
            await eventually(lambda: hub.payloads(RUN) == [b"1", b"2"])


async def test_a_payload_that_retention_took_is_pushed_again_by_its_hash(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 2)
    hashes = [event.content_hash for event in hub.runs[RUN]]
    later = time.time_ns() + 10**15
    await asyncio.wrap_future(
        runtime.log.call(lambda log: log.drop_payloads(acknowledged_before_nanos=later, limit=100))
    )
    hub.runs.clear()
    hub.generation = "g2"
    async with hub.serving() as port, runtime.linked(port):
        await eventually(lambda: len(hub.runs.get(RUN, [])) == 2)
        await runtime.until_synced(RUN, 2)
    assert [event.content_hash for event in hub.runs[RUN]] == hashes
    assert [event.payload_dropped for event in hub.runs[RUN]] == [True, True]


async def test_a_log_restored_from_an_older_disk_takes_in_what_the_hub_has(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2"])
    hub.put(RUN, [b"1", b"2", b"3", b"4"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until(RUN, lambda state: state.last_sequence == 4)
        await runtime.append(RUN, [b"5"])
        await runtime.until_synced(RUN, 5)
    assert hub.payloads(RUN) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_run_with_another_history_is_quarantined_at_the_fork_and_the_others_go_on(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.put(RUN, [b"1", b"2", b"theirs"])
    await runtime.append(RUN, [b"1", b"2", b"ours", b"4"])
    await runtime.append(OTHER, [b"a"])
    async with hub.serving() as port, runtime.linked(port):
        assert await runtime.until_quarantined(RUN) == "HISTORY_DIVERGED"
        await runtime.until_synced(OTHER, 1)
        await runtime.append(RUN, [b"5"])
        await runtime.append(OTHER, [b"b"])
        await runtime.until_synced(OTHER, 2)
    state = await runtime.state(RUN)
    assert (state.acknowledged_sequence, state.last_sequence) == (2, 5)
    assert hub.payloads(RUN) == [b"1", b"2", b"theirs"]


async def test_a_run_that_was_continued_by_a_clone_is_quarantined_while_it_is_pushed(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 1)
        hub.put(RUN, [b"theirs"])
        await runtime.append(RUN, [b"ours"])
        assert await runtime.until_quarantined(RUN) == "SEQUENCE_REUSED"
    assert (await runtime.state(RUN)).acknowledged_sequence == 1
    assert hub.payloads(RUN) == [b"1", b"theirs"]


async def test_a_released_run_is_reconciled_and_pushed_without_a_new_connection(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.foreign_projects.add("p")
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        assert await runtime.until_quarantined(RUN) == "PROJECT_MISMATCH"
        hub.foreign_projects.clear()
        await asyncio.wrap_future(runtime.log.call(lambda log: log.release(RUN)))
        link.run_released(RUN)
        await runtime.until_synced(RUN, 1)
    assert hub.payloads(RUN) == [b"1"]


async def test_a_run_that_the_hub_finds_invalid_is_quarantined_and_the_others_go_on(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.push_refusals[RUN] = refusal_status(
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", projectId=RUN.project_id, runId=RUN.run_id
    )
    await runtime.append(RUN, [b"1"])
    await runtime.append(OTHER, [b"a"])
    async with hub.serving() as port, runtime.linked(port):
        assert await runtime.until_quarantined(RUN) == "INVALID_REQUEST"
        await runtime.until_synced(OTHER, 1)
    assert hub.payloads(RUN) == []
    assert (await runtime.state(RUN)).acknowledged_sequence == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "STORAGE_UNAVAILABLE"),
        (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
        (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_EXPIRED"),
        (grpc.StatusCode.INTERNAL, ""),
    ],
)
async def test_a_refusal_that_passes_is_tried_again(
    runtime: Runtime, hub: WireHub, code: grpc.StatusCode, reason: str
) -> None:
    hub.push_refusals[RUN] = refusal_status(code, reason)
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 1)
    assert hub.payloads(RUN) == [b"1"]
    assert hub.counts["push_streams"] == 2


async def test_a_forbidden_project_waits_and_the_others_go_on(runtime: Runtime, hub: WireHub) -> None:
    hub.forbidden_projects.add("q")
    forbidden = RunKey("q", "n1")
    await runtime.append(forbidden, [b"1"])
    await runtime.append(RUN, [b"a"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 1)
        await runtime.append(forbidden, [b"2"])
        await runtime.append(RUN, [b"b"])
        await runtime.until_synced(RUN, 2)
    state = await runtime.state(forbidden)
    assert (state.acknowledged_sequence, state.quarantine) == (0, None)
    assert hub.payloads(forbidden) == []


async def test_a_duplicated_instance_begins_anew_with_a_fresh_one_while_appends_go_on(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.refused_instances.add("i1")
    async with hub.serving() as port, runtime.linked(port) as link:
        await eventually(lambda: link.status().state is HubLinkState.DUPLICATED)
        assert "another agent with this runtime id" in link.status().detail
        await runtime.append(RUN, [b"1"])
        await runtime.until_synced(RUN, 1)
        assert link.status().instance_id == "i2"
    assert hub.instances == ["i1", "i2"]


async def test_the_runtime_is_heard_and_says_goodbye(runtime: Runtime, hub: WireHub) -> None:
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port:
        presence = Presence(
            (HubAddress("127.0.0.1", port),),
            identity=IDENTITY,
            instance=runtime.instance,
            machine=Machine("host", 7, "1.0", {"k": "v"}),
            log=runtime.log,
            surroundings=runtime.surroundings,
            listeners=PresenceListeners(on_lost=lambda: None, on_drain=lambda _: None),
        )
        task = asyncio.create_task(presence.run())
        await eventually(lambda: len(hub.heartbeats) >= 2)
        await runtime.append(OTHER, [b"a"])
        await eventually(lambda: bool(hub.heartbeats[-1].active_runs))
        await presence.say_goodbye(5.0)
        await task
    first, last = hub.heartbeats[0], hub.heartbeats[-1]
    assert (first.hub_project, first.runtime_id, first.instance_id) == ("hp", "r1", "i1")
    assert (first.host, first.pid, first.version, dict(first.labels)) == ("host", 7, "1.0", {"k": "v"})
    assert (first.unsynced_event_count, list(first.active_runs), first.is_goodbye) == (1, [], False)
    assert [run.run_id for run in last.active_runs] == ["n2"]
    assert (last.unsynced_event_count, last.is_goodbye) == (2, True)


async def test_presence_comes_back_after_the_hub_was_away(runtime: Runtime, hub: WireHub) -> None:
    lost = asyncio.Event()
    async with hub.serving() as port:
        presence = Presence(
            (HubAddress("127.0.0.1", port),),
            identity=IDENTITY,
            instance=runtime.instance,
            machine=Machine("host", 7, "1.0", {}),
            log=runtime.log,
            surroundings=runtime.surroundings,
            listeners=PresenceListeners(on_lost=lost.set, on_drain=lambda _: None),
        )
        task = asyncio.create_task(presence.run())
        await eventually(lambda: bool(hub.heartbeats))
    await lost.wait()
    hub.heartbeats.clear()
    async with hub.serving(port):
        await eventually(lambda: bool(hub.heartbeats))
        await presence.say_goodbye(5.0)
        await task


async def test_an_acknowledgement_that_the_log_knows_is_not_asked_for_again(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 1)
    batches = hub.counts["batches"]
    async with hub.serving() as port, runtime.linked(port):
        await runtime.append(OTHER, [b"a"])
        await runtime.until_synced(OTHER, 1)
    assert hub.counts["batches"] == batches + 1


async def test_a_log_that_was_told_more_than_the_hub_has_goes_back_without_quarantine(
    runtime: Runtime, hub: WireHub
) -> None:
    await runtime.append(RUN, [b"1", b"2", b"3"])
    async with hub.serving() as port, runtime.linked(port):
        await runtime.until_synced(RUN, 3)
        del hub.runs[RUN][1:]
        await runtime.append(RUN, [b"4"])
        await eventually(lambda: hub.payloads(RUN) == [b"1", b"2", b"3", b"4"])
        await runtime.until_synced(RUN, 4)
    assert (await runtime.state(RUN)).quarantine is None


async def test_a_dropped_run_is_forgotten(runtime: Runtime, hub: WireHub) -> None:
    hub.foreign_projects.add("p")
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        await runtime.until_quarantined(RUN)
        await asyncio.wrap_future(runtime.log.call(lambda log: log.drop(RUN)))
        link.run_dropped(RUN)
        hub.foreign_projects.clear()
        await runtime.append(RUN, [b"new"])
        await runtime.until_synced(RUN, 1)
    assert hub.payloads(RUN) == [b"new"]
