"""Holders of leases whose clock a test can move, and short ways to wait for what threads do."""

import threading
import time
from collections.abc import Callable
from typing import Final

from runtime_agent.core.lease_errors import LeaseLost
from runtime_agent.hub_client.lease import Lease
from runtime_agent.hub_client.lease_channel import LeaseChannel
from runtime_agent.hub_client.lease_core import LeasePlace
from runtime_agent.hub_client.lease_keeper import LeaseSurroundings, suspension_counting_seconds
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_values import LeaseWish
from runtime_agent.hub_client.turn_lease import Turn, TurnCore
from synchub.channel import parse_addresses

SECONDS_MAX: Final = 20.0
LOOK_SECONDS: Final = 0.02


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread or the hub does."""
    give_up_at = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(LOOK_SECONDS)


class JumpingClock:
    """A clock that counts suspension, on a machine that sleeps when the test says so."""

    def __init__(self) -> None:
        self.slept_seconds = 0.0

    def __call__(self) -> float:
        return suspension_counting_seconds() + self.slept_seconds


class Losses:
    """What ``on_lost`` was told, and on which threads."""

    def __init__(self) -> None:
        self.told: list[LeaseLost] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, lost: LeaseLost) -> None:
        self.told.append(lost)
        self.threads.append(threading.current_thread())


class Holding:
    """Makes leases of one resource on a channel of its own, with a clock of its own."""

    def __init__(self, address: str, hub_project: str, clock: Callable[[], float] | None = None) -> None:
        self.channel = LeaseChannel(parse_addresses(address))
        self._place = LeasePlace(
            self.channel, hub_project, LeaseSurroundings(clock=clock or suspension_counting_seconds)
        )

    def core(
        self, holder_id: str = "a", *, ttl_seconds: float = 10.0, wait_seconds: float = 0.0
    ) -> LeaseCore:
        wish = LeaseWish("r", "runtime", holder_id, "", ttl_seconds=ttl_seconds)
        return LeaseCore(self._place, wish, wait_seconds=wait_seconds)

    def lease(
        self,
        holder_id: str = "a",
        *,
        ttl_seconds: float = 10.0,
        wait_seconds: float = 0.0,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> Lease:
        return Lease(self.core(holder_id, ttl_seconds=ttl_seconds, wait_seconds=wait_seconds), on_lost)

    def turn(self, topic: str, *, query_id: str, on_lost: Callable[[LeaseLost], None]) -> Turn:
        core = TurnCore(
            self._place,
            LeaseWish("", "runtime", "a", "", ttl_seconds=10.0),
            topic=topic,
            query_id=query_id,
            origin="test",
            wait_seconds=0.0,
            margin_seconds=0.5,
        )
        return Turn(core, on_lost)


class InBackground:
    """Runs something that blocks; ``result`` waits for it and returns or raises what it did."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits for it
            self._error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> None:
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "it did not end in time"
        if self._error is not None:
            raise self._error
