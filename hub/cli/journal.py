"""``synchub journal``: streams that many writers share, and what they hold."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import grpc
import typer

from hub.cli.following import PositionTail
from hub.cli.hub_calls import (
    PAGE_SIZE_MAX,
    channel_to,
    event_to_json,
    first_of,
    message_to_json,
    moment_text,
    pages_of,
    shown_body,
)
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    ShowLimitOption,
    checked_hub_project,
    number_option,
)
from hub.cli.output import EXIT_USAGE, CommandFailed, print_json, print_table, printable
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2 import (
    JournalEvent,
    JournalStream,
    ListStreamEventsRequest,
    ListStreamsRequest,
    WatchJournalRequest,
)
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub

app = typer.Typer(
    no_args_is_help=True, help="See streams that programs share under a lease, and their events."
)

STREAMS_EXAMPLES = """Examples:

  synchub journal streams --hub-project demo

  synchub journal streams --hub-project demo --prefix orders/ --type order.paid --json
"""
READ_EXAMPLES = """Examples:

  synchub journal read orders/42 --hub-project demo

  synchub journal read orders/42 --hub-project demo --after 100 --through 200

  synchub journal read orders/42 --hub-project demo --limit 0 --json | jq .text
"""
TAIL_EXAMPLES = """Examples:

  synchub journal tail --hub-project demo

  synchub journal tail --hub-project demo --type order.paid --from-start

  synchub journal tail --hub-project demo --after 1200 --json | jq .position
"""


@app.command("streams", epilog=STREAMS_EXAMPLES)
def streams(
    *,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="P", help="Only streams whose ids begin so, letter by letter: no wildcards."
        ),
    ] = "",
    event_type: Annotated[
        str, typer.Option("--type", metavar="T", help="Only streams with an event of this type.")
    ] = "",
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List streams: how far each is, the token of its last commit, and whether somebody holds it now.

    Who holds one is shown by `synchub leases show STREAM`: its lease has the stream's name.
    """
    with channel_to(hub) as channel:
        stub = JournalServiceStub(channel)
        request = ListStreamsRequest(
            hub_project=checked_hub_project(hub_project), stream_id_prefix=prefix, event_type=event_type
        )
        pages = pages_of(
            lambda request, timeout: stub.ListStreams(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((stream for page in pages for stream in page.streams), limit)
        if is_json:
            for stream in found:
                print_json(message_to_json(stream))
            return
        print_table(
            ["STREAM", "REVISION", "TOKEN", "LEASED", "CREATED (UTC)", "LAST COMMIT (UTC)"],
            map(_stream_row, found),
            empty="no streams",
        )


@app.command("read", epilog=READ_EXAMPLES)
def read(
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Id as `journal streams` shows it.")],
    after: Annotated[int, number_option("Only events after this revision.")] = 0,
    through: Annotated[
        int,
        number_option("Only events up to this revision. Default: the revision now."),
    ] = 0,
    limit: ShowLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Show the events of a stream, ascending by revision. What is added meanwhile is not shown."""
    with channel_to(hub) as channel:
        request = ListStreamEventsRequest(
            hub_project=checked_hub_project(hub_project),
            stream_id=stream,
            after_revision=after,
            through_revision=through,
        )
        found = islice(_stream_events(JournalServiceStub(channel), request, limit=limit), limit or None)
        if is_json:
            for event in found:
                print_json(event_to_json(event))
            return
        print_table(
            ["REVISION", "TIME (UTC)", "TYPE", "EVENT", "TOKEN", "PAYLOAD"],
            map(_event_row, found),
            empty="no events",
        )


@app.command("tail", epilog=TAIL_EXAMPLES)
def tail(
    *,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only events of this type; may repeat.")
    ] = None,
    is_from_start: Annotated[
        bool, typer.Option("--from-start", help="First what is stored, not only what comes from now on.")
    ] = False,
    after: Annotated[
        int | None,
        number_option("First what is stored after this position, as --json shows it."),
    ] = None,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Show each new event of all streams, in the order in which they became visible. Ctrl-C ends it.

    When the hub goes away, it goes on after the last event that it showed once the hub is back.
    """
    if is_from_start and after is not None:
        raise CommandFailed("--from-start and --after exclude each other", exit_code=EXIT_USAGE)
    with channel_to(hub) as channel:
        request = WatchJournalRequest(hub_project=checked_hub_project(hub_project), event_types=types or [])
        if after:
            request.after_position = after
            request.hub_generation = _hub_generation(channel)
        elif after is None and not is_from_start:
            request.from_now = True
        show = _show_json if is_json else _show_line
        PositionTail(JournalServiceStub(channel).WatchJournal, request, show=show, hub=hub).follow()


def _hub_generation(channel: grpc.Channel) -> str:
    """Return the hub's generation: the one that a person means who names a position."""
    return HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX).hub_generation


def _stream_events(
    stub: JournalServiceStub, request: ListStreamEventsRequest, *, limit: int
) -> Iterator[JournalEvent]:
    """Give the events of the pages, up to the revision at which the first page found the stream."""
    request.page_size = min(limit, PAGE_SIZE_MAX)
    while True:
        page = stub.ListStreamEvents(request, timeout=UNARY_SECONDS_MAX)
        yield from page.events
        if page.done:
            return
        request.after_revision = page.next_revision
        request.through_revision = page.through_revision


def _stream_row(stream: JournalStream) -> list[str]:
    return [
        stream.stream_id,
        str(stream.revision),
        str(stream.fencing_token),
        "yes" if stream.is_leased else "",
        moment_text(stream.create_time),
        moment_text(stream.last_commit_time),
    ]


def _event_row(event: JournalEvent) -> list[str]:
    return [
        str(event.revision),
        moment_text(event.event_time),
        event.event_type,
        event.event_id,
        str(event.fencing_token),
        shown_body(event),
    ]


def _show_json(event: JournalEvent) -> None:
    print_json(event_to_json(event))


def _show_line(event: JournalEvent) -> None:
    text = printable(f"{event.stream_id} {event.revision} {event.event_type} {shown_body(event)}")
    print(f"{moment_text(event.event_time)} {text}", flush=True)
