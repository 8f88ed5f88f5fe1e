"""Which alerts get rows of their own where there are more than a hub project may have."""

from typing import Final

import pytest

from hub.core.alert import Observation
from hub.core.limits import Limits
from hub.core.values import Alert, AlertKey, AlertReason, HubProject
from hub.store.contract import WriteTransaction
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate

ROWS_MAX: Final = 40
HUB_PROJECT: Final = HubProject("h")


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store, Limits(alert_rows_max=ROWS_MAX))


def observe(gate: Gate, reason: AlertReason, *runtimes: str) -> None:
    """Have alerts of these runtimes written, each in a group of its own, one second after the other."""
    for runtime in runtimes:
        gate.elapsed_nanos += 1_000_000_000
        gate.alert_book.observe(Observation(AlertKey(HUB_PROJECT, reason, "p", "r", runtime), 1, ()))
        gate.run(lambda _transaction, _now_nanos: True)


def shown(gate: Gate, reason: AlertReason) -> list[Alert]:
    return [alert for alert in gate.alerts() if alert.key.reason is reason]


def names(count: int) -> list[str]:
    return [f"runtime-{number:02d}" for number in range(count)]


def test_one_reason_has_half_of_the_rows_and_hides_none_of_another(gate: Gate) -> None:
    observe(gate, AlertReason.IDENTITY_MISMATCH, *names(60))
    mismatches = shown(gate, AlertReason.IDENTITY_MISMATCH)
    assert sorted(alert.seen_count for alert in mismatches) == [1] * (ROWS_MAX // 2) + [60 - ROWS_MAX // 2]
    observe(gate, AlertReason.SEQUENCE_REUSED, "reuses")
    (reused,) = shown(gate, AlertReason.SEQUENCE_REUSED)
    assert reused.key.runtime_id == "reuses"


def test_what_a_person_has_seen_makes_room_for_what_is_new(gate: Gate) -> None:
    for reason in list(AlertReason)[:3]:
        observe(gate, reason, *names(ROWS_MAX // 2))
    full = gate.alerts()
    assert len(full) <= ROWS_MAX
    observe(gate, AlertReason.HISTORY_LOST, "unseen")
    (overflow,) = shown(gate, AlertReason.HISTORY_LOST)
    assert overflow.key.runtime_id == ""

    seen = min((alert for alert in full if alert.key.runtime_id), key=lambda alert: alert.last_seen_nanos)

    def acknowledge(transaction: WriteTransaction, now_nanos: int) -> bool:
        return transaction.acknowledge_alert(HUB_PROJECT, seen.alert_id, now_nanos=now_nanos)

    assert gate.run(acknowledge)
    observe(gate, AlertReason.HISTORY_LOST, "new")
    assert [alert.key.runtime_id for alert in shown(gate, AlertReason.HISTORY_LOST)] != [""]
    assert seen.alert_id not in {alert.alert_id for alert in gate.alerts()}
    assert len(gate.alerts()) <= ROWS_MAX
