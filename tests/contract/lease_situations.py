"""The situations that a resource may be in, each made by real calls, for the table of refusals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import grpc

from synchub.channel import Refusal, refusal_from_status
from synchub.v1 import lease_service_pb2 as messages
from tests.contract.conversation import Conversation
from tests.contract.hub_time import HandClock
from tests.contract.lease_calls import LeaseCalls
from tests.contract.leasing import nonce

TTL: Final = 10.0
MAINTENANCE_TTL: Final = 30.0


@dataclass
class World:
    """A resource in some situation, and what was used before."""

    calls: LeaseCalls
    clock: HandClock
    shown: messages.LeaseCredential = field(
        default_factory=lambda: messages.LeaseCredential(
            resource="r", runtime_id="runtime", holder_id="a", fencing_token=1, nonce=nonce("a1")
        )
    )


def never(_world: World) -> None:
    """Nobody ever held it."""


def held(world: World) -> None:
    world.shown = world.calls.acquire().credential


def wrong_nonce(world: World) -> None:
    held(world)
    world.shown.nonce = nonce("nobody")


def released(world: World) -> None:
    held(world)
    world.calls.release(world.shown)


def restarted(world: World) -> None:
    held(world)
    world.calls.acquire("a", "a2")


def expired(world: World) -> None:
    held(world)
    world.clock.pass_time(TTL)


def taken_over(world: World) -> None:
    expired(world)
    world.calls.takeover()


def handed_on(world: World) -> None:
    held(world)
    world.calls.transfer(world.shown)


def fenced(world: World) -> None:
    held(world)
    world.calls.begin()


def fenced_and_followed(world: World) -> None:
    held(world)
    world.calls.finish(world.calls.begin().credential)
    world.calls.acquire("b", "b1")


def maintained(world: World) -> None:
    world.shown = world.calls.begin().credential


def maintenance_expired(world: World) -> None:
    maintained(world)
    world.clock.pass_time(MAINTENANCE_TTL)


def maintenance_finished(world: World) -> None:
    maintained(world)
    world.calls.finish(world.shown)


def maintenance_followed(world: World) -> None:
    maintenance_finished(world)
    world.calls.acquire("b", "b1")


SITUATIONS: Final[dict[str, Callable[[World], None]]] = {
    situation.__name__: situation
    for situation in (
        never,
        held,
        wrong_nonce,
        released,
        restarted,
        expired,
        taken_over,
        handed_on,
        fenced,
        fenced_and_followed,
        maintained,
        maintenance_expired,
        maintenance_finished,
        maintenance_followed,
    )
}


def renew_on_stream(world: World) -> None:
    request = messages.RenewLeasesRequest(hub_project=world.calls.hub_project)
    request.renewals.add(credential=world.shown)
    with Conversation(world.calls.stub.RenewLeases) as stream:
        (result,) = stream.ask(request).results
    if result.HasField("refusal"):
        raise InBand(refusal_from_status(result.refusal))


def check(world: World) -> None:
    answer = world.calls.check(world.shown.fencing_token, world.shown.nonce)
    if not answer.is_current:
        cause = messages.StaleCause.Name(answer.reason).removeprefix("STALE_CAUSE_")
        raise InBand(Refusal(grpc.StatusCode.OK, "", cause))
    assert answer.reason == messages.STALE_CAUSE_UNSPECIFIED


class InBand(Exception):
    """A refusal that is an answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
