"""Turns: one query at a time on a topic, on an event loop.

Run it: ``python docs/examples/turn_lease.py 127.0.0.1:7443`` beside a running ``synchub serve``.
"""

import asyncio
import sys

from runtime_agent.core.lease import AbortReason
from runtime_agent.core.lease_errors import LeaseError, LeaseHeld, LeaseLost, QueryHasTopic
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.async_lease import AwaitedHeld
from runtime_agent.hub_client.errors import HubCallError

TTL_SECONDS = 2.0


async def until_asked_to_stop(turn: AwaitedHeld) -> None:
    """Answer the query piece by piece, until it is done, aborted or lost (here: never done)."""
    while not turn.abort_requested:
        turn.check()
        await asyncio.sleep(0.05)


async def answer(hub: AsyncHubClient) -> None:
    """Take turns on a topic."""
    async with hub.turn(
        "roses", query_id="q-1", origin="web", owner="anna", ttl_seconds=TTL_SECONDS
    ) as first:
        print(f"query q-1 has the topic roses, token {first.fencing_token}")
        try:
            await hub.turn("roses", query_id="q-2", origin="mail", owner="bert").acquire()
        except LeaseHeld as held:
            print(f"bert's q-2 is refused: held by {held.holder_display_name}")
        try:
            await hub.turn("lilies", query_id="q-1", origin="web", owner="anna").acquire()
        except QueryHasTopic as refused:
            print(f"q-1 on lilies is refused: it holds {refused.topic}")
        await hub.abort_turn("roses", query_id="q-1", reason=AbortReason.EXTERNAL)
        await until_asked_to_stop(first)
        print(f"q-1 is asked to stop: {first.abort_reason.name if first.abort_reason else ''}")
        # The same owner may always begin anew: the new query has a tenure of its own.
        async with hub.turn("roses", query_id="q-3", origin="web", owner="anna") as second:
            print(f"anna's q-3 has it now, token {second.fencing_token}, abort: {second.abort_requested}")
            try:
                while True:
                    first.check()
                    await asyncio.sleep(0.05)
            except LeaseLost as lost:
                print(f"q-1 is told: {lost.reason.name}")


async def main() -> None:
    """Take turns, and explain what went wrong."""
    async with await AsyncHubClient.connect(sys.argv[1], hub_project="home") as hub:
        try:
            await answer(hub)
        except (LeaseError, HubCallError) as error:
            sys.exit(error.sentence)


if __name__ == "__main__":
    asyncio.run(main())
