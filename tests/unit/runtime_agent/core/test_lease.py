"""Until when a holder may trust its lease, when it renews it, and what each refusal means to it."""

import pytest

from runtime_agent.core.lease import (
    Grant,
    HeldTenure,
    LossReason,
    OpeningAction,
    OpeningTries,
    OpeningTry,
    Over,
    Renew,
    RenewalTiming,
    Wait,
    decide_opening_refusal,
    is_worth_repeating,
    loss_of,
)

MARGIN = 0.5
TIMING = RenewalTiming(MARGIN, beat_seconds=None, retry_seconds_first=0.25, retry_seconds_max=1.0)
GRANT = Grant(first_sent_at=100.0, sent_at=100.0, ttl_seconds=9.5)
"""9 s of it are usable: until 109, renewed at 103."""
LOST = ["LEASE_FENCED", "LEASE_MISSING", "LEASE_SUPERSEDED", "LEASE_EXPIRED"]
TRANSIENT = ["", "STORAGE_UNAVAILABLE", "HUB_STOPPING", "RATE_LIMITED", "INVALID_REQUEST", "NOT_HEARD_OF_YET"]


def tenure(grant: Grant = GRANT, timing: RenewalTiming = TIMING, chance: float = 0.0) -> HeldTenure:
    return HeldTenure(grant, timing, chance=lambda: chance)


# --- the deadline ---


def test_the_deadline_counts_from_the_send_that_was_answered() -> None:
    grant = Grant(first_sent_at=90.0, sent_at=100.0, ttl_seconds=10.0)
    assert grant.deadline(MARGIN) == 109.5


def test_a_call_that_the_hub_queued_was_granted_that_much_later() -> None:
    grant = Grant(first_sent_at=100.0, sent_at=100.0, ttl_seconds=10.0, waited_seconds=25.0)
    assert grant.deadline(MARGIN) == 134.5


def test_a_replayed_answer_is_that_of_the_first_send() -> None:
    grant = Grant(first_sent_at=90.0, sent_at=100.0, ttl_seconds=10.0, waited_seconds=2.0, is_replayed=True)
    assert grant.deadline(MARGIN) == 101.5


@pytest.mark.parametrize(("margin", "deadline"), [(0.0, 110.0), (0.5, 109.5), (0.75, 109.25)])
def test_the_margin_is_taken_off_the_granted_time(margin: float, deadline: float) -> None:
    assert Grant(100.0, 100.0, ttl_seconds=10.0).deadline(margin) == deadline


def test_a_grant_is_useful_while_a_tenth_of_its_time_is_left() -> None:
    assert GRANT.is_useful(MARGIN, now=100.0)
    assert GRANT.is_useful(MARGIN, now=108.0)
    assert not GRANT.is_useful(MARGIN, now=108.2)
    assert not GRANT.is_useful(MARGIN, now=150.0)


def test_a_grant_that_is_not_longer_than_the_margin_is_never_useful() -> None:
    assert not Grant(100.0, 100.0, ttl_seconds=0.5).is_useful(MARGIN, now=100.0)
    assert not Grant(100.0, 100.0, ttl_seconds=0.3).is_useful(MARGIN, now=100.0)


# --- keeping it ---


def test_a_lease_is_renewed_when_a_third_of_its_usable_time_is_over() -> None:
    held = tenure()
    assert held.next_step(now=100.0) == Wait(3.0)
    assert held.next_step(now=102.0) == Wait(1.0)
    assert held.next_step(now=103.0) == Renew(timeout_seconds=3.0)


def test_leases_acquired_together_are_not_renewed_together() -> None:
    assert tenure(chance=0.0).next_step(now=100.0) == Wait(3.0)
    assert tenure(chance=1.0).next_step(now=100.0) == Wait(2.25)


def test_a_beat_renews_more_often_but_never_less_than_thrice_a_tenure() -> None:
    beating = RenewalTiming(MARGIN, beat_seconds=1.0, retry_seconds_first=0.1, retry_seconds_max=1.0)
    assert tenure(timing=beating).next_step(now=100.0) == Wait(1.0)
    short = Grant(100.0, 100.0, ttl_seconds=2.0)
    assert tenure(short, beating).next_step(now=100.0) == Wait(0.5)


