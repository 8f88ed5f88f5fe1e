"""How far something long is, for a person who waits: a bar on standard error, where that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Tell(Protocol):
    """Shows how far something is."""

    def __call__(self, what: str, done: int, *, total: int) -> None:
        """Show how much of what is being done, of how much: 0 while that is not known."""


@contextmanager
def shown_progress() -> Iterator[Tell]:
    """Give what shows how far something is; a bar for each thing that is done, one after the other."""
    if not sys.stderr.isatty():
        yield _tell_nobody
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, *, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=None)
            progress.update(tasks[what], completed=done, total=total or None)

        yield tell


def _tell_nobody(what: str, done: int, *, total: int) -> None:
    """Show nothing."""
