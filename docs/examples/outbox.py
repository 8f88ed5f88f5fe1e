"""Letters that have to be sent because of what was committed: none is lost, and a repeated one is known.

Run it: ``python docs/examples/outbox.py 127.0.0.1:7443`` beside a running ``synchub serve``.

The letters are committed with the event that they are about, all or none. A dispatcher sends them, at least
once each; the second one fails at its first try. The receiver knows a letter by its id.
"""

import asyncio
import sys
from uuid import uuid4

from runtime_agent.core.lease_errors import LeaseError
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import NewJournalEvent, NewOutboxMessage, OutboxMessage

LETTERS = ["seeds", "tools", "bill"]


class PostOffice:
    """Takes letters; a letter that comes again is taken once. It is closed when the first ``tools`` come."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._is_closed = True

    async def take(self, letter: str, *, letter_id: str) -> None:
        """Take a letter, unless it was taken before."""
        if letter == "tools" and self._is_closed:
            self._is_closed = False
            raise ConnectionError("the post office is closed")
        if letter_id not in self._taken:
            self._taken.add(letter_id)
            print(f"taken: {letter}")


async def order(hub: AsyncHubClient, order_id: str) -> None:
    """Commit an order with the letters that follow from it."""
    stream = f"orders/{order_id}"
    async with hub.lease(stream, wait_seconds=10) as lease:
        await hub.commit(
            f"place {order_id}",
            stream,
            lease=lease,
            expected_revision=0,
            events=[NewJournalEvent(order_id, "order.placed")],
            outbox_messages=[
                # Letters with the same ordering key would wait for the one before them.
                NewOutboxMessage(f"{order_id} {letter}", f"post for {order_id}", letter.encode())
                for letter in LETTERS
            ],
        )


def tell(message: OutboxMessage, error: Exception) -> None:
    """Say that a letter comes again later; called for each block that raises."""
    print(f"failed: {message.payload.decode()} ({error})")


async def send_letters(hub: AsyncHubClient, order_id: str) -> None:
    """Send what is to be sent; a real dispatcher would go on for ever."""
    post_office = PostOffice()
    sent_count = 0
    # A destination of its own, so that this example disturbs no other.
    async with hub.outbox(f"post for {order_id}", on_failure=tell) as outbox:
        async for message in outbox:
            async with message:
                await post_office.take(message.payload.decode(), letter_id=message.outbox_id)
                sent_count += 1
            if sent_count == len(LETTERS):
                return


async def main() -> None:
    """Order and send, and explain what went wrong."""
    order_id = uuid4().hex
    async with await AsyncHubClient.connect(sys.argv[1], hub_project="home") as hub:
        try:
            await order(hub, order_id)
            await send_letters(hub, order_id)
            waiting = [each.outbox_id async for each in hub.list_outbox(destination=f"post for {order_id}")]
            print(f"still to be sent: {len(waiting)}")
        except (LeaseError, HubCallError) as error:
            sys.exit(error.sentence)


if __name__ == "__main__":
    asyncio.run(main())
