"""A cache moves only with the transaction that wrote it."""

import pytest

from hub.store.committed_cache import CommittedCache


@pytest.fixture
def cache() -> CommittedCache[str, int]:
    cache: CommittedCache[str, int] = CommittedCache(2)
    cache.put("a", 1)
    cache.commit()
    return cache


def test_a_rollback_forgets_what_was_staged(cache: CommittedCache[str, int]) -> None:
    cache.put("a", 2)
    assert cache.get("a") == 2
    cache.rollback()
    assert cache.get("a") == 1


def test_undoing_forgets_only_what_came_since_the_savepoint(cache: CommittedCache[str, int]) -> None:
    cache.put("a", 2)
    cache.set_savepoint()
    cache.put("a", 3)
    cache.put("a", 4)
    cache.put("b", 5)
    cache.undo_to_savepoint()
    assert (cache.get("a"), cache.get("b")) == (2, None)
    cache.commit()
    assert cache.get("a") == 2


def test_the_entry_used_longest_ago_makes_room(cache: CommittedCache[str, int]) -> None:
    cache.put("b", 2)
    cache.commit()
    assert cache.get("a") == 1
    cache.put("c", 3)
    cache.commit()
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)


def test_clearing_forgets_everything(cache: CommittedCache[str, int]) -> None:
    cache.put("b", 2)
    cache.clear()
    assert (cache.get("a"), cache.get("b"), len(cache)) == (None, None, 0)


def test_what_a_command_staged_after_clearing_is_undone_with_it(cache: CommittedCache[str, int]) -> None:
    cache.set_savepoint()
    cache.clear()
    cache.put("a", 2)
    cache.undo_to_savepoint()
    cache.commit()
    assert cache.get("a") is None
