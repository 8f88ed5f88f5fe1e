"""Whether a runtime is alive, from what was heard and when."""

from dataclasses import replace
from typing import Final

import pytest

from hub.core.presence import PresenceBounds, PresenceState, decide_presence
from hub.core.values import InstanceId, Runtime, RuntimeId

HOUR: Final = 3_600_000
BOUNDS: Final = PresenceBounds(ttl_nanos=30, broken_stream_grace_nanos=5, hub_start_nanos=HOUR)
HEARD: Final = Runtime(RuntimeId("r"), InstanceId("i"), HOUR + 90, last_heartbeat_nanos=HOUR + 100)


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, PresenceState.ONLINE), (29, PresenceState.ONLINE), (30, PresenceState.LOST)],
)
def test_a_runtime_is_online_for_one_ttl_after_its_heartbeat(age: int, expected: PresenceState) -> None:
    assert decide_presence(HEARD, HOUR + 100 + age, break_nanos=None, bounds=BOUNDS) is expected


@pytest.mark.parametrize(("age", "expected"), [(4, PresenceState.ONLINE), (5, PresenceState.LOST)])
def test_a_broken_stream_is_lost_after_the_grace(age: int, expected: PresenceState) -> None:
    break_nanos = HOUR + 101
    assert decide_presence(HEARD, break_nanos + age, break_nanos=break_nanos, bounds=BOUNDS) is expected


def test_the_grace_does_not_prolong_the_ttl() -> None:
    late_break = HOUR + 100 + 29
    state = decide_presence(HEARD, late_break + 1, break_nanos=late_break, bounds=BOUNDS)
    assert state is PresenceState.LOST


@pytest.mark.parametrize("break_nanos", [None, HOUR + 101])
def test_a_goodbye_is_offline_for_good(break_nanos: int | None) -> None:
    gone = replace(HEARD, is_goodbye=True)
    state = decide_presence(gone, 100 * HOUR, break_nanos=break_nanos, bounds=BOUNDS)
    assert state is PresenceState.OFFLINE


@pytest.mark.parametrize("last_heartbeat_nanos", [1, None])
def test_what_an_earlier_life_of_the_hub_heard_counts_from_the_start_of_this_one(
    last_heartbeat_nanos: int | None,
) -> None:
    before = replace(HEARD, instance_start_nanos=1, last_heartbeat_nanos=last_heartbeat_nanos)
    states = [decide_presence(before, HOUR + age, break_nanos=None, bounds=BOUNDS) for age in (0, 29, 30)]
    assert states == [PresenceState.ONLINE, PresenceState.ONLINE, PresenceState.LOST]


def test_a_runtime_that_only_reconciled_counts_as_heard_when_its_instance_began() -> None:
    reconciled = replace(HEARD, last_heartbeat_nanos=None)
    states = [
        decide_presence(reconciled, HOUR + 90 + age, break_nanos=None, bounds=BOUNDS) for age in (29, 30)
    ]
    assert states == [PresenceState.ONLINE, PresenceState.LOST]
