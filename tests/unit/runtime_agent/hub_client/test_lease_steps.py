"""How a call is sent again: with growing waits, and as late as a hub that counts requests asks for."""

import grpc
import pytest

from runtime_agent import limits
from runtime_agent.core.backoff import Backoff
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import Call, unary
from runtime_agent.hub_client.lease_steps import Pause, asked_wait_seconds, repeat
from synchub.channel import Refusal
from synchub.v1.hub_service_pb2 import GetHubInfoRequest, GetHubInfoResponse

SECONDS_MAX = 30.0


def limited(seconds: float | None) -> HubCallError:
    """A refusal of a hub that counts requests."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return HubCallError(Refusal(code, "slowly", "RATE_LIMITED", retry_delay_seconds=seconds))


def call(timeout_seconds: float) -> Call:
    return unary(lambda on: on.hub.GetHubInfo, GetHubInfoRequest(), timeout_seconds=timeout_seconds)


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_call_that_a_hub_refuses_for_now_waits_as_long_as_that_asks() -> None:
    clock = Clock()
    steps = repeat(call, seconds_max=SECONDS_MAX, backoff=Backoff(0.1, 1.0, lambda: 0.5), clock=clock)
    assert isinstance(next(steps), Call)
    assert steps.throw(limited(7.0)) == Pause(7.0)
    clock.seconds += 7.0
    assert isinstance(next(steps), Call)
    assert steps.throw(limited(None)) == Pause(0.1)
    assert isinstance(next(steps), Call)
    with pytest.raises(StopIteration) as ended:
        steps.send(GetHubInfoResponse(version="1"))
    assert ended.value.value.version == "1"


def test_a_call_that_would_be_answered_too_late_is_not_waited_for() -> None:
    clock = Clock()
    steps = repeat(call, seconds_max=SECONDS_MAX, backoff=Backoff(0.1, 1.0, lambda: 0.5), clock=clock)
    next(steps)
    clock.seconds += 1.0
    with pytest.raises(HubCallError) as caught:
        steps.throw(limited(SECONDS_MAX))
    assert caught.value.reason == "RATE_LIMITED"


def test_what_a_hub_asks_for_is_bounded() -> None:
    assert asked_wait_seconds(limited(1e9)) == limits.RETRY_DELAY_SECONDS_MAX
    assert asked_wait_seconds(limited(None)) == 0.0
