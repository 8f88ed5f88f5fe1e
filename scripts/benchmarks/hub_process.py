"""The hub that is measured: a real process on a store of its own, reached over loopback."""

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

STOP_SECONDS_MAX = 20


class GroupCounts(NamedTuple):
    """How many groups the hub committed so far, and how many commands they had."""

    groups: float
    commands: float


@asynccontextmanager
async def running_hub(folder: Path) -> AsyncIterator[str]:
    """Run a hub process on a store in the folder; give its address."""
    async with running_hub_with_pages(folder) as (address, _):
        yield address


@asynccontextmanager
async def running_hub_with_pages(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Run a hub process on a store in the folder; give its address and that of its pages."""
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
        yield words[2], words[4]
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
