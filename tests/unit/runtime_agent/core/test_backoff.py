"""The waits between tries."""

from runtime_agent.core.backoff import Backoff


def test_the_ceiling_doubles_up_to_its_bound() -> None:
    backoff = Backoff(0.5, 30.0, chance=lambda: 1.0)
    assert [backoff.next_wait_seconds() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_chance_spreads_a_wait_from_nothing_to_the_ceiling() -> None:
    draws = iter([0.0, 0.5, 0.25])
    backoff = Backoff(0.5, 30.0, chance=lambda: next(draws))
    assert [backoff.next_wait_seconds() for _ in range(3)] == [0.0, 0.5, 0.5]


def test_it_never_gives_up_and_never_overflows() -> None:
    backoff = Backoff(0.5, 30.0, chance=lambda: 1.0, failure_count=10**9)
    assert backoff.next_wait_seconds() == 30.0


def test_success_starts_it_over() -> None:
    backoff = Backoff(0.5, 30.0, chance=lambda: 1.0)
    for _ in range(5):
        backoff.next_wait_seconds()
    backoff.reset()
    assert backoff.next_wait_seconds() == 0.5
