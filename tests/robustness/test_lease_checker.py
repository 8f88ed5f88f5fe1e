"""The checker of leases itself: what is good passes, and each kind of bad history is seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.robustness.lease_checker import check_history
from tests.robustness.lease_history import Answer, Arguments, Call, Happening, read_history, write_history
from tests.robustness.lease_scripts import TTL, Script, hub_nanos

Story = Callable[[Script], object]

FREE_AGAIN: Final = "RELEASED"


def a_lease_is_held_expires_and_is_taken_over(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.held("b", 50, by="a", until=10 + TTL)
    script.grant(Call.RENEW, "a", 1000, token=1, since=10)
    script.held("b", 10 + TTL, by="a", until=1000 + TTL)
    script.refuse(Call.RENEW, "a", 1000 + TTL, reason="LEASE_EXPIRED", token=1)
    script.grant(Call.TAKEOVER, "b", 1100 + TTL, token=2)
    script.refuse(Call.RENEW, "a", 1200 + TTL, reason="LEASE_SUPERSEDED", token=1)
    script.refuse(Call.RELEASE, "a", 1210 + TTL, reason="LEASE_SUPERSEDED", token=1)
    script.end(Call.RELEASE, "b", 1300 + TTL, token=2)
    script.read(1350 + TTL, token=2, state=FREE_AGAIN)
    script.refuse(Call.TAKEOVER, "a", 1400 + TTL, reason="LEASE_MISSING", nonce="fresh")
    script.refuse(Call.ACQUIRE, "a", 1450 + TTL, reason="LEASE_SUPERSEDED")


def a_maintenance_fences(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.maintain(Call.BEGIN_MAINTENANCE, "m", 50, token=2, epoch=1)
    script.refuse(Call.RENEW, "a", 80, reason="LEASE_FENCED", token=1)
    until = Answer(holder_id="m", expire_nanos=hub_nanos(50 + TTL))
    script.refuse(Call.ACQUIRE, "b", 110, reason="RESOURCE_UNDER_MAINTENANCE", answer=until)
    script.refuse(Call.TAKEOVER, "b", 140, reason="RESOURCE_UNDER_MAINTENANCE", answer=until)
    script.maintain(Call.BEGIN_MAINTENANCE, "m", 170, token=2, epoch=1)
    script.maintain(Call.RENEW_MAINTENANCE, "m", 200, token=2, epoch=1)
    script.end(Call.CHECK, "m", 210, token=2)
    script.end(Call.FINISH_MAINTENANCE, "m", 230, token=2)
    script.refuse(Call.TAKEOVER, "b", 260, reason="LEASE_MISSING")
    script.grant(Call.ACQUIRE, "b", 290, token=3, epoch=1)
    script.refuse(Call.FINISH_MAINTENANCE, "a", 320, reason="LEASE_FENCED", token=1)
    script.refuse(Call.BEGIN_MAINTENANCE, "m", 350, reason="LEASE_SUPERSEDED")
    script.grant(Call.RENEW, "b", 380, token=3, epoch=1, since=290)


def a_lease_is_handed_on_and_aborted(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.transfer("a", 50, to="b", token=1)
    script.read(60, token=2, state="UNCLAIMED", holder="b", until=50 + TTL)
    script.add(Call.CHECK, "a", 80, arguments=Arguments(token=1), answer=Answer(cause="LEASE_SUPERSEDED"))
    script.held("c", 110, by="b", until=50 + TTL)
    script.grant(Call.ACQUIRE, "b", 140, token=2, since=50)
    script.abort(170, reason="EXTERNAL")
    script.abort(180, reason="INTERNAL", told="EXTERNAL")
    script.grant(Call.RENEW, "b", 200, token=2, since=50, abort="EXTERNAL")
    script.grant(Call.ACQUIRE, "b", 230, token=3, nonce="another")


def what_is_unknown_happened(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.refuse(Call.RELEASE, "a", 50, reason="unknown", token=1)
    script.refuse(Call.ACQUIRE, "b", 90, reason="unknown")
    script.held("c", 150, by="b", until=90 + TTL)
    script.grant(Call.TAKEOVER, "c", 100 + TTL, token=3)


def what_is_unknown_never_happened(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.refuse(Call.RELEASE, "a", 50, reason="unknown", token=1)
    script.refuse(Call.ACQUIRE, "b", 90, reason="unknown")
    script.grant(Call.RENEW, "a", 150, token=1, since=10)
    script.end(Call.RELEASE, "a", 180, token=1)
    script.grant(Call.ACQUIRE, "c", 210, token=2)


def what_is_unknown_happened_long_after(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "b", 10, reason="unknown")
    script.grant(Call.ACQUIRE, "a", 100, token=1)
    script.end(Call.RELEASE, "a", 200, token=1)
    script.held("c", 300, by="b", until=250 + TTL)


def an_undelivered_grant_is_given_back(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.refuse(Call.ACQUIRE, "b", 90, reason="unknown", wait=10_000)
    script.end(Call.RELEASE, "a", 180, token=1)
    script.grant(Call.ACQUIRE, "c", 210, token=3)


def a_request_is_repeated(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "a", 10, reason="unknown", request_id="q")
    script.grant(Call.ACQUIRE, "a", 20, token=1, request_id="q", is_replayed=True, sent=100, answered=110)
    script.grant(Call.ACQUIRE, "a", 20, token=1, request_id="q", is_replayed=True, sent=120, answered=130)
    script.held("c", 300, by="a", until=20 + TTL)


def a_request_is_repeated_to_the_next_hub(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "a", 10, reason="unknown", request_id="q")
    script.fault(Happening.ENDED, 20)
    script.fault(Happening.STARTING, 30)
    script.fault(Happening.STARTED, 35)
    script.add(Call.HUB_TIME, "c", 50, answer=Answer(hub_nanos=hub_nanos(50)))
    script.refuse(Call.ACQUIRE, "a", 90, reason="unknown", request_id="q")
    script.held("b", 150, by="a", until=100 + TTL)


def waiters_come_in_order(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.ACQUIRE, "b", 1000, token=2, wait=5000, sent=100)
    script.refuse(Call.ACQUIRE, "d", 999, reason="LEASE_HELD", nonce="no-wait")
    script.grant(Call.ACQUIRE, "c", 1200, token=3, wait=5000, sent=500)
    script.end(Call.RELEASE, "a", 998, token=1)
    script.end(Call.RELEASE, "b", 1190, token=2)


GOOD: Final[list[Story]] = [
    a_lease_is_held_expires_and_is_taken_over,
    a_maintenance_fences,
    a_lease_is_handed_on_and_aborted,
    what_is_unknown_happened,
    what_is_unknown_never_happened,
    what_is_unknown_happened_long_after,
    an_undelivered_grant_is_given_back,
    a_request_is_repeated,
    a_request_is_repeated_to_the_next_hub,
    waiters_come_in_order,
]


@pytest.mark.parametrize("story", GOOD)
def test_what_the_rules_allow_has_no_faults(story: Story) -> None:
    script = Script()
    story(script)
    assert check_history(script.history).faults == []


# --- what must not be -------------------------------------------------------------------------------


def a_token_starts_over(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 50, token=1)
    script.grant(Call.ACQUIRE, "b", 90, token=1)


def a_token_falls_later(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 50, token=1)
    script.grant(Call.ACQUIRE, "b", 90, token=2)
    script.end(Call.RELEASE, "b", 120, token=2)
    script.read(150, token=1, state=FREE_AGAIN)


def an_epoch_falls(script: Script) -> None:
    script.maintain(Call.BEGIN_MAINTENANCE, "m", 50, token=1, epoch=1)
    script.end(Call.FINISH_MAINTENANCE, "m", 230, token=1)
    script.grant(Call.ACQUIRE, "b", 290, token=2, epoch=0)


def it_is_taken_before_it_expires(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.TAKEOVER, "b", 9 + TTL, token=2)


def two_have_it_at_once(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.ACQUIRE, "b", 50, token=2)


def it_is_renewed_after_it_was_lost(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.TAKEOVER, "b", 100 + TTL, token=2)
    script.grant(Call.RENEW, "a", 200 + TTL, token=1, since=10)


def it_is_renewed_after_it_expired(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.RENEW, "a", 10 + TTL, token=1, since=10)


def it_is_renewed_with_a_wrong_nonce(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.RENEW, "a", 50, token=1, since=10, nonce="guessed")


def a_former_holder_releases(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.TAKEOVER, "b", 100 + TTL, token=2)
    script.end(Call.RELEASE, "a", 200 + TTL, token=1)


def a_maintenance_lets_a_takeover_through(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.maintain(Call.BEGIN_MAINTENANCE, "m", 50 + TTL, token=2, epoch=1)
    script.grant(Call.TAKEOVER, "b", 100 + TTL, token=3, epoch=1)


def a_renewal_survives_a_maintenance(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.maintain(Call.BEGIN_MAINTENANCE, "m", 50, token=2, epoch=1)
    script.grant(Call.RENEW, "a", 100, token=1, since=10)


def a_check_calls_an_old_token_current(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.grant(Call.TAKEOVER, "b", 100 + TTL, token=2)
    script.end(Call.CHECK, "a", 200 + TTL, token=1)


def an_abort_is_forgotten_by_a_renewal(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.abort(50, reason="EXTERNAL")
    script.grant(Call.RENEW, "a", 90, token=1, since=10)


def an_external_abort_becomes_internal(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.abort(50, reason="EXTERNAL")
    script.abort(90, reason="INTERNAL")


def a_released_lease_is_taken_over(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 50, token=1)
    script.grant(Call.TAKEOVER, "b", 90, token=2)


def a_delayed_copy_opens_a_tenure(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 50, token=1)
    script.grant(Call.ACQUIRE, "a", 90, token=2)


def a_free_resource_is_refused(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "a", 10, reason="LEASE_HELD")


def a_refusal_names_another_holder(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.held("b", 50, by="c", until=10 + TTL)


def a_refusal_gives_another_reason(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 50, token=1)
    script.refuse(Call.RENEW, "a", 90, reason="LEASE_SUPERSEDED", token=1)


def an_unknown_call_takes_effect_twice(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "a", 10, reason="unknown")
    script.held("c", 50, by="a", until=20 + TTL)
    script.grant(Call.TAKEOVER, "c", 100 + TTL, token=3)


def an_unknown_call_takes_effect_before_its_send(script: Script) -> None:
    script.held("c", 50, by="a", until=20 + TTL)
    script.refuse(Call.ACQUIRE, "a", 100, reason="unknown")


def a_dead_hub_takes_a_call(script: Script) -> None:
    script.refuse(Call.ACQUIRE, "a", 10, reason="unknown")
    script.fault(Happening.ENDED, 20)
    script.fault(Happening.STARTING, 30)
    script.fault(Happening.STARTED, 35)
    script.grant(Call.ACQUIRE, "b", 40, token=1)
    script.end(Call.RELEASE, "b", 50, token=1)
    script.grant(Call.ACQUIRE, "c", 90, token=3)


def what_no_hub_heard_takes_effect(script: Script) -> None:
    script.fault(Happening.STARTING, 1)
    script.fault(Happening.STARTED, 2)
    script.fault(Happening.ENDED, 5)
    script.refuse(Call.ACQUIRE, "a", 20, reason="unknown")
    script.fault(Happening.STARTING, 30)
    script.fault(Happening.STARTED, 35)
    script.held("b", 50, by="a", until=40 + TTL)


def a_request_is_done_twice(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1, request_id="q", nonce="n1")
    script.grant(Call.ACQUIRE, "a", 50, token=2, request_id="q", nonce="n2")


def a_replay_tells_something_else(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1, request_id="q")
    script.grant(Call.ACQUIRE, "a", 10, token=2, request_id="q", is_replayed=True, sent=40, answered=50)


def hub_time_runs_back(script: Script) -> None:
    script.add(Call.HUB_TIME, "c", 100, answer=Answer(hub_nanos=hub_nanos(100)))
    script.fault(Happening.ENDED, 110)
    script.fault(Happening.STARTING, 120)
    script.add(Call.HUB_TIME, "c", 200, answer=Answer(hub_nanos=hub_nanos(99)))


def the_wall_clock_moves_a_living_hub(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.add(Call.HUB_TIME, "c", 200, answer=Answer(hub_nanos=hub_nanos(TTL)))


def an_expiry_that_was_told_is_taken_back(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.read(60 + TTL, token=1, state="EXPIRED", holder="a", until=10 + TTL)
    script.fault(Happening.ENDED, 100 + TTL)
    script.fault(Happening.STARTING, 110 + TTL)
    script.grant(Call.RENEW, "a", TTL, token=1, since=10, sent=200 + TTL, answered=210 + TTL)


def an_expiry_that_a_check_told_is_taken_back(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.add(Call.CHECK, "a", 60 + TTL, arguments=Arguments(token=1), answer=Answer(cause="LEASE_EXPIRED"))
    script.fault(Happening.ENDED, 100 + TTL)
    script.fault(Happening.STARTING, 110 + TTL)
    script.grant(Call.RENEW, "a", TTL, token=1, since=10, sent=200 + TTL, answered=210 + TTL)


def somebody_passes_the_queue(script: Script) -> None:
    script.grant(Call.ACQUIRE, "a", 10, token=1)
    script.end(Call.RELEASE, "a", 998, token=1)
    script.grant(Call.ACQUIRE, "c", 1000, token=2, wait=5000, sent=500)
    script.end(Call.RELEASE, "c", 1190, token=2)
    script.grant(Call.ACQUIRE, "b", 1200, token=3, wait=5000, sent=100)


ORDER: Final = "no order explains it"
BAD: Final[list[tuple[Story, set[str]]]] = [
    (a_token_starts_over, {ORDER, "token or epoch fell"}),
    (a_token_falls_later, {ORDER, "token or epoch fell"}),
    (an_epoch_falls, {ORDER, "token or epoch fell"}),
    (it_is_taken_before_it_expires, {ORDER, "two tenures at once"}),
    (two_have_it_at_once, {ORDER, "two tenures at once"}),
    (
        it_is_renewed_after_it_was_lost,
        {ORDER, "two tenures at once", "success under an old token", "token or epoch fell"},
    ),
    (it_is_renewed_after_it_expired, {ORDER}),
    (it_is_renewed_with_a_wrong_nonce, {ORDER}),
    (a_former_holder_releases, {ORDER, "success under an old token"}),
    (a_maintenance_lets_a_takeover_through, {ORDER, "two tenures at once"}),
    (
        a_renewal_survives_a_maintenance,
        {ORDER, "two tenures at once", "success under an old token", "token or epoch fell"},
    ),
    (a_check_calls_an_old_token_current, {ORDER, "success under an old token"}),
    (an_abort_is_forgotten_by_a_renewal, {ORDER}),
    (an_external_abort_becomes_internal, {ORDER}),
    (a_released_lease_is_taken_over, {ORDER}),
    (a_delayed_copy_opens_a_tenure, {ORDER}),
    (a_free_resource_is_refused, {ORDER}),
    (a_refusal_names_another_holder, {ORDER}),
    (a_refusal_gives_another_reason, {ORDER}),
    (an_unknown_call_takes_effect_twice, {ORDER}),
    (an_unknown_call_takes_effect_before_its_send, {ORDER}),
    (a_dead_hub_takes_a_call, {ORDER}),
    (what_no_hub_heard_takes_effect, {ORDER}),
    (a_request_is_done_twice, {"request id"}),
    (a_replay_tells_something_else, {"request id"}),
    (hub_time_runs_back, {"hub time"}),
    (the_wall_clock_moves_a_living_hub, {"hub time"}),
    (an_expiry_that_was_told_is_taken_back, {ORDER, "hub time"}),
    (an_expiry_that_a_check_told_is_taken_back, {ORDER}),
    (somebody_passes_the_queue, {"queue"}),
]


@pytest.mark.parametrize(("story", "kinds"), BAD)
def test_each_fault_is_seen(story: Story, kinds: set[str]) -> None:
    script = Script()
    story(script)
    assert check_history(script.history).kinds == kinds


def test_what_was_not_reached_is_a_fault() -> None:
    script = Script()
    a_lease_is_held_expires_and_is_taken_over(script)
    assert check_history(script.history, must_reach=["takeover ok", "taken after expiry"]).faults == []
    verdict = check_history(script.history, must_reach=["takeover ok", "unknown", "LEASE_FENCED"])
    assert verdict.faults == ["not reached: unknown", "not reached: LEASE_FENCED"]


def test_a_clock_that_was_set_shows_when_the_hub_starts_again() -> None:
    script = Script()
    script.add(Call.HUB_TIME, "c", 10, answer=Answer(hub_nanos=hub_nanos(10)))
    for moment, happening in ((20, Happening.ENDED), (30, Happening.STARTING), (35, Happening.STARTED)):
        script.fault(happening, moment)
    script.add(Call.HUB_TIME, "c", 50, answer=Answer(hub_nanos=hub_nanos(1050)))
    verdict = check_history(script.history)
    assert (verdict.faults, verdict.counts["hub time ahead at a start"]) == ([], 1)


def test_a_history_is_kept_as_lines(tmp_path: Path) -> None:
    script = Script()
    what_is_unknown_happened(script)
    script.fault(Happening.ENDED, 5000)
    kept = tmp_path / "history.jsonl"
    write_history(script.history, kept)
    assert read_history(kept) == script.history
    assert len(kept.read_text().splitlines()) == len(script.entries)
