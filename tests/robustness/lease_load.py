"""Clients that want the same few resources, each in a thread, and do everything that there is to do.

They are no good citizens: they also use credentials that they lost, guess nonces, leave leases lying
until they expire, and repeat what was not answered.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.robustness.lease_calls import Credential, LeaseCalls
from tests.robustness.lease_history import Arguments, Call, Operation, Outcome, Recorder, client_nanos

SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
TTLS: Final = (SECOND, SECOND, 1300 * MILLISECOND, 2 * SECOND)
"""Short, so that leases expire while the clients look; 1 s is the least that is granted."""
DEADLINES: Final = (0.008, 0.4, 1.0, 1.0, 3.0, 3.0)
"""In seconds; the first is about as long as the hub's disk takes, so that answers are missed."""
FORMER_MAX: Final = 6
"""How many lost credentials a client remembers and tries again."""
EDGE_NANOS: Final = 20 * MILLISECOND
RESOURCE_CHANCES: Final = (6, 6, 4, 1)
"""How often each resource is wanted; the last so seldom that an expired lease lies there for a while."""
WAITED_FOR: Final = 2
"""For so many of the resources clients wait; the others can be taken over by whoever comes."""
REPEATS_MAX: Final = 8
RECONNECT_SECONDS_MAX: Final = 5.0


@dataclass(slots=True)
class Handed:
    """To whom leases were handed: what a holder says to the next one outside of the hub."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _resources: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, client: str, resource: str) -> None:
        with self._lock:
            self._resources[client].append(resource)

    def take(self, client: str) -> str | None:
        with self._lock:
            waiting = self._resources[client]
            return waiting.pop() if waiting else None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all clients share."""

    address: str
    recorder: Recorder
    resources: Sequence[str]
    clients: Sequence[str]
    handed: Handed
    is_ending: threading.Event
    pause_seconds_max: float = 0.04
    """Between two calls of a client, at most so long."""


