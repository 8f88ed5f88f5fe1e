"""``synchub leases maintenance hold``: a resource is out of use as long as a command or a terminal lasts.

Its secret stays in memory. Whoever kills this process, or the machine under it, gives the resource back
one TTL later.
"""

import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Final

import grpc
import typer

from hub.cli.credential_file import new_nonce
from hub.cli.hub_calls import channel_to, message_to_json
from hub.cli.maintenance_beat import MaintenanceBeat
from hub.cli.operators import RUNTIME_ID, HolderOption, default_holder
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ResourceArgument,
    checked_hub_project,
    hub_addresses,
)
from hub.cli.output import EXIT_FAILED, CommandFailed, print_json, printable
from hub.cli.reconnecting import PASSING_REASONS
from hub.cli.spans import parse_span, span_text
from synchub.channel import Refusal, explain, refusal_from_error
from synchub.v1.lease_service_pb2 import BeginMaintenanceRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

EXAMPLES = """Examples:

  synchub leases maintenance hold garden-db --hub-project demo -- ./repair-tables

  synchub leases maintenance hold garden-db --hub-project demo
"""

LOOK_SECONDS: Final = 0.05
"""How often it is looked whether the command ended, a signal came, or an answer is there."""
STOP_SECONDS_MAX: Final = 10.0
"""How long the command may take to stop, when the maintenance was lost, before it is killed."""
EXIT_NOT_FOUND: Final = 127
EXIT_NOT_EXECUTABLE: Final = 126
"""Exit codes where the command cannot be run, as shells have them."""
TAKEN_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the command, or the wait where there is none; the resource is given back after it."""


def hold(
    *,
    resource: ResourceArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="What to run meanwhile, after --. Without it: until Ctrl-C."),
    ] = None,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="SPAN", help="After what silence the hub ends it, 1s to 1h.")
    ] = "30s",
    holder: HolderOption = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Take a resource out of use while a command runs, or until Ctrl-C, then give it back.

    The command's exit code is passed on. It finds SYNCHUB_RESOURCE, SYNCHUB_FENCING_TOKEN and
    SYNCHUB_EPOCH in its environment. Where the maintenance is lost, it is told to stop by SIGTERM.
    """
    span = parse_span(ttl, flag="--ttl")
    with channel_to(hub) as channel:
        request = BeginMaintenanceRequest(
            hub_project=checked_hub_project(hub_project),
            resource=resource,
            runtime_id=RUNTIME_ID,
            holder_id=holder or default_holder(),
            nonce=new_nonce(),
            ttl=span,
        )
        beat = _begin(LeaseServiceStub(channel), request, hub=hub)
        _tell_begin(beat, resource, is_json=is_json)
        code = _Hold(beat, resource, hub=hub).run(command or [])
    sys.exit(code)


def _begin(stub: LeaseServiceStub, request: BeginMaintenanceRequest, *, hub: str) -> MaintenanceBeat:
    try:
        return MaintenanceBeat(stub, request)
    except grpc.RpcError as error:
        refusal = refusal_from_error(error)
        if refusal.reason not in PASSING_REASONS:
            raise
        hint = "If it has begun all the same, it ends by itself after --ttl."
        raise CommandFailed(explain(refusal, hub_addresses(hub)), hint=hint) from error


def _tell_begin(beat: MaintenanceBeat, resource: str, *, is_json: bool) -> None:
    begun = beat.begun
    token = begun.credential.fencing_token
    if is_json:
        facts = message_to_json(begun)
        del facts["credential"]  # it has the secret
        print_json({"resource": resource, "fencing_token": token, **facts})
        return
    silence = span_text(begun.ttl.ToNanoseconds() / 1e9)
    text = f"{resource} is under maintenance, epoch {begun.epoch}, token {token}"
    _say(f"{text}; it ends {silence} after this process at the latest")


class _Hold:
    """What runs while the maintenance is held."""

    def __init__(self, beat: MaintenanceBeat, resource: str, *, hub: str) -> None:
        self._beat = beat
        self._resource = resource
        self._addresses = hub_addresses(hub)
        self._command: subprocess.Popen[bytes] | None = None
        self._is_end_wanted = False
        self._was_silence_told = False

    def run(self, command: Sequence[str]) -> int:
        """Run the command, or wait for a signal, and give the resource back; return the exit code.

        Raises: CommandFailed where the maintenance was lost.
        """
        with self._signals_taken():
            code = self._run_command(command) if command else self._wait()
            failure = self._beat.finish(f"finish-{uuid.uuid4()}")
        if self._beat.loss is not None:
            raise CommandFailed(f"the maintenance of {self._resource} was lost: {self._why(self._beat.loss)}")
        if failure is not None:
            _say(f"{self._resource} could not be given back, it ends by itself: {self._why(failure)}")
            return code or EXIT_FAILED
        _say(f"{self._resource} is free again")
        return code

    def _run_command(self, command: Sequence[str]) -> int:
        token = str(self._beat.begun.credential.fencing_token)
        known = {
            "SYNCHUB_RESOURCE": self._resource,
            "SYNCHUB_FENCING_TOKEN": token,
            "SYNCHUB_EPOCH": str(self._beat.begun.epoch),
        }
        try:
            running = self._command = subprocess.Popen(command, env={**os.environ, **known})
        except (OSError, ValueError) as error:
            is_missing = isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
            _say(f"{command[0]}: {error.strerror if isinstance(error, OSError) else error}")
            return EXIT_NOT_FOUND if is_missing else EXIT_NOT_EXECUTABLE
        if self._is_end_wanted:
            running.terminate()  # the signal came before there was a command
        while running.poll() is None and self._beat.loss is None:
            self._step()
        if running.poll() is None:
            self._stop(running)
        code = running.wait()
        return code if code >= 0 else 128 - code

    def _stop(self, running: "subprocess.Popen[bytes]") -> None:
        """End a command whose resource somebody else may hold by now."""
        _say(f"the maintenance of {self._resource} is lost, so the command is told to stop")
        running.terminate()
        try:
            running.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            running.kill()

    def _wait(self) -> int:
        while not self._is_end_wanted and self._beat.loss is None:
            self._step()
        return 0

    def _step(self) -> None:
        self._beat.step()
        is_silent = self._beat.silence is not None and self._beat.loss is None
        if self._beat.silence is not None and is_silent and not self._was_silence_told:
            _say(f"{self._why(self._beat.silence)}; trying again")
        self._was_silence_told = is_silent
        time.sleep(LOOK_SECONDS)

    def _why(self, refusal: Refusal) -> str:
        return refusal.message if refusal.reason else explain(refusal, self._addresses)

    @contextmanager
    def _signals_taken(self) -> Iterator[None]:
        """Hand signals on to the command, which decides whether it ends; without one they end the wait."""

        def take(number: int, _frame: FrameType | None) -> None:
            self._is_end_wanted = True
            if self._command is None or (number == signal.SIGINT and _is_in_foreground()):
                return  # the terminal has sent it to the command as well
            self._command.send_signal(number)

        previous = {number: signal.signal(number, take) for number in TAKEN_SIGNALS}
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


def _say(sentence: str) -> None:
    """Say something on standard error: standard output is the command's."""
    print(printable(f"synchub: {sentence}"), file=sys.stderr, flush=True)
