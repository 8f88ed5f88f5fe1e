"""Servers that are measured: processes reached over loopback; the hub, on a store of its own."""

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

STOP_SECONDS_MAX = 20


class Server(NamedTuple):
    """A process that answers at an address; ``pages`` is that of a hub's pages."""

    address: str
    pid: int
    pages: str = ""

    def processor_seconds(self) -> float:
        """Return how much processor time it has used; 0 on a system without Linux's ``/proc``."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0.0
        # What follows the name in brackets, which may hold anything; see proc(5).
        user_ticks, system_ticks = text.rpartition(")")[2].split()[11:13]
        return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Return how much memory it has in use; 0 on a system without Linux's ``/proc``."""
        try:
            text = Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


class GroupCounts(NamedTuple):
    """How many groups the hub committed so far, and how many commands they had."""

    groups: float
    commands: float


@asynccontextmanager
async def running_hub(folder: Path) -> AsyncIterator[Server]:
    """Run a hub process on a store in the folder."""
    command = [sys.executable, "-m", "hub", "serve", "--db", str(folder / "hub.db")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with (folder / "hub.log").open("wb") as log:
        # Starting it takes no time worth waiting for elsewhere.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        if not line.startswith("listening on "):
            raise SystemExit(f"the hub did not start: {(folder / 'hub.log').read_text()}")
        words = line.split()
        yield Server(words[2], process.pid, pages=words[4])
    finally:
        end_process(process)
        if process.stdout is not None:
            process.stdout.close()


def end_process(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, and end it where it does not in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def group_counts(pages: str) -> GroupCounts:
    """Read from the hub's own page what it counted."""
    text = await asyncio.to_thread(page_text, f"http://{pages}/metrics")
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }
    return GroupCounts(samples["synchub_group_commands_count"], samples["synchub_group_commands_sum"])


def page_text(url: str) -> str:
    """Return a page of the hub."""
    with urllib.request.urlopen(url, timeout=STOP_SECONDS_MAX) as answer:
        return str(answer.read(), "utf-8")
