"""Ctrl-C while the command line is still being loaded."""

import subprocess
import sys

# What the first import of the command line meets is a Ctrl-C.
SCRIPT = """
import sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "runtime_agent.cli.append":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from runtime_agent.cli import main
"""


def test_ctrl_c_before_all_is_loaded_shows_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
