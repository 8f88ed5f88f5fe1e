"""A disk that fails now and then under a running hub: what was acknowledged is stored, and the hub goes on.

The faults are injected into the hub's system calls. (That a sync which failed once is not trusted later is
a matter of power loss, of which this says nothing.)
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
import pytest

from tests.robustness.programs import Program
from tests.robustness.test_full_disk import Pusher

SECONDS_MAX: Final = 60.0
SEEN_MIN: Final = 5
"""How often each of both must happen: a batch that is refused, one that is stored."""

FAULTS: Final = (
    ("fdatasync:error=EIO", 5),
    ("pwrite64:error=ENOSPC", 400),
    ("pwrite64:error=EIO", 400),
)
"""What fails, and each how-manieth call of it; a batch is written by about 150."""


@contextmanager
def failing(pid: int, fault: str, *, every: int) -> Iterator[None]:
    """Let each so-manieth system call of a process fail, for the length of a block."""
    call = fault.split(":")[0]
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", f"trace={call}"]
    with subprocess.Popen(
        [*command, "-e", f"inject={fault}:when={every}+{every}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as tracer:
        try:
            status = Path(f"/proc/{pid}/status")
            give_up_at = time.monotonic() + SECONDS_MAX
            while f"TracerPid:\t{tracer.pid}" not in status.read_text(encoding="utf-8"):
                if tracer.poll() is not None:
                    assert tracer.stderr is not None
                    pytest.skip(f"needs the right to trace a process: {tracer.stderr.read().strip()}")
                assert time.monotonic() < give_up_at, "strace does not begin"
                time.sleep(0.01)
            yield
        finally:
            tracer.terminate()
            tracer.communicate(timeout=SECONDS_MAX)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
@pytest.mark.parametrize(("fault", "every"), FAULTS)
def test_what_was_acknowledged_is_stored_although_the_disk_fails(
    tmp_path: Path, fault: str, *, every: int
) -> None:
    database, log = tmp_path / "hub.db", tmp_path / "hub.log"
    hub = Program(["hub", "serve", "--db", str(database), "--listen", "127.0.0.1:0", "--http", "none"], log)
    pusher = Pusher(hub.start().split()[2])
    try:
        pid = int((tmp_path / "hub.db.lock").read_text(encoding="utf-8"))
        assert pusher.push() == ""
        refused_count = stored_count = 0
        with failing(pid, fault, every=every):
            give_up_at = time.monotonic() + SECONDS_MAX
            while min(stored_count, refused_count) < SEEN_MIN:
                reason = pusher.push()
                assert reason in {"", "STORAGE_UNAVAILABLE"}
                refused_count, stored_count = refused_count + bool(reason), stored_count + (not reason)
                assert time.monotonic() < give_up_at, (refused_count, stored_count)
        pusher.push_until_taken()
        pusher.check_all_is_stored()
        hub.kill()
        pusher.close()
        acknowledged, pusher = pusher.acknowledged, Pusher(hub.start().split()[2])
        pusher.acknowledged = acknowledged
        pusher.check_all_is_stored()
    finally:
        pusher.close()
        hub.stop()
    with closing(apsw.Connection(str(database))) as sql:
        assert list(sql.execute("PRAGMA integrity_check")) == [("ok",)]
    assert "Traceback" not in log.read_text(encoding="utf-8")