def test_a_renewal_moves_the_deadline_from_the_moment_before_its_send() -> None:
    held = tenure()
    held.renewed(9.5, sent_at=103.0, now=105.0)
    assert held.deadline == 112.0
    assert held.next_step(now=105.0) == Wait(1.0)


def test_a_renewal_may_be_granted_a_shorter_time() -> None:
    held = tenure()
    held.renewed(3.5, sent_at=103.0, now=103.5)
    assert held.deadline == 106.0


def test_a_renewal_is_given_up_at_the_deadline() -> None:
    assert tenure().next_step(now=108.0) == Renew(timeout_seconds=1.0)


@pytest.mark.parametrize("reason", TRANSIENT)
def test_a_renewal_that_failed_is_tried_again_until_the_deadline(reason: str) -> None:
    held = tenure(chance=0.5)
    held.not_renewed(reason, now=103.0)
    assert held.next_step(now=103.0) == Wait(0.125)
    held.not_renewed(reason, now=103.125)
    assert held.next_step(now=103.125) == Wait(0.25)
    assert held.next_step(now=108.75) == Renew(timeout_seconds=0.25)
    held.not_renewed(reason, now=108.75)
    assert held.next_step(now=108.75) == Wait(0.25)
    assert held.next_step(now=109.0) == Over(LossReason.DEADLINE)


def test_the_waits_between_tries_begin_small_again_after_an_answer() -> None:
    held = tenure(chance=0.5)
    for _ in range(5):
        held.not_renewed("", now=103.0)
    assert held.next_step(now=103.0) == Wait(0.5)
    held.renewed(9.5, sent_at=104.0, now=104.0)
    held.not_renewed("", now=107.0)
    assert held.next_step(now=107.0) == Wait(0.125)


# --- losing it ---


@pytest.mark.parametrize("reason", LOST)
def test_a_refusal_of_the_tenure_is_its_loss_at_once(reason: str) -> None:
    held = tenure()
    held.not_renewed(reason, now=103.0)
    assert held.next_step(now=103.0) == Over(LossReason(reason))
    assert held.loss(now=103.0) is LossReason(reason)


def test_it_is_lost_from_the_deadline_on_and_not_before() -> None:
    held = tenure()
    assert held.loss(now=108.999) is None
    assert held.loss(now=109.0) is LossReason.DEADLINE


def test_a_machine_that_slept_past_the_deadline_sends_no_renewal_when_it_wakes_up() -> None:
    # The clock counts suspension: it shows the night that no timer saw.
    assert tenure().next_step(now=100.0 + 8 * 3600) == Over(LossReason.DEADLINE)


def test_an_answer_that_comes_after_the_deadline_revives_nothing() -> None:
    held = tenure()
    held.renewed(9.5, sent_at=108.0, now=109.5)
    assert held.next_step(now=109.5) == Over(LossReason.DEADLINE)
    assert held.deadline == 109.0


def test_a_deadline_that_was_seen_to_pass_is_a_loss_for_good() -> None:
    held = tenure()
    assert held.loss(now=109.0) is LossReason.DEADLINE
    held.renewed(9.5, sent_at=103.0, now=108.0)
    held.not_renewed("LEASE_SUPERSEDED", now=108.0)
    assert held.loss(now=101.0) is LossReason.DEADLINE


def test_what_the_hub_says_late_is_still_the_better_reason() -> None:
    held = tenure()
    held.not_renewed("LEASE_SUPERSEDED", now=110.0)
    assert held.loss(now=110.0) is LossReason.SUPERSEDED


def test_a_closed_client_loses_what_it_holds() -> None:
    held = tenure()
    held.lose(LossReason.CLIENT_CLOSED)
    held.lose(LossReason.DEADLINE)
    assert held.next_step(now=101.0) == Over(LossReason.CLIENT_CLOSED)


# --- giving it back, handing it on ---


