"""``synchub project``: which projects belong to the hub project."""

from typing import Annotated

import typer

from hub.cli.hub_calls import channel_to, first_of, message_to_json, moment_text, pages_of
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
from synchub.v1.sync_service_pb2 import BindProjectRequest, ListProjectsRequest, ReleaseProjectRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

app = typer.Typer(no_args_is_help=True, help="See, bind and release the projects of a hub project.")

ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]

LIST_EXAMPLES = """Example:

  synchub project list --hub-project demo
"""
BIND_EXAMPLES = """Example:

  synchub project bind my-project --hub-project demo
"""


@app.command("list", epilog=LIST_EXAMPLES)
def list_projects(
    *,
    limit: ListLimitOption = 100,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List the projects that belong to the hub project."""
    with channel_to(hub) as channel:
        stub = SyncServiceStub(channel)
        request = ListProjectsRequest(hub_project=checked_hub_project(hub_project))
        pages = pages_of(
            lambda request, timeout: stub.ListProjects(request, timeout=timeout), request, entries_max=limit
        )
        found = first_of((project for page in pages for project in page.projects), limit)
        if is_json:
            for project in found:
                print_json(message_to_json(project))
            return
        rows = ([each.project_id, str(each.run_count), moment_text(each.bind_time)] for each in found)
        print_table(["PROJECT", "RUNS", "BOUND (UTC)"], rows, empty="no projects")


@app.command("bind", epilog=BIND_EXAMPLES)
def bind(
    *,
    project: ProjectArgument,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Bind a project before its first event, so that nobody else can take its id."""
    with channel_to(hub) as channel:
        request = BindProjectRequest(hub_project=checked_hub_project(hub_project), project_id=project)
        bound = SyncServiceStub(channel).BindProject(request, timeout=UNARY_SECONDS_MAX).project
        if is_json:
            print_json(message_to_json(bound))
        else:
            print(f"{bound.project_id} belongs to {hub_project} since {moment_text(bound.bind_time)} UTC")


@app.command("release")
def release(
    *, project: ProjectArgument, hub: HubOption = DEFAULT_HUB, hub_project: HubProjectOption = ""
) -> None:
    """Give back a project that has no event yet."""
    with channel_to(hub) as channel:
        request = ReleaseProjectRequest(hub_project=checked_hub_project(hub_project), project_id=project)
        SyncServiceStub(channel).ReleaseProject(request, timeout=UNARY_SECONDS_MAX)
        print(f"{project} belongs to nobody now")
