"""``synchub leases``: who holds what and until when, and how a person asks a holder to stop."""

from typing import Annotated

import grpc
import typer
from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli import lease_watch, maintenance
from hub.cli.hub_calls import channel_to, enum_number, first_of, message_to_json, moment_text, pages_of
from hub.cli.lease_words import (
    TABLE_COLUMNS,
    abort_text,
    expire_text,
    holder_text,
    labels_text,
    seconds_between,
    state_text,
    table_row,
)
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    ResourceArgument,
    checked_hub_project,
    number_option,
)
from hub.cli.output import print_facts, print_json, print_table, printable
from hub.cli.spans import span_text
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2 import (
    AbortLeaseRequest,
    AbortReason,
    GetResourceStateRequest,
    GetResourceStateResponse,
    Lease,
    ListLeasesRequest,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

app = typer.Typer(no_args_is_help=True, help="See who holds what, stop a holder, take a resource out of use.")
app.command("watch", epilog=lease_watch.EXAMPLES)(lease_watch.watch)

LIST_EXAMPLES = """Examples:

  synchub leases list --hub-project demo

  synchub leases list --hub-project demo --all --json
"""
SHOW_EXAMPLES = """Examples:

  synchub leases show garden-db --hub-project demo

  synchub leases show garden-db --hub-project demo --json | jq .fencing_token
"""
ABORT_EXAMPLES = """Examples:

  synchub leases abort garden-db --hub-project demo

  synchub leases abort garden-db --hub-project demo --token 42
"""


@app.command("list", epilog=LIST_EXAMPLES)
def list_leases(
    *,
    is_all: Annotated[
        bool, typer.Option("--all", help="Also the last tenures of resources that nobody holds now.")
    ] = False,
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List leases and maintenances that live."""
    with channel_to(hub) as channel:
        stub = LeaseServiceStub(channel)
        request = ListLeasesRequest(hub_project=checked_hub_project(hub_project), include_ended=is_all)
        pages = pages_of(
            lambda request, timeout: stub.ListLeases(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((lease for page in pages for lease in page.leases), limit)
        if is_json:
            for lease in found:
                print_json(message_to_json(lease))
            return
        hub_now = _hub_now(channel)
        rows = (table_row(lease, hub_now=hub_now) for lease in found)
        print_table(TABLE_COLUMNS, rows, empty="no leases" if is_all else "no live leases")


@app.command("show", epilog=SHOW_EXAMPLES)
def show(
    *,
    resource: ResourceArgument,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Show everything about a resource: token, epoch, who holds it until when, and who waits for it."""
    with channel_to(hub) as channel:
        request = GetResourceStateRequest(hub_project=checked_hub_project(hub_project), resource=resource)
        state = LeaseServiceStub(channel).GetResourceState(request, timeout=UNARY_SECONDS_MAX)
        if is_json:
            print_json({"resource": resource, **message_to_json(state)})
            return
        hub_now = _hub_now(channel)
        print_facts(_facts(resource, state, hub_now=hub_now))
        if state.waiter_count:
            print()
            _print_waiters(state, hub_now=hub_now)


@app.command("abort", epilog=ABORT_EXAMPLES)
def abort(
    *,
    resource: ResourceArgument,
    token: Annotated[
        int,
        number_option("Only this tenure. Default: the one that lives."),
    ] = 0,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="WHY",
            help="external: a person wants it; internal: the holder's own system does.",
        ),
    ] = "external",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Ask the holder of a lease to stop. It hears so with its next renewal, and decides itself.

    To take a resource away from a holder that does not listen, begin a maintenance.
    """
    with channel_to(hub) as channel:
        request = AbortLeaseRequest(
            hub_project=checked_hub_project(hub_project),
            resource=resource,
            fencing_token=token,
            reason=enum_number(reason, AbortReason, flag="--reason"),
        )
        lease = LeaseServiceStub(channel).AbortLease(request, timeout=UNARY_SECONDS_MAX).lease
        if is_json:
            print_json(message_to_json(lease))
            return
        asked = f"asked {holder_text(lease)} of {lease.runtime_id} to stop"
        print(printable(f"{asked}: {lease.resource}, token {lease.fencing_token}, {abort_text(lease)}"))


app.add_typer(maintenance.app, name="maintenance")


def _hub_now(channel: grpc.Channel) -> Timestamp:
    """Return hub time: what a lease's moments are to be compared with, whatever this machine's clock says."""
    return HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX).hub_time


def _facts(resource: str, state: GetResourceStateResponse, *, hub_now: Timestamp) -> list[tuple[str, str]]:
    """Return what a person wants to know of a resource."""
    facts = [
        ("resource", resource),
        ("last token given", str(state.fencing_token)),
        ("epoch", str(state.epoch)),
    ]
    tenures = [getattr(state, name) for name in ("lease", "maintenance") if state.HasField(name)]
    newest = max(tenures, key=lambda tenure: tenure.fencing_token, default=None)
    if newest is None:
        facts.append(("state", "nobody ever held it"))
    else:
        facts += _tenure_facts(newest, hub_now=hub_now)
    for each in tenures:
        if each is not newest:
            name = "last maintenance" if each.is_maintenance else "last lease"
            facts.append((name, f"{state_text(each)}, token {each.fencing_token}, {holder_text(each)}"))
    return [*facts, ("waiting", str(state.waiter_count))]


def _tenure_facts(lease: Lease, *, hub_now: Timestamp) -> list[tuple[str, str]]:
    return [
        ("state", state_text(lease)),
        ("holder", holder_text(lease)),
        ("runtime", lease.runtime_id),
        ("token", str(lease.fencing_token)),
        ("acquired", f"{moment_text(lease.acquire_time)} UTC"),
        ("last renewed", f"{moment_text(lease.renew_time)} UTC"),
        ("granted for", span_text(lease.ttl.ToNanoseconds() / 1e9)),
        ("expires", expire_text(lease.expire_time, hub_now=hub_now)),
        ("asked to stop", abort_text(lease) or "no"),
        *([("labels", labels_text(lease))] if lease.labels else []),
    ]


def _print_waiters(state: GetResourceStateResponse, *, hub_now: Timestamp) -> None:
    rows = (
        [
            str(place),
            waiter.holder_display_name or waiter.holder_id,
            waiter.runtime_id,
            moment_text(waiter.wait_begin_time),
            span_text(seconds_between(waiter.wait_begin_time, hub_now)),
        ]
        for place, waiter in enumerate(state.waiters, start=1)
    )
    print_table(["PLACE", "WAITING", "RUNTIME", "SINCE (UTC)", "FOR"], rows, empty="nobody waits")
    if state.waiter_count > len(state.waiters):
        print(f"and {state.waiter_count - len(state.waiters)} more")
