"""A prefix as a range of ids, whatever stands at its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.core.journal_selection import end_of_prefix

LAST = "\U0010ffff"
TEXTS = st.text(st.sampled_from(["a", "%", "_", "\x7f", "\x80", "\ud7ff", "\ue000", LAST]), max_size=4)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("", None),
        ("a", "b"),
        ("a%", "a&"),
        ("a_", "a`"),
        ("a" + LAST, "b"),
        (LAST, None),
        (LAST + LAST, None),
        (LAST + "a", LAST + "b"),
        ("\x7f", "\x80"),
        ("\ud7ff", "\ue000"),
        ("\uffff", "\U00010000"),
    ],
)
def test_the_end_of_a_prefix(prefix: str, end: str | None) -> None:
    assert end_of_prefix(prefix) == end


@given(prefix=TEXTS, text=TEXTS)
def test_between_a_prefix_and_its_end_stand_the_texts_that_begin_with_it_and_no_others(
    prefix: str, text: str
) -> None:
    end = end_of_prefix(prefix)
    is_within = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
    assert is_within == text.startswith(prefix)
