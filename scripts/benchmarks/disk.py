"""The bare disk: how often a second it makes a page durable, one after another."""

import os
from pathlib import Path
from time import perf_counter

PAGE_BYTES = 4_096


def disk_sync_rate(path: Path, *, count: int) -> float:
    """Append a page and sync it, again and again; return how often a second."""
    with path.open("wb", buffering=0) as file:
        begin = perf_counter()
        for _ in range(count):
            file.write(bytes(PAGE_BYTES))
            os.fdatasync(file.fileno())
        return count / (perf_counter() - begin)
