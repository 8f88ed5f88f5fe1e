"""A list that does not show all that there is says so."""

import pytest

from hub.cli.hub_calls import first_of


@pytest.mark.parametrize(("found", "limit"), [("abc", 0), ("abc", 3), ("abc", 4), ("", 2)])
def test_a_list_that_shows_all_says_nothing_more(
    found: str, limit: int, *, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "".join(first_of(found, limit)) == found
    assert capsys.readouterr() == ("", "")


def test_a_list_that_shows_a_part_says_so_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(first_of("abc", 2)) == ["a", "b"]
    assert capsys.readouterr() == (
        "",
        "synchub: there are more than these 2: give --limit, 0 for all\n",
    )
