"""A dispatcher that says what it gets and what becomes of it; ``-m`` runs it.

Usage: python -m tests.robustness.dispatching HUB NAME
"""

import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass
from typing import Final

from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.async_outbox import AsyncOutgoingMessage
from runtime_agent.hub_client.journal_values import OutboxMessage
from runtime_agent.hub_client.lease_keeper import suspension_counting_seconds
from tests.robustness.client_load import DESTINATION, say
from tests.robustness.programs import HUB_PROJECT

VISIBILITY_SECONDS: Final = 0.8
IN_FLIGHT_MAX: Final = 4
HANDLING_SECONDS: Final = 0.05
LATE_SHARE: Final = 0.02
"""So many blocks outlast the visibility time."""
FAILED_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Handling:
    """One try of a message, as its dispatcher saw it.

    ``hidden_until`` is up to when nobody else may have got it at least, ``answered_at`` the moment before
    its answer was sent; both and ``begun_at`` on the clock that all processes of a machine share. The
    outcome is "" where no hub was heard.
    """

    name: str
    outbox_id: str
    attempt_count: int
    begun_at: float
    hidden_until: float
    answered_at: float
    has_failed: bool
    outcome: str


def handlings_in(text: str) -> list[Handling]:
    """Read back what was said; a line that a kill cut off is left out."""
    lines = text.split("\n")[:-1]
    return [Handling(**json.loads(line)) for line in lines if line.startswith("{")]


def ignore(_: OutboxMessage, __: Exception) -> None:
    """Failures are part of the test."""


async def handle(name: str, message: AsyncOutgoingMessage) -> None:
    """Take some time about a message, fail now and then, and say what became of it."""
    begun_at = suspension_counting_seconds()
    hidden_until = begun_at + message.seconds_left
    has_failed = random.random() < FAILED_SHARE
    async with message:
        is_late = random.random() < LATE_SHARE
        await asyncio.sleep(random.random() * HANDLING_SECONDS + (2 * VISIBILITY_SECONDS if is_late else 0))
        answered_at = suspension_counting_seconds()
        if has_failed:
            raise ConnectionError
    handling = Handling(
        name=name,
        outbox_id=message.outbox_id,
        attempt_count=message.attempt_count,
        begun_at=begun_at,
        hidden_until=hidden_until,
        answered_at=answered_at,
        has_failed=has_failed,
        outcome="" if message.outcome is None else message.outcome.value,
    )
    say(json.dumps(asdict(handling)))


async def dispatch(address: str, name: str) -> None:
    """Deliver until killed."""
    async with (
        await AsyncHubClient.connect(address, hub_project=HUB_PROJECT) as hub,
        hub.outbox(
            DESTINATION,
            visibility_seconds=VISIBILITY_SECONDS,
            in_flight_max=IN_FLIGHT_MAX,
            retry_seconds_first=0.05,
            retry_seconds_max=0.2,
            on_failure=ignore,
        ) as outbox,
        asyncio.TaskGroup() as tasks,
    ):
        async for message in outbox:
            tasks.create_task(handle(name, message))


if __name__ == "__main__":
    asyncio.run(dispatch(*sys.argv[1:]))
