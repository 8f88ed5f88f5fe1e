"""How much of something may come at a time: token buckets, decided from their state and a time.

A bucket holds what may come now, fills at its rate up to its burst, and may go into debt: what is larger
than all it ever holds still comes, and what is next waits until the debt is paid. So over any time no
more is taken than the rate gives in it, and the burst, and one last amount.

Written here, because no kept library fits: ``aiolimiter`` waits by itself on the loop's clock and takes
no amount above its rate; ``limits`` and ``throttled-py`` read the wall clock in whole seconds or take no
clock, and neither knows debt, so that an amount above the burst would never come.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

FORGOTTEN_AT_ONCE: Final = 2
"""Buckets that are looked at, whether they are full again, with each that is used."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So much a second, and so many seconds' worth at once."""

    per_second: float
    burst_seconds: float


class Charge(NamedTuple):
    """What taking an amount does to a bucket.

    ``wait_seconds`` is how long it has to wait until the debt before it is paid, 0 where there is none;
    ``clear_seconds`` until its own is paid too. ``full_at_seconds`` is the bucket's new state: when it
    is full again.
    """

    wait_seconds: float
    clear_seconds: float
    full_at_seconds: float


def charge(full_at_seconds: float, now_seconds: float, *, amount: float, rate: Rate) -> Charge:
    """Decide taking an amount from a bucket; times are on any clock that only rises.

    The whole state is the moment at which the bucket is full again, and one in the past is a full bucket.
    """
    filling_seconds = max(0.0, full_at_seconds - now_seconds)
    after_seconds = filling_seconds + amount / rate.per_second
    return Charge(
        max(0.0, filling_seconds - rate.burst_seconds),
        max(0.0, after_seconds - rate.burst_seconds),
        now_seconds + after_seconds,
    )


class Buckets(Generic[Key]):
    """Buckets of one rate by their keys. One that is full again is forgotten: it is as good as a new one.

    Bounded: where too many are not full, the one used longest ago is forgotten too.
    """

    def __init__(self, rate: Rate, *, entries_max: int) -> None:
        """Begin with every bucket full."""
        self._rate = rate
        self._entries_max = entries_max
        self._full_at_seconds: OrderedDict[Key, float] = OrderedDict()
        """The one used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._full_at_seconds)

    def wait_seconds(self, key: Key, now_seconds: float) -> float:
        """Return how long whoever comes now has to wait, 0 where there is no debt."""
        return self._decide(key, now_seconds, amount=0).wait_seconds

    def take(self, key: Key, now_seconds: float, *, amount: float) -> Charge:
        """Take an amount, into debt where it has to be; it must be kept waiting as the charge says."""
        taken = self._decide(key, now_seconds, amount=amount)
        self._keep(key, now_seconds, full_at_seconds=taken.full_at_seconds)
        return taken

    def take_now(self, key: Key, now_seconds: float, *, amount: float) -> float:
        """Take an amount where there is no debt; return 0 then, else how long to wait before asking again."""
        taken = self._decide(key, now_seconds, amount=amount)
        if not taken.wait_seconds:
            self._keep(key, now_seconds, full_at_seconds=taken.full_at_seconds)
        return taken.wait_seconds

    def give_back(self, key: Key, amount: float) -> None:
        """Give back what was taken and did not come."""
        full_at_seconds = self._full_at_seconds.get(key)
        if full_at_seconds is not None:
            self._full_at_seconds[key] = full_at_seconds - amount / self._rate.per_second

    def _decide(self, key: Key, now_seconds: float, *, amount: float) -> Charge:
        full_at_seconds = self._full_at_seconds.get(key, now_seconds)
        return charge(full_at_seconds, now_seconds, amount=amount, rate=self._rate)

    def _keep(self, key: Key, now_seconds: float, *, full_at_seconds: float) -> None:
        """Keep a bucket's state, and forget some that are full: more than one, so that all are in time."""
        buckets = self._full_at_seconds
        buckets[key] = full_at_seconds
        buckets.move_to_end(key)
        for oldest in tuple(islice(buckets, FORGOTTEN_AT_ONCE)):
            if len(buckets) > self._entries_max or buckets[oldest] <= now_seconds:
                del buckets[oldest]
