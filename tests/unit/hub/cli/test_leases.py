"""The commands of ``synchub leases`` as they explain themselves; what they do is tested against a hub."""

from typing import Final

import pytest
from typer.testing import CliRunner

from hub.cli.main import app

COMMANDS: Final = ("list", "watch", "show", "abort")
MAINTENANCE_COMMANDS: Final = ("begin", "renew", "finish", "hold")


@pytest.mark.parametrize("command", [*COMMANDS, *(f"maintenance {each}" for each in MAINTENANCE_COMMANDS)])
def test_the_help_of_each_command_has_an_example_and_offers_json(command: str) -> None:
    told = CliRunner().invoke(app, ["leases", *command.split(), "--help"], env={"COLUMNS": "150"})
    assert told.exit_code == 0
    assert "--json" in told.output
    assert f"synchub leases {command}" in told.output.split("Example", 1)[1]
