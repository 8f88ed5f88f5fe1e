"""The checker itself: what is good passes, and each kind of bad history is seen."""

import pytest

from tests.robustness.checker import OnHub, Run, check

RUN: Run = ("p", "r")
ACKNOWLEDGED = {RUN: [b"a", b"b", b"c"]}
GOOD = [OnHub(RUN, 1, 1, b"a"), OnHub(RUN, 2, 2, b"b"), OnHub(RUN, 3, 5, b"c")]


def test_a_hub_that_has_everything_once_in_order_has_no_faults() -> None:
    verdict = check(ACKNOWLEDGED, GOOD)
    assert (verdict.acknowledged_count, verdict.faults) == (3, [])


@pytest.mark.parametrize(
    ("watched", "kinds"),
    [
        (GOOD[:2], {"lost"}),
        ([GOOD[0], GOOD[2]], {"lost", "gaps"}),
        ([*GOOD[:2], OnHub(RUN, 3, 5, b"other")], {"changed"}),
        ([*GOOD, OnHub(RUN, 3, 6, b"c")], {"doubled"}),
        ([*GOOD, OnHub(RUN, 4, 6, b"d")], {"unexpected"}),
        ([*GOOD, OnHub(("p", "other"), 1, 6, b"d")], {"unexpected"}),
        ([GOOD[0], OnHub(RUN, 2, 5, b"b"), OnHub(RUN, 3, 4, b"c")], {"positions_out_of_order"}),
    ],
)
def test_each_fault_is_seen(watched: list[OnHub], kinds: set[str]) -> None:
    assert {fault.split(":")[0] for fault in check(ACKNOWLEDGED, watched).faults} == kinds
