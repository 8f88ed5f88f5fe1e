"""Delivering outbox messages in programs that block; ``async_outbox.py`` is the twin for event loops.

::

    with hub.outbox("mail") as outbox:
        for message in outbox:
            with message:
                send(message.payload, idempotency_key=message.outbox_id)

What is promised is said there: at least once, so that receivers must know a message by its ``outbox_id``.
Messages may be handed to other threads, each with its own ``with message``.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from runtime_agent import limits
from runtime_agent.hub_client.journal_values import OutboxMessage, OutboxOutcome, ReturnedMessage
from runtime_agent.hub_client.lease_steps import run_steps
from runtime_agent.hub_client.outbox_core import HeldMessage, OutboxCore
from runtime_agent.hub_client.outgoing import Outgoing


class OutgoingMessage(Outgoing):
    """A claimed message, to be handled in ``with`` or answered by a call."""

    def __init__(
        self, core: OutboxCore, held: HeldMessage, *, on_answer: Callable[[OutboxMessage], None]
    ) -> None:
        super().__init__(core, held)
        self._on_answer = on_answer

    def acknowledge(self) -> OutboxOutcome:
        """Say that it was delivered; DONE and ALREADY_DELIVERED mean that the hub has it so.

        Raises: HubCallError where no hub hears it as long as the message is hidden.
        """
        try:
            return run_steps(self._core.acknowledge(self._held), self._core.channel)
        finally:
            self._on_answer(self.message)

    def retry(self, delay_seconds: float | None = None) -> ReturnedMessage:
        """Give it back, to be tried again after a delay, at most a day; by default one that grows.

        Raises: HubCallError where no hub hears it as long as the message is hidden.
        """
        try:
            return run_steps(self._core.retry(self._held, delay_seconds), self._core.channel)
        finally:
            self._on_answer(self.message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            return run_steps(self._core.handled(self._held, error), self._core.channel)
        finally:
            self._core.abandon(self._held)
            self._on_answer(self.message)


class Outbox:
    """Messages of one destination, without end; made by ``HubClient.outbox``. One thread iterates it."""

    def __init__(self, core: OutboxCore) -> None:
        self._core = core
        self._answered = threading.Event()
        self._woken = threading.Event()
        self._closed = threading.Event()
        self._claiming = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> OutgoingMessage:
        """Return the next message, waiting for it.

        Raises: HubCallError where the hub refuses to give messages.
        """
        while not self._closed.is_set():
            held = self._core.take()
            if held is not None:
                return OutgoingMessage(self._core, held, on_answer=self._note_answer)
            if self._core.is_full:
                self._answered.clear()
                if self._core.is_full:
                    self._answered.wait()
                continue
            self._woken.clear()
            if self._closed.is_set():
                break
            with self._claiming:
                wait_seconds = run_steps(self._core.claim(), self._core.channel)
            if wait_seconds > 0:
                self._woken.wait(wait_seconds)
        raise StopIteration

    def close(self) -> None:
        """Hand out nothing more, and give back what is claimed and not answered. Idempotent.

        May be called from any thread, and ends the iteration. What is still being handled then goes to
        others too: end that before.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._woken.set()
        run_steps(self._core.leave(), self._core.channel)
        self._answered.set()
        # What is being claimed at this moment is given back by the thread that claims it.
        if self._claiming.acquire(timeout=limits.OUTBOX_LEAVE_SECONDS_MAX):
            self._claiming.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _note_answer(self, message: OutboxMessage) -> None:
        self._answered.set()
        if message.ordering_key:
            # The next one of that key may be available now.
            self._woken.set()