class LeaseClient(threading.Thread):
    """Calls at random until told to end."""

    def __init__(self, name: str, surroundings: Surroundings, *, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._all = surroundings
        self._rng = rng
        self._calls = LeaseCalls(name, surroundings.address, recorder=surroundings.recorder)
        self._held: dict[str, Credential] = {}
        self._former: list[Credential] = []
        self._highest: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self.has_ended_well = False

    def run(self) -> None:
        as_holder: list[tuple[Callable[[str], object], int]] = [
            (self._renew, 24),
            (self._renew_at_the_edge, 8),
            (self._release, 12),
            (self._transfer, 6),
            (self._finish_maintenance, 40),
            (self._acquire_again, 5),
            (self._begin_a_new_life, 5),
            (self._renew_with_guessed_nonce, 3),
        ]
        as_anybody: list[tuple[Callable[[str], object], int]] = [
            (self._acquire, 10),
            (self._wait, 10),
            (self._takeover, 10),
            (self._renew_former, 4),
            (self._release_former, 3),
            (self._abort, 3),
            (self._check, 4),
            (self._begin_maintenance, 1),
            (self._read, 4),
        ]
        try:
            while not self._all.is_ending.is_set():
                is_holder = self._held and self._rng.random() < 0.75
                self._act(as_holder if is_holder else as_anybody)
                time.sleep(self._rng.uniform(0, self._all.pause_seconds_max))
            self.has_ended_well = True
        finally:
            self._calls.close()

    def _act(self, actions: Sequence[tuple[Callable[[str], object], int]]) -> None:
        """Do one thing at random, about a lease that it has or about any."""
        self._calls.seconds_max = self._rng.choice(DEADLINES)
        handed = self._all.handed.take(self.name)
        if handed is not None:
            self._acquire(handed)
            return
        ((action, _),) = self._rng.choices(actions, [chance for _, chance in actions])
        (resource,) = self._rng.choices(self._all.resources, RESOURCE_CHANCES)
        action(resource)

    # --- tenures that are opened ---

    def _acquire(self, resource: str) -> None:
        self._repeated(lambda asked: self._calls.acquire(resource, asked), self._fresh())

    def _wait(self, resource: str) -> None:
        if resource in self._all.resources[WAITED_FOR:]:
            return
        wait_nanos = self._rng.randrange(200 * MILLISECOND, 1500 * MILLISECOND)
        asked = replace(self._fresh(), wait_nanos=wait_nanos)
        self._repeated(lambda asked: self._calls.acquire(resource, asked), asked)

    def _takeover(self, resource: str) -> None:
        self._repeated(lambda asked: self._calls.takeover(resource, asked), self._fresh())

    def _acquire_again(self, resource: str) -> None:
        """Renew by acquiring, as a client does that did not hear the first answer."""
        held = self._held.get(resource)
        if held is not None and not held.is_maintenance:
            asked = replace(held.arguments, token=0, ttl_nanos=self._rng.choice(TTLS))
            self._learn(self._calls.acquire(resource, asked))

    def _begin_a_new_life(self, resource: str) -> None:
        """Acquire what is held under another nonce, as a process does that was started again."""
        if resource in self._held:
            self._acquire(resource)

    def _begin_maintenance(self, resource: str) -> None:
        if self._rng.random() < 0.7:
            return
        asked = self._fresh()
        if self._repeated(lambda asked: self._calls.begin_maintenance(resource, asked), asked):
            self._pause()
            self._calls.begin_maintenance(resource, replace(asked, request_id=""))

    # --- tenures that go on, or end ---

    def _renew(self, resource: str) -> None:
        leases = [each for each in self._held.values() if not each.is_maintenance]
        if len(leases) > 1 and self._rng.random() < 0.5:
            for operation in self._calls.renew_together(leases):
                self._learn(operation)
            return
        held = self._held.get(resource) or self._any_held()
        if held is None:
            return
        ttl_nanos = self._rng.choice((0, *TTLS))
        renew = self._calls.renew_maintenance if held.is_maintenance else self._calls.renew
        self._learn(renew(held, ttl_nanos=ttl_nanos))

    def _renew_at_the_edge(self, resource: str) -> None:
        """Renew when the lease is about to expire, or just has."""
        # Where others wait it is gone at once.
        lying = [self._held[name] for name in self._all.resources[WAITED_FOR:] if name in self._held]
        held = self._rng.choice(lying) if lying else self._held.get(resource)
        if held is None or held.is_maintenance:
            return
        until_nanos = self._ends.get(held.resource, 0) + self._rng.randrange(-EDGE_NANOS, 2 * EDGE_NANOS)
        time.sleep(min(max(0, until_nanos - client_nanos()), max(TTLS)) / SECOND)
        self._learn(self._calls.renew(held))

    def _renew_former(self, _resource: str) -> None:
        if self._former:
            self._calls.renew(self._rng.choice(self._former))

    def _renew_with_guessed_nonce(self, resource: str) -> None:
        held = self._held.get(resource) or self._any_held()
        if held is not None and not held.is_maintenance:
            self._calls.renew(replace(held, nonce=self._nonce()))

    def _release(self, resource: str) -> None:
        held = self._held.get(resource) or self._any_held()
        if held is None or held.is_maintenance:
            return
        self._forget(held)
        self._repeated(
            lambda asked: self._calls.release(held, request_id=asked.request_id),
            self._fresh(),
            is_opening=False,
        )

    def _release_former(self, _resource: str) -> None:
        if self._former:
            self._calls.release(self._rng.choice(self._former))

    def _transfer(self, resource: str) -> None:
        held = self._held.get(resource) or self._any_held()
        if held is None or held.is_maintenance:
            return
        next_name = self._rng.choice(self._all.clients)
        next_one = Arguments(f"runtime-{next_name}", next_name)
        self._forget(held)
        is_done = self._repeated(
            lambda asked: self._calls.transfer(
                held, next_one, ttl_nanos=asked.ttl_nanos, request_id=asked.request_id
            ),
            self._fresh(),
            is_opening=False,
        )
        # Now and then the next holder never hears of it.
        if is_done and self._rng.random() < 0.8:
            self._all.handed.add(next_name, held.resource)

    def _abort(self, resource: str) -> None:
        token = self._rng.choice((0, self._highest.get(resource, 1)))
        reason = self._rng.choice(("INTERNAL", "EXTERNAL"))
        self._repeated(
            lambda asked: self._calls.abort(
                resource, token=token, reason=reason, request_id=asked.request_id
            ),
            self._fresh(),
            is_opening=False,
        )

    def _finish_maintenance(self, _resource: str) -> None:
        for held in [each for each in self._held.values() if each.is_maintenance]:
            self._forget(held)
            self._finish(held)

    def _finish(self, held: Credential) -> None:
        self._repeated(
            lambda asked: self._calls.finish_maintenance(held, request_id=asked.request_id),
            self._fresh(),
            is_opening=False,
        )

    # --- reads ---

    def _check(self, resource: str) -> None:
        known = [*self._held.values(), *self._former]
        if known and self._rng.random() < 0.8:
            credential = self._rng.choice(known)
            nonce = self._rng.choice(("", credential.nonce, self._nonce()))
            self._calls.check(credential.resource, token=credential.token, nonce=nonce)
        else:
            self._calls.check(resource, token=max(1, self._highest.get(resource, 1)))

    def _read(self, resource: str) -> None:
        self._calls.hub_time()
        self._learn(self._calls.state(resource))

    # --- within ---

    def _repeated(
        self, call: Callable[[Arguments], Operation], asked: Arguments, *, is_opening: bool = True
    ) -> bool:
        """Call; repeat what was not answered where it has a request id, and now and then what was."""
        if self._rng.random() < 0.5:
            asked = replace(asked, request_id=f"{self.name}-{self._rng.getrandbits(64):x}")
        operation = call(asked)
        for _ in range(REPEATS_MAX if asked.request_id else 0):
            is_again = operation.outcome == Outcome.OK and self._rng.random() < 0.1
            if self._all.is_ending.is_set() or not (operation.outcome == Outcome.UNKNOWN or is_again):
                break
            self._pause()
            operation = call(asked)
        if is_opening:
            self._learn(operation)
        return operation.outcome == Outcome.OK

    def _learn(self, operation: Operation) -> None:
        """Remember what is held now, and what is not any more."""
        resource, answer, asked = operation.resource, operation.answer, operation.arguments
        if answer.token is not None:
            self._highest[resource] = max(answer.token, self._highest.get(resource, 0))
        if operation.outcome == Outcome.REFUSED and asked.token:
            held = self._held.get(resource)
            if held is not None and held.token == asked.token:
                self._forget(held)
        if operation.outcome == Outcome.OK and answer.ttl_nanos is not None and asked.nonce:
            self._ends[resource] = operation.invoke_nanos + answer.ttl_nanos
        if operation.outcome != Outcome.OK or not asked.nonce or answer.token is None or asked.token:
            return
        if resource in self._held:
            self._forget(self._held[resource])
        self._held[resource] = Credential(
            resource,
            asked.runtime_id,
            asked.holder_id,
            answer.token,
            asked.nonce,
            is_maintenance=operation.call == Call.BEGIN_MAINTENANCE,
        )

    def _forget(self, credential: Credential) -> None:
        if self._held.get(credential.resource) == credential:
            del self._held[credential.resource]
        self._former = [*self._former, credential][-FORMER_MAX:]

    def _any_held(self) -> Credential | None:
        return self._rng.choice(list(self._held.values())) if self._held else None

    def _fresh(self) -> Arguments:
        return Arguments(f"runtime-{self.name}", self.name, self._nonce(), ttl_nanos=self._rng.choice(TTLS))

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def _pause(self) -> None:
        time.sleep(self._rng.uniform(0, 2 * self._all.pause_seconds_max))
