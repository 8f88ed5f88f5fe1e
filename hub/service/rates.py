"""What comes at a time from one credential or hub project, held against the limits.

Pushes are slowed: a batch above the rate is stored all the same, and its stream waits for it. Calls and
commits are refused, and told when to come again. So are guesses of other people's projects.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hub.core.errors import RateLimited
from hub.core.limits import Limits
from hub.core.rate import Buckets, Rate
from hub.core.values import HubProject
from hub.service.instruments import Instruments

SECONDS_PER_MINUTE = 60.0
"""Seconds in a minute."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a batch may be taken, and when the next one of its stream.

    ``wait_seconds`` is how long it has to wait for those before it, ``clear_at_seconds`` the moment at
    which all up to it is paid, on the clock that the rates use.
    """

    wait_seconds: float
    clear_at_seconds: float


class HubRates:
    """Rates of calls, pushes and commits. Used on the loop only."""

    def __init__(
        self, *, limits: Limits, instruments: Instruments, monotonic_seconds: Callable[[], float]
    ) -> None:
        """Begin with every bucket full."""
        self._limits = limits
        self._instruments = instruments
        self._monotonic_seconds = monotonic_seconds
        entries_max = limits.rate_buckets_max
        per_second = limits.credential_requests_per_second
        rate = Rate(per_second, limits.credential_requests_burst / per_second)
        self._calls: Buckets[str] = Buckets(rate, entries_max=entries_max)
        burst_seconds = limits.hub_project_burst_seconds
        event_rate = Rate(limits.hub_project_events_per_second, burst_seconds)
        byte_rate = Rate(limits.hub_project_bytes_per_second, burst_seconds)
        self._events: Buckets[HubProject] = Buckets(event_rate, entries_max=entries_max)
        self._bytes: Buckets[HubProject] = Buckets(byte_rate, entries_max=entries_max)

    def remaining_seconds(self, moment_seconds: float) -> float:
        """Return how long it is until a moment, 0 where it is past."""
        return max(0.0, moment_seconds - self._monotonic_seconds())

    def check_call(self, credential_key: str, peer: str) -> None:
        """Count a call that begins; without a credential all calls of a host count together.

        Raises: RateLimited.
        """
        key = credential_key or host_of(peer)
        wait_seconds = self._calls.take_now(key, self._monotonic_seconds(), amount=1)
        if wait_seconds:
            per_second = self._limits.credential_requests_per_second
            raise RateLimited("credential_requests_per_second", per_second, wait_seconds)

    def pace(self, hub_project: HubProject, *, event_count: int, bytes_count: int) -> Pace:
        """Count a batch, and say when it may be taken; whoever gives up before says so (``give_back``)."""
        now = self._monotonic_seconds()
        events = self._events.take(hub_project, now, amount=event_count)
        size = self._bytes.take(hub_project, now, amount=bytes_count)
        clear_seconds = max(events.clear_seconds, size.clear_seconds)
        if clear_seconds:
            limit = _limit_of(is_events=events.clear_seconds >= size.clear_seconds)
            self._instruments.rate_delayed(hub_project, limit=limit, seconds=clear_seconds)
        return Pace(max(events.wait_seconds, size.wait_seconds), now + clear_seconds)

    def give_back(self, hub_project: HubProject, *, event_count: int, bytes_count: int) -> None:
        """Count a batch out that will not be taken."""
        self._events.give_back(hub_project, event_count)
        self._bytes.give_back(hub_project, bytes_count)

    def check_commit(self, hub_project: HubProject, *, event_count: int, bytes_count: int) -> None:
        """Count a commit.

        Raises: RateLimited where the hub project is in debt; then it is not counted.
        """
        now = self._monotonic_seconds()
        events_wait = self._events.wait_seconds(hub_project, now)
        bytes_wait = self._bytes.wait_seconds(hub_project, now)
        wait_seconds = max(events_wait, bytes_wait)
        if wait_seconds:
            limit = _limit_of(is_events=events_wait >= bytes_wait)
            raise RateLimited(limit, getattr(self._limits, limit), wait_seconds)
        self._events.take(hub_project, now, amount=event_count)
        self._bytes.take(hub_project, now, amount=bytes_count)


class ProjectGuesses:
    """How often a hub project may be told that a project is somebody else's. In the writer's thread only.

    Past that, whatever is about projects that it does not have is refused, taken or not: else the
    refusal would tell the same.
    """

    def __init__(self, *, limits: Limits, monotonic_seconds: Callable[[], float]) -> None:
        """Begin with every bucket full."""
        self._per_minute = limits.hub_project_mismatches_per_minute
        self._monotonic_seconds = monotonic_seconds
        rate = Rate(self._per_minute / SECONDS_PER_MINUTE, SECONDS_PER_MINUTE)
        self._buckets: Buckets[HubProject] = Buckets(rate, entries_max=limits.rate_buckets_max)

    def check(self, hub_project: HubProject, owners: Iterable[HubProject | None]) -> None:
        """Return where a hub project may be told about projects with these owners; count those taken.

        Raises: RateLimited.
        """
        others = [owner for owner in owners if owner != hub_project]
        if not others:
            return
        now = self._monotonic_seconds()
        wait_seconds = self._buckets.wait_seconds(hub_project, now)
        if wait_seconds:
            raise RateLimited("hub_project_mismatches_per_minute", self._per_minute, wait_seconds)
        taken_count = sum(owner is not None for owner in others)
        if taken_count:
            self._buckets.take(hub_project, now, amount=taken_count)


def host_of(peer: str) -> str:
    """Return the host of a peer: its address without the port."""
    return peer.rpartition(":")[0]


def _limit_of(*, is_events: bool) -> str:
    return "hub_project_events_per_second" if is_events else "hub_project_bytes_per_second"
