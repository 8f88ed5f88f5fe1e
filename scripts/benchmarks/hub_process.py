"""The hub that is measured: a real process on a store of its own, reached over loopback."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

STOP_SECONDS_MAX = 20


@asynccontextmanager
async def running_hub(folder: Path) -> AsyncIterator[str]:
    """Run a hub process on a store in the folder; give its address."""
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
        yield line.split()[2]
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
