"""Every call that changes something, as one tenant makes it: only the project is named otherwise for each."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from synchub.v1 import hub_service_pb2 as hub
from synchub.v1 import journal_service_pb2 as journal
from synchub.v1 import lease_service_pb2 as lease
from synchub.v1 import presence_service_pb2 as presence
from synchub.v1 import sync_service_pb2 as sync
from synchub.v1.sync_event_pb2 import SyncEvent
from tests.contract.leasing import nonce, seconds
from tests.contract.tenancy import Step, Tenant, one


def _push(
    run_id: str,
    *texts: str,
    runtime_id: str = "rt",
    instance_id: str = "i2",
    first: int = 1,
    final: bool = False,
) -> Step:
    """Push events of these texts in one batch, the last one final or not."""
    events = [SyncEvent(sequence=first + n, event_type="line", text=text) for n, text in enumerate(texts)]
    events[-1].is_final = final
    return Step(
        "SyncService/PushEvents",
        lambda tenant: [
            sync.PushEventsRequest(
                hub_project=tenant.name,
                project_id=tenant.project,
                run_id=run_id,
                runtime_id=runtime_id,
                instance_id=instance_id,
                events=events,
            )
        ],
    )


def _reconcile(instance_id: str) -> Step:
    def make(tenant: Tenant) -> Message:
        runs = [
            sync.ReconcileRun(project_id=tenant.project, run_id=run_id, sequence=1, chain_hash=bytes(32))
            for run_id in ("r1", "r2", "unknown")
        ]
        return sync.ReconcileRunsRequest(
            hub_project=tenant.name, runtime_id="rt", instance_id=instance_id, runs=runs
        )

    return one("SyncService/ReconcileRuns", make)


def _beat(runtime_id: str, instance_id: str, *, is_goodbye: bool = False) -> Step:
    return Step(
        "PresenceService/Heartbeat",
        lambda tenant: [
            presence.HeartbeatRequest(
                hub_project=tenant.name,
                runtime_id=runtime_id,
                instance_id=instance_id,
                host="host",
                pid=7,
                version="1",
                labels={"k": "v"},
                unsynced_event_count=3,
                is_goodbye=is_goodbye,
            )
        ],
    )


def _acquire(
    resource: str, holder_id: str = "h1", *, ttl: float = 600, request_id: str = "", wait: float = 0
) -> Step:
    return one(
        "LeaseService/AcquireLease",
        lambda tenant: lease.AcquireLeaseRequest(
            request_id=request_id,
            hub_project=tenant.name,
            resource=resource,
            runtime_id="rt",
            holder_id=holder_id,
            holder_display_name=f"who holds {resource}",
            nonce=nonce(f"{resource}-{holder_id}"),
            ttl=seconds(ttl),
            wait_timeout=seconds(wait) if wait else None,
        ),
    )


def credential(resource: str, token: int, holder_id: str = "h1") -> lease.LeaseCredential:
    """What opens a tenure of ``_acquire``."""
    return lease.LeaseCredential(
        resource=resource,
        runtime_id="rt",
        holder_id=holder_id,
        fencing_token=token,
        nonce=nonce(f"{resource}-{holder_id}"),
    )


def _commit(message_id: str, *, revision: int = 0, event_id: str = "", outbox_id: str = "") -> Step:
    def make(tenant: Tenant) -> Message:
        events = [journal.NewJournalEvent(event_id=event_id, event_type="placed", text="order")]
        outbox = [
            journal.NewOutboxMessage(outbox_id=outbox_id, destination="mail", ordering_key="k", text="hi")
        ]
        return journal.CommitRequest(
            hub_project=tenant.name,
            message_id=message_id,
            stream_id="stream",
            credential=credential("stream", 1),
            expected_revision=revision,
            events=events if event_id else (),
            outbox_messages=outbox if outbox_id else (),
            projections=[journal.NewProjection(projection_id="view", value=message_id.encode())],
            reply=b"reply",
        )

    return one("JournalService/Commit", make)


RUNS: Final[Sequence[Step]] = (
    # Long over when it is taken over.
    _acquire("expired", ttl=0.001),
    one(
        "SyncService/BindProject",
        lambda tenant: sync.BindProjectRequest(hub_project=tenant.name, project_id=f"{tenant.project}-empty"),
    ),
    _reconcile("i1"),
    _reconcile("i2"),
    _reconcile("i1"),
    _push("r1", "a", "b", "c"),
    _push("r1", "a", "b", "c"),
    _push("r1", "another", first=2),
    _push("r1", "d", runtime_id="rt2", instance_id="", first=4),
    _push("r1", "d", instance_id="i1", first=4),
    _push("r2", "a", final=True),
    _push("r2", "b", first=2),
    _reconcile("i2"),
    _beat("rt", "i2"),
    _beat("rt", "i1"),
    _beat("rt", "i2", is_goodbye=True),
    _beat("rt3", "i1", is_goodbye=True),
)
LEASES: Final[Sequence[Step]] = (
    _acquire("held", request_id="q1"),
    _acquire("held", request_id="q1"),
    _acquire("held", "h2", request_id="q1"),
    _acquire("held", "h2"),
    one(
        "LeaseService/RenewLease",
        lambda tenant: lease.RenewLeaseRequest(
            hub_project=tenant.name, credential=credential("held", 1), ttl=seconds(600)
        ),
    ),
    Step(
        "LeaseService/RenewLeases",
        lambda tenant: [
            lease.RenewLeasesRequest(
                hub_project=tenant.name,
                renewals=[
                    lease.LeaseRenewal(credential=credential("held", token), ttl=seconds(600))
                    for token in (1, 2)
                ],
            )
        ],
    ),
    _acquire("given"),
    one(
        "LeaseService/TransferLease",
        lambda tenant: lease.TransferLeaseRequest(
            request_id="q2",
            hub_project=tenant.name,
            credential=credential("given", 1),
            next_runtime_id="rt2",
            next_holder_id="h2",
            ttl=seconds(600),
        ),
    ),
    _acquire("released"),
    one(
        "LeaseService/ReleaseLease",
        lambda tenant: lease.ReleaseLeaseRequest(
            request_id="q3", hub_project=tenant.name, credential=credential("released", 1)
        ),
    ),
    *(
        one(
            "LeaseService/TakeoverLease",
            lambda tenant, resource=resource: lease.TakeoverLeaseRequest(  # type: ignore[misc]  # bound now
                request_id=f"q4 {resource}",
                hub_project=tenant.name,
                resource=resource,
                runtime_id="rt",
                holder_id="h2",
                nonce=nonce(f"{resource}-h2"),
                ttl=seconds(600),
            ),
        )
        for resource in ("held", "expired")
    ),
    one(
        "LeaseService/AbortLease",
        lambda tenant: lease.AbortLeaseRequest(
            request_id="q5",
            hub_project=tenant.name,
            resource="held",
            reason=lease.ABORT_REASON_EXTERNAL,
        ),
    ),
    one(
        "LeaseService/BeginMaintenance",
        lambda tenant: lease.BeginMaintenanceRequest(
            request_id="q6",
            hub_project=tenant.name,
            resource="maintained",
            runtime_id="rt",
            holder_id="h1",
            nonce=nonce("maintained-h1"),
            ttl=seconds(600),
        ),
    ),
    one(
        "LeaseService/RenewMaintenance",
        lambda tenant: lease.RenewMaintenanceRequest(
            hub_project=tenant.name, credential=credential("maintained", 1), ttl=seconds(600)
        ),
    ),
    _acquire("maintained", "h2"),
    one(
        "LeaseService/BeginMaintenance",
        lambda tenant: lease.BeginMaintenanceRequest(
            hub_project=tenant.name,
            resource="finished",
            runtime_id="rt",
            holder_id="h1",
            nonce=nonce("finished-h1"),
        ),
    ),
    one(
        "LeaseService/FinishMaintenance",
        lambda tenant: lease.FinishMaintenanceRequest(
            request_id="q7", hub_project=tenant.name, credential=credential("finished", 1), delete_state=True
        ),
    ),
    _acquire("stream"),
)
JOURNAL: Final[Sequence[Step]] = (
    _commit("m1", event_id="e1", outbox_id="o1"),
    _commit("m1", event_id="e1", outbox_id="o1"),
    _commit("m1", event_id="e2"),
    _commit("m2", event_id="e2"),
    _commit("m2", revision=1, event_id="e1"),
    _commit("m2", revision=1, event_id="e2", outbox_id="o2"),
    _commit("m3", revision=2, outbox_id="o3"),
    one(
        "JournalService/ClaimOutboxMessages",
        lambda tenant: journal.ClaimOutboxMessagesRequest(
            hub_project=tenant.name, destination="mail", max_count=1, visibility_timeout=seconds(600)
        ),
    ),
    one(
        "JournalService/AcknowledgeOutboxMessage",
        lambda tenant: journal.AcknowledgeOutboxMessageRequest(
            hub_project=tenant.name, outbox_id="o1", claim_id=_claim_id(tenant)
        ),
    ),
    one(
        "JournalService/ClaimOutboxMessages",
        lambda tenant: journal.ClaimOutboxMessagesRequest(
            hub_project=tenant.name, destination="mail", max_count=1, visibility_timeout=seconds(600)
        ),
    ),
    one(
        "JournalService/ReturnOutboxMessage",
        lambda tenant: journal.ReturnOutboxMessageRequest(
            hub_project=tenant.name, outbox_id="o2", claim_id=_claim_id(tenant)
        ),
    ),
    one(
        "JournalService/ReleaseOutboxMessage",
        lambda tenant: journal.ReleaseOutboxMessageRequest(hub_project=tenant.name, outbox_id="o2"),
    ),
)
TOKENS: Final[Sequence[Step]] = (
    *(
        one(
            "HubService/CreateToken",
            lambda tenant, name=name: hub.CreateTokenRequest(  # type: ignore[misc]  # bound now
                hub_project=tenant.name,
                display_name=name,
                role=hub.ROLE_RUNTIME,
                project_id_prefixes=[f"{tenant.project}"],
                ttl=Duration(seconds=86_400),
            ),
        )
        for name in ("first", "second")
    ),
    one(
        "HubService/RevokeToken",
        lambda tenant: hub.RevokeTokenRequest(hub_project=tenant.name, token_id=_token_id(tenant)),
    ),
)


def _claim_id(tenant: Tenant) -> str:
    answer = tenant.last("JournalService/ClaimOutboxMessages", journal.ClaimOutboxMessagesResponse)
    assert isinstance(answer, journal.ClaimOutboxMessagesResponse)
    return answer.messages[0].claim_id if answer.messages else "none"


def _token_id(tenant: Tenant) -> str:
    answer = tenant.last("HubService/CreateToken", hub.CreateTokenResponse)
    assert isinstance(answer, hub.CreateTokenResponse)
    return answer.token.token_id or "none"


def _alert_id(tenant: Tenant) -> str:
    answer = tenant.last("SyncService/ListAlerts", sync.ListAlertsResponse)
    assert isinstance(answer, sync.ListAlertsResponse)
    # Ids are drawn, and with them the order.
    in_order = sorted(answer.alerts, key=lambda alert: (alert.reason, alert.run_id, alert.runtime_id))
    return in_order[0].alert_id if in_order else "none"


SEEN: Final[Sequence[Step]] = (
    one("SyncService/ListAlerts", lambda tenant: sync.ListAlertsRequest(hub_project=tenant.name)),
    one(
        "SyncService/AcknowledgeAlert",
        lambda tenant: sync.AcknowledgeAlertRequest(hub_project=tenant.name, alert_id=_alert_id(tenant)),
    ),
    one(
        "SyncService/ReleaseProject",
        lambda tenant: sync.ReleaseProjectRequest(
            hub_project=tenant.name, project_id=f"{tenant.project}-empty"
        ),
    ),
)
CHANGES: Final = (*RUNS, *LEASES, *JOURNAL, *TOKENS, *SEEN)

LAST: Final[Sequence[Step]] = (
    _push("last", "last of all"),
    _push("last", "changed"),
    _beat("last", "i1", is_goodbye=True),
    _acquire("last"),
    _commit("last", revision=2, event_id="last"),
)
"""What every watch hears of, in the end."""
