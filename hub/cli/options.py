"""The options that all commands share which talk to a hub."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from hub.cli.output import EXIT_USAGE, CommandFailed
from hub.config import DEFAULT_LISTEN, ENVIRONMENT_PREFIX
from synchub.channel import HubAddress, parse_addresses
from synchub.contract import identifier_fault

HUB_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}HUB"
HUB_PROJECT_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}HUB_PROJECT"

HubOption = Annotated[
    str,
    typer.Option("--hub", metavar="ADDR", envvar=HUB_VARIABLE, help="The hub, HOST:PORT[,HOST:PORT…]."),
]
HubProjectOption = Annotated[
    str,
    typer.Option(
        "--hub-project",
        metavar="P",
        envvar=HUB_PROJECT_VARIABLE,
        help="The tenant on the hub whose data is meant.",
    ),
]
ResourceArgument = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="What is leased: a name within the hub project.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line, for programs.")]

DEFAULT_HUB: Final = DEFAULT_LISTEN
"""Where a hub listens that was started without a word."""


def hub_addresses(hub: str) -> Sequence[HubAddress]:
    """Return the addresses that ``--hub`` names. Raises: AddressError."""
    return parse_addresses(hub)


def checked_hub_project(hub_project: str) -> str:
    """Return the hub project, which must be given.

    Raises: CommandFailed.
    """
    if not hub_project:
        sentence = "no hub project is given"
        raise CommandFailed(
            sentence, hint=f"Give --hub-project P, or set {HUB_PROJECT_VARIABLE}.", exit_code=EXIT_USAGE
        )
    fault = identifier_fault(hub_project)
    if fault is not None:
        raise CommandFailed(f"--hub-project {fault}", exit_code=EXIT_USAGE)
    return hub_project
