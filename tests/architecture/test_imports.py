"""Who imports whom, as ``.importlinter`` says and ARCHITECTURE.md explains."""

import configparser
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LINT_SECONDS_MAX: Final = 100
COMPOSITION: Final = {
    *("hub.app", "hub.assembly", "hub.cli", "hub.config", "hub.__main__"),
    *("runtime_agent.agent", "runtime_agent.cli", "runtime_agent.config", "runtime_agent.__main__"),
}
"""What puts a program together may import all of its own program."""


def test_every_import_keeps_to_the_table() -> None:
    lint = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=LINT_SECONDS_MAX,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_every_layer_has_a_row_in_the_table() -> None:
    table = configparser.ConfigParser()
    table.read(ROOT / ".importlinter", encoding="utf-8")
    ruled = {
        module
        for section in table.sections()
        if table.get(section, "type", fallback="") == "forbidden"
        for module in table.get(section, "source_modules").split()
    }
    layers = {
        f"{program}.{path.name}"
        for program in ("hub", "runtime_agent")
        for path in (ROOT / program).iterdir()
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert layers - COMPOSITION - ruled == set()
