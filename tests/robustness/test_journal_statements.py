"""A journal that is killed at each step that a call makes: it is as before the call, or as after it."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

STRIDE: Final = 12
"""Of so many steps one is tried; with --long each."""
SECONDS_MAX: Final = 1200.0


@pytest.mark.timeout(1300)
def test_a_call_that_dies_at_any_statement_has_happened_whole_or_not_at_all(
    tmp_path: Path, rng: random.Random, *, long_run: bool
) -> None:
    # A process of its own, which forks: pytest's has gRPC in it, and that does not bear it.
    command = [sys.executable, "-m", "tests.robustness.dying_journal", str(tmp_path)]
    command += [str(rng.random()), "1" if long_run else str(STRIDE)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert told.returncode == 0, told.stderr
    left: dict[str, dict[str, int]] = json.loads(told.stdout)
    assert len(left) == 8
    # Some died too early for their call to have happened, some after its COMMIT.
    assert all(counts["before"] and counts["after"] for counts in left.values()), left
