"""The clock that leases go by. What a keeper does with a hub is in the contract tests."""

import time

import pytest

from runtime_agent.hub_client.lease_keeper import suspension_counting_seconds


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs Linux: other systems have one clock")
def test_leases_go_by_the_clock_that_counts_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a machine that never slept this clock and the monotonic one show the same.
    monkeypatch.setattr(time, "clock_gettime", lambda clock_id: {time.CLOCK_BOOTTIME: 7.0}[clock_id])
    assert suspension_counting_seconds() == 7.0