def test_what_its_holder_ended_is_no_loss() -> None:
    held = tenure()
    assert held.end(now=101.0)
    assert held.next_step(now=200.0) == Over(None)
    held.not_renewed("LEASE_MISSING", now=101.0)
    held.renewed(9.5, sent_at=101.0, now=101.0)
    assert held.loss(now=200.0) is None
    assert (held.is_ended, held.deadline) == (True, 109.0)
    assert not held.end(now=102.0)


def test_what_is_lost_cannot_be_ended_any_more() -> None:
    held = tenure()
    assert not held.end(now=109.0)
    assert not held.is_ended
    assert held.loss(now=109.0) is LossReason.DEADLINE


def test_while_it_is_handed_on_nothing_is_renewed_and_no_refusal_believed() -> None:
    held = tenure()
    held.pause()
    assert held.next_step(now=105.0) == Wait(4.0)
    held.not_renewed("LEASE_SUPERSEDED", now=105.0)
    assert held.loss(now=105.0) is None
    held.resume(now=106.0)
    assert held.next_step(now=106.0) == Renew(timeout_seconds=3.0)
    held.not_renewed("LEASE_SUPERSEDED", now=106.5)
    assert held.next_step(now=106.5) == Over(LossReason.SUPERSEDED)


def test_the_deadline_passes_also_while_it_is_handed_on() -> None:
    held = tenure()
    held.pause()
    assert held.next_step(now=109.0) == Over(LossReason.DEADLINE)


# --- opening it ---


def test_a_call_that_waits_has_its_waiting_time_and_ten_seconds_more() -> None:
    tries = OpeningTries(began_at=100.0, wait_seconds=30.0, answer_seconds=10.0)
    assert tries.next_try(now=100.0) == OpeningTry(timeout_seconds=40.0, wait_seconds=30.0)
    assert tries.next_try(now=125.0) == OpeningTry(timeout_seconds=15.0, wait_seconds=5.0)
    assert tries.next_try(now=135.0) == OpeningTry(timeout_seconds=5.0, wait_seconds=0.0)
    assert tries.next_try(now=140.0) is None


@pytest.mark.parametrize("reason", LOST)
def test_only_the_four_refusals_of_a_credential_are_losses(reason: str) -> None:
    assert loss_of(reason) is LossReason(reason)


@pytest.mark.parametrize("reason", ["", "DEADLINE", "CLIENT_CLOSED", "LEASE_HELD", "UNAVAILABLE"])
def test_nothing_else_that_is_said_is_a_loss(reason: str) -> None:
    assert loss_of(reason) is None


@pytest.mark.parametrize(
    ("reason", "code", "action"),
    [
        ("", "UNAVAILABLE", OpeningAction.REPEAT),
        ("", "DEADLINE_EXCEEDED", OpeningAction.REPEAT),
        ("", "CANCELLED", OpeningAction.REPEAT),
        ("", "INTERNAL", OpeningAction.REPEAT),
        ("HUB_STOPPING", "UNAVAILABLE", OpeningAction.REPEAT),
        ("STORAGE_UNAVAILABLE", "UNAVAILABLE", OpeningAction.REPEAT),
        ("LEASE_SUPERSEDED", "FAILED_PRECONDITION", OpeningAction.LOOK),
        ("LEASE_HELD", "FAILED_PRECONDITION", OpeningAction.GIVE_UP),
        ("LEASE_MISSING", "FAILED_PRECONDITION", OpeningAction.GIVE_UP),
        ("RESOURCE_UNDER_MAINTENANCE", "FAILED_PRECONDITION", OpeningAction.GIVE_UP),
        ("INVALID_REQUEST", "INVALID_ARGUMENT", OpeningAction.GIVE_UP),
        ("PERMISSION_DENIED", "PERMISSION_DENIED", OpeningAction.GIVE_UP),
        ("", "UNIMPLEMENTED", OpeningAction.GIVE_UP),
    ],
)
def test_what_a_refused_acquire_does_next(reason: str, code: str, action: OpeningAction) -> None:
    assert decide_opening_refusal(reason, code) is action


def test_a_refusal_with_a_reason_is_decided_by_the_reason_and_not_by_its_code() -> None:
    assert not is_worth_repeating("LEASE_HELD", "UNAVAILABLE")
