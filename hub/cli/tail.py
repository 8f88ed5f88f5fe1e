"""``synchub tail``: events as they come; goes on where it was when the hub comes back."""

from typing import Annotated

import typer

from hub.cli.events import event_moment, shown_payload
from hub.cli.following import PositionTail
from hub.cli.hub_calls import channel_to, event_to_json
from hub.cli.options import DEFAULT_HUB, HubOption, HubProjectOption, JsonOption, checked_hub_project
from hub.cli.output import print_json, printable
from synchub.v1.sync_event_pb2 import StoredEvent
from synchub.v1.sync_service_pb2 import WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

EXAMPLES = """Examples:

  synchub tail --hub-project demo --from-now

  synchub tail my-project run-42 --hub-project demo --type stderr

  synchub tail --hub-project demo --json | jq .text
"""


def tail(
    *,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Only this project.")] = "",
    run: Annotated[str, typer.Argument(metavar="RUN", help="Only this run of the project.")] = "",
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only events of this type; may repeat.")
    ] = None,
    is_from_now: Annotated[
        bool, typer.Option("--from-now", help="Only what comes from now on, not what is stored.")
    ] = False,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Show events in the order in which they became visible, then each new one. Ctrl-C ends it.

    When the hub goes away, it goes on after the last event that it showed once the hub is back.
    """
    with channel_to(hub) as channel:
        request = WatchEventsRequest(
            hub_project=checked_hub_project(hub_project),
            project_id=project,
            run_id=run,
            event_types=types or [],
        )
        if is_from_now:
            request.from_now = True
        show = _show_json if is_json else _show_line
        PositionTail(SyncServiceStub(channel).WatchEvents, request, show=show, hub=hub).follow()


def _show_json(event: StoredEvent) -> None:
    print_json(event_to_json(event))


def _show_line(event: StoredEvent) -> None:
    moment = event_moment(event)
    key = f"{event.project_id} {event.run_id} {event.sequence}"
    final = " (final)" if event.is_final else ""
    text = printable(f"{key} {event.event_type}{final} {shown_payload(event)}")
    print(f"{moment} {text}" if moment else text, flush=True)
