"""A hub as it is shipped, as a process on loopback, and the commands of ``synchub`` that ask it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYNCHUB: Final = Path(sys.executable).with_name("synchub")
SECONDS_MAX: Final = 30.0
HUB_PROJECT: Final = "tenant"


class HubProcess:
    """A hub that was started with ``synchub serve``."""

    def __init__(
        self,
        database: Path,
        listen: str = "127.0.0.1:0",
        *,
        more: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """``more`` arguments win over those before; ``log`` is where standard error goes, if anywhere."""
        arguments = [str(SYNCHUB), "serve", "--db", str(database), "--listen", listen, "--http", "none"]
        with open(log or os.devnull, "ab") as errors:
            self._process = subprocess.Popen(
                [*arguments, *more], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), line
        words = line.split()
        self.address = words[2]
        self.http_address = words[4] if len(words) > 4 else ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=SECONDS_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=SECONDS_MAX)


@dataclass(frozen=True)
class Told:
    """What a command printed and how it ended."""

    code: int
    out: str
    error: str

    def json_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment_for(address: str, **variables: str) -> Mapping[str, str]:
    """What a command needs to know of the hub; nothing else of this machine's environment."""
    path = os.environ["PATH"]
    hub = {"SYNCHUB_HUB": address, "SYNCHUB_HUB_PROJECT": HUB_PROJECT}
    return {"PATH": path, "COLUMNS": "200", **hub, **variables}


def synchub(address: str, *arguments: str, **variables: str) -> Told:
    """Run a command to its end."""
    ended = subprocess.run(
        [SYNCHUB, *arguments],
        check=False,
        capture_output=True,
        timeout=SECONDS_MAX,
        env=environment_for(address, **variables),
    )
    return Told(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
