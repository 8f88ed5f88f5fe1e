"""The benchmarks run to their end and say what they should; how fast anything was is not judged."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 100.0


def run_bench(
    command: str, json_file: Path, *, path: str = os.environ["PATH"]
) -> tuple[list[str], dict[str, object]]:
    """Returns the lines that a quick run prints, and the figures that it writes; ``path`` is its PATH."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/bench.py", command, "--quick", "--json", json_file],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(json_file.read_text(encoding="utf-8"))
    return done.stdout.splitlines(), figures


@pytest.mark.parametrize(
    ("command", "ratio"),
    [
        ("ingest", "ratio_to_raw_sqlite"),
        ("leases", "ratio_by_calls_to_bare_calls"),
        ("journal", "ratio_many_streams_to_raw_groups"),
        ("presence", "ratio_late_to_third_of_ttl"),
    ],
)
def test_a_benchmark_gives_a_line_of_figures_a_line_of_ratios_and_json(
    command: str, ratio: str, tmp_path: Path
) -> None:
    lines, figures = run_bench(command, tmp_path / "figures.json")
    assert [line.partition(":")[0] for line in lines] == ["figures", "ratios"]
    value = figures[ratio]
    assert isinstance(value, float)
    assert value > 0


def test_an_etcd_that_is_not_installed_is_said_to_be_missing(tmp_path: Path) -> None:
    lines, figures = run_bench("leases", tmp_path / "figures.json", path="")
    assert "etcd is missing" in lines[0]
    assert "to etcd unknown" in lines[1]
    assert (figures["etcd_version"], figures["etcd"], figures["ratio_to_etcd"]) == (None, None, None)
