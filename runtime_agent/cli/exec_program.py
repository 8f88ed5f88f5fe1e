"""``runtime-agent exec``: runs a program, and its output is the events of a run.

The program comes first: its output goes to the terminal as it comes, its exit code is passed on,
and neither a hub, an agent nor a full disk can stop it. ``output_recorder.py`` writes the events.
"""

import errno
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Final

import typer

from runtime_agent import limits
from runtime_agent.cli.options import DataOption, ProjectOption, data_folder
from runtime_agent.cli.output_recorder import OutputRecorder
from runtime_agent.core.errors import EventInvalidError, UsageError
from runtime_agent.core.values import RunKey
from runtime_agent.event_log.checks import DEFAULT_LIMITS, run_fault

EXIT_NOT_FOUND: Final = 127
"""Exit code where there is no such program, as shells have it."""
EXIT_NOT_EXECUTABLE: Final = 126
"""Exit code where the program cannot be run, as shells have it."""

_READ_BYTES: Final = 64 * 1024
_LOOK_SECONDS: Final = 0.2
_FORWARDED_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: the exit code to pass on, and what the exit event says."""

    exit_code: int
    attributes: dict[str, str]


def exec_program(
    *,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The program and its arguments.")
    ],
    project: ProjectOption,
    run: Annotated[
        str, typer.Option("--run", metavar="N", help="The run. Default: a new id from time and chance.")
    ] = "",
    data: DataOption = None,
) -> None:
    """Run a program as a run: its output becomes `stdout` and `stderr` events, its end an `exit` event.

    Each event is one line with its newline (a longer line than 64 KiB becomes several), so that the
    payloads of a stream, one after the other, are the output byte for byte. The `exit` event is final
    and says `exit_code` (and `signal`). Where TRACEPARENT is set, the events carry that trace context to
    the hub. The exit code is passed on (128 + n for a signal n),
    whatever happens to log, agent or hub.

    Example:

      runtime-agent exec --project shop --run nightly-7 -- make test
    """
    if not command:
        raise UsageError("give the program to run after --")
    key = RunKey(
        project, run or f"exec-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
    )
    fault = run_fault(key, DEFAULT_LIMITS)
    if fault is not None:
        raise UsageError(f"the run cannot have these ids: {fault}") from EventInvalidError(
            fault.field, fault.fault
        )
    if not run:
        print(f"runtime-agent: run {key.run_id}", file=sys.stderr, flush=True)
    recorder = OutputRecorder(data_folder(data), key)
    recorder.start()
    end = _run_program(command, recorder)
    report = recorder.finish(end.attributes)
    if report:
        print(f"runtime-agent: {report}", file=sys.stderr)
    sys.stderr.flush()
    # The recorder's thread may hang on a dead disk: the program's exit code is passed on all the same.
    os._exit(end.exit_code)


def _run_program(command: list[str], recorder: OutputRecorder) -> ProgramEnd:
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    except (OSError, ValueError) as error:
        not_found = isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
        sentence = f"{command[0]}: {error.strerror if isinstance(error, OSError) else error}"
        print(f"runtime-agent: {sentence}", file=sys.stderr)
        code = EXIT_NOT_FOUND if not_found else EXIT_NOT_EXECUTABLE
        return ProgramEnd(code, {"exit_code": str(code), "error": _short(sentence)})
    with _forwarding_signals(program):
        _pass_output_on(program, recorder)
        code = program.wait()
    if code >= 0:
        return ProgramEnd(code, {"exit_code": str(code)})
    return ProgramEnd(128 - code, {"exit_code": str(128 - code), "signal": str(-code)})


def _short(text: str) -> str:
    return text.encode(errors="replace")[:1024].decode(errors="replace").replace("\0", " ")


def _pass_output_on(program: "subprocess.Popen[bytes]", recorder: OutputRecorder) -> None:
    """Read both streams until they end, or a grace after the program while others hold them open."""
    assert program.stdout is not None
    assert program.stderr is not None
    ended_at: float | None = None
    streams = {"stdout": program.stdout, "stderr": program.stderr}
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ, ("stdout", 1))
        selector.register(program.stderr, selectors.EVENT_READ, ("stderr", 2))
        while selector.get_map():
            for key, _ in selector.select(_LOOK_SECONDS):
                kind, descriptor = key.data
                chunk = os.read(key.fd, _READ_BYTES)
                if chunk:
                    recorder.add(kind, chunk)
                if not chunk or not _write_all(descriptor, chunk):
                    # Where nobody reads our output any more, the program shall see that, as in a pipe.
                    selector.unregister(key.fileobj)
                    streams[kind].close()
            if program.poll() is not None:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > limits.EXEC_OUTPUT_GRACE_SECONDS:
                    return


def _write_all(descriptor: int, chunk: bytes) -> bool:
    """Write to our own output; False where nobody reads it any more."""
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return False
    return True


@contextmanager
def _forwarding_signals(program: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Hand signals on to the program while it runs; it decides whether it ends."""

    def forward(number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGQUIT) and _is_in_foreground():
            return  # the terminal has sent it to the program as well
        program.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
