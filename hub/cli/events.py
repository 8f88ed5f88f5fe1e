"""``synchub events``: the events of one run."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final

import typer

from hub.cli.hub_calls import channel_to, event_to_json, moment_text, pages_of, shown_body
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ShowLimitOption,
    checked_hub_project,
    number_option,
)
from hub.cli.output import print_json, print_table
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.sync_event_pb2 import StoredEvent
from synchub.v1.sync_service_pb2 import ListEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

EXAMPLES = """Examples:

  synchub events my-project run-42 --hub-project demo

  synchub events my-project run-42 --hub-project demo --newest 20 --type stderr

  synchub events my-project run-42 --hub-project demo --limit 0 --json
"""

_NEWEST_COUNT_MAX: Final = 2**31 - 1
"""What the field of the request can hold; no run has so many."""


def events(
    *,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Project of the run.")],
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    after: Annotated[int, number_option("Only events after this sequence.")] = 0,
    newest: Annotated[int, number_option("Only the newest so many, oldest first.")] = 0,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only events of this type; may repeat.")
    ] = None,
    limit: ShowLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Show the events of a run, ascending by sequence."""
    with channel_to(hub) as channel:
        request = ListEventsRequest(
            hub_project=checked_hub_project(hub_project),
            project_id=project,
            run_id=run,
            after_sequence=after,
            newest_count=min(newest, _NEWEST_COUNT_MAX),
            event_types=types or [],
        )
        found = _events(SyncServiceStub(channel), request, limit=limit)
        if is_json:
            for event in found:
                print_json(event_to_json(event))
            return
        print_table(
            ["SEQUENCE", "TIME (UTC)", "TYPE", "FINAL", "PAYLOAD"], map(_row, found), empty="no events"
        )


def _events(stub: SyncServiceStub, request: ListEventsRequest, *, limit: int) -> Iterator[StoredEvent]:
    if request.newest_count:
        yield from stub.ListEvents(request, timeout=UNARY_SECONDS_MAX).events
        return
    pages = pages_of(
        lambda request, timeout: stub.ListEvents(request, timeout=timeout), request, entries_max=limit
    )
    yield from islice((event for page in pages for event in page.events), limit or None)


def _row(event: StoredEvent) -> list[str]:
    return [
        str(event.sequence),
        event_moment(event),
        event.event_type,
        "yes" if event.is_final else "",
        shown_payload(event),
    ]


def event_moment(event: StoredEvent) -> str:
    """Return when an event happened, or nothing where nobody said."""
    return moment_text(event.event_time) if event.HasField("event_time") else ""


def shown_payload(event: StoredEvent) -> str:
    """Return a payload for people, or that it was dropped."""
    if event.payload_dropped:
        return "(payload dropped)"
    return shown_body(event)
