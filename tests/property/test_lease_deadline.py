"""However calls are delayed, lost or answered late: who believes to hold a lease does hold it.

A hub with a clock of its own pace and a holder exchange an acquire and renewals over a network that does
what it likes. The holder may stop too early; it must never believe a moment too long.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from runtime_agent.core.lease import Grant, HeldTenure, Renew, RenewalTiming

TTL_SECONDS = 8.0
MARGIN_SECONDS = 0.5
TIMING = RenewalTiming(MARGIN_SECONDS, beat_seconds=None, retry_seconds_first=0.25, retry_seconds_max=1.0)
PAUSES = st.integers(0, 40).map(lambda eighths: eighths / 8)
"""Spans in seconds that add up exactly."""
WAYS = st.integers(0, 10).map(lambda eighths: eighths / 8)


@dataclass
class Hub:
    """Holds the lease of one holder; what arrives after the expiry is refused, for ever."""

    expire_at: float
    is_live: bool = True
    refused_count: int = field(default=0)

    def renew(self, now: float) -> bool:
        self.is_live = self.is_live and now < self.expire_at
        if self.is_live:
            self.expire_at = now + TTL_SECONDS
        return self.is_live


@dataclass(frozen=True)
class Crossing:
    """What the network does to one call: how long each way takes, and whether either is lost."""

    there_seconds: float
    back_seconds: float
    is_lost: bool
    is_answer_lost: bool
    pause_seconds: float
    """How long the holder does nothing after it: it is frozen, or its machine sleeps."""


SELDOM = st.sampled_from([False, False, False, True])
CROSSINGS = st.builds(Crossing, WAYS, WAYS, SELDOM, SELDOM, PAUSES)


@given(
    waited=PAUSES,
    first=CROSSINGS,
    is_replayed=st.booleans(),
    resent_after=WAYS,
    later=st.lists(CROSSINGS, max_size=12),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_the_holder_never_believes_longer_than_the_hub(
    waited: float,
    first: Crossing,
    is_replayed: bool,
    resent_after: float,
    later: list[Crossing],
    chance: float,
) -> None:
    # The call is sent at 0 and again later; a replayed answer is that of the first send that arrived.
    sent_at = resent_after
    granted_at = (0.0 if is_replayed else sent_at) + first.there_seconds + waited
    hub = Hub(expire_at=granted_at + TTL_SECONDS)
    now = max(granted_at, sent_at) + first.back_seconds + first.pause_seconds
    grant = Grant(
        first_sent_at=0.0,
        sent_at=sent_at,
        ttl_seconds=TTL_SECONDS,
        waited_seconds=waited,
        is_replayed=is_replayed,
    )
    held = HeldTenure(grant, TIMING, chance=lambda: chance)
    for crossing in later:
        assert_never_too_long(held, hub, now)
        step = held.next_step(now=now)
        if not isinstance(step, Renew):
            now += crossing.pause_seconds
            continue
        sent_at = now
        is_renewed = not crossing.is_lost and hub.renew(now + crossing.there_seconds)
        is_heard = not crossing.is_lost and not crossing.is_answer_lost
        round_trip = crossing.there_seconds + crossing.back_seconds
        if is_heard and round_trip <= step.timeout_seconds:
            now += round_trip + crossing.pause_seconds
            if is_renewed:
                held.renewed(TTL_SECONDS, sent_at=sent_at, now=now)
            else:
                held.not_renewed("LEASE_EXPIRED", now=now)
        else:
            now += step.timeout_seconds + crossing.pause_seconds
            held.not_renewed("", now=now)
    assert_never_too_long(held, hub, now)


def assert_never_too_long(held: HeldTenure, hub: Hub, now: float) -> None:
    if held.loss(now=now) is None:
        assert hub.is_live
        assert held.deadline + MARGIN_SECONDS <= hub.expire_at
        assert now < held.deadline
    else:
        # A loss is for good: not even an answer from before it would change it.
        held.renewed(TTL_SECONDS, sent_at=now, now=now)
        assert held.loss(now=now) is not None
