"""The link over real gRPC and a real log: whatever a hub does, the log and the hub come into step."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from runtime_agent.core.values import (
    HubLinkState,
    RunKey,
)
from runtime_agent.hub_client.link import PUSH_BOUNDS
from runtime_agent.hub_client.presence import Machine, Presence, PresenceListeners
from synchub.channel import HubAddress
from tests.unit.runtime_agent.hub_client.link_runtime import (
    IDENTITY,
    OTHER,
    RUN,
    Runtime,
    eventually,
)
from tests.unit.runtime_agent.hub_client.wire_hub import WireHub, refusal_status


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
