"""Alerts as rows: how observations are counted in the store, and how samples are kept."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast
from uuid import uuid4

from hub.core.alert import Observation, merged_samples
from hub.core.values import AlertId, AlertKey, AlertReason, AlertSample
from hub.store.session import Session
from synchub.contract import SEQUENCE_MAX


class _Counted:
    """How many alerts a hub project has, of all and of each reason, and the number of its newest change,
    counted on from the store.

    Counting them for each observation would take the longer, the more there are.
    """

    def __init__(self, sql: Session, hub_project_key: int) -> None:
        self._sql = sql
        self._hub_project_key = hub_project_key
        self.alert_count, self.newest_change = _count_alerts(sql, hub_project_key)
        rows = cast("Iterable[tuple[str, int]]", sql.fetch("count_alerts_of_reasons", (hub_project_key,)))
        self.of_reason = Counter(dict(rows))

    def add(self, reason: str) -> None:
        """Count a new alert."""
        self.alert_count += 1
        self.of_reason[reason] += 1

    def has_room(self, reason: str, rows_max: int) -> bool:
        """Whether a new alert of a reason gets a row of its own; one that a person has seen makes room.

        No reason has more than half of the rows, so that who makes many of one hides none of another.
        Each keeps a row free for what overflows, so the bound holds with those counted in.
        """
        if self.of_reason[reason] >= rows_max // 2:
            return False
        if self.alert_count < rows_max - len(AlertReason):
            return True
        dropped = list(self._sql.fetch("drop_acknowledged_alert", (self._hub_project_key,)))
        for row in dropped:
            self.alert_count -= 1
            self.of_reason[str(row[0])] -= 1
        return bool(dropped)


def save_observations(
    sql: Session,
    observations: Iterable[tuple[int, Observation]],
    *,
    now_nanos: int,
    rows_max: int,
    samples_max: int,
) -> None:
    """Count observations, each with its hub project's key: a new alert, or one more of a known one, which is
    open again.

    Past ``rows_max`` alerts of a hub project, or half as many of one reason, one overflow row a reason counts
    what is new.
    """
    all_counted: dict[int, _Counted] = {}
    for hub_project_key, observation in observations:
        counted = all_counted.get(hub_project_key)
        if counted is None:
            counted = all_counted[hub_project_key] = _Counted(sql, hub_project_key)
        key = observation.key
        known = _load_alert(sql, hub_project_key, key=key)
        if known is None and not counted.has_room(key.reason, rows_max):
            key = AlertKey(key.hub_project, key.reason, "", "", "")
            known = _load_alert(sql, hub_project_key, key=key)
        counted.newest_change += 1
        if known is None:
            samples = samples_to_json(observation.samples[:samples_max])
            identity = (hub_project_key, uuid4().hex, key.reason, key.project_id, key.run_id, key.runtime_id)
            facts = (now_nanos, now_nanos, observation.count, samples, counted.newest_change)
            sql.run("create_alert", identity + facts)
            counted.add(key.reason)
            continue
        alert_key, _, seen_count, samples_text = known
        merged = merged_samples(samples_from_json(samples_text), observation.samples, samples_max=samples_max)
        count = min(seen_count + observation.count, SEQUENCE_MAX)
        facts_again = (now_nanos, count, samples_to_json(merged), counted.newest_change, alert_key)
        sql.run("count_alert_again", facts_again)


def acknowledge_alert(sql: Session, hub_project_key: int, *, alert_id: AlertId, now_nanos: int) -> bool:
    """Mark an alert as seen; return whether it was open."""
    _, newest_change = _count_alerts(sql, hub_project_key)
    sql.run("acknowledge_alert", (now_nanos, newest_change + 1, hub_project_key, alert_id))
    return sql.changed_count() == 1


def _count_alerts(sql: Session, hub_project_key: int) -> tuple[int, int]:
    """Return how many alerts a hub project has, and the number of its newest change."""
    return cast("tuple[int, int]", next(iter(sql.fetch("count_alerts", (hub_project_key,)))))


def _load_alert(sql: Session, hub_project_key: int, *, key: AlertKey) -> tuple[int, int, int, str] | None:
    """Return (key, first seen, count, samples) of an alert, None where there is none."""
    parameters = (hub_project_key, key.reason, key.project_id, key.run_id, key.runtime_id)
    rows = list(sql.fetch("load_alert", parameters))
    return cast("tuple[int, int, int, str]", rows[0]) if rows else None


def samples_to_json(samples: Sequence[AlertSample]) -> str:
    """Return the samples of an alert as they are stored: a JSON array, hashes in hexadecimal."""
    return json.dumps(
        [
            [
                sample.sequence,
                sample.last_sequence,
                sample.stored_content_hash.hex(),
                sample.offered_content_hash.hex(),
                sample.peer,
                sample.credential_name,
            ]
            for sample in samples
        ],
        ensure_ascii=False,
    )


def samples_from_json(text: str) -> tuple[AlertSample, ...]:
    """Return the samples of an alert from what is stored."""
    return tuple(
        AlertSample(sequence, last, bytes.fromhex(stored), bytes.fromhex(offered), peer, name)
        for sequence, last, stored, offered, peer, name in json.loads(text)
    )
