"""``synchub runtimes``: which runtimes are alive."""

from typing import Annotated

import typer

from hub.cli.hub_calls import (
    bare_enum_name,
    channel_to,
    enum_number,
    first_of,
    message_to_json,
    moment_text,
    pages_of,
)
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    checked_hub_project,
)
from hub.cli.output import print_json, print_table
from synchub.v1.presence_service_pb2 import ListRuntimesRequest, Runtime, RuntimeState
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub

EXAMPLES = """Examples:

  synchub runtimes --hub-project demo

  synchub runtimes --hub-project demo --state lost --json
"""


def runtimes(
    *,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="S", help="Only these: online, offline, lost; may repeat."),
    ] = None,
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List runtimes and whether they are alive."""
    with channel_to(hub) as channel:
        stub = PresenceServiceStub(channel)
        request = ListRuntimesRequest(
            hub_project=checked_hub_project(hub_project),
            states=[enum_number(state, RuntimeState, flag="--state") for state in states or ()],
        )
        pages = pages_of(
            lambda request, timeout: stub.ListRuntimes(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((runtime for page in pages for runtime in page.runtimes), limit)
        if is_json:
            for runtime in found:
                print_json(message_to_json(runtime))
            return
        print_table(
            ["RUNTIME", "STATE", "HOST", "PID", "VERSION", "ACTIVE RUNS", "UNSYNCED", "LAST HEARD (UTC)"],
            map(_row, found),
            empty="no runtimes",
        )


def _row(runtime: Runtime) -> list[str]:
    heard = runtime.HasField("last_heartbeat_time")
    return [
        runtime.runtime_id,
        bare_enum_name(RuntimeState.DESCRIPTOR, runtime.state),
        runtime.host,
        str(runtime.pid or ""),
        runtime.version,
        str(len(runtime.active_runs)),
        str(runtime.unsynced_event_count),
        moment_text(runtime.last_heartbeat_time) if heard else "",
    ]
