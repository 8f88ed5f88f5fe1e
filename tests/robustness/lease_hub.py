"""A hub as a process whose wall clock can be set, and which is killed, paused and started again.

The machine's clock is left alone: the process reads its wall clock through a ``sitecustomize`` that adds
what a file says.
"""

import os
from pathlib import Path
from typing import Final

from tests.robustness.lease_history import Happening, Recorder
from tests.robustness.programs import Program

SITECUSTOMIZE: Final = '''
"""Moves the wall clock of this process by what a file says, read anew each time."""

import time

_true_nanos = time.time_ns


def _time_ns():
    try:
        with open({offset_file!r}, encoding="ascii") as file:
            return _true_nanos() + int(file.read() or "0")
    except FileNotFoundError:
        return _true_nanos()


time.time_ns = _time_ns
time.time = lambda: _time_ns() / 1e9
'''


class LeaseHub:
    """A hub over one store and at one address, over all its lives; everything done to it is recorded."""

    def __init__(self, folder: Path, *, recorder: Recorder) -> None:
        self._recorder = recorder
        self._offset_file = folder / "wall_clock_offset"
        self._database = folder / "hub.db"
        self._log = folder / "hub.log"
        self.address = "127.0.0.1:0"
        site = folder / "site"
        site.mkdir()
        text = SITECUSTOMIZE.format(offset_file=str(self._offset_file))
        (site / "sitecustomize.py").write_text(text, encoding="utf-8")
        path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._program = self._with_address()

    def start(self) -> None:
        """Start it; from the second life on it has the address of the first."""
        is_first = self.address.endswith(":0")
        if is_first:
            self.address = self._program.start().split()[2]
            self._program.stop()
            self._program = self._with_address()
        self._recorder.note(Happening.STARTING)
        self._program.start()
        self._recorder.note(Happening.STARTED)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._program.kill()
        self._recorder.note(Happening.ENDED)

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._program.resume()
        self._program.stop()
        self._recorder.note(Happening.ENDED)

    def pause(self) -> None:
        """Freeze it until ``resume``."""
        self._recorder.note(Happening.PAUSED)
        self._program.pause()

    def resume(self) -> None:
        self._program.resume()
        self._recorder.note(Happening.RESUMED)

    def set_wall_clock(self, offset_nanos: int) -> None:
        """Let its wall clock be so far from the machine's, from now on and in later lives."""
        written = self._offset_file.with_suffix(".new")
        written.write_text(str(offset_nanos), encoding="ascii")
        written.replace(self._offset_file)
        self._recorder.note(Happening.WALL_CLOCK_SET, offset_nanos=offset_nanos)

    def _with_address(self) -> Program:
        arguments = ["hub", "serve", "--db", str(self._database), "--listen", self.address, "--http", "none"]
        return Program(arguments, self._log, environment=self._environment)
