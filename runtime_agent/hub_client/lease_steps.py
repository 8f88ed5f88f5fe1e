"""What to send, one step after the other, written once for callers that block and for event loops.

A procedure is a generator: it yields a ``Call`` and gets the answer, or has the ``HubCallError`` raised
where it yielded; or it yields a ``Pause``. ``run_steps`` blocks meanwhile, ``run_steps_async`` awaits.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.core.lease import is_worth_repeating
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import Call, ClientClosed, LeaseChannel
from synchub.channel import UNARY_SECONDS_MAX

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pause:
    """Go on after so many seconds."""

    seconds: float


Steps: TypeAlias = Generator[Call | Pause, Message | None, Result]


def ask(call: Call, answer_type: type[Answer]) -> Steps[Answer]:
    """Send one call and return its answer."""
    answer = yield call
    assert isinstance(answer, answer_type)
    return answer


def repeat(
    call: Callable[[float], Call], *, seconds_max: float, backoff: Backoff, clock: Callable[[], float]
) -> Steps[Message]:
    """Send a repeatable call until it is answered, at least once.

    ``call`` is given how long it may take, ``clock`` are seconds that only rise.

    Raises: HubCallError, the last one.
    """
    over_at = clock() + seconds_max
    left_seconds = seconds_max
    while True:
        try:
            answer = yield call(min(UNARY_SECONDS_MAX, left_seconds))
        except HubCallError as error:
            asked_seconds = asked_wait_seconds(error)
            wait_seconds = max(backoff.next_wait_seconds(), asked_seconds)
            # A hub that asks for more time than is left would not answer before it is over.
            if not may_repeat(error) or asked_seconds > over_at - clock():
                raise
            yield Pause(wait_seconds)
            left_seconds = over_at - clock()
            if left_seconds <= 0:
                raise
        else:
            assert answer is not None
            return answer


def may_repeat(error: HubCallError) -> bool:
    """Say whether a call that failed so may succeed by being sent again."""
    is_closed = isinstance(error, ClientClosed)
    return not is_closed and is_worth_repeating(error.reason, error.refusal.code.name)


def asked_wait_seconds(error: HubCallError) -> float:
    """Return how long a hub that counts requests asks to wait, 0 where it does not."""
    return min(error.refusal.retry_delay_seconds or 0.0, limits.RETRY_DELAY_SECONDS_MAX)


def run_steps(steps: Steps[Result], channel: LeaseChannel) -> Result:
    """Do the steps in this thread and return what they return. Raises what they raise."""
    with closing(steps):
        walk = _Walk(steps)
        while (step := walk.next_step()) is not None:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                continue
            try:
                walk.answer = channel.call(step)
            except HubCallError as error:
                walk.failure = error
    return walk.result


async def run_steps_async(steps: Steps[Result], channel: LeaseChannel) -> Result:
    """Do the steps without blocking the loop. A task that is cancelled cancels the call."""
    with closing(steps):
        walk = _Walk(steps)
        while (step := walk.next_step()) is not None:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                walk.answer = await _answered(step, channel)
            except HubCallError as error:
                walk.failure = error
    return walk.result


class _Walk(Generic[Result]):
    """Steps on their way: give each one its answer or its failure."""

    def __init__(self, steps: Steps[Result]) -> None:
        self._steps = steps
        self._results: list[Result] = []
        self.answer: Message | None = None
        self.failure: HubCallError | None = None

    def next_step(self) -> Call | Pause | None:
        """Return the next step; None after the last."""
        answer, failure = self.answer, self.failure
        self.answer = self.failure = None
        try:
            return self._steps.send(answer) if failure is None else self._steps.throw(failure)
        except StopIteration as end:
            self._results.append(end.value)
            return None

    @property
    def result(self) -> Result:
        """Return what the steps returned."""
        return self._results[0]


async def _answered(call: Call, channel: LeaseChannel) -> Message:
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def wake(_: "grpc.Future[Message]") -> None:
        try:
            loop.call_soon_threadsafe(is_done.set)
        except RuntimeError:
            pass  # the loop was closed meanwhile: nobody waits any more

    if not channel.is_ready:
        await asyncio.to_thread(channel.prepare)
    with channel.lent() as stubs:
        future = call.begin(stubs)
        future.add_done_callback(wake)
        try:
            await is_done.wait()
        except asyncio.CancelledError:
            if not future.cancel() and call.undo is not None and future.exception() is None:
                # It was answered in the very moment in which the caller left.
                channel.send_unheeded(call.undo(future.result()))
            raise
        return future.result()
