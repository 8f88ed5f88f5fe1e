"""What the log shows of a fault: where it was, never what was in hand there."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest

PROGRAM: Final = """
import structlog
from hub.cli.logs import configure_logs
configure_logs()
def fail(nonce):
    raise ValueError("it went wrong")
try:
    fail("-".join(("secret", "nonce")))
except ValueError as error:
    structlog.get_logger().error("call_failed", exc_info=error)
"""


def log_on_a_terminal() -> str:
    master, terminal = os.openpty()
    try:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=terminal, check=True, timeout=60)
        return os.read(master, 65_536).decode()
    finally:
        os.close(terminal)
        os.close(master)


def log_in_a_file() -> str:
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, stderr=subprocess.PIPE, check=True, timeout=60, text=True).stderr


@pytest.mark.parametrize("log", [log_on_a_terminal, log_in_a_file])
def test_a_fault_is_logged_without_the_values_of_its_variables(log: Callable[[], str]) -> None:
    text = log()
    assert "call_failed" in text
    assert "it went wrong" in text
    assert "secret-nonce" not in text
