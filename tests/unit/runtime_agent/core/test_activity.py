"""Which runs count as active."""

from runtime_agent.core.activity import RunActivity
from runtime_agent.core.values import RunKey

FIRST, SECOND, THIRD = (RunKey("p", each) for each in "abc")


def test_runs_are_active_for_a_while_after_an_append_the_newest_first() -> None:
    activity = RunActivity(active_seconds=60.0, runs_max=10)
    activity.note(FIRST, is_ended=False, now=0.0)
    activity.note(SECOND, is_ended=False, now=50.0)
    assert activity.active_runs(now=60.0, limit=10) == (SECOND, FIRST)
    assert activity.active_runs(now=60.0, limit=1) == (SECOND,)
    assert activity.active_runs(now=61.0, limit=10) == (SECOND,)
    assert activity.active_runs(now=200.0, limit=10) == ()


def test_a_run_that_ended_is_not_active() -> None:
    activity = RunActivity(active_seconds=60.0, runs_max=10)
    activity.note(FIRST, is_ended=False, now=0.0)
    activity.note(FIRST, is_ended=True, now=1.0)
    activity.note(SECOND, is_ended=True, now=1.0)
    assert activity.active_runs(now=1.0, limit=10) == ()


def test_only_the_most_recent_runs_are_remembered() -> None:
    activity = RunActivity(active_seconds=60.0, runs_max=2)
    for run in (FIRST, SECOND, FIRST, THIRD):
        activity.note(run, is_ended=False, now=0.0)
    assert activity.active_runs(now=0.0, limit=10) == (THIRD, FIRST)
