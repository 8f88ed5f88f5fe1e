"""Alerts, over the wire."""

from collections.abc import Iterator
from functools import partial

from synchub.contract import content_hash
from synchub.v1.alert_pb2 import Alert, AlertReason
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    AcknowledgeAlertRequest,
    ListAlertsRequest,
    WatchAlertsRequest,
    WatchAlertsResponse,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import STREAM_SECONDS_MAX, refusal_of
from tests.contract.pushing import events, push


def alerts_of(stub: SyncServiceStub, hub_project: str, *, exclude_acknowledged: bool = False) -> list[Alert]:
    request = ListAlertsRequest(hub_project=hub_project, exclude_acknowledged=exclude_acknowledged)
    return list(stub.ListAlerts(request).alerts)


def reuse_sequence(stub: SyncServiceStub, hub_project: str) -> None:
    """Push other contents under a sequence that is taken."""
    other = SyncEvent(sequence=1, event_type="line", text="other")
    response = push(stub, hub_project, project_id=hub_project, batch=[other])
    assert len(response.conflicts) == 1


def hash_of(text: str) -> bytes:
    return content_hash("line", None, is_final=False, attributes={}, payload=text.encode())


def test_a_reused_sequence_is_an_alert_with_both_hashes(sync_stub: SyncServiceStub, hub_project: str) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    reuse_sequence(sync_stub, hub_project)
    reuse_sequence(sync_stub, hub_project)
    (alert,) = alerts_of(sync_stub, hub_project)
    assert alert.reason == AlertReason.ALERT_REASON_SEQUENCE_REUSED
    assert (alert.project_id, alert.run_id, alert.runtime_id) == (hub_project, "r", "runtime")
    assert (alert.seen_count, len(alert.samples)) == (2, 2)
    sample = alert.samples[0]
    assert (sample.sequence, sample.last_sequence) == (1, 1)
    assert sample.stored_content_hash == hash_of("payload 1")
    assert sample.offered_content_hash == hash_of("other")
    assert sample.peer.startswith("ipv4:127.0.0.1:")
    assert alert.first_seen_time.ToNanoseconds() <= alert.last_seen_time.ToNanoseconds()
    assert not alert.HasField("acknowledge_time")


def test_both_sides_of_a_project_mismatch_are_told_and_the_owner_nothing_of_the_stranger(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    stranger = f"{hub_project}-stranger"
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    response = push(
        sync_stub, stranger, project_id=hub_project, run_id="theirs", runtime_id="x", batch=events(1, 1)
    )
    assert len(response.conflicts) == 1
    (theirs,) = alerts_of(sync_stub, stranger)
    (ours,) = alerts_of(sync_stub, hub_project)
    assert theirs.reason == ours.reason == AlertReason.ALERT_REASON_PROJECT_MISMATCH
    assert (theirs.run_id, theirs.runtime_id) == ("theirs", "x")
    assert (ours.project_id, ours.run_id, ours.runtime_id, len(ours.samples)) == (hub_project, "", "", 0)


def test_an_acknowledged_alert_opens_again_when_it_recurs(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    reuse_sequence(sync_stub, hub_project)
    (alert,) = alerts_of(sync_stub, hub_project)
    request = AcknowledgeAlertRequest(hub_project=hub_project, alert_id=alert.alert_id)
    acknowledged = sync_stub.AcknowledgeAlert(request).alert
    assert acknowledged.HasField("acknowledge_time")
    assert sync_stub.AcknowledgeAlert(request).alert == acknowledged
    assert alerts_of(sync_stub, hub_project, exclude_acknowledged=True) == []
    assert alerts_of(sync_stub, hub_project) == [acknowledged]
    reuse_sequence(sync_stub, hub_project)
    (again,) = alerts_of(sync_stub, hub_project, exclude_acknowledged=True)
    assert (again.alert_id, again.seen_count) == (alert.alert_id, 2)


def test_an_alert_of_somebody_else_cannot_be_acknowledged(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    reuse_sequence(sync_stub, hub_project)
    before = alerts_of(sync_stub, hub_project)
    request = AcknowledgeAlertRequest(hub_project="stranger", alert_id=before[0].alert_id)
    assert refusal_of(partial(sync_stub.AcknowledgeAlert, request)).reason == "NOT_FOUND"
    assert alerts_of(sync_stub, hub_project) == before


def test_alerts_are_listed_page_by_page(sync_stub: SyncServiceStub, hub_project: str) -> None:
    for run_id in "abc":
        push(sync_stub, hub_project, project_id=hub_project, run_id=run_id, batch=events(1, 1))
        other = [SyncEvent(sequence=1, event_type="other")]
        push(sync_stub, hub_project, project_id=hub_project, run_id=run_id, batch=other)
    request = ListAlertsRequest(hub_project=hub_project, page_size=2)
    first = sync_stub.ListAlerts(request)
    request.page_token = first.next_page_token
    second = sync_stub.ListAlerts(request)
    assert [len(first.alerts), len(second.alerts), second.next_page_token] == [2, 1, ""]
    ids = [alert.alert_id for page in (first, second) for alert in page.alerts]
    assert ids == sorted(ids)


def test_a_watch_gives_all_alerts_then_says_so_then_each_change(
    sync_stub: SyncServiceStub, hub_project: str
) -> None:
    push(sync_stub, hub_project, project_id=hub_project, batch=events(1, 1))
    reuse_sequence(sync_stub, hub_project)
    call = sync_stub.WatchAlerts(WatchAlertsRequest(hub_project=hub_project), timeout=STREAM_SECONDS_MAX)
    snapshot, complete = next(call), next(call)
    assert [alert.seen_count for alert in snapshot.alerts] == [1]
    assert (complete.is_snapshot_complete, len(complete.alerts)) == (True, 0)
    reuse_sequence(sync_stub, hub_project)
    (recurred,) = next_alerts(call)
    assert (recurred.alert_id, recurred.seen_count) == (snapshot.alerts[0].alert_id, 2)
    sync_stub.AcknowledgeAlert(AcknowledgeAlertRequest(hub_project=hub_project, alert_id=recurred.alert_id))
    (acknowledged,) = next_alerts(call)
    assert acknowledged.HasField("acknowledge_time")
    call.cancel()


def next_alerts(call: Iterator[WatchAlertsResponse]) -> list[Alert]:
    return next(list(answer.alerts) for answer in call if answer.alerts)
