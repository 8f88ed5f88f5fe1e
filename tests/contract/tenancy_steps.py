"""Every call of the contract, as one tenant makes it: only the project is named otherwise for each tenant."""

from collections.abc import Callable, Mapping, Sequence
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
from tests.contract.tenancy import Step, Tenant

ONE_PAGE: Final = 1
"""Entries in a page, so that there is a token for the next one."""


def _one(method: str, make: Callable[[Tenant], Message]) -> Step:
    return Step(method, lambda tenant: [make(tenant)])


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

    return _one("SyncService/ReconcileRuns", make)


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
    return _one(
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

    return _one("JournalService/Commit", make)


RUNS: Final[Sequence[Step]] = (
    # Long over when it is taken over.
    _acquire("expired", ttl=0.001),
    _one(
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
    _one(
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
    _one(
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
    _one(
        "LeaseService/ReleaseLease",
        lambda tenant: lease.ReleaseLeaseRequest(
            request_id="q3", hub_project=tenant.name, credential=credential("released", 1)
        ),
    ),
    *(
        _one(
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
    _one(
        "LeaseService/AbortLease",
        lambda tenant: lease.AbortLeaseRequest(
            request_id="q5",
            hub_project=tenant.name,
            resource="held",
            reason=lease.ABORT_REASON_EXTERNAL,
        ),
    ),
    _one(
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
    _one(
        "LeaseService/RenewMaintenance",
        lambda tenant: lease.RenewMaintenanceRequest(
            hub_project=tenant.name, credential=credential("maintained", 1), ttl=seconds(600)
        ),
    ),
    _acquire("maintained", "h2"),
    _one(
        "LeaseService/BeginMaintenance",
        lambda tenant: lease.BeginMaintenanceRequest(
            hub_project=tenant.name,
            resource="finished",
            runtime_id="rt",
            holder_id="h1",
            nonce=nonce("finished-h1"),
        ),
    ),
    _one(
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
    _one(
        "JournalService/ClaimOutboxMessages",
        lambda tenant: journal.ClaimOutboxMessagesRequest(
            hub_project=tenant.name, destination="mail", max_count=1, visibility_timeout=seconds(600)
        ),
    ),
    _one(
        "JournalService/AcknowledgeOutboxMessage",
        lambda tenant: journal.AcknowledgeOutboxMessageRequest(
            hub_project=tenant.name, outbox_id="o1", claim_id=_claim_id(tenant)
        ),
    ),
    _one(
        "JournalService/ClaimOutboxMessages",
        lambda tenant: journal.ClaimOutboxMessagesRequest(
            hub_project=tenant.name, destination="mail", max_count=1, visibility_timeout=seconds(600)
        ),
    ),
    _one(
        "JournalService/ReturnOutboxMessage",
        lambda tenant: journal.ReturnOutboxMessageRequest(
            hub_project=tenant.name, outbox_id="o2", claim_id=_claim_id(tenant)
        ),
    ),
    _one(
        "JournalService/ReleaseOutboxMessage",
        lambda tenant: journal.ReleaseOutboxMessageRequest(hub_project=tenant.name, outbox_id="o2"),
    ),
)
TOKENS: Final[Sequence[Step]] = (
    *(
        _one(
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
    _one(
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


def _generation(tenant: Tenant) -> str:
    answer = tenant.last("HubService/GetHubInfo", hub.GetHubInfoResponse)
    assert isinstance(answer, hub.GetHubInfoResponse)
    return answer.hub_generation


def _pages(method: str, make: Callable[[Tenant, str], Message], response: type[Message]) -> Sequence[Step]:
    """The first page, and the next one by the token of the first."""

    def next_page(tenant: Tenant) -> Message:
        return make(tenant, str(getattr(tenant.last(method, response), "next_page_token", "")))

    return (_one(method, lambda tenant: make(tenant, "")), _one(method, next_page))


def _of_run(kind: type[Message], run_id: str) -> Callable[[Tenant], Message]:
    return lambda tenant: kind(hub_project=tenant.name, project_id=tenant.project, run_id=run_id)


READS: Final[Sequence[Step]] = (
    _one("HubService/GetHubInfo", lambda _: hub.GetHubInfoRequest()),
    _one("SyncService/GetRun", _of_run(sync.GetRunRequest, "r1")),
    _one("SyncService/GetRun", _of_run(sync.GetRunRequest, "unknown")),
    *_pages(
        "SyncService/ListRuns",
        lambda tenant, token: sync.ListRunsRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        sync.ListRunsResponse,
    ),
    *_pages(
        "SyncService/ListEvents",
        lambda tenant, token: sync.ListEventsRequest(
            hub_project=tenant.name,
            project_id=tenant.project,
            run_id="r1",
            page_size=ONE_PAGE,
            page_token=token,
        ),
        sync.ListEventsResponse,
    ),
    _one("SyncService/ExportEvents", _of_run(sync.ExportEventsRequest, "")),
    _one("SyncService/ExportEvents", _of_run(sync.ExportEventsRequest, "r1")),
    _one("SyncService/ListAlerts", lambda tenant: sync.ListAlertsRequest(hub_project=tenant.name)),
    *_pages(
        "SyncService/ListProjects",
        lambda tenant, token: sync.ListProjectsRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        sync.ListProjectsResponse,
    ),
    *(
        _one(
            "PresenceService/GetRuntime",
            lambda tenant, runtime_id=runtime_id: presence.GetRuntimeRequest(  # type: ignore[misc]  # bound now
                hub_project=tenant.name, runtime_id=runtime_id
            ),
        )
        for runtime_id in ("rt", "unknown")
    ),
    *_pages(
        "PresenceService/ListRuntimes",
        lambda tenant, token: presence.ListRuntimesRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        presence.ListRuntimesResponse,
    ),
    _one(
        "LeaseService/CheckLease",
        lambda tenant: lease.CheckLeaseRequest(hub_project=tenant.name, resource="held", fencing_token=1),
    ),
    _one(
        "LeaseService/GetLease",
        lambda tenant: lease.GetLeaseRequest(hub_project=tenant.name, resource="given"),
    ),
    *_pages(
        "LeaseService/ListLeases",
        lambda tenant, token: lease.ListLeasesRequest(
            hub_project=tenant.name, include_ended=True, page_size=ONE_PAGE, page_token=token
        ),
        lease.ListLeasesResponse,
    ),
    *(
        _one(
            "LeaseService/GetResourceState",
            lambda tenant, resource=resource: lease.GetResourceStateRequest(  # type: ignore[misc]  # bound now
                hub_project=tenant.name, resource=resource
            ),
        )
        for resource in ("held", "maintained", "queued", "unknown")
    ),
    _one(
        "JournalService/ListStreamEvents",
        lambda tenant: journal.ListStreamEventsRequest(hub_project=tenant.name, stream_id="stream"),
    ),
    *_pages(
        "JournalService/ListStreams",
        lambda tenant, token: journal.ListStreamsRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        journal.ListStreamsResponse,
    ),
    _one(
        "JournalService/GetProjection",
        lambda tenant: journal.GetProjectionRequest(hub_project=tenant.name, projection_id="view"),
    ),
    _one("JournalService/ListJournal", lambda tenant: journal.ListJournalRequest(hub_project=tenant.name)),
    _one(
        "JournalService/ListJournal",
        lambda tenant: journal.ListJournalRequest(
            hub_project=tenant.name, after_position=1_000, hub_generation=_generation(tenant)
        ),
    ),
    *_pages(
        "JournalService/ListOutboxMessages",
        lambda tenant, token: journal.ListOutboxMessagesRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        journal.ListOutboxMessagesResponse,
    ),
    _one("HubService/ListTokens", lambda tenant: hub.ListTokensRequest(hub_project=tenant.name)),
    _one(
        "HubService/PruneEvents",
        lambda tenant: hub.PruneEventsRequest(
            # Nothing is so old, however slow the machine is; what there is to look at is told all the same.
            hub_project=tenant.name,
            older_than=Duration(seconds=3_600),
            is_dry_run=True,
        ),
    ),
    _one("HubService/VerifyEvents", lambda tenant: hub.VerifyEventsRequest(hub_project=tenant.name)),
    # What is refused for a position that is ahead tells the head, which has to be the tenant's own.
    _one(
        "SyncService/WatchEvents",
        lambda tenant: sync.WatchEventsRequest(
            hub_project=tenant.name, after_position=1_000, hub_generation=_generation(tenant)
        ),
    ),
    _one(
        "JournalService/WatchJournal",
        lambda tenant: journal.WatchJournalRequest(
            hub_project=tenant.name, after_position=1_000, hub_generation=_generation(tenant)
        ),
    ),
)
"""Calls that change nothing."""

WATCHES: Final[Mapping[str, Callable[[Tenant], Message]]] = {
    "SyncService/WatchEvents": lambda tenant: sync.WatchEventsRequest(hub_project=tenant.name),
    "SyncService/WatchAlerts": lambda tenant: sync.WatchAlertsRequest(hub_project=tenant.name),
    "PresenceService/WatchRuntimes": lambda tenant: presence.WatchRuntimesRequest(hub_project=tenant.name),
    "LeaseService/WatchLeases": lambda tenant: lease.WatchLeasesRequest(hub_project=tenant.name),
    "JournalService/WatchJournal": lambda tenant: journal.WatchJournalRequest(hub_project=tenant.name),
}
SEEN: Final[Sequence[Step]] = (
    _one("SyncService/ListAlerts", lambda tenant: sync.ListAlertsRequest(hub_project=tenant.name)),
    _one(
        "SyncService/AcknowledgeAlert",
        lambda tenant: sync.AcknowledgeAlertRequest(hub_project=tenant.name, alert_id=_alert_id(tenant)),
    ),
    _one(
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
