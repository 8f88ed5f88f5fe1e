"""The demo's fenced lease: its holder is paused, another takes over, and the late write is refused.

The workers are processes of their own with the real client; what is written is read back from the table.
"""

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hub.cli.demo_figures import Check
from hub.cli.demo_processes import DemoProcesses

RESOURCE: Final = "demo-document"


@dataclass(frozen=True, slots=True)
class FencedLease:
    """What became of the lease, of the writes under it, and of the holder that was paused."""

    first_token: int
    second_token: int
    takeover_seconds: float
    is_first_written: bool
    is_second_written: bool
    is_late_written: bool
    is_loss_noticed: bool
    written: tuple[int, str]
    """Token and writer that the table has in the end."""

    def checks(self) -> list[Check]:
        """Return the figures."""
        taken = f"token {self.first_token} / token {self.second_token} after {self.takeover_seconds:.1f} s"
        is_taken = self.second_token > self.first_token and self.is_first_written and self.is_second_written
        late = "written" if self.is_late_written else "refused"
        noticed = "it knows" if self.is_loss_noticed else "it does not know"
        token, writer = self.written
        is_fenced = not self.is_late_written and self.is_loss_noticed
        is_kept = self.written == (self.second_token, "second")
        return [
            Check("lease of a worker paused with SIGSTOP / of the next", taken, is_taken),
            Check(
                "the paused worker's late write with its old token",
                f"{late} and {noticed}; the table has token {token} of the {writer}",
                is_fenced and is_kept,
            ),
        ]


def play_fenced_lease(processes: DemoProcesses, folder: Path, *, say: Callable[[str], None]) -> FencedLease:
    """Let two workers hold the same lease, the first one paused in between; return what was found."""
    table = folder / "protected.db"
    first, second = (processes.start_worker(RESOURCE, table, holder=name) for name in ("first", "second"))
    first_token = first.tell("acquire")["token"]
    is_first_written = bool(first.tell("write")["is_written"])
    say(f"a worker (pid {first.pid}) renews a lease of 1 s and writes with token {first_token}")
    second.send("acquire")
    first.signal(signal.SIGSTOP)
    paused = time.monotonic()
    second_token = second.answer()["token"]
    takeover_seconds = time.monotonic() - paused
    is_second_written = bool(second.tell("write")["is_written"])
    say(f"paused it with SIGSTOP; after {takeover_seconds:.1f} s another has token {second_token} and writes")
    first.send("write")
    first.signal(signal.SIGCONT)
    late = first.answer()
    say("woke it up with a write to do")
    return FencedLease(
        first_token=first_token,
        second_token=second_token,
        takeover_seconds=takeover_seconds,
        is_first_written=is_first_written,
        is_second_written=is_second_written,
        is_late_written=bool(late["is_written"]),
        is_loss_noticed=bool(late["is_lost"]),
        written=_written(table),
    )


def _written(table: Path) -> tuple[int, str]:
    """Return the token and the writer that the protected table has."""
    with closing(sqlite3.connect(table)) as database:
        query = "SELECT fencing_token, writer FROM document WHERE resource = ?"
        token, writer = database.execute(query, (RESOURCE,)).fetchone()
    return int(token), str(writer)
