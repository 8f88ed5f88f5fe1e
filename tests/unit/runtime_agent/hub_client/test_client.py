"""The public clients where no hub answers; what they do with one is in the contract tests."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from runtime_agent.core.values import RunKey
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.stored_values import BatchToPush, EventToPush
from synchub.channel import AddressError

NOWHERE = "127.0.0.1:1"
RUN = RunKey("p", "r")
BATCH = BatchToPush(RUN, (EventToPush(1, "line", b"x"),))

CALLS: list[Callable[[HubClient], object]] = [
    lambda hub: hub.get_hub_info(),
    lambda hub: hub.get_run(RUN),
    lambda hub: hub.acknowledge_alert("a"),
    lambda hub: list(hub.list_runs(is_complete=False)),
    lambda hub: list(hub.list_events(RUN)),
    lambda hub: list(hub.list_runtimes()),
    lambda hub: list(hub.list_alerts()),
    lambda hub: list(hub.export_events()),
    lambda hub: list(hub.watch_events(from_now=True)),
    lambda hub: list(hub.push([BATCH], runtime_id="rt")),
]

STREAMS: list[Callable[[AsyncHubClient], AsyncIterator[object]]] = [
    lambda hub: hub.list_runs(),
    lambda hub: hub.list_events(RUN),
    lambda hub: hub.list_runtimes(),
    lambda hub: hub.list_alerts(),
    lambda hub: hub.export_events(),
    lambda hub: hub.watch_events(after_position=5, hub_generation="g"),
    lambda hub: hub.push([BATCH], runtime_id="rt"),
    lambda hub: hub.push(batches_that_come_later(), runtime_id="rt"),
]


async def batches_that_come_later() -> AsyncIterator[BatchToPush]:
    yield BATCH


@pytest.fixture
def client() -> Iterator[HubClient]:
    with HubClient.connect(NOWHERE, hub_project="h") as hub:
        yield hub


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_that_no_hub_can_be_reached(
    client: HubClient, call: Callable[[HubClient], object]
) -> None:
    with pytest.raises(HubCallError) as caught:
        call(client)
    assert caught.value.reason == ""
    assert caught.value.sentence.startswith(f"no hub can be reached at {NOWHERE} (")


@pytest.mark.parametrize("iterate", STREAMS)
async def test_every_iteration_on_a_loop_says_that_no_hub_can_be_reached(
    iterate: Callable[[AsyncHubClient], AsyncIterator[object]],
) -> None:
    async with await AsyncHubClient.connect(NOWHERE, hub_project="h") as hub:
        with pytest.raises(HubCallError) as caught:
            async for _ in iterate(hub):
                pass
    assert caught.value.reason == ""
    assert NOWHERE in caught.value.sentence


async def test_every_single_call_on_a_loop_says_that_no_hub_can_be_reached() -> None:
    async with await AsyncHubClient.connect(NOWHERE, hub_project="h") as hub:
        for call in (hub.get_hub_info(), hub.get_run(RUN), hub.acknowledge_alert("a")):
            with pytest.raises(HubCallError, match="no hub can be reached"):
                await call


def test_an_address_that_cannot_be_read_is_refused_before_any_call() -> None:
    with pytest.raises(AddressError):
        HubClient.connect("nowhere", hub_project="h")
