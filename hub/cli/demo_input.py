"""Real input for the demo: what this machine and this repository have to tell."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

GIT_SECONDS_MAX: Final = 20
FILES_MAX: Final = 20_000
"""Most files of installed packages that are listed."""
PROGRAM: Final = (
    sys.executable,
    "-v",
    "-c",
    "import asyncio, unittest.mock, xml.dom.minidom, email.message, http.server, sqlite3; print('imported')",
)
"""A real program that says a lot: Python telling each module that it imports."""


def write_installed_files(path: Path) -> int:
    """Write one JSON line for each file of the installed packages; return how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for package in distributions():
            for entry in package.files or ():
                if count == FILES_MAX:
                    return count
                digest = entry.hash.value if entry.hash is not None else None
                facts = {"package": package.name, "file": str(entry), "bytes": entry.size, "sha256": digest}
                file.write(json.dumps(facts, ensure_ascii=False) + "\n")
                count += 1
    return count


def write_history(path: Path) -> int:
    """Write one JSON line for each change in this repository's history; return how many, 0 without one."""
    repository = Path(__file__).resolve().parents[2]
    if shutil.which("git") is None or not (repository / ".git").exists():
        return 0
    fields = "%H%x1f%an%x1f%aI%x1f%s%x1f%b%x1e"
    log = subprocess.run(
        ["git", "-C", str(repository), "log", "--reverse", f"--format={fields}"],
        capture_output=True,
        timeout=GIT_SECONDS_MAX,
        check=False,
    )
    changes = [entry.strip("\n") for entry in log.stdout.decode(errors="replace").split("\x1e")]
    names = ("commit", "author", "time", "subject", "body")
    lines = [
        json.dumps(dict(zip(names, change.split("\x1f"), strict=True)), ensure_ascii=False)
        for change in changes
        if change
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return len(lines)
