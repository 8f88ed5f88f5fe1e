"""Every call of the contract that changes nothing, and every watch, as one tenant makes them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from synchub.v1 import hub_service_pb2 as hub
from synchub.v1 import journal_service_pb2 as journal
from synchub.v1 import lease_service_pb2 as lease
from synchub.v1 import presence_service_pb2 as presence
from synchub.v1 import sync_service_pb2 as sync
from tests.contract.tenancy import Step, Tenant, one

ONE_PAGE: Final = 1
"""Entries in a page, so that there is a token for the next one."""


def _generation(tenant: Tenant) -> str:
    answer = tenant.last("HubService/GetHubInfo", hub.GetHubInfoResponse)
    assert isinstance(answer, hub.GetHubInfoResponse)
    return answer.hub_generation


def _pages(method: str, make: Callable[[Tenant, str], Message], response: type[Message]) -> Sequence[Step]:
    """The first page, and the next one by the token of the first."""

    def next_page(tenant: Tenant) -> Message:
        return make(tenant, str(getattr(tenant.last(method, response), "next_page_token", "")))

    return (one(method, lambda tenant: make(tenant, "")), one(method, next_page))


def _of_run(kind: type[Message], run_id: str) -> Callable[[Tenant], Message]:
    return lambda tenant: kind(hub_project=tenant.name, project_id=tenant.project, run_id=run_id)


READS: Final[Sequence[Step]] = (
    one("HubService/GetHubInfo", lambda _: hub.GetHubInfoRequest()),
    one("SyncService/GetRun", _of_run(sync.GetRunRequest, "r1")),
    one("SyncService/GetRun", _of_run(sync.GetRunRequest, "unknown")),
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
    one("SyncService/ExportEvents", _of_run(sync.ExportEventsRequest, "")),
    one("SyncService/ExportEvents", _of_run(sync.ExportEventsRequest, "r1")),
    one("SyncService/ListAlerts", lambda tenant: sync.ListAlertsRequest(hub_project=tenant.name)),
    *_pages(
        "SyncService/ListProjects",
        lambda tenant, token: sync.ListProjectsRequest(
            hub_project=tenant.name, page_size=ONE_PAGE, page_token=token
        ),
        sync.ListProjectsResponse,
    ),
    *(
        one(
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
    one(
        "LeaseService/CheckLease",
        lambda tenant: lease.CheckLeaseRequest(hub_project=tenant.name, resource="held", fencing_token=1),
    ),
    one(
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
        one(
            "LeaseService/GetResourceState",
            lambda tenant, resource=resource: lease.GetResourceStateRequest(  # type: ignore[misc]  # bound now
                hub_project=tenant.name, resource=resource
            ),
        )
        for resource in ("held", "maintained", "queued", "unknown")
    ),
    one(
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
    one(
        "JournalService/GetProjection",
        lambda tenant: journal.GetProjectionRequest(hub_project=tenant.name, projection_id="view"),
    ),
    one("JournalService/ListJournal", lambda tenant: journal.ListJournalRequest(hub_project=tenant.name)),
    one(
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
    one("HubService/ListTokens", lambda tenant: hub.ListTokensRequest(hub_project=tenant.name)),
    one(
        "HubService/PruneEvents",
        lambda tenant: hub.PruneEventsRequest(
            # Nothing is so old, however slow the machine is; what there is to look at is told all the same.
            hub_project=tenant.name,
            older_than=Duration(seconds=3_600),
            is_dry_run=True,
        ),
    ),
    one("HubService/VerifyEvents", lambda tenant: hub.VerifyEventsRequest(hub_project=tenant.name)),
    # What is refused for a position that is ahead tells the head, which has to be the tenant's own.
    one(
        "SyncService/WatchEvents",
        lambda tenant: sync.WatchEventsRequest(
            hub_project=tenant.name, after_position=1_000, hub_generation=_generation(tenant)
        ),
    ),
    one(
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
