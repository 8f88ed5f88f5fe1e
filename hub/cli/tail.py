"""``synchub tail``: events as they come; goes on where it was when the hub comes back."""

import sys
from collections.abc import Callable
from typing import Annotated

import grpc
import typer

from hub.cli.events import event_moment, shown_payload
from hub.cli.hub_calls import channel_to, event_to_json
from hub.cli.options import DEFAULT_HUB, HubOption, HubProjectOption, JsonOption, checked_hub_project
from hub.cli.output import print_json, printable
from hub.cli.reconnecting import Reconnecting
from synchub.channel import Refusal, refusal_from_error
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
        _Tail(SyncServiceStub(channel), request, show=show, hub=hub).follow()


class _Tail:
    """A watch that is begun anew, where it was, whenever it breaks."""

    def __init__(
        self,
        stub: SyncServiceStub,
        request: WatchEventsRequest,
        *,
        show: Callable[[StoredEvent], None],
        hub: str,
    ) -> None:
        self._stub = stub
        self._request = request
        self._show = show
        self._reconnecting = Reconnecting(hub)

    def follow(self) -> None:
        """Show events until the process ends, or the hub refuses what does not pass by itself."""
        while True:
            try:
                self._follow_once()
                refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the watch")
            except grpc.RpcError as error:
                refusal = refusal_from_error(error)
            self._go_on_after(refusal)

    def _follow_once(self) -> None:
        for answer in self._stub.WatchEvents(self._request):
            self._reconnecting.answered()
            for event in answer.events:
                self._show(event)
            self._request.after_position = answer.progress_position
            self._request.hub_generation = answer.hub_generation

    def _go_on_after(self, refusal: Refusal) -> None:
        """Wait before the next try, or end the process where there is no sense in one."""
        if refusal.reason == "GENERATION_CHANGED":
            self._request.after_position = int(refusal.metadata.get("lowestPosition", "0"))
            self._request.hub_generation = refusal.metadata.get("hubGeneration", "")
            text = f"the hub lost a part of its events; going on after {self._request.after_position}"
            print(f"synchub: {text}, some may come again", file=sys.stderr)
            return
        self._reconnecting.wait_after(refusal)


def _show_json(event: StoredEvent) -> None:
    print_json(event_to_json(event))


def _show_line(event: StoredEvent) -> None:
    moment = event_moment(event)
    key = f"{event.project_id} {event.run_id} {event.sequence}"
    final = " (final)" if event.is_final else ""
    text = printable(f"{key} {event.event_type}{final} {shown_payload(event)}")
    print(f"{moment} {text}" if moment else text, flush=True)
