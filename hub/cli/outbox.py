"""``synchub outbox``: messages that commits left to be delivered, and how a dead one is tried anew."""

from typing import Annotated, Final

import typer

from hub.cli.hub_calls import (
    bare_enum_name,
    channel_to,
    enum_number,
    event_to_json,
    first_of,
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
    checked_hub_project,
)
from hub.cli.output import print_json, print_table, printable
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.journal_service_pb2 import (
    ListOutboxMessagesRequest,
    OutboxMessage,
    OutboxMessageState,
    ReleaseOutboxMessageRequest,
)
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub

app = typer.Typer(
    no_args_is_help=True, help="See what is to be delivered, and have dead messages tried anew."
)

LIST_EXAMPLES = """Examples:

  synchub outbox list --hub-project demo

  synchub outbox list --hub-project demo --destination mail --state dead

  synchub outbox list --hub-project demo --state dead --limit 0 --json | jq -r .outbox_id
"""
RELEASE_EXAMPLES = """Examples:

  synchub outbox release mail-42 --hub-project demo

  synchub outbox release mail-42 mail-43 --hub-project demo --json
"""

_TO_BE_DELIVERED: Final = (
    OutboxMessageState.OUTBOX_MESSAGE_STATE_PENDING,
    OutboxMessageState.OUTBOX_MESSAGE_STATE_CLAIMED,
)
"""States in which the available time is still to come, or has come."""


@app.command("list", epilog=LIST_EXAMPLES)
def list_messages(
    *,
    destination: Annotated[
        str, typer.Option("--destination", metavar="D", help="Only messages that this one is to get.")
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="S",
            help="Only these: pending, claimed, dead or delivered. Default: all but delivered.",
        ),
    ] = "",
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List messages, those first that are to be delivered first. It claims none of them.

    A claimed message comes back at its AVAILABLE time, unless whoever has it answers before.
    """
    with channel_to(hub) as channel:
        stub = JournalServiceStub(channel)
        request = ListOutboxMessagesRequest(
            hub_project=checked_hub_project(hub_project), destination=destination
        )
        if state:
            request.state = enum_number(state, OutboxMessageState, flag="--state")
        pages = pages_of(
            lambda request, timeout: stub.ListOutboxMessages(request, timeout=timeout),
            request,
            entries_max=limit,
        )
        found = first_of((message for page in pages for message in page.messages), limit)
        if is_json:
            for message in found:
                print_json(event_to_json(message))
            return
        print_table(
            ["MESSAGE", "DESTINATION", "KEY", "STATE", "TRIES", "AVAILABLE (UTC)", "STREAM", "PAYLOAD"],
            map(_row, found),
            empty="no messages",
        )


@app.command("release", epilog=RELEASE_EXAMPLES)
def release(
    *,
    outbox_ids: Annotated[
        list[str], typer.Argument(metavar="MESSAGE…", help="Ids as `outbox list` shows them.")
    ],
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Have dead messages tried anew, their tries counted from 0. Any other stays as it is."""
    with channel_to(hub) as channel:
        stub = JournalServiceStub(channel)
        for outbox_id in outbox_ids:
            request = ReleaseOutboxMessageRequest(
                hub_project=checked_hub_project(hub_project), outbox_id=outbox_id
            )
            message = stub.ReleaseOutboxMessage(request, timeout=UNARY_SECONDS_MAX).message
            if is_json:
                print_json(event_to_json(message))
            else:
                print(printable(_released_line(message)))


def _released_line(message: OutboxMessage) -> str:
    """Return what became of a message that was to be released."""
    if message.state == OutboxMessageState.OUTBOX_MESSAGE_STATE_PENDING and not message.attempt_count:
        since = moment_text(message.available_time)
        return f"{message.outbox_id} may be tried for {message.destination} from {since} UTC on"
    tries = f"tried {message.attempt_count} times"
    return f"{message.outbox_id} is not dead and stays as it is: {_state_text(message)}, {tries}"


def _state_text(message: OutboxMessage) -> str:
    return bare_enum_name(OutboxMessageState.DESCRIPTOR, message.state)


def _row(message: OutboxMessage) -> list[str]:
    return [
        message.outbox_id,
        message.destination,
        message.ordering_key,
        _state_text(message),
        str(message.attempt_count),
        moment_text(message.available_time) if message.state in _TO_BE_DELIVERED else "",
        message.stream_id,
        shown_body(message),
    ]
