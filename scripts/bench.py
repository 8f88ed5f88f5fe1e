"""Measures the hub on this machine, in ratios within one run: one line of figures, one of ratios.

Here is only the command line; each command is a module of ``scripts/benchmarks``. It judges nothing
and is no test: machines are noisy, so quote the ratios.

    .venv/bin/python scripts/bench.py ingest [--quick] [--json FILE]
    .venv/bin/python scripts/bench.py leases [--quick] [--json FILE]
    .venv/bin/python scripts/bench.py journal [--quick] [--json FILE]
    .venv/bin/python scripts/bench.py presence [--quick] [--json FILE]
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import uvloop

from scripts.benchmarks.figures import Figures, progress
from scripts.benchmarks.ingest import bench_ingest
from scripts.benchmarks.journal import bench_journal
from scripts.benchmarks.leases import bench_leases
from scripts.benchmarks.presence import bench_presence


@dataclass(frozen=True, slots=True)
class Command:
    """A benchmark by its name on the command line."""

    name: str
    help: str
    run: Callable[[bool], Coroutine[None, None, Figures]]
    """Takes whether a first look is enough."""


COMMANDS = (
    Command(
        "ingest",
        "first sending, sending again, and single events, against raw SQLite and bare syncs of the disk",
        lambda is_quick: bench_ingest(is_quick=is_quick),
    ),
    Command(
        "leases",
        "64 callers that acquire, renew and release leases, against etcd and bare syncs of the disk",
        lambda is_quick: bench_leases(is_quick=is_quick),
    ),
    Command(
        "journal",
        "commits to 1 and to 64 streams under leases, against the same rows stored by hand",
        lambda is_quick: bench_journal(is_quick=is_quick),
    ),
    Command(
        "presence",
        "10,000 runtimes with a heartbeat every 10 s: alone, beside ingest, beside another's flood",
        lambda is_quick: bench_presence(is_quick=is_quick),
    ),
)


def main() -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        added = commands.add_parser(command.name, help=command.help, description=command.help)
        added.add_argument("--quick", action="store_true", help="fewer rounds; for a first look")
        added.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    arguments = parser.parse_args()
    run = next(command.run for command in COMMANDS if command.name == arguments.command)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(run(arguments.quick))
    except grpc.aio.AioRpcError as error:
        raise SystemExit(f"a call failed, so there is nothing to measure: {error.details()}") from error
    progress("")
    print(figures.figures_line())
    print(figures.ratios_line())
    if arguments.json is not None:
        arguments.json.write_text(figures.json_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
