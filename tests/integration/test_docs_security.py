"""What docs/security.md has people type does what it says."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.hub_process import SECONDS_MAX, SYNCHUB, HubProcess

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ID_SHOWN: Final = "0b5f1c9e2a7d4c6b8e01"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)


def typed(script: str, folder: Path, *, address: str = "127.0.0.1:1") -> str:
    """What is printed where somebody types this into a shell."""
    told = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=folder,
        env={
            "PATH": f"{SYNCHUB.parent}:{os.environ['PATH']}",
            "SYNCHUB_HUB": address,
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_tokens_are_made_used_replaced_and_revoked_as_the_page_says(tmp_path: Path) -> None:
    first, others, replacing = blocks()
    typed(first, tmp_path)
    hub = HubProcess(tmp_path / "hub.db")
    try:
        listed = typed(others, tmp_path, address=hub.address)
        rows = re.findall(r"^[0-9a-f]{20}  (\S+) +(\S+) +live", listed, re.M)
        assert sorted(rows) == [("board", "reader"), ("build-7", "runtime"), ("first", "admin")]
        board = typed("synchub token list --json --token-file admin.token", tmp_path, address=hub.address)
        (older,) = [
            token["token_id"]
            for token in map(json.loads, board.splitlines())
            if token["display_name"] == "board"
        ]
        assert ID_SHOWN in replacing
        revoked = typed(replacing.replace(ID_SHOWN, older), tmp_path, address=hub.address)
        assert f"{older} (board) is revoked" in revoked
        assert typed("synchub runs --token-file board.token", tmp_path, address=hub.address) == "no runs\n"
    finally:
        hub.stop()
