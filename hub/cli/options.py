"""The options that all commands share which talk to a hub."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.models import OptionInfo

from hub.cli.output import EXIT_USAGE, CommandFailed
from hub.cli.shown_credentials import given_credentials
from hub.config import DEFAULT_LISTEN, ENVIRONMENT_PREFIX
from synchub.channel import HubAddress, parse_addresses
from synchub.contract import identifier_fault

HUB_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}HUB"
HUB_PROJECT_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}HUB_PROJECT"

_NUMBER_MAX: Final = 2**63 - 1
"""The largest number that the contract knows."""


def _checked_number(number: int | None) -> int | None:
    # As a bound of the option it would stand in every help.
    if number is not None and number > _NUMBER_MAX:
        raise typer.BadParameter(f"{number} is larger than {_NUMBER_MAX}")
    return number


def number_option(help_text: str, *names: str) -> OptionInfo:
    """Return an option that takes a number of the contract, 0 or more."""
    option: OptionInfo = typer.Option(*names, min=0, metavar="N", callback=_checked_number, help=help_text)
    return option


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
        help="The tenant on the hub whose data is meant. A credential's own one where it is left out.",
    ),
]
ResourceArgument = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="What is leased: a name within the hub project.")
]
ListLimitOption = Annotated[int, number_option("List at most so many; 0 for all.")]
ShowLimitOption = Annotated[int, number_option("Show at most so many; 0 for all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line, for programs.")]

DEFAULT_HUB: Final = DEFAULT_LISTEN
"""Where a hub listens that was started without a word."""


def hub_addresses(hub: str) -> Sequence[HubAddress]:
    """Return the addresses that ``--hub`` names. Raises: AddressError."""
    return parse_addresses(hub)


def checked_hub_project(hub_project: str) -> str:
    """Return the hub project; empty, for the credential's own one, only where a credential is shown.

    Raises: CommandFailed.
    """
    if not hub_project:
        if given_credentials().identifies:
            return ""
        raise no_hub_project("no hub project is given")
    fault = identifier_fault(hub_project)
    if fault is not None:
        raise CommandFailed(f"--hub-project {fault}", exit_code=EXIT_USAGE)
    return hub_project


def no_hub_project(sentence: str) -> CommandFailed:
    """Return what is wrong where a hub project has to be named."""
    hint = f"Give --hub-project P, or set {HUB_PROJECT_VARIABLE}."
    return CommandFailed(sentence, hint=hint, exit_code=EXIT_USAGE)
