"""Delivering outbox messages on an event loop; ``outbox.py`` is the twin for programs that block.

::

    async with hub.outbox("mail") as outbox:
        async for message in outbox:
            async with message:
                await send(message.payload, idempotency_key=message.outbox_id)

**At least once.** A block that ends gets its message acknowledged; one that raises gives it back, to be
tried again after a while that grows with its tries, and the loop goes on: the error is told to
``on_failure``, by default the interpreter's hook for errors that nobody caught. A program that dies, or an
acknowledgement that no hub heard, lets the message come again when its visibility time is over. So the
receiver must take a message a second time without harm: the ``outbox_id`` is the same each time. After the
hub's number of tries (10) a message is dead, and stays until somebody releases it.

A message is hidden from other dispatchers for the visibility time. A block that takes longer is not
stopped: another dispatcher may get the message meanwhile, and the late answer changes nothing.
``message.seconds_left`` says how long is left.

Messages may be handed to tasks, each with its own ``async with message``: ``in_flight_max`` bounds how many
are out at once. One that is neither acknowledged nor given back counts until the dispatcher is closed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from runtime_agent import limits
from runtime_agent.hub_client.journal_values import OutboxMessage, OutboxOutcome, ReturnedMessage
from runtime_agent.hub_client.lease_steps import run_steps_async
from runtime_agent.hub_client.outbox_core import HeldMessage, OutboxCore
from runtime_agent.hub_client.outgoing import Outgoing


class AsyncOutgoingMessage(Outgoing):
    """A claimed message, to be handled in ``async with`` or answered by a call."""

    def __init__(
        self, core: OutboxCore, held: HeldMessage, *, on_answer: Callable[[OutboxMessage], None]
    ) -> None:
        super().__init__(core, held)
        self._on_answer = on_answer

    async def acknowledge(self) -> OutboxOutcome:
        """Say that it was delivered; DONE and ALREADY_DELIVERED mean that the hub has it so.

        Raises: HubCallError where no hub hears it as long as the message is hidden.
        """
        try:
            return await run_steps_async(self._core.acknowledge(self._held), self._core.channel)
        finally:
            self._on_answer(self.message)

    async def retry(self, delay_seconds: float | None = None) -> ReturnedMessage:
        """Give it back, to be tried again after a delay, at most a day; by default one that grows.

        Raises: HubCallError where no hub hears it as long as the message is hidden.
        """
        try:
            return await run_steps_async(self._core.retry(self._held, delay_seconds), self._core.channel)
        finally:
            self._on_answer(self.message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            return await run_steps_async(self._core.handled(self._held, error), self._core.channel)
        finally:
            # Also where this task is cancelled while it answers.
            self._core.abandon(self._held)
            self._on_answer(self.message)


class AsyncOutbox:
    """Messages of one destination, without end; made by ``AsyncHubClient.outbox``. One task iterates it."""

    def __init__(self, core: OutboxCore) -> None:
        self._core = core
        self._answered = asyncio.Event()
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()
        self._claiming: asyncio.Task[float] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncOutgoingMessage:
        """Return the next message, waiting for it; an iteration that is cancelled loses none.

        Raises: HubCallError where the hub refuses to give messages.
        """
        while not self._closed.is_set():
            held = self._core.take()
            if held is not None:
                return AsyncOutgoingMessage(self._core, held, on_answer=self._note_answer)
            if self._core.is_full:
                self._answered.clear()
                if self._core.is_full:
                    await self._answered.wait()
                continue
            self._woken.clear()
            wait_seconds = await self._claim()
            if wait_seconds > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._woken.wait()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Hand out nothing more, and give back what is claimed and not answered. Idempotent.

        What is still being handled then goes to others too: end its tasks before.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._answered.set()
        self._woken.set()
        await run_steps_async(self._core.leave(), self._core.channel)
        claiming = self._claiming
        if claiming is not None:
            # What it is given is given back by itself, unless no hub answers for too long.
            await asyncio.wait([claiming], timeout=limits.OUTBOX_LEAVE_SECONDS_MAX)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _note_answer(self, message: OutboxMessage) -> None:
        self._answered.set()
        if message.ordering_key:
            # The next one of that key may be available now.
            self._woken.set()

    async def _claim(self) -> float:
        """Claim; where the iteration is cancelled meanwhile, the next one waits for the same claim."""
        if self._claiming is None:
            self._claiming = asyncio.create_task(run_steps_async(self._core.claim(), self._core.channel))
        await asyncio.wait([self._claiming])
        claiming, self._claiming = self._claiming, None
        # Only closing cancels it, and then nothing is waited for.
        return 0.0 if claiming.cancelled() else claiming.result()
