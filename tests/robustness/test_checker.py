"""The checker itself: what is good passes, and each kind of bad history is seen."""

import pytest

from tests.robustness.checker import OnHub, Run, check, check_prefix

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
        ([*GOOD, OnHub(RUN, 3, 6, b"other")], {"doubled", "changed"}),
        ([*GOOD, OnHub(RUN, 4, 6, b"d")], {"unexpected"}),
        ([*GOOD, OnHub(RUN, 5, 6, b"e")], {"unexpected", "gaps"}),
        ([OnHub(RUN, 0, 1, b"zero")], {"unexpected", "lost"}),
        ([], {"lost"}),
        ([*GOOD, OnHub(("p", "other"), 1, 6, b"d")], {"unexpected"}),
        ([GOOD[0], OnHub(RUN, 2, 5, b"b"), OnHub(RUN, 3, 4, b"c")], {"positions_out_of_order"}),
        ([GOOD[0], OnHub(RUN, 2, 5, b"b"), OnHub(RUN, 3, 5, b"c")], {"positions_out_of_order"}),
    ],
)
def test_each_fault_is_seen(watched: list[OnHub], kinds: set[str]) -> None:
    assert {fault.split(":")[0] for fault in check(ACKNOWLEDGED, watched).faults} == kinds


@pytest.mark.parametrize("cursors", [{RUN: 2}, {RUN: 4}, {}, {RUN: 3, ("p", "other"): 1}])
def test_a_cursor_that_is_not_what_is_watched_is_seen(cursors: dict[Run, int]) -> None:
    assert check(ACKNOWLEDGED, GOOD, cursors={RUN: 3}).faults == []
    assert len(check(ACKNOWLEDGED, GOOD, cursors=cursors).cursors_wrong) == 1


def test_what_an_earlier_reader_got_must_be_the_beginning_of_what_a_later_one_gets() -> None:
    assert check_prefix(GOOD[:2], GOOD) == []
    assert len(check_prefix(GOOD, GOOD[:2])) == 1
    moved = [GOOD[0], OnHub(RUN, 2, 3, b"b"), GOOD[2]]
    assert len(check_prefix(GOOD, moved)) == 1
