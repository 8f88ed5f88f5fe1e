"""Programs that use the public client of the journal, on a hub that may die any time.

Committers are threads; what is to be killed or frozen is a process, started by ``ClientProgram``.
"""

import os
import random
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from runtime_agent.core.journal_errors import StaleLease
from runtime_agent.core.lease_errors import LeaseError
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import NewJournalEvent, NewOutboxMessage
from runtime_agent.hub_client.lease import Lease
from tests.robustness.programs import HUB_PROJECT, Program

ROOT: Final = Path(__file__).resolve().parents[2]
EVENTS_A_COMMIT_MAX: Final = 8
TTL_SECONDS: Final = 1.0
"""As short as a hub gives it: it is over when a killed hub comes back late."""
DESTINATION: Final = "mail"


def client_program(module: str, *arguments: str, log: Path) -> Program:
    """Return a program of this folder, to be started, killed and frozen."""
    paths = [str(ROOT), str(ROOT / "protos"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return Program([f"tests.robustness.{module}", *arguments], log, environment=environment)


class Committer(threading.Thread):
    """Appends to a stream of its own until told to end; what it began it brings to its end."""

    def __init__(
        self, address: str, stream_id: str, *, rng: random.Random, pause_seconds_max: float = 0.0
    ) -> None:
        super().__init__(name=stream_id, daemon=True)
        self._pause_seconds_max = pause_seconds_max
        self._address = address
        self._stream_id = stream_id
        self._rng = rng
        self.is_ending = threading.Event()
        self.has_ended_well = False
        self.counts: Counter[str] = Counter()
        self.event_ids: list[str] = []
        self.outbox_ids: list[str] = []

    def run(self) -> None:
        with HubClient.connect(self._address, hub_project=HUB_PROJECT) as hub:
            lease = hub.lease(self._stream_id, ttl_seconds=TTL_SECONDS)
            number = 0
            while not self.is_ending.is_set():
                number += 1
                self._commit_until_told(hub, lease, number=number)
                self.is_ending.wait(self._rng.uniform(0, self._pause_seconds_max))
        self.has_ended_well = True

    def _commit_until_told(self, hub: HubClient, lease: Lease, *, number: int) -> None:
        name = f"{self._stream_id} {number}"
        count = self._rng.randint(0, EVENTS_A_COMMIT_MAX)
        events = [
            NewJournalEvent(
                f"{name} {n}",
                self._rng.choice(["noted", "rare"]),
                self._rng.randbytes(self._rng.randint(0, 300)),
            )
            for n in range(count)
        ]
        key = self._rng.choice(["", "", self._stream_id])
        outbox = [NewOutboxMessage(name, DESTINATION, name.encode(), ordering_key=key)]
        while True:
            try:
                if not lease.is_held:
                    lease.acquire()
                committed = hub.commit(
                    name,
                    self._stream_id,
                    lease=lease,
                    expected_revision=len(self.event_ids),
                    events=events,
                    outbox_messages=outbox,
                )
            except StaleLease:
                self.counts["stale"] += 1
                lease.release()
            except (LeaseError, HubCallError) as error:
                self.counts[type(error).__name__] += 1
            else:
                self.counts["recovered"] += committed.is_recovered
                self.event_ids += [event.event_id for event in events]
                self.outbox_ids.append(name)
                assert committed.revision == len(self.event_ids)
                return


def say(line: str) -> None:
    """Print a line for the test, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
