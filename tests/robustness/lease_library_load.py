"""Clients that use leases as a program does, by the client library, and hold what they say that they hold."""

import random
import threading
import time
from typing import Final

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.lease import Lease
from tests.robustness.lease_calls import HUB_PROJECT
from tests.robustness.lease_load import Surroundings

TTL_SECONDS: Final = (1.0, 2.0)
WAIT_SECONDS: Final = (0.0, 2.0, 4.0)
MARGIN_SECONDS: Final = 0.1
HOLD_SECONDS: Final = (0.05, 2.0)
CHECK_SECONDS: Final = 0.02
TRANSFER_CHANCE: Final = 0.3
"""That a lease is not released but handed to its own holder, which is a new tenure."""
REST_SECONDS_MAX: Final = 0.1


class LibraryClient(threading.Thread):
    """Holds leases, one after the other, until told to end."""

    def __init__(self, name: str, surroundings: Surroundings, *, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._all = surroundings
        self._rng = rng
        self.has_ended_well = False

    def run(self) -> None:
        with HubClient.connect(
            self._all.address, hub_project=HUB_PROJECT, runtime_id=f"runtime-{self.name}"
        ) as client:
            while not self._all.is_ending.is_set():
                lease = client.lease(
                    self._rng.choice(self._all.resources[:2]),
                    holder_id=self.name,
                    ttl_seconds=self._rng.choice(TTL_SECONDS),
                    wait_seconds=self._rng.choice(WAIT_SECONDS),
                    margin_seconds=MARGIN_SECONDS,
                )
                try:
                    self._hold(lease)
                except RuntimeAgentError:
                    pass  # held by another, lost, or no hub: what matters is recorded
                time.sleep(self._rng.uniform(0, REST_SECONDS_MAX))
        self.has_ended_well = True

    def _hold(self, lease: Lease) -> None:
        with lease:
            until = time.monotonic() + self._rng.uniform(*HOLD_SECONDS)
            while time.monotonic() < until and not self._all.is_ending.is_set():
                lease.check()
                time.sleep(CHECK_SECONDS)
            if self._rng.random() < TRANSFER_CHANCE:
                lease.transfer(self.name)
