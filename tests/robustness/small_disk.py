"""A disk of a few megabytes that a test fills, makes larger and smaller: a file system in memory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

MEBIBYTE: Final = 1024 * 1024


class SmallDisk:
    """A mounted file system of a known size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def resize(self, mebibytes: int) -> None:
        """Give it another size, as somebody does who makes room."""
        subprocess.run(
            ["mount", "-o", f"remount,size={mebibytes}m", str(self.folder)], check=True, capture_output=True
        )

    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, left_bytes: int = 0) -> None:
        """Take what is free, as another program does, but for so much."""
        with self._ballast.open("ab") as file:
            while (free_bytes := self.free_bytes() - left_bytes) > 0:
                try:
                    file.write(bytes(min(free_bytes, MEBIBYTE)))
                    file.flush()
                except OSError:
                    return

    def free(self) -> None:
        """Give back what ``fill`` took."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted(folder: Path, *, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size in a folder, for the length of a block."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root and mount, for a disk that can be filled: run it as root")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "tmpfs", str(folder)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        pytest.skip(f"needs the right to mount a disk that can be filled: {ended.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
