"""The queue in which hub projects have turns."""

from dataclasses import dataclass

from hub.service.fair_queue import ENTRY_BYTES, TURN_BYTES, FairQueue

MUCH = 1 << 40


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    bytes_count: int


def filled(*entries: tuple[str, int, int]) -> FairQueue[str, Entry]:
    """A queue with so many entries of each size, by key; named by key and number."""
    queue: FairQueue[str, Entry] = FairQueue()
    for key, count, bytes_count in entries:
        for number in range(count):
            queue.append(key, Entry(f"{key}{number}", bytes_count))
    return queue


def taken(
    queue: FairQueue[str, Entry], *, count_max: int = 100, bytes_max: int = MUCH, key_bytes_max: int = MUCH
) -> list[str]:
    entries = queue.take(count_max=count_max, bytes_max=bytes_max, key_bytes_max=key_bytes_max)
    return [entry.name for entry in entries]


def test_an_empty_queue_gives_nothing() -> None:
    queue = filled()
    assert (len(queue), taken(queue)) == (0, [])


def test_what_is_large_is_taken_one_from_each_in_turns_and_in_its_order() -> None:
    queue = filled(("a", 4, TURN_BYTES), ("b", 2, TURN_BYTES))
    assert (len(queue), taken(queue), len(queue)) == (6, ["a0", "b0", "a1", "b1", "a2", "a3"], 0)


def test_who_sends_small_ones_has_as_many_bytes_in_a_turn_as_who_sends_large_ones() -> None:
    queue = filled(("large", 3, TURN_BYTES), ("small", 10, TURN_BYTES // 4 - ENTRY_BYTES))
    assert taken(queue)[:6] == ["large0", "small0", "small1", "small2", "small3", "large1"]


def test_small_ones_count_too() -> None:
    queue = filled(("a", 100, 0), ("b", 1, 0))
    assert taken(queue, count_max=200).index("b0") == TURN_BYTES // ENTRY_BYTES


def test_turns_go_on_with_the_next_group() -> None:
    queue = filled(("a", 3, TURN_BYTES), ("b", 3, TURN_BYTES))
    assert [taken(queue, count_max=1) for _ in range(6)] == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"], ["b2"]]


def test_a_group_holds_a_part_of_each_key_but_always_one() -> None:
    queue = filled(("a", 5, 40), ("b", 1, 500), ("c", 2, 60))
    assert taken(queue, key_bytes_max=100) == ["a0", "a1", "b0", "c0"]
    assert taken(queue, key_bytes_max=100) == ["a2", "a3", "c1"]
    assert (taken(queue, key_bytes_max=100), len(queue)) == (["a4"], 0)


def test_a_group_holds_no_more_bytes_than_its_bound_but_always_one() -> None:
    queue = filled(("a", 1, 11), ("a", 2, 5), ("b", 1, 1))
    groups = [taken(queue, bytes_max=10) for _ in range(3)]
    assert groups == [["a0"], ["b0", "a0"], ["a1"]]


def test_one_that_does_not_fit_leaves_the_room_to_others_and_is_first_the_next_time() -> None:
    queue = filled(("small", 2, 4), ("large", 1, 10), ("late", 1, 4))
    assert taken(queue, bytes_max=12) == ["small0", "small1", "late0"]
    queue.append("small", Entry("small2", 4))
    assert taken(queue, bytes_max=12) == ["large0"]
    assert taken(queue, bytes_max=12) == ["small2"]


def test_a_flood_does_not_delay_another_key_by_more_than_a_turn() -> None:
    queue = filled(("flood", 10_000, TURN_BYTES))
    queue.append("quiet", Entry("quiet", 1))
    assert "quiet" in taken(queue, count_max=3)
