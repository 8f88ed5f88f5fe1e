"""From where a watch goes on."""

from runtime_agent.core.watch_place import WatchPlace


def test_position_and_generation_move_together() -> None:
    place = WatchPlace("first", 3)
    place.heard(hub_generation="second", progress_position=5)
    assert place == WatchPlace("second", 5)


def test_from_now_holds_until_the_first_answer_even_where_its_position_is_0() -> None:
    place = WatchPlace(from_now=True)
    place.heard(hub_generation="g", progress_position=0)
    assert place == WatchPlace("g", 0, from_now=False)
