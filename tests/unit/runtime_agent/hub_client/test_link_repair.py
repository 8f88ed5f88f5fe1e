"""The link where the log and the hub differ: losses, restores and forks are repaired or quarantined."""

import asyncio
import time

from runtime_agent.core.values import (
    HubLinkState,
)
from tests.unit.runtime_agent.hub_client.link_runtime import (
    OTHER,
    RUN,
    Runtime,
    eventually,
)
from tests.unit.runtime_agent.hub_client.wire_hub import WireHub


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
