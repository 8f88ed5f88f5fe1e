"""Short ways to commit outbox messages, and to see what became of them."""

import asyncio
from collections.abc import Callable

from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.journal_values import (
    NewOutboxMessage,
    OutboxMessage,
    OutboxState,
)
from runtime_agent.hub_client.lease import Lease
from tests.contract.holding import until


class Sender:
    """Commits messages, each with the next number as its id."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._lease: Lease = hub.lease("s", ttl_seconds=600).acquire()
        self.count = 0

    def send(self, count: int = 1, *, ordering_key: str = "") -> None:
        names = [str(self.count + n + 1) for n in range(count)]
        self.count += count
        messages = [
            NewOutboxMessage(each, "mail", each.encode(), ordering_key=ordering_key) for each in names
        ]
        self._hub.commit(
            f"m{self.count}", "s", lease=self._lease, expected_revision=0, outbox_messages=messages
        )


class Failures:
    """What ``on_failure`` was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, message: OutboxMessage, error: Exception) -> None:
        self.told.append((message.outbox_id, type(error).__name__))


def states(hub: HubClient) -> dict[str, OutboxState]:
    """Where each message stands that was not delivered."""
    return {each.outbox_id: each.state for each in hub.list_outbox()}


def delivered(hub: HubClient) -> list[str]:
    return [each.outbox_id for each in hub.list_outbox(state=OutboxState.DELIVERED)]


async def until_settled(condition: Callable[[], bool]) -> None:
    """Wait for what threads and the hub do, beside a running loop."""
    await asyncio.to_thread(until, condition)
