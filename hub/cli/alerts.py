"""``synchub alerts``: what the hub refused or noticed and a person should look at."""

from typing import Annotated

import typer

from hub.cli.hub_calls import bare_enum_name, channel_to, first_of, message_to_json, moment_text, pages_of
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    checked_hub_project,
)
from hub.cli.output import print_json, print_table
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.alert_pb2 import Alert, AlertReason
from synchub.v1.sync_service_pb2 import AcknowledgeAlertRequest, ListAlertsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

app = typer.Typer(no_args_is_help=True, help="See and acknowledge security alerts.")

LIST_EXAMPLES = """Examples:

  synchub alerts list --hub-project demo

  synchub alerts list --hub-project demo --all --json
"""
ACK_EXAMPLES = """Example:

  synchub alerts ack 3f0c… --hub-project demo
"""


@app.command("list", epilog=LIST_EXAMPLES)
def list_alerts(
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Also those that somebody has acknowledged.")] = False,
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List alerts that are open."""
    with channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        request = ListAlertsRequest(
            hub_project=checked_hub_project(hub_project), exclude_acknowledged=not is_all
        )
        pages = pages_of(
            lambda request, timeout: stub.ListAlerts(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((alert for page in pages for alert in page.alerts), limit)
        if is_json:
            for alert in found:
                print_json(message_to_json(alert))
            return
        print_table(
            ["ALERT", "REASON", "PROJECT", "RUN", "RUNTIME", "SEEN", "LAST SEEN (UTC)", "SEQUENCES"],
            map(_row, found),
            empty="no alerts",
        )


@app.command("ack", epilog=ACK_EXAMPLES)
def acknowledge(
    *,
    alerts: Annotated[list[str], typer.Argument(metavar="ALERT…", help="Ids as `alerts list` shows them.")],
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Mark alerts as seen. One opens again when it recurs."""
    with channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        for alert_id in alerts:
            request = AcknowledgeAlertRequest(hub_project=checked_hub_project(hub_project), alert_id=alert_id)
            alert = stub.AcknowledgeAlert(request, timeout=UNARY_SECONDS_MAX).alert
            if is_json:
                print_json(message_to_json(alert))
            else:
                print(f"acknowledged {alert.alert_id}: {reason_name(alert)}, seen {alert.seen_count} times")


def reason_name(alert: Alert) -> str:
    """Return why an alert was raised, by its bare name."""
    return bare_enum_name(AlertReason.DESCRIPTOR, alert.reason)


def _row(alert: Alert) -> list[str]:
    ranges = [
        str(each.sequence)
        if each.last_sequence in (0, each.sequence)
        else f"{each.sequence}–{each.last_sequence}"
        for each in alert.samples
        if each.sequence
    ]
    return [
        alert.alert_id,
        reason_name(alert),
        alert.project_id,
        alert.run_id,
        alert.runtime_id,
        str(alert.seen_count),
        moment_text(alert.last_seen_time),
        ", ".join(dict.fromkeys(ranges)),
    ]
